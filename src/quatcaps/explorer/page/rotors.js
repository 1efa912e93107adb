// Quaternions [w, x, y, z], scalar first, Hamilton's product; and what a nose does while a toy turns.
// The viewer's axes: x towards the camera, y to the right, z up. A toy's own: x forward, y left, z up.

export const product = ([a, b, c, d], [e, f, g, h]) => [
  a * e - b * f - c * g - d * h,
  a * f + b * e + c * h - d * g,
  a * g - b * h + c * e + d * f,
  a * h + b * g - c * f + d * e,
];

export const conjugate = ([w, x, y, z]) => [w, -x, -y, -z];

/** v ↦ q v q* */
export const rotated = (q, v) => product(product(q, [0, ...v]), conjugate(q)).slice(1);

export const dot = (a, b) => a.reduce((sum, value, k) => sum + value * b[k], 0);

export const cross = ([a, b, c], [d, e, f]) => [b * f - c * e, c * d - a * f, a * e - b * d];

export function unit(v) {
  const length = Math.hypot(...v);
  return length > 1e-9 ? v.map((value) => value / length) : v.map((_, k) => (k === 0 ? 1 : 0));
}

const radians = (degrees) => (degrees * Math.PI) / 180;

/** The angle between two directions of length 1, in degrees. */
export const apart = (a, b) => (Math.atan2(Math.hypot(...cross(a, b)), dot(a, b)) * 180) / Math.PI;

/** The orientation in which a viewpoint shows a toy: q_y(elevation) q_z(−azimuth). */
export function orientation(azimuth, elevation) {
  const [e, a] = [radians(elevation) / 2, -radians(azimuth) / 2];
  return product([Math.cos(e), 0, Math.sin(e), 0], [Math.cos(a), 0, 0, Math.sin(a)]);
}

/** The shortest turn that takes forward to a direction. */
export function towards(direction) {
  const turn = [1 + direction[0], 0, -direction[2], direction[1]];
  return Math.hypot(...turn) > 1e-6 ? unit(turn) : [0, 0, 0, 1];
}

/** Where the nose of a pose points: 4 numbers turn forward, 3 are the direction itself. */
export const nose = (pose) => (pose.length === 4 ? rotated(pose, [1, 0, 0]) : pose);

/** Points from a to b along the sphere, without a itself. */
export function arc(a, b, step = 6) {
  const angle = radians(apart(a, b));
  const count = Math.max(1, Math.ceil(angle / radians(step)));
  if (angle < 1e-6 || angle > Math.PI - 1e-3) return [b];
  return Array.from({ length: count }, (_, k) => {
    const t = (k + 1) / count;
    const [from, to] = [Math.sin((1 - t) * angle) / Math.sin(angle), Math.sin(t * angle) / Math.sin(angle)];
    return a.map((value, n) => from * value + to * b[n]);
  });
}

export const JUMP = 45;
/** Degrees between neighbours of a trail; a nose that leaps further does not follow the toy. */

/** What a nose does over one whole turn of the toy: its largest step between neighbours, after which of them, how far
 * it strays from its mean, and how many times it goes round an axis, counted the way the toy goes. */
export function trailOf(points, axis) {
  const steps = points.map((point, k) => apart(point, points[(k + 1) % points.length]));
  const jump = Math.max(...steps);
  const mean = unit([0, 1, 2].map((n) => points.reduce((sum, point) => sum + point[n], 0)));
  const flat = points.map((point) => point.map((value, n) => value - dot(point, axis) * axis[n]));
  const angle = flat.reduce((sum, point, k) => {
    const other = flat[(k + 1) % flat.length];
    return sum + Math.atan2(dot(cross(point, other), axis), dot(point, other));
  }, 0);
  return {
    jump,
    at: steps.indexOf(jump),
    spread: Math.max(...points.map((point) => apart(point, mean))),
    rounds: -Math.round(angle / (2 * Math.PI)),
  };
}
