// A curve of the last values, as SVG. Knows nothing of what they are.

const NAMESPACE = "http://www.w3.org/2000/svg";
const WIDTH = 300, HEIGHT = 80;

/** The places of a curve: `values` may hold null where nothing is known, and `along` is how far from the left to the right each is, from 0 to 1: evenly, where it is not given. */
export const places = (values, range, along = values.map((_, index) => (index + 1 === values.length ? 1 : index / (values.length - 1)))) =>
  values.map((value, index) => (value === null ? null : [along[index] * WIDTH, heightOf(value, range)]));

const heightOf = (value, [least, most]) => HEIGHT - 2 - ((value - least) / (most - least || 1)) * (HEIGHT - 8);

/**
 * Draw values into an `<svg>`, and say in words what is drawn. `range` is the bottom and the top, 0 and the largest; `along` is as in `places`. What
 * is between the curve and 0 is filled, if 0 is in the range.
 */
export function draw(svg, values, described, { along, range = [0, Math.max(...values.filter((value) => value !== null), 1e-9)] } = {}) {
  const hasZero = range[0] <= 0 && range[1] >= 0, base = hasZero ? heightOf(0, range) : HEIGHT - 2;
  const parts = [shape("line", { class: "grid", x1: 0, x2: WIDTH, y1: base, y2: base })];
  for (const run of runs(places(values, range, along))) {
    const isDot = run.length === 1;
    if (isDot) run.push([run[0][0] + 0.01, run[0][1]]);
    const points = run.map((place) => place.map((number) => number.toFixed(1)).join(",")).join(" ");
    const [left, right] = [run[0][0], run[run.length - 1][0]];
    if (hasZero) parts.push(shape("polygon", { class: "area", points: `${left},${base} ${points} ${right},${base}` }));
    parts.push(shape("polyline", { class: isDot ? "curve dot" : "curve", points }));
  }
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-label", described);
  svg.replaceChildren(...parts);
}

function runs(all) {
  const found = [];
  let run = [];
  for (const place of [...all, null]) {
    if (place !== null) run.push(place);
    else if (run.length) { found.push(run); run = []; }
  }
  return found;
}

export function shape(name, attributes) {
  const element = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}
