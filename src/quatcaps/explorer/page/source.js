// Where answers come from: the server, or data that stand in the page. Both have about(), look(view), turn(view, steps)
// and image(bytes), which promise what /api/about, /api/look, /api/turn and /api/image answer.

const PATIENCE = { look: 30_000, turn: 300_000 };
/** Milliseconds. */

/** What was asked for did not come. `again`: after so many milliseconds it is worth asking again; null: it is not. */
export class Trouble extends Error {
  constructor(message, again = null) {
    super(message);
    this.again = again;
  }
}

export class ServerSource {
  computes = true;

  about() {
    return answer("api/about", PATIENCE.look);
  }

  /** `below`: of which capsules the parts are wanted, not the winner's: `NETWORK:LAYER:CAPSULE`, with commas. */
  look(view, below = "") {
    return answer(`api/look?${new URLSearchParams({ ...view, below })}`, PATIENCE.look);
  }

  turn(view, steps) {
    return answer(`api/turn?${new URLSearchParams({ ...view, steps })}`, PATIENCE.turn);
  }

  image(bytes, below = "") {
    return answer(`api/image?${new URLSearchParams({ below })}`, PATIENCE.look, { method: "POST", body: bytes });
  }
}

async function answer(address, patience, options = {}) {
  let response;
  let body = null;
  try {
    response = await fetch(address, { ...options, signal: AbortSignal.timeout(patience) });
    body = await response.text();
  } catch {
    throw new Trouble("The server does not answer. Is “quatcaps explore” still running? Asking again …", 1500);
  }
  const found = parsed(body);
  if (response.ok && found !== null) return found;
  const told = found?.error ?? `The server answered with status ${response.status}.`;
  if (response.status === 503) throw new Trouble(`${told} Asking again …`, 1000);
  throw new Trouble(told);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Answers that were computed before: `{about, looks}`, with `looks` as /api/look answers them, on any grid of
 * viewpoints. The nearest is shown. */
export class EmbeddedSource {
  computes = false;

  constructor(data) {
    this.data = data;
  }

  async about() {
    const { networks, toys } = this.data.about;
    const views = this.data.looks.map((look) => look.view);
    const elevations = views.map((view) => view.elevation);
    const elevation = { ...toys.elevation, lowest: Math.min(...elevations), highest: Math.max(...elevations) };
    const only = views.map(({ category, kind, lighting }) => ({ category, kind, lighting }));
    return { networks, toys: { ...toys, elevation, only } };
  }

  async look(view) {
    return nearest(this.ofToy(view), (look) => distance(look.view, view));
  }

  async turn(view) {
    const { elevation } = (await this.look(view)).view;
    const looks = this.ofToy(view)
      .filter((look) => look.view.elevation === elevation)
      .sort((a, b) => a.view.azimuth - b.view.azimuth);
    return {
      elevation,
      azimuths: looks.map((look) => look.view.azimuth),
      orientations: looks.map((look) => look.view.orientation),
      networks: this.data.about.networks.map((_, k) => turnOf(looks.map((look) => look.networks[k]))),
    };
  }

  async image() {
    throw new Trouble("This page holds answers that were computed before: it cannot look at another image.");
  }

  /** Of the toy that is asked for; where there are none of it, of one of its category; else of any. */
  ofToy({ category, kind, lighting }) {
    const match = (...tests) => this.data.looks.filter(({ view }) => tests.every((test) => test(view)));
    const tests = [
      (view) => view.category === category,
      (view) => view.kind === kind,
      (view) => view.lighting === lighting,
    ];
    for (let count = tests.length; count > 0; count -= 1) {
      const found = match(...tests.slice(0, count));
      if (found.length > 0) return sameToy(found, found[0].view);
    }
    return sameToy(this.data.looks, this.data.looks[0].view);
  }
}

const sameToy = (looks, { category, kind, lighting }) =>
  looks.filter(({ view }) => view.category === category && view.kind === kind && view.lighting === lighting);

/** Angles between viewpoints, elevation first: a turn at another elevation would be another curve. */
function distance(a, b) {
  const turn = Math.abs(a.azimuth - b.azimuth) % 360;
  return 1000 * Math.abs(a.elevation - b.elevation) + Math.min(turn, 360 - turn);
}

function nearest(items, cost) {
  return items.reduce((best, item) => (cost(item) < cost(best) ? item : best));
}

/** A turn from looks, which hold the pose of the winner alone: where another class wins there is none. */
function turnOf(looks) {
  const activations = looks.map((look) => look.activations);
  const sums = activations[0].map((_, k) => activations.reduce((sum, each) => sum + each[k], 0));
  const winner = sums.indexOf(Math.max(...sums));
  const whole = looks.every((look) => look.pose !== null && look.winner === winner);
  const measured = whole && looks.every((look) => look.pose.degrees !== undefined);
  return {
    winner,
    activations,
    poses: whole ? looks.map((look) => look.pose.numbers) : null,
    degrees: measured ? looks.map((look) => look.pose.degrees) : null,
  };
}

export const chosenSource = () =>
  window.EXPLORER_DATA === undefined ? new ServerSource() : new EmbeddedSource(window.EXPLORER_DATA);
