// The toy: the picture, what is marked on it, and how a hand turns it.

import { drawing, set } from "./elements.js";
import { squares } from "./votes.js";

const STEP = { small: 5, large: 30 };
/** Degrees that an arrow key turns, without and with Shift. */
const ACROSS = 200;
/** Degrees of azimuth that a drag across the whole picture turns. */
const MOVED = 4;
/** Pixels; a hand that moved less meant to click. */
const RADIUS = 3.6;
/** Of the largest circle, in pixels of the picture: areas are shares. */

export class Stage {
  /** `turn(azimuth, elevation)` is told by how many degrees a hand turns the toy, `choose(mark)` which circle it
   * clicked. */
  constructor(root, turn, choose) {
    this.root = root;
    this.turn = turn;
    this.choose = choose;
    this.image = root.querySelector("img");
    this.svg = root.querySelector("svg");
    this.still = false;
    this.from = null;
    root.addEventListener("pointerdown", (event) => this.grab(event));
    root.addEventListener("pointermove", (event) => this.drag(event));
    root.addEventListener("pointerup", (event) => this.release(event));
    root.addEventListener("pointercancel", () => this.letGo());
    root.addEventListener("keydown", (event) => this.press(event));
  }

  prepare(size, windows) {
    set(this.svg, { viewBox: `0 0 ${size} ${size}` });
    const frames = windows.flatMap(({ left, top, width, height }) =>
      ["under", "over"].map((kind) => drawing("rect", { class: `window ${kind}`, x: left, y: top, width, height })),
    );
    this.layers = ["overlay", "frames", "circles", "selection"].map((name) => drawing("g", { class: name }));
    this.layers[1].append(...frames);
    this.svg.replaceChildren(...this.layers);
  }

  show(address, description) {
    this.image.src = address;
    this.image.alt = description;
  }

  /** `circles`, `overlay` and `selected` as a VotesView has them. */
  mark(circles, overlay, selected) {
    const [over, , marks, selection] = this.layers;
    over.replaceChildren(...(overlay === null ? [] : squares(overlay, overlay.window)));
    marks.replaceChildren(...circlesOf(circles));
    selection.replaceChildren(...(selected === null ? [] : pointers(selected)));
  }

  // A hand

  grab(event) {
    if (event.button !== 0) return;
    event.preventDefault();
    this.root.focus({ preventScroll: true });
    this.root.setPointerCapture(event.pointerId);
    this.from = { id: event.pointerId, x: event.clientX, y: event.clientY, far: 0 };
  }

  drag(event) {
    if (this.from === null || event.pointerId !== this.from.id) return;
    const [right, down] = [event.clientX - this.from.x, event.clientY - this.from.y];
    this.from.far += Math.abs(right) + Math.abs(down);
    this.from.x = event.clientX;
    this.from.y = event.clientY;
    if (this.still || this.from.far < MOVED) return;
    this.root.classList.add("held");
    const scale = ACROSS / this.root.clientWidth;
    this.turn(-scale * right, (scale / 2) * down);
  }

  release(event) {
    if (this.from === null || event.pointerId !== this.from.id) return;
    if (this.from.far < MOVED) {
      const hit = document.elementsFromPoint(event.clientX, event.clientY).find((each) => each.mark !== undefined);
      if (hit !== undefined) this.choose(hit.mark);
    }
    this.letGo();
  }

  letGo() {
    this.from = null;
    this.root.classList.remove("held");
  }

  press(event) {
    const step = event.shiftKey ? STEP.large : STEP.small;
    const turns = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    const turn = turns[event.key];
    if (turn === undefined || this.still || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.turn(...turn);
  }
}

/** One for each mark of a VotesView. */
function circlesOf(marks) {
  const most = Math.max(...marks.map((mark) => mark.share));
  return marks.flatMap((mark) => {
    const size = { cx: mark.place.x, cy: mark.place.y, r: (RADIUS * Math.sqrt(mark.share / most)).toFixed(2) };
    const circle = drawing("circle", size, drawing("title", {}, mark.told));
    circle.mark = mark;
    return [drawing("circle", { ...size, class: "halo" }), circle];
  });
}

/** A cross at the chosen part, and lines to where its own parts stand. */
function pointers({ place, below }) {
  const lines = below.flatMap((each) => [
    drawing("line", { x1: place.x, y1: place.y, x2: each.place.x, y2: each.place.y }),
    drawing("circle", { class: "child", cx: each.place.x, cy: each.place.y, r: 0.7 }),
  ]);
  const { x, y } = place;
  const cross = drawing("path", { d: `M${x - 2.4} ${y}h4.8M${x} ${y - 2.4}v4.8` });
  return [...lines, drawing("circle", { cx: x, cy: y, r: 2.4 }), cross];
}
