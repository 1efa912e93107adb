// The page of `quatcaps explore`: a toy, and what each network says of it.
//
// Answers come from the server, or from window.EXPLORER_DATA where that was defined before (source.js). To make one
// file of all, scripts can be joined in the order of SCRIPTS in server.py without their lines that begin with `import`
// and without the word `export`: names differ, and what runs at once stands at the end of this file.

import { byId, degrees, element, say, set, shortNames } from "./elements.js";
import { NetworkView } from "./network.js";
import { Requests } from "./requests.js";
import { chosenSource } from "./source.js";
import { Stage } from "./stage.js";

const STEPS = 36;
/** Views of a whole turn, for the curves. */
const SPEED = 36;
/** Degrees a second of the turntable, where the server keeps up; never more than LEAP from one picture to the next. */
const LEAP = 12;
const TELL = 1000;
/** Milliseconds between two things that are said aloud. */

const wrapped = (angle) => ((angle % 360) + 360) % 360;
const calm = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;
const any = (items) => items[Math.floor(Math.random() * items.length)];
const between = (lowest, highest) => lowest + Math.random() * (highest - lowest);

class Explorer {
  constructor(source) {
    this.source = source;
    this.requests = new Requests((error) => this.trouble(error));
    this.view = { category: 0, kind: 0, elevation: 40, lighting: 0 };
    this.turned = 30;
    this.ownImage = false;
    this.dropImage = () => {};
    this.playing = null;
    this.curvesOf = null;
    this.gone = false;
    this.networks = [];
    this.stage = new Stage(
      byId("toy"),
      (azimuth, elevation) => this.turnBy(azimuth, elevation),
      (mark) => this.choose(mark),
    );
  }

  start() {
    this.requests.before(
      () => this.source.about(),
      (about) => this.prepare(about),
      () => {},
    );
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
    this.stage.prepare(
      about.toys.size,
      about.networks.map((each) => each.window),
    );
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
    const options = (select, numbers, text) =>
      select.replaceChildren(...numbers.map((k) => element("option", { value: k }, text(k))));
    this.choices = {
      category: some("category", toys.categories.length),
      kind: some("kind", toys.kinds),
      lighting: some("lighting", toys.lightings),
    };
    options(byId("category"), this.choices.category, (k) => toys.categories[k]);
    options(byId("kind"), this.choices.kind, (k) => `${k + 1} of ${toys.kinds}`);
    options(byId("lighting"), this.choices.lighting, (k) => `${k + 1} of ${toys.lightings}`);
    for (const [name, numbers] of Object.entries(this.choices)) {
      if (!numbers.includes(this.view[name])) this.view[name] = numbers[0];
    }
    this.view.elevation = Math.min(highest, Math.max(lowest, this.view.elevation));
    set(byId("elevation"), { min: lowest, max: highest });
    byId("elevations").hidden = lowest === highest;
    const share = (value) =>
      `${(100 * (Math.min(highest, Math.max(lowest, value)) - lowest)) / (highest - lowest || 1)}%`;
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
      group.replaceChildren(
        ...layers
          .slice(0, -1)
          .map((layer, level) => element("option", { value: `${group.dataset.network}:${level}` }, layer.name)),
      );
    }
    byId("marked").value = byId("marked").querySelector("optgroup option")?.value ?? "";
  }

  listen() {
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
    const toy = only
      ? any(only)
      : Object.fromEntries(Object.entries(this.choices).map(([name, numbers]) => [name, any(numbers)]));
    this.change({ ...toy, elevation });
  }

  // Looking

  viewNow() {
    return {
      ...this.view,
      elevation: Number(this.view.elevation.toFixed(2)),
      azimuth: Number(wrapped(this.turned).toFixed(2)),
    };
  }

  update() {
    this.showControls();
    say(byId("status"), "");
    if (this.ownImage) return;
    const { turned } = this;
    const view = this.viewNow();
    this.requests.look(
      async () => this.decoded(await this.source.look(view, this.below())),
      (found) => {
        if (this.ownImage) return;
        this.show(found, turned);
        this.playing?.next?.();
      },
    );
  }

  /** Of which capsules the parts are wanted, where it is not the winner. */
  below() {
    const roots = this.networks.map((each, k) => (each.votesView?.root ? `${k}:${each.votesView.root}` : ""));
    return roots.filter((root) => root !== "").join(",");
  }

  /** The same once more, with the parts of another capsule. */
  lookBelow() {
    if (this.ownImage) this.open(this.file);
    else this.update();
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
    this.stage.show(answer.image.left, view === null ? "An image of your own" : this.toldView(view));
    this.networks.forEach((network, k) => {
      network.show(answer.networks[k], view, turned, picture);
      if (view !== null) network.moveMark(view.azimuth);
    });
    if (view !== null && !this.source.computes) this.showAngles(view);
    const poses = answer.networks.map((each) => each.pose);
    document.body.classList.toggle(
      "orientations",
      poses.some((pose) => pose?.kind === "orientation"),
    );
    document.body.classList.toggle(
      "truths",
      poses.some((pose) => pose?.degrees !== undefined),
    );
    this.mark();
    this.tell();
  }

  /** What lies over the toy. */
  mark() {
    if (this.answer === undefined) return;
    const [number, level] = byId("marked").value.split(":").map(Number);
    const circles = byId("marked").value === "" ? [] : this.networks[number].votesView.marks(level);
    const views = this.networks.filter((each) => each.votesView !== null);
    const first = (name) =>
      views.map((each) => withWindow(each.votesView[name](), each.about.window)).find((found) => found !== null) ??
      null;
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
    set(byId("elevation"), {
      "aria-valuetext": `${degrees(view.elevation)}${outside ? ", outside of what it was trained on" : ""}`,
    });
    if (this.source.computes) this.showAngles(view);
    byId("outside").hidden = !outside || this.ownImage;
    byId("back").hidden = !this.ownImage;
    byId("turning").disabled = this.ownImage;
    byId("play").disabled = this.ownImage;
    this.stage.still = this.ownImage;
    byId("toy").classList.toggle("still", this.ownImage);
    const how = `Arrow keys turn it, with Shift further; elevations are ${lowest}° to ${highest}°.`;
    set(byId("toy"), { "aria-label": this.ownImage ? "An image of your own" : `${this.toldView(view)}. ${how}` });
    this.showAge();
  }

  toldView({ category, azimuth, elevation }) {
    const angles = `azimuth ${degrees(azimuth)}, elevation ${degrees(elevation)}`;
    return `Toy: ${this.about.toys.categories[category]}, ${angles}`;
  }

  showAngles({ azimuth, elevation }) {
    say(byId("azimuth-value"), degrees(Math.round(azimuth) % 360));
    say(byId("elevation-value"), degrees(elevation));
  }

  /** Whether the curves are of what is shown. */
  showAge() {
    const stale = this.curvesOf !== null && (this.ownImage || this.curvesOf !== this.key());
    byId("turn-panel").classList.toggle("stale", stale);
    byId("stale").hidden = !stale;
    for (const each of this.networks) each.showLoop(this.curvesOf !== null && !stale);
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
        const { elevation } = { ...view, ...turn };
        this.curvesOf = key;
        this.networks.forEach((network, k) => {
          network.showTurn({ found: turn.networks[k], azimuths: turn.azimuths, elevation, truth: view.category });
        });
        const toy = `${this.about.toys.categories[view.category]} ${view.kind + 1}`;
        say(byId("curves-of"), `${toy}, elevation ${degrees(elevation)}, lighting ${view.lighting + 1}`);
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

  /** The turntable, and an image that is on its way. */
  stop() {
    this.dropImage();
    if (this.playing === null) return;
    this.playing.drop();
    this.playing = null;
    say(byId("play"), "▶ Turntable");
    say(byId("status"), "");
  }

  // An image of one's own

  open(file) {
    this.stop();
    this.dropImage = this.requests.before(
      async () => this.decoded(await this.source.image(file, this.below())),
      (found) => {
        this.ownImage = true;
        this.file = file;
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
    const parts = this.networks.map((each) =>
      this.networks.length > 1 ? `${each.name}: ${each.told()}` : each.told(),
    );
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
