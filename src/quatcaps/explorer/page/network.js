// What one network shows on each of the panels.

import { showBars, showCurves } from "./charts.js";
import { byId, degrees, fixed, say, set } from "./elements.js";
import { PoseView } from "./pose.js";
import { JUMP, nose, orientation, rotated, trailOf } from "./rotors.js";
import { VotesView } from "./votes.js";

const POSELESS = "The classes of this network have no poses: it says what the toy is, not how it is turned.";
const SCALES = {
  activation: { highest: 1, ticks: [0, 0.5, 1], unit: "" },
  degrees: { highest: 180, ticks: [0, 90, 180], unit: "°" },
};

export class NetworkView {
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
      this.votesView = new VotesView(this.votes, about, explorer);
    } else this.votesView = null;
    this.answer = null;
    this.turned = null;
    this.azimuth = 0;
    this.charts = [];
    for (const svg of this.turn.querySelectorAll("svg")) {
      svg.addEventListener("click", (event) => this.follow(event, explorer));
      new ResizeObserver(() => this.drawTurn()).observe(svg);
    }
    const size = `${about.model}, ${about.parameters.toLocaleString("en")} parameters`;
    say(this.part("classes", "about"), `${size}, ${about.pixels}×${about.pixels} pixels, trained on ${about.dataset}`);
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
    say(this.part("pose", "numbers"), `${pose.kind === "direction" ? "û" : "q̂"} = ${termsOf(pose.numbers)}`);
    say(this.part("pose", "length"), `length ${fixed(pose.length)}`);
  }

  forgetTrail() {
    this.poseView.forget();
  }

  /** `turned`: {found, azimuths, elevation, truth}, with what the server found of this network. */
  showTurn(turned) {
    this.turned = turned;
    this.part("turn", "curves").hidden = false;
    this.part("turn", "empty").hidden = true;
    this.drawTurn();
    say(this.part("turn", "axis"), "activation by azimuth");
    say(this.part("turn", "trail"), toldTrail(turned, this.about));
  }

  /** The trail of the whole turn, as long as the curves are of what is shown. */
  showLoop(fresh) {
    const poses = this.turned?.found.poses ?? null;
    this.poseView.turn(fresh && poses !== null ? poses.map(nose) : null);
  }

  drawTurn() {
    if (this.turned === null) return;
    const { found, azimuths, truth } = this.turned;
    const [activations, errors] = this.turn.querySelectorAll("svg");
    const { classes, knowsToys } = this.about;
    const series = classes.map((name, k) => ({
      name,
      values: found.activations.map((each) => each[k]),
      role: k === found.winner ? "winner" : knowsToys && k === truth ? "truth" : "other",
    }));
    const label = `Activations of the classes by azimuth; largest on average: ${classes[found.winner]}`;
    this.charts = [showCurves(activations, azimuths, series, SCALES.activation, label)];
    this.part("turn", "errors").hidden = found.degrees === null;
    if (found.degrees !== null) {
      const middle = degrees(median(found.degrees));
      const error = [{ name: `med. ${middle}`, values: found.degrees, role: "winner" }];
      const label = `Error of the pose in degrees by azimuth; median ${middle}`;
      this.charts.push(showCurves(errors, azimuths, error, SCALES.degrees, label));
    }
    this.moveMark(this.azimuth);
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

function termsOf(numbers) {
  const letters = numbers.length === 4 ? ["", "i", "j", "k"] : ["i", "j", "k"];
  const signed = (text, k) => (k === 0 || text.startsWith("−") ? text : `+${text}`);
  return numbers.map((value, k) => `${signed(fixed(value), k)}${letters[k]}`).join(" ");
}

function noteOn(pose, view, about) {
  if (pose.kind === "direction")
    return "A direction has no roll about itself and cannot be an orientation: no error to give.";
  if (!about.oriented)
    return "Nobody trained this pose to be the toy’s orientation; its axes are its own: no error to give.";
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
  if (rounds === 0)
    return `The nose does not go round with the toy: it stays within ${degrees(spread)} of its mean; ${where}.`;
  return `The nose goes round ${Math.abs(rounds)} times${rounds < 0 ? ", against the toy" : ""}; ${where}.`;
}
