// Bars of activations, and curves against azimuth.

import { children, degrees, drawing, element, fixed, say, set } from "./elements.js";

/** The classes with their activations. `truth`: the class that it is, or null where that is not known. */
export function showBars(list, names, activations, winner, truth) {
  const rows = children(list, names.length, bar);
  rows.forEach((row, k) => {
    const [name, track, value] = row.children;
    const [label, tag] = name.children;
    row.classList.toggle("winner", k === winner);
    row.classList.toggle("truth", k === truth);
    say(label, names[k]);
    label.title = names[k];
    say(tag, k === truth ? "true" : "");
    track.firstElementChild.style.width = `${100 * Math.min(1, Math.max(0, activations[k]))}%`;
    say(value, fixed(activations[k]));
  });
}

function bar() {
  const name = element("span", { class: "name" }, element("span"), element("span", { class: "tag" }));
  const track = element("span", { class: "track", "aria-hidden": "true" }, element("span", { class: "fill" }));
  return element("li", {}, name, track, element("span", { class: "value" }));
}

/** Shares r of the capsules below, as columns, with a line at what all had before anything was known. */
export function showColumns(svg, values, even, label) {
  const [width, height, base] = [240, 64, 50];
  const step = width / values.length;
  const top = Math.max(even * 2, ...values, 1e-6);
  const y = (value) => base - (base - 6) * (value / top);
  const bars = values.map((value, k) =>
    drawing("rect", {
      class: "stick",
      x: (k * step + 1).toFixed(2),
      width: Math.max(1, step - 2).toFixed(2),
      y: y(value).toFixed(2),
      height: (base - y(value)).toFixed(2),
    }),
  );
  const ends = [
    drawing("text", { x: 0, y: height - 3 }, "capsule 0"),
    drawing("text", { x: width, y: height - 3, "text-anchor": "end" }, `capsule ${values.length - 1}`),
  ];
  const line = drawing("line", { class: "even", x1: 0, x2: width, y1: y(even), y2: y(even) });
  set(svg, { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  svg.replaceChildren(...bars, line, ...ends);
}

const MARGIN = { left: 30, right: 74, top: 7, bottom: 16 };

/** Curves over a whole turn. `series`: {name, values, role}, with role winner, truth or other; `scale`: {highest,
 * ticks, unit}. Returns the azimuth under an x of the drawing, and what moves the mark of the present azimuth. */
export function showCurves(svg, azimuths, series, scale, label) {
  const width = Math.max(200, svg.clientWidth || 360);
  const height = svg.clientHeight || 100;
  const x = (azimuth) => MARGIN.left + ((width - MARGIN.left - MARGIN.right) * azimuth) / 360;
  const y = (value) => height - MARGIN.bottom - ((height - MARGIN.top - MARGIN.bottom) * value) / scale.highest;
  const grid = scale.ticks.flatMap((tick) => [
    drawing("line", { class: "grid", x1: x(0), x2: x(360), y1: y(tick), y2: y(tick) }),
    drawing("text", { x: x(0) - 4, y: y(tick) + 4, "text-anchor": "end" }, `${tick}${scale.unit}`),
  ]);
  const below = [0, 90, 180, 270, 360].map((tick) =>
    drawing("text", { x: x(tick), y: height - 3, "text-anchor": "middle" }, degrees(tick)),
  );
  const lines = series.map(({ values, role }, k) => {
    const points = [...values, values[0]].map(
      (value, n) => `${x(azimuths[n] ?? 360).toFixed(1)},${y(value).toFixed(1)}`,
    );
    return drawing("polyline", { class: `curve ${role} dash-${k % 5}`, points: points.join(" ") });
  });
  const mark = drawing("line", { class: "mark", y1: MARGIN.top, y2: height - MARGIN.bottom });
  const order = { other: 0, truth: 1, winner: 2 };
  const sorted = lines.sort((a, b) => rank(a, order) - rank(b, order));
  set(svg, { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  svg.replaceChildren(...grid, ...below, ...sorted, ...endLabels(series, x(360) + 5, y, height), mark);
  return {
    move: (azimuth) => set(mark, { x1: x(azimuth), x2: x(azimuth) }),
    azimuthAt: (place) => Math.min(360, Math.max(0, (360 * (place - x(0))) / (x(360) - x(0)))),
  };
}

const rank = (line, order) => order[line.classList.item(1)];

/** Names beside the ends of their curves, moved apart where they would cover each other. */
function endLabels(series, x, y, height) {
  const placed = series
    .map(({ name, values, role }) => ({ name, role, y: y(values[0]) + 4 }))
    .sort((a, b) => a.y - b.y);
  const gap = Math.min(11, (height - 12) / placed.length);
  placed.forEach((each, k) => {
    if (k > 0) each.y = Math.max(each.y, placed[k - 1].y + gap);
  });
  for (let k = placed.length - 1, lowest = height - MARGIN.bottom + 2; k >= 0; k -= 1, lowest -= gap) {
    placed[k].y = Math.min(placed[k].y, lowest);
  }
  return placed.map(({ name, role, y: at }) =>
    drawing("text", { class: `end ${role}`, x, y: at.toFixed(1) }, name.length > 9 ? `${name.slice(0, 8)}…` : name),
  );
}
