// Who voted: the layers as maps over the image, the parts of the winner as a tree, routing by iterations.

import { children, drawing, element, fixed, percent, say, set } from "./elements.js";
import { showBars, showColumns } from "./charts.js";

const TYPES = 5;
/** Capsule types of a layer that are shown: those that give most to the winner. */
const HEAT = "255, 176, 0";

/** The middle of a capsule on the picture. */
export function placeOf(layer, row, column, window) {
  return {
    y: window.top + layer.first[0] + layer.step[0] * row,
    x: window.left + layer.first[1] + layer.step[1] * column,
  };
}

const largest = (values) => values.flat(2).reduce((most, value) => Math.max(most, value), 0);

export class VotesView {
  /** The explorer is told to `mark` when a part or a map is chosen, or none any more, and to `lookBelow` when it is the
   * parts of another capsule that are wanted: `root`, LAYER:CAPSULE, or "" for the winner. */
  constructor(panel, about, explorer) {
    this.about = about;
    this.chosen = () => explorer.mark();
    this.explorer = explorer;
    this.find = (name) => panel.querySelector(`[data-part="${name}"]`);
    this.root = "";
    this.find("root").addEventListener("change", (event) => this.lookBelow(event.target.value));
    this.part = null;
    this.map = null;
    this.open = new Set();
    this.iteration = null;
    this.answer = null;
    this.truth = null;
  }

  show(answer, truth, picture) {
    this.answer = answer;
    this.truth = truth;
    this.picture = picture;
    this.showLayers();
    this.showTree();
    this.showIterations();
  }

  // Maps

  showLayers() {
    const layers = this.answer.layers.slice(0, -1);
    const rows = children(this.find("layers"), layers.length, layerRow);
    rows.forEach((row, level) => {
      const layer = layers[level];
      const [head, maps] = row.children;
      const [name, size] = head.children;
      const most = largest(layer.activations);
      say(name, layer.name);
      say(size, `${layer.activations.length} × ${layer.grid[0]}×${layer.grid[1]}`);
      size.title = `${layer.activations.length} types of capsules on a grid of ${layer.grid[0]}×${layer.grid[1]}`;
      const types = strongest(layer.shares.capsules, TYPES);
      const wanted = [{ level, type: null }, ...types.map((type) => ({ level, type }))];
      children(maps, wanted.length, () => this.mapButton()).forEach((button, k) => {
        this.showMap(button, layer, wanted[k], most);
      });
    });
  }

  mapButton() {
    const canvas = element("canvas", { width: 96, height: 96, "aria-hidden": "true" });
    const button = element("button", { type: "button", class: "map" }, canvas, element("span"));
    button.addEventListener("click", () => {
      const { level, type } = button.wanted;
      this.map = this.map !== null && this.map.level === level && this.map.type === type ? null : { level, type };
      this.showLayers();
      this.chosen();
      if (this.explorer.source.computes && level > 0 && type !== null) {
        this.lookBelow(this.map === null ? "" : `${level}:${type}`);
      }
    });
    return button;
  }

  showMap(button, layer, wanted, most) {
    button.wanted = wanted;
    const pressed = this.map !== null && this.map.level === wanted.level && this.map.type === wanted.type;
    const values = mapValues(layer, wanted.type);
    const top = wanted.type === null ? largest(values) : most;
    const [canvas, caption] = button.children;
    paint(canvas, this.picture, this.about.window, layer, values, top);
    const peak = largest(values);
    say(caption, wanted.type === null ? "all" : `${wanted.type}: ${fixed(peak)}`);
    const share = wanted.type === null ? "" : `, share of the winner ${percent(layer.shares.capsules[wanted.type])}`;
    const label =
      wanted.type === null
        ? `${layer.name}: shares of the winner by place, at most ${percent(peak)}`
        : `${layer.name}, capsule type ${wanted.type}: activation by place, at most ${fixed(peak)}${share}`;
    set(button, { "aria-pressed": String(pressed), "aria-label": label, title: label });
  }

  /** What is to be drawn over the toy: a layer and values by place, with what counts as full. */
  overlay() {
    if (this.map === null || this.answer === null) return null;
    const layer = this.answer.layers[this.map.level];
    if (layer === undefined) return null;
    const values = mapValues(layer, this.map.type);
    return { layer, values, most: this.map.type === null ? largest(values) : largest(layer.activations) };
  }

  // The tree

  showTree() {
    this.showRoot();
    this.showParts(this.find("tree"), this.answer.tree, "");
  }

  showRoot() {
    const { root, layers, winner } = this.answer;
    const classes = layers.length - 1;
    const place = root.level === classes ? "" : ` at ${root.row}, ${root.column}`;
    say(this.find("root-name"), `${this.rootName()}${place}`);
    const select = this.find("root");
    if (select.childElementCount === 0) {
      const options = (level, name) =>
        layers[level].activations.map((_, k) => element("option", { value: `${level}:${k}` }, name(k)));
      const groups = layers.map((layer, level) => {
        const name = (k) => (level === classes ? this.about.classes[k] : `${layer.name}: ${k}`);
        return set(element("optgroup", {}, ...options(level, name)), { label: layer.name });
      });
      select.append(element("option", { value: "" }, ""), ...groups.slice(1).reverse());
    }
    say(select.firstElementChild, `the winner: ${this.about.classes[winner]}`);
    select.value = this.root;
  }

  /** The capsule whose parts are shown. */
  rootName() {
    const { root, layers } = this.answer;
    const name = layers[root.level].name;
    return root.level === layers.length - 1 ? this.about.classes[root.capsule] : `${name}: ${root.capsule}`;
  }

  lookBelow(root) {
    this.root = root;
    this.part = null;
    this.open.clear();
    this.explorer.lookBelow();
  }

  showParts(list, parts, path) {
    const most = Math.max(...parts.map((part) => part.share));
    children(list, parts.length, () => this.partItem()).forEach((item, k) => {
      const [part, key] = [parts[k], `${path}${k}`];
      const [button, below] = item.children;
      const [twisty, name, share, activation, assignment] = button.children;
      const open = this.open.has(key);
      button.key = key;
      button.classList.toggle("selected", this.part === key);
      say(twisty, part.parts.length === 0 ? "·" : open ? "▾" : "▸");
      say(name, `${this.answer.layers[part.level].name}: ${part.capsule} at ${part.row}, ${part.column}`);
      share.firstElementChild.style.width = `${(100 * part.share) / most}%`;
      say(share.lastElementChild, percent(part.share));
      say(activation, fixed(part.activation));
      say(assignment, fixed(part.assignment));
      const spoken =
        `${this.answer.layers[part.level].name}, capsule ${part.capsule} at row ${part.row}, column ${part.column}: ` +
        `share ${percent(part.share)}, activation ${fixed(part.activation)}, assignment ${fixed(part.assignment)}`;
      set(button, { "aria-label": spoken, "aria-expanded": part.parts.length > 0 ? String(open) : null });
      below.hidden = !open || part.parts.length === 0;
      this.showParts(below, part.parts, `${key}.`);
    });
  }

  partItem() {
    const share = element("span", { class: "share" }, element("span", { class: "fill" }), element("span"));
    const button = element(
      "button",
      { type: "button", class: "part" },
      element("span", { class: "twisty" }),
      element("span", { class: "name" }),
      share,
      element("span"),
      element("span"),
    );
    button.addEventListener("click", () => this.choose(button.key));
    return element("li", {}, button, element("ul"));
  }

  choose(key) {
    if (this.part === key) {
      if (!this.open.delete(key)) this.open.add(key);
      else this.part = null;
    } else {
      this.part = key;
      this.open.add(key);
    }
    this.showTree();
    this.chosen();
  }

  /** Opens the tree down to a part. */
  reach(key) {
    const steps = key.split(".");
    steps.forEach((_, k) => this.open.add(steps.slice(0, k + 1).join(".")));
    this.part = key;
    this.showTree();
    this.chosen();
  }

  /** The parts of the tree that are in a layer, by place: the share of its root that comes from them by the ways that
   * the tree has, and the strongest of them. */
  marks(level) {
    const found = new Map();
    const walk = (parts, path, share) =>
      parts.forEach((part, k) => {
        const [key, whole] = [`${path}${k}`, share * part.share];
        if (part.level > level) walk(part.parts, `${key}.`, whole);
        else add(found, `${part.row}/${part.column}`, { part, key, share: whole });
      });
    if (level < this.answer.root.level) walk(this.answer.tree, "", 1);
    const root = this.root === "" ? "the winner" : this.rootName();
    const layer = this.answer.layers[level];
    return [...found.values()].map(({ part, key, share }) => ({
      key,
      share,
      place: placeOf(layer, part.row, part.column, this.about.window),
      told: `${layer.name}, row ${part.row}, column ${part.column}: ${fixed(100 * share, 1)}% of ${root}`,
    }));
  }

  /** The part that is chosen, and where it and its own parts stand. */
  selected() {
    if (this.part === null || this.answer === null) return null;
    let [parts, part] = [this.answer.tree, null];
    for (const step of this.part.split(".")) {
      part = parts?.[Number(step)] ?? null;
      parts = part?.parts;
    }
    if (part === null) return null;
    const at = (each) => placeOf(this.answer.layers[each.level], each.row, each.column, this.about.window);
    return { place: at(part), below: part.parts.map((each) => ({ place: at(each), share: each.share })) };
  }

  // Iterations

  showIterations() {
    const { iterations, layers, winner } = this.answer;
    const chosen = Math.min(this.iteration ?? iterations.length - 1, iterations.length - 1);
    const group = `iteration-${this.find("iterations").dataset.number}`;
    children(this.find("iterations"), iterations.length, (k) => this.iterationChoice(group, k)).forEach((choice, k) => {
      choice.firstElementChild.checked = k === chosen;
    });
    const iteration = iterations[chosen];
    const best = iteration.activations.indexOf(Math.max(...iteration.activations));
    showBars(this.find("iteration-classes"), this.about.classes, iteration.activations, best, this.truth);
    const below = layers[layers.length - 2];
    const values = iteration.shares.map((places, type) => meanAssignment(places, below.activations[type]));
    const even = 1 / this.about.classes.length;
    const name = this.about.classes[winner];
    const told = values.map((value) => fixed(value)).join(", ");
    const label = `Assignments to ${name} after iteration ${chosen + 1}, by capsule type: ${told}`;
    showColumns(this.find("assignments"), values, even, label);
    const line = `line: 1/${this.about.classes.length}`;
    say(this.find("assigned"), `r to ${name}, by capsule of “${below.name}”; ${line}`);
  }

  iterationChoice(name, k) {
    const input = element("input", { type: "radio", name, value: k });
    input.addEventListener("change", () => {
      this.iteration = k === this.answer.iterations.length - 1 ? null : k;
      this.showIterations();
    });
    return element("label", {}, input, element("span", {}, String(k + 1)));
  }
}

/** Sums shares of one place, and keeps the strongest part there. */
function add(found, place, mark) {
  const there = found.get(place);
  if (there === undefined) found.set(place, mark);
  else found.set(place, { ...(mark.share > there.share ? mark : there), share: mark.share + there.share });
}

function layerRow() {
  const head = element("div", { class: "layer-name" }, element("strong"), element("span"));
  return element("li", {}, head, element("div", { class: "maps" }));
}

/** By place: of a type its activations, of all together their shares of the winner. */
const mapValues = (layer, type) => (type === null ? layer.shares.places : layer.activations[type]);

const strongest = (values, most) =>
  values
    .map((value, k) => [value, k])
    .sort(([a], [b]) => b - a)
    .slice(0, most)
    .map(([, k]) => k);

function meanAssignment(assignments, activations) {
  let [sum, weight] = [0, 1e-9];
  assignments.forEach((row, k) =>
    row.forEach((value, n) => {
      sum += value * activations[k][n];
      weight += activations[k][n];
    }),
  );
  return sum / weight;
}

/** The window of the picture, and on every place of a capsule a square as strong as its value. */
function paint(canvas, picture, window, layer, values, most) {
  const context = canvas.getContext("2d");
  const scale = canvas.width / window.width;
  context.imageSmoothingEnabled = false;
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.globalAlpha = 0.75;
  if (picture !== null) {
    const pixels = picture.naturalWidth / window.frame;
    const part = [window.left, window.top, window.width, window.height].map((value) => value * pixels);
    context.drawImage(picture, ...part, 0, 0, canvas.width, canvas.height);
  }
  context.globalAlpha = 1;
  const [down, across] = layer.step.map((step) => step * scale);
  values.forEach((row, k) =>
    row.forEach((value, n) => {
      const x = (layer.first[1] + layer.step[1] * n) * scale;
      const y = (layer.first[0] + layer.step[0] * k) * scale;
      context.fillStyle = `rgba(${HEAT}, ${(0.9 * value) / Math.max(most, 1e-9)})`;
      context.fillRect(x - across / 2 + 0.5, y - down / 2 + 0.5, across - 1, down - 1);
    }),
  );
}

/** The same over the large toy. */
export function squares({ layer, values, most }, window) {
  return values.flatMap((row, k) =>
    row.map((value, n) => {
      const { x, y } = placeOf(layer, k, n, window);
      return drawing("rect", {
        class: "square",
        x: x - layer.step[1] / 2,
        y: y - layer.step[0] / 2,
        width: layer.step[1],
        height: layer.step[0],
        "fill-opacity": ((0.7 * value) / Math.max(most, 1e-9)).toFixed(3),
      });
    }),
  );
}
