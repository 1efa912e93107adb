// Elements and numbers as text. Names come from files that anyone may have written: they are only ever set as text.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** An element with attributes and children; strings become text. */
export function element(tag, attributes = {}, ...children) {
  const made = set(document.createElement(tag), attributes);
  made.append(...children);
  return made;
}

/** The same for drawings. */
export function drawing(tag, attributes = {}, ...children) {
  const made = set(document.createElementNS(SVG, tag), attributes);
  made.append(...children);
  return made;
}

export function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false) node.removeAttribute(name);
    else node.setAttribute(name, value === true ? "" : value);
  }
  return node;
}

/** Sets text only where it changed, so that readers of the page are not disturbed. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Makes `parent` have `count` children and returns them. Those that are there stay, and with them the focus. */
export function children(parent, count, make) {
  while (parent.children.length > count) parent.lastElementChild.remove();
  while (parent.children.length < count) parent.append(make(parent.children.length));
  return [...parent.children];
}

/** A number with a true minus sign. */
export function fixed(value, digits = 2) {
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

export const degrees = (value) => `${fixed(value, 0)}°`;

export const percent = (value) => (value > 0 && value < 0.01 ? "< 1%" : `${fixed(100 * value, 0)}%`);

/** The last part of a path; the whole name where two would read the same. */
export function shortNames(names) {
  const short = names.map((name) => name.split(/[\\/]/).filter(Boolean).pop() ?? name);
  return short.map((name, k) => (short.indexOf(name) === short.lastIndexOf(name) ? name : names[k]));
}
