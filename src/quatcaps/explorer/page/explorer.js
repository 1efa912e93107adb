// The page of `quatcaps explore`: a toy, and what each network says of it.
//
// Answers come from the server, or from window.EXPLORER_DATA where that was defined before (source.js). To make one file
// of all, scripts can be joined in the order of SCRIPTS in server.py without their lines that begin with `import` and
// without the word `export`: names differ, and what runs at once stands at the end of this file.

import { showBars, showCurves } from "./charts.js";
import { degrees, element, fixed, say, set, shortNames } from "./elements.js";
import { PoseView } from "./pose.js";
import { Requests } from "./requests.js";
import { JUMP, nose, orientation, rotated, trailOf } from "./rotors.js";
import { chosenSource } from "./source.js";
import { Stage } from "./stage.js";
import { VotesView } from "./votes.js";

const STEPS = 36;
/** Views of a whole turn, for the curves. */
const SPEED = 36;
/** Degrees a second of the turntable, where the server keeps up; never more than LEAP from one picture to the next. */
const LEAP = 12;
const POSELESS = "The classes of this network have no poses: it says what the toy is, not how it is turned.";
const TELL = 1000;
/** Milliseconds between two things that are said aloud. */

const byId = (id) => document.getElementById(id);
const wrapped = (angle) => ((angle % 360) + 360) % 360;
const calm = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;
const any = (items) => items[Math.floor(Math.random() * items.length)];
const between = (lowest, highest) => lowest + Math.random() * (highest - lowest);

/** What one network shows on each of the panels. */
class NetworkView {
  constructor(about, name, number, explorer) {
    this.about = about;
    this.name = name;
    const part = (panel) => {
      const made = byId(`${panel}-template`).content.firstElementChild.cloneNode(true);
      for (const each of made.querySelectorAll("[data-part=network]")) set(each, { title: about.name }).append(name);
      return made;
    };
    this.classes = part("classes");
    this.pose = part("pose");
    this.turn = part("turn");
    this.votes = about.capsules ? part("votes") : null;
    this.poseView = new PoseView(this.pose.querySelector("svg"));
    if (this.votes !== null) {
      this.votes.querySelector("[data-part=iterations]").dataset.number = number;
      this.votesView = new VotesView(this.votes, about, () => explorer.mark());
    } else this.votesView = null;
    this.answer = null;
    this.turned = null;
    this.charts = [];
    for (const svg of this.turn.querySelectorAll("svg")) {
      svg.addEventListener("click", (event) => this.follow(event, explorer));
      new ResizeObserver(() => this.drawTurn()).observe(svg);
    }
    const size = `${about.model}, ${about.parameters.toLocaleString("en")} parameters`;
    say(set(this.part("classes", "about"), { title: `trained on ${about.dataset}` }), size);
  }

  part(panel, name) {
    return this[panel].querySelector(`[data-part=${name}]`);
  }

  /** `turned`: the azimuth, counted on over whole turns. */
  show(answer, view, turned, picture) {
    this.answer = answer;
    const truth = view !== null && this.about.knowsToys ? view.category : null;
    const { classes } = this.about;
    say(this.part("classes", "winner"), classes[answer.winner]);
    say(this.part("classes", "activation"), fixed(answer.activations[answer.winner]));
    const verdict = this.part("classes", "verdict");
    verdict.classList.toggle("wrong", truth !== null && truth !== answer.winner);
    say(verdict, truth === null ? "" : truth === answer.winner ? "✓ right" : `✗ it is: ${classes[truth]}`);
    showBars(this.part("classes", "bars"), classes, answer.activations, answer.winner, truth);
    this.showPose(answer.pose, view, turned);
    this.votesView?.show(answer, truth, picture);
  }

  showPose(pose, view, turned) {
    const known = pose !== null && Math.hypot(...pose.numbers) > 0.5;
    this.part("pose", "figure").hidden = !known;
    this.part("pose", "none").hidden = known;
    say(this.part("pose", "none"), pose === null ? POSELESS : "The pose of this class is 0 here: it points nowhere.");
    if (!known) return;
    this.poseView.show(pose, view, turned, this.about.oriented);
    const off = this.part("pose", "off");
    say(off, pose.degrees === undefined ? "" : `${degrees(pose.degrees)} off`);
    say(this.part("pose", "note"), noteOn(pose, view, this.about));
    const letters = pose.numbers.length === 4 ? ["", "i", "j", "k"] : ["i", "j", "k"];
    const terms = pose.numbers.map((value, k) => `${value < 0 ? "−" : k > 0 ? "+" : ""}${fixed(Math.abs(value))}${letters[k]}`);
    say(this.part("pose", "numbers"), `${pose.kind === "direction" ? "û" : "q̂"} = ${terms.join(" ")}`);
    say(this.part("pose", "length"), `length ${fixed(pose.length)}`);
  }

  forgetTrail() {
    this.poseView.forget();
  }

  showTurn(turned) {
    this.turned = turned;
    this.part("turn", "curves").hidden = turned === null;
    this.part("turn", "empty").hidden = turned !== null;
    this.drawTurn();
    if (turned === null) return;
    const { found } = turned;
    this.poseView.turn(found.poses === null ? null : found.poses.map(nose));
    say(this.part("turn", "axis"), "activation by azimuth");
    say(this.part("turn", "trail"), toldTrail(turned, this.about));
  }

  drawTurn() {
    if (this.turned === null || this.turn.offsetParent === null) return;
    const { found, azimuths, truth } = this.turned;
    const series = this.about.classes.map((name, k) => ({
      name,
      values: found.activations.map((each) => each[k]),
      role: k === found.winner ? "winner" : this.about.knowsToys && k === truth ? "truth" : "other",
    }));
    const [activations, errors] = this.turn.querySelectorAll("svg");
    const scale = { highest: 1, ticks: [0, 0.5, 1], unit: "" };
    const largest = this.about.classes[found.winner];
    this.charts = [showCurves(activations, azimuths, series, scale, `Activations of the classes by azimuth; largest on average: ${largest}`)];
    this.part("turn", "errors").hidden = found.degrees === null;
    if (found.degrees !== null) {
      const middle = median(found.degrees);
      const scale = { highest: 180, ticks: [0, 90, 180], unit: "°" };
      const series = [{ name: `med. ${degrees(middle)}`, values: found.degrees, role: "winner" }];
      this.charts.push(showCurves(errors, azimuths, series, scale, `Error of the pose in degrees by azimuth; median ${degrees(middle)}`));
    }
    this.charts.forEach((chart) => chart.move(this.azimuth ?? 0));
  }

  moveMark(azimuth) {
    this.azimuth = azimuth;
    this.charts.forEach((chart) => chart.move(azimuth));
  }

  follow(event, explorer) {
    if (this.charts.length === 0) return;
    const box = event.currentTarget.getBoundingClientRect();
    explorer.goTo(this.charts[0].azimuthAt(event.clientX - box.left));
  }

  /** In a few words, for those who listen. */
  told() {
    const { activations, winner, pose } = this.answer;
    const off = pose?.degrees === undefined ? "" : `; ${degrees(pose.degrees)} off`;
    return `${this.about.classes[winner]}, ${fixed(activations[winner])}${off}`;
  }
}

function noteOn(pose, view, about) {
  if (pose.kind === "direction") return "A direction, without a roll about itself: it cannot hold an orientation, so there is no error to give.";
  if (!about.oriented) return "Nobody trained this pose to be the toy's orientation: it has axes of its own, so there is no error to give.";
  if (view === null) return "The orientation of your image is not known.";
  return "between the pose and the toy’s true orientation";
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length / 2;
  return sorted.length % 2 ? sorted[Math.floor(half)] : (sorted[half - 1] + sorted[half]) / 2;
}

/** Whether the nose goes round with the toy: about the toy's own upright axis, as the camera sees it. Poses that nobody
 * trained have axes of their own; of them it says how far they move. */
function toldTrail({ found, azimuths, elevation }, about) {
  if (found.poses === null) return "No pose all the way round, so no trail.";
  const oriented = about.oriented && found.poses[0].length === 4;
  const what = found.poses[0].length === 4 ? "nose" : "arrow";
  const { jump, at, spread, rounds } = trailOf(found.poses.map(nose), rotated(orientation(0, elevation), [0, 0, 1]));
  const where = `its largest step is ${degrees(jump)}, after azimuth ${degrees(azimuths[at])}`;
  if (jump > JUMP) return `The trail of the ${what} does not close smoothly: ${where}.`;
  if (!oriented) return `In a whole turn the ${what} stays within ${degrees(spread)} of its mean; ${where}.`;
  if (rounds === 1) return `The trail of the nose closes: once round with the toy; ${where}.`;
  if (rounds === 0) return `The nose does not go round with the toy: it stays within ${degrees(spread)} of its mean; ${where}.`;
  return `The nose goes round ${Math.abs(rounds)} times${rounds < 0 ? ", against the toy" : ""}; ${where}.`;
}

class Explorer {
  constructor(source) {
    this.source = source;
    this.requests = new Requests((error) => this.trouble(error));
    this.view = { category: 0, kind: 0, elevation: 40, lighting: 0 };
    this.turned = 30;
    this.ownImage = false;
    this.playing = null;
    this.curvesOf = null;
    this.gone = false;
    this.networks = [];
    this.stage = new Stage(byId("toy"), (azimuth, elevation) => this.turnBy(azimuth, elevation), (mark) => this.choose(mark));
  }

  start() {
    this.requests.before(() => this.source.about(), (about) => this.prepare(about), () => {});
  }

  prepare(about) {
    this.about = about;
    const names = shortNames(about.networks.map((each) => each.name));
    this.networks = about.networks.map((each, k) => new NetworkView(each, names[k], k, this));
    document.body.classList.toggle("single", this.networks.length === 1);
    for (const panel of ["classes", "pose", "turn", "votes"]) {
      byId(panel).replaceChildren(...this.networks.map((each) => each[panel]).filter((part) => part !== null));
    }
    byId("votes-panel").hidden = this.networks.every((each) => each.votes === null);
    const windows = about.networks.map((each) => each.window);
    this.stage.prepare(about.toys.size, windows.filter((each, k) => windows.findIndex((other) => JSON.stringify(other) === JSON.stringify(each)) === k));
    this.offer();
    this.listen();
    document.body.classList.add("ready");
    this.update();
  }

  // Controls

  /** What there is to choose. */
  offer() {
    const { toys } = this.about;
    const { lowest, highest, trained } = toys.elevation;
    const only = toys.only ?? null;
    const some = (name, count) =>
      Array.from({ length: count }, (_, k) => k).filter((k) => only === null || only.some((each) => each[name] === k));
    const options = (select, numbers, text) => select.replaceChildren(...numbers.map((k) => element("option", { value: k }, text(k))));
    this.choices = { category: some("category", toys.categories.length), kind: some("kind", toys.kinds), lighting: some("lighting", toys.lightings) };
    options(byId("category"), this.choices.category, (k) => toys.categories[k]);
    options(byId("kind"), this.choices.kind, (k) => `${k + 1} of ${toys.kinds}`);
    options(byId("lighting"), this.choices.lighting, (k) => `${k + 1} of ${toys.lightings}`);
    for (const name of ["category", "kind", "lighting"]) this.view[name] = this.choices[name].includes(this.view[name]) ? this.view[name] : this.choices[name][0];
    this.view.elevation = Math.min(highest, Math.max(lowest, this.view.elevation));
    set(byId("elevation"), { min: lowest, max: highest });
    const share = (value) => `${(100 * (value - lowest)) / (highest - lowest || 1)}%`;
    byId("trained").style.setProperty("--from", share(trained[0]));
    byId("trained").style.setProperty("--to", share(trained[1]));
    say(byId("trained"), `trained on ${trained[0]}° to ${trained[1]}°`);
    for (const each of document.querySelectorAll("[data-computes]")) each.hidden = !this.source.computes;
    this.offerMarks();
  }

  offerMarks() {
    const select = byId("marked");
    const groups = this.networks
      .map((network, k) => ({ network, k }))
      .filter(({ network }) => network.votes !== null)
      .map(({ network, k }) => set(element("optgroup"), { label: network.name, "data-network": k }));
    select.replaceChildren(element("option", { value: "" }, "nothing"), ...groups);
    byId("marked-field").hidden = groups.length === 0;
    this.marksKnown = false;
  }

  /** Layers are known from the first answer on. To begin with, primary capsules, whose places are the finest. */
  nameLayers(answer) {
    if (this.marksKnown) return;
    this.marksKnown = true;
    for (const group of byId("marked").querySelectorAll("optgroup")) {
      const { layers } = answer.networks[Number(group.dataset.network)];
      group.replaceChildren(...layers.slice(0, -1).map((layer, level) => element("option", { value: `${group.dataset.network}:${level}` }, layer.name)));
    }
    byId("marked").value = byId("marked").querySelector("optgroup option")?.value ?? "";
  }

  listen() {
    if (this.listening) return;
    this.listening = true;
    for (const name of ["category", "kind", "lighting"]) {
      byId(name).addEventListener("change", (event) => this.change({ [name]: Number(event.target.value) }));
    }
    byId("azimuth").addEventListener("input", (event) => this.goTo(Number(event.target.value)));
    byId("elevation").addEventListener("input", (event) => this.change({ elevation: Number(event.target.value) }));
    byId("surprise").addEventListener("click", () => this.surprise());
    byId("play").addEventListener("click", () => (this.playing === null ? this.play() : this.stop()));
    byId("marked").addEventListener("change", () => this.mark());
    byId("file").addEventListener("change", (event) => {
      if (event.target.files.length > 0) this.open(event.target.files[0]);
      event.target.value = "";
    });
    byId("back").addEventListener("click", () => this.back());
    this.listenToDrops();
  }

  listenToDrops() {
    const carries = (event) => this.source.computes && [...(event.dataTransfer?.types ?? [])].includes("Files");
    const over = (on) => document.body.classList.toggle("dropping", on);
    window.addEventListener("dragover", (event) => {
      if (!carries(event)) return;
      event.preventDefault();
      over(true);
    });
    window.addEventListener("dragleave", (event) => {
      if (event.relatedTarget === null) over(false);
    });
    window.addEventListener("drop", (event) => {
      over(false);
      if (!carries(event)) return;
      event.preventDefault();
      if (event.dataTransfer.files.length > 0) this.open(event.dataTransfer.files[0]);
    });
  }

  turnBy(azimuth, elevation) {
    const { lowest, highest } = this.about.toys.elevation;
    this.stop();
    this.turned += azimuth;
    this.view.elevation = Math.min(highest, Math.max(lowest, this.view.elevation + elevation));
    this.update();
  }

  /** The nearest way to an azimuth. */
  goTo(azimuth) {
    this.stop();
    const way = wrapped(azimuth - this.turned);
    this.turned += way > 180 ? way - 360 : way;
    this.leaveImage();
    this.update();
  }

  change(view) {
    this.stop();
    this.leaveImage();
    const another = Object.keys(view).some((name) => name !== "elevation");
    Object.assign(this.view, view);
    if (another) for (const each of this.networks) each.forgetTrail();
    this.update();
  }

  surprise() {
    const { trained, lowest, highest } = this.about.toys.elevation;
    this.turned = between(0, 360);
    const elevation = Math.round(between(Math.max(lowest, trained[0]), Math.min(highest, trained[1])));
    const only = this.about.toys.only;
    const toy = only ? any(only) : Object.fromEntries(Object.entries(this.choices).map(([name, numbers]) => [name, any(numbers)]));
    this.change({ ...toy, elevation });
  }

  // Looking

  viewNow() {
    return { ...this.view, elevation: Number(this.view.elevation.toFixed(2)), azimuth: Number(wrapped(this.turned).toFixed(2)) };
  }

  update() {
    this.showControls();
    if (this.ownImage) return;
    const { turned } = this;
    const view = this.viewNow();
    this.requests.look(
      async () => this.decoded(await this.source.look(view)),
      (found) => {
        if (this.ownImage) return;
        this.show(found, turned);
        this.playing?.next?.();
      },
    );
  }

  /** With the picture ready to be drawn. */
  async decoded(answer) {
    const picture = new Image();
    picture.src = answer.image.left;
    await picture.decode();
    return { answer, picture };
  }

  show({ answer, picture }, turned) {
    this.answer = answer;
    this.nameLayers(answer);
    const { view } = answer;
    const what = view === null ? "An image of your own" : `${this.about.toys.categories[view.category]}, azimuth ${degrees(view.azimuth)}, elevation ${degrees(view.elevation)}`;
    this.stage.show(answer.image.left, what);
    this.networks.forEach((network, k) => {
      network.show(answer.networks[k], view, turned, picture);
      if (view !== null) network.moveMark(view.azimuth);
    });
    const poses = answer.networks.map((each) => each.pose);
    document.body.classList.toggle("orientations", poses.some((pose) => pose?.kind === "orientation"));
    document.body.classList.toggle("truths", poses.some((pose) => pose?.degrees !== undefined));
    this.mark();
    this.tell();
  }

  /** What lies over the toy. */
  mark() {
    if (this.answer === undefined) return;
    const [number, level] = byId("marked").value.split(":").map(Number);
    const circles = byId("marked").value === "" ? [] : this.networks[number].votesView.marks(level);
    const views = this.networks.filter((each) => each.votesView !== null);
    const first = (name) => views.map((each) => withWindow(each.votesView[name](), each.about.window)).find((found) => found !== null) ?? null;
    this.stage.mark(circles, first("overlay"), first("selected"));
  }

  choose({ key, told }) {
    this.networks[Number(byId("marked").value.split(":")[0])].votesView.reach(key);
    say(byId("status"), `${told}.`);
  }

  showControls() {
    const view = this.viewNow();
    const { lowest, highest, trained } = this.about.toys.elevation;
    const azimuth = Math.round(view.azimuth) % 360;
    for (const name of ["category", "kind", "lighting"]) byId(name).value = view[name];
    byId("azimuth").value = azimuth;
    byId("elevation").value = view.elevation;
    set(byId("azimuth"), { "aria-valuetext": degrees(azimuth) });
    const outside = view.elevation < trained[0] || view.elevation > trained[1];
    set(byId("elevation"), { "aria-valuetext": `${degrees(view.elevation)}${outside ? ", outside of what it was trained on" : ""}` });
    say(byId("azimuth-value"), degrees(azimuth));
    say(byId("elevation-value"), degrees(view.elevation));
    byId("outside").hidden = !outside || this.ownImage;
    byId("back").hidden = !this.ownImage;
    byId("turning").disabled = this.ownImage;
    byId("play").disabled = this.ownImage;
    this.stage.still = this.ownImage;
    byId("toy").classList.toggle("still", this.ownImage);
    const toy = this.about.toys.categories[view.category];
    const label = this.ownImage ? "An image of your own" : `Toy: ${toy}, azimuth ${degrees(azimuth)}, elevation ${degrees(view.elevation)} of ${lowest}° to ${highest}°. Arrow keys turn it, with Shift further.`;
    set(byId("toy"), { "aria-label": label });
    this.showAge();
  }

  /** Whether the curves are of what is shown. */
  showAge() {
    const stale = this.curvesOf !== null && (this.ownImage || this.curvesOf !== this.key());
    byId("turn-panel").classList.toggle("stale", stale);
    byId("stale").hidden = !stale;
    if (stale) for (const each of this.networks) each.poseView.turn(null);
  }

  key() {
    const { category, kind, lighting, elevation } = this.viewNow();
    return [category, kind, lighting, elevation].join("/");
  }

  // A whole turn

  play() {
    const [key, view] = [this.key(), this.viewNow()];
    this.playing = { next: null };
    say(byId("play"), "■ Stop");
    say(byId("status"), `Looking at it from ${STEPS} sides …`);
    const drop = this.requests.before(
      () => this.source.turn(view, STEPS),
      (turn) => {
        this.curvesOf = key;
        this.networks.forEach((network, k) => {
          const { azimuths } = turn;
          network.showTurn({ found: turn.networks[k], azimuths, elevation: view.elevation, truth: view.category });
        });
        say(byId("curves-of"), `${this.about.toys.categories[view.category]} ${view.kind + 1}, elevation ${degrees(view.elevation)}, lighting ${view.lighting + 1}`);
        this.showAge();
        if (calm()) this.stop();
        else this.animate();
      },
      () => this.stop(),
    );
    this.playing.drop = drop;
  }

  animate() {
    say(byId("status"), "");
    const playing = { ...this.playing, last: performance.now(), end: this.turned + 360 };
    playing.next = () => {
      const now = performance.now();
      const step = Math.min(LEAP, (SPEED * (now - playing.last)) / 1000);
      playing.last = now;
      if (this.turned >= playing.end) this.stop();
      else {
        this.turned = Math.min(playing.end, this.turned + step);
        this.update();
      }
    };
    this.playing = playing;
    this.update();
  }

  stop() {
    if (this.playing === null) return;
    this.playing.drop();
    this.playing = null;
    say(byId("play"), "▶ Turntable");
    say(byId("status"), "");
  }

  // An image of one's own

  open(file) {
    this.stop();
    this.requests.before(
      async () => this.decoded(await this.source.image(file)),
      (found) => {
        this.ownImage = true;
        for (const each of this.networks) each.forgetTrail();
        this.show(found, this.turned);
        this.showControls();
      },
      () => {},
    );
  }

  leaveImage() {
    this.ownImage = false;
  }

  back() {
    this.leaveImage();
    this.update();
    byId("toy").focus();
  }

  // What is said

  trouble(error) {
    byId("trouble").hidden = error === null;
    say(byId("trouble"), error?.message ?? "");
    if (error === null && this.gone) this.seeWhoIsBack();
    this.gone = Boolean(error?.again);
  }

  /** Another server may have come with other networks. */
  seeWhoIsBack() {
    if (this.about === undefined) return;
    this.requests.before(
      () => this.source.about(),
      (about) => {
        if (JSON.stringify(about) !== JSON.stringify(this.about)) window.location.reload();
      },
      () => {},
    );
  }

  tell() {
    const parts = this.networks.map((each) => (this.networks.length > 1 ? `${each.name}: ${each.told()}` : each.told()));
    byId("verdicts").replaceChildren(...parts.map((each) => element("li", {}, each)));
    this.words = parts.join(". ");
    if (this.telling !== undefined) return;
    this.telling = setTimeout(() => {
      this.telling = undefined;
      say(byId("live"), this.words);
    }, TELL);
  }
}

const withWindow = (found, window) => (found === null ? null : { ...found, window });

new Explorer(chosenSource()).start();
