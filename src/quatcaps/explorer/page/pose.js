// A pose, as something that can be seen to be turned: a body with a nose, a left wing and a top fin, or an arrow.

import { drawing, fixed, set } from "./elements.js";
import { arc, apart, cross, dot, JUMP, nose, orientation, rotated, towards, unit } from "./rotors.js";

const CAMERA = 4.6;
/** How far away it stands, in lengths of a nose. It looks along the viewer's x, straight on, as it looks at the toy. */
const LIGHT = unit([0.8, -0.35, 0.7]);

const [TIP, TAIL] = [
  [1, 0, 0],
  [-0.75, 0, 0],
];
const RING = [
  [0.3, 0.19, 0],
  [0.3, 0, 0.16],
  [0.3, -0.19, 0],
  [0.3, 0, -0.16],
];
const BODY = [
  ...RING.map((corner, k) => ({ paint: "nose", corners: [TIP, corner, RING[(k + 1) % 4]] })),
  ...RING.map((corner, k) => ({ paint: "body", corners: [TAIL, RING[(k + 1) % 4], corner] })),
  {
    paint: "left",
    corners: [
      [0.28, 0.14, 0],
      [-0.42, 0.08, 0],
      [-0.36, 0.95, 0],
      [-0.12, 0.95, 0],
    ],
  },
  {
    paint: "body",
    corners: [
      [0.28, -0.14, 0],
      [-0.42, -0.08, 0],
      [-0.36, -0.95, 0],
      [-0.12, -0.95, 0],
    ],
  },
  {
    paint: "top",
    corners: [
      [0.05, 0, 0.1],
      [-0.7, 0, 0.02],
      [-0.78, 0, 0.66],
      [-0.55, 0, 0.66],
    ],
  },
];
const NAMES = [
  ["nose", [1.16, 0, 0]],
  ["left", [-0.24, 1.13, 0]],
  ["top", [-0.66, 0, 0.82]],
];

const HEAD = [
  [0.62, 0.17, 0],
  [0.62, 0, 0.17],
  [0.62, -0.17, 0],
  [0.62, 0, -0.17],
];
const SHAFT = HEAD.map(([, y, z]) => [0.62, y / 3, z / 3]);
const ARROW = [
  ...HEAD.map((corner, k) => ({ paint: "nose", corners: [TIP, corner, HEAD[(k + 1) % 4]] })),
  { paint: "nose", corners: HEAD },
  ...SHAFT.map((corner, k) => ({ paint: "body", corners: [[0, 0, 0], SHAFT[(k + 1) % 4], corner] })),
];

const LONGEST = 400;

export class PoseView {
  constructor(svg) {
    this.svg = svg;
    this.parts = Object.fromEntries(
      ["sphere", "circle", "ghost", "behind", "trail", "figure", "names"].map((name) => [
        name,
        drawing("g", { class: name }),
      ]),
    );
    set(svg, { viewBox: "-1.3 -1.18 2.6 2.36", role: "img" });
    this.parts.sphere.append(drawing("circle", { r: 1.02 }));
    svg.replaceChildren(...Object.values(this.parts));
    this.forget();
  }

  /** Begins a new trail. */
  forget() {
    this.trail = [];
    this.loop = null;
  }

  /** The trail of a whole turn, as directions of the nose. */
  turn(points) {
    this.loop = points;
  }

  /** `pose`: of an answer. `view`: with the viewpoint, or null; `turned`: its azimuth, counted on over whole turns.
   * `held`: whether the pose may be held against the toy's true orientation. */
  show(pose, view, turned, held) {
    const turn = pose.kind === "direction" ? towards(pose.numbers) : pose.numbers;
    const ghost = held && view !== null ? view.orientation : null;
    if (view !== null) this.walk(turned, nose(pose.numbers));
    this.parts.ghost.replaceChildren(...(ghost === null ? [] : faces(BODY, ghost, false)));
    this.parts.circle.replaceChildren(...(ghost === null ? [] : [circle(view.elevation)]));
    const [front, back] = strokes(
      this.loop === null ? this.trail.map((each) => each.point) : this.loop,
      this.loop !== null,
    );
    this.parts.behind.replaceChildren(...back);
    this.parts.trail.replaceChildren(...front);
    this.parts.figure.replaceChildren(...faces(pose.kind === "direction" ? ARROW : BODY, turn, true));
    this.parts.names.replaceChildren(...names(pose, turn, ghost));
    set(this.svg, { "aria-label": described(pose, ghost) });
  }

  walk(turned, point) {
    this.trail = this.trail.filter((each) => Math.abs(each.turned - turned) <= 360).slice(-LONGEST);
    this.trail.push({ turned, point });
  }
}

const project = ([x, y, z]) => {
  const scale = CAMERA / (CAMERA - x);
  return [y * scale, -z * scale];
};

const text = (points) =>
  points
    .map((point) =>
      project(point)
        .map((value) => value.toFixed(3))
        .join(","),
    )
    .join(" ");

/** Polygons, the farthest first. */
function faces(shape, turn, solid) {
  return shape
    .map(({ paint, corners }) => {
      const points = corners.map((corner) => rotated(turn, corner));
      return { paint, points, depth: points.reduce((sum, point) => sum + point[0], 0) / points.length };
    })
    .sort((a, b) => a.depth - b.depth)
    .map(({ paint, points }) => {
      const face = drawing("polygon", { class: `face ${paint}`, points: text(points) });
      if (solid) face.style.setProperty("--light", `${(58 + 42 * brightness(points)).toFixed(0)}%`);
      return face;
    });
}

function brightness([a, b, c]) {
  const edge = (from, to) => to.map((value, k) => value - from[k]);
  return Math.abs(dot(unit(cross(edge(a, b), edge(a, c))), LIGHT));
}

/** Where the true nose goes while the toy turns once: a great circle, as steep as the camera is high. */
function circle(elevation) {
  const points = Array.from({ length: 73 }, (_, k) => nose(orientation(5 * k, elevation)));
  return drawing("polyline", { points: text(points) });
}

/** A trail along the sphere, what is nearer than its middle apart from what is behind; jumps are dashed. */
function strokes(points, closed) {
  const sides = [[], []];
  const pairs = points.map((point, k) => [point, points[k + 1] ?? (closed ? points[0] : null)]);
  for (const [from, to] of pairs) {
    if (to === null) continue;
    const jump = apart(from, to) > JUMP ? " jump" : "";
    const path = [from, ...arc(from, to)];
    const near = path.reduce((sum, point) => sum + point[0], 0) >= 0;
    sides[near ? 0 : 1].push(drawing("polyline", { class: `step${jump}`, points: text(path) }));
  }
  if (closed) {
    for (const point of points) {
      const [cx, cy] = project(point);
      sides[point[0] >= 0 ? 0 : 1].push(drawing("circle", { class: "dot", cx, cy, r: 0.022 }));
    }
  }
  return sides;
}

function names(pose, turn, ghost) {
  const shown = pose.kind === "direction" ? [["pose", [1.16, 0, 0]]] : NAMES;
  const labels = shown.map(([name, place]) => label(name, name, rotated(turn, place)));
  const truth = ghost === null ? null : label("true nose", "true", rotated(ghost, [1.12, 0, 0]));
  return truth === null || labels.some((each) => covers(each, truth)) ? labels : [...labels, truth];
}

const covers = (a, b) =>
  Math.abs(a.getAttribute("x") - b.getAttribute("x")) < 0.55 &&
  Math.abs(a.getAttribute("y") - b.getAttribute("y")) < 0.15;

function label(name, kind, place) {
  const [x, y] = project(place);
  const limit = (value, most) => Math.max(-most, Math.min(most, value)).toFixed(3);
  return drawing(
    "text",
    { class: `name ${kind}`, x: limit(x, 1.28 - 0.038 * name.length), y: limit(y + 0.05, 1.13) },
    name,
  );
}

function described(pose, ghost) {
  const numbers = pose.numbers.map((value) => fixed(value)).join(", ");
  const what =
    pose.kind === "direction"
      ? "An arrow in the direction"
      : "A body with nose, left wing and top fin, turned by the quaternion";
  const truth =
    ghost === null ? "" : `; outlined, the true orientation ${ghost.map((value) => fixed(value)).join(", ")}`;
  return `${what} ${numbers}${truth}`;
}
