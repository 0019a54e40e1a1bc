// What is drawn: pictures on a canvas, which needs no address, so the page's policy stays as it is, and curves as SVG. Knows nothing of what they are of.

import { build } from "./elements.js";
import { isFloating } from "./tensors.js";

const STOPS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];  // of viridis, which everyone can tell apart
const WIDTH = 300, HEIGHT = 80;
const SMALL = 320;  // pixels: what is smaller is drawn larger, without a blur

/** A picture whose bytes are those of a file. `onRead` is called with its width and height once it is drawn. */
export function drawFile({ bytes, type }, described, onRead) {
  const canvas = makeCanvas(described);
  createImageBitmap(new Blob([bytes], { type })).then((bitmap) => {
    size(canvas, bitmap.width, bitmap.height);
    canvas.getContext("2d").drawImage(bitmap, 0, 0);
    onRead(bitmap);
  }, () => canvas.replaceWith(build("p", { className: "failed" }, ["The browser cannot read this picture."])));
  return canvas;
}

/** A picture of pixels, four bytes each. */
export function drawPixels(bytes, { width, height }, described) {
  const canvas = makeCanvas(described);
  size(canvas, width, height);
  canvas.getContext("2d").putImageData(new ImageData(bytes, width, height), 0, 0);
  return canvas;
}

/** The four bytes of each pixel of a picture whose pixels are numbers, of which `scale` are black and white. */
export function pixelsOf(values, { width, height, channels, isLast, scale: [black, white] }) {
  const count = width * height, bytes = new Uint8ClampedArray(count * 4);
  const at = (pixel, channel) => values[isLast ? pixel * channels + channel : channel * count + pixel];
  const byte = (value) => ((value - black) / (white - black || 1)) * 255;
  for (let pixel = 0; pixel < count; pixel += 1) {
    for (let part = 0; part < 3; part += 1) bytes[pixel * 4 + part] = byte(at(pixel, channels === 1 ? 0 : part));
    bytes[pixel * 4 + 3] = channels === 4 ? byte(at(pixel, 3)) : 255;
  }
  return bytes;
}

/** The four bytes of each of many numbers as a color, from the least to the largest; what is no number has none. */
export const heatOf = (values, { range: [least, most] }) =>
  Uint8ClampedArray.from(values.flatMap((value) => (Number.isFinite(value) ? [...colorOf((value - least) / (most - least || 1)), 255] : [0, 0, 0, 0])));

/** A color between violet, 0, and yellow, 1. */
function colorOf(share) {
  const place = share * (STOPS.length - 1), before = Math.min(Math.floor(place), STOPS.length - 2);
  return STOPS[before].map((part, index) => Math.round(part + (STOPS[before + 1][index] - part) * (place - before)));
}

const makeCanvas = (described) => build("canvas", { className: "picture", role: "img", ariaLabel: described });

function size(canvas, width, height) {
  Object.assign(canvas, { width, height });
  const larger = Math.max(1, Math.floor(SMALL / Math.max(width, height)));
  canvas.classList.toggle("coarse", larger > 1);
  canvas.style.width = `${width * larger}px`;
}

export const blobOf = (canvas) => new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });

// Pictures as arrays

/** Where a shape has the height, the width and the colors of a picture; null if it is of none, or not of this one, which is scaled only where both sizes are given and none is 1. */
export function layoutFor(shape, picture) {
  const own = shape.length === 4 && [1, -1].includes(shape[0]) ? shape.slice(1) : shape, isColors = (size) => own.length === 3 && [1, 3, 4].includes(size);
  const isLast = isColors(own[2]), isFirst = !isLast && isColors(own[0]), isGray = shape.length === 2 || (shape.length === 3 && shape[0] === -1);
  if (!isLast && !isFirst && !isGray) return null;
  const [height, width] = isLast ? own : own.slice(-2), sizes = [width, height];
  const fits = [picture.width, picture.height].every((size, axis) => [-1, size].includes(sizes[axis]));
  return fits || !sizes.some((size) => [-1, 1].includes(size)) ? { height, width, channels: isLast ? own[2] : isFirst ? own[0] : 1, isLast } : null;
}

/** The picture in a file as an array of a declared shape, in the size that this asks for: its values and its own shape. Raises Error where there is none, or where it does not fit. */
export async function readPicture(file, declared, datatype) {
  const picture = await createImageBitmap(file).catch(() => { throw new Error("it is neither npy nor CSV, nor a picture that the browser can read"); });
  const layout = layoutFor(declared, picture);
  if (!layout) throw new Error(`it is a picture of ${picture.width} by ${picture.height} pixels, expected the shape [${declared.join(", ")}]`);
  const [height, width] = ["height", "width"].map((side) => (layout[side] === -1 ? picture[side] : layout[side]));
  const context = new OffscreenCanvas(width, height).getContext("2d"), { channels, isLast } = layout;
  context.drawImage(picture, 0, 0, width, height);
  const values = valuesOf(context.getImageData(0, 0, width, height).data, { ...layout, width, height }, datatype);
  return { values, shape: isLast ? [height, width, channels] : [channels, height, width] };
}

/** The values of a picture, from four bytes for each pixel: bytes for integers, and 0 to 1 for floats. */
export function valuesOf(pixels, { height, width, channels, isLast }, datatype) {
  const count = height * width, scale = isFloating(datatype) ? 255 : 1, values = new Array(count * channels);
  for (let pixel = 0; pixel < count; pixel += 1) {
    const [red, green, blue, alpha] = pixels.subarray(pixel * 4, pixel * 4 + 4);
    const parts = channels === 1 ? [Math.round(0.299 * red + 0.587 * green + 0.114 * blue)] : [red, green, blue, alpha];
    for (let part = 0; part < channels; part += 1) values[isLast ? pixel * channels + part : part * count + pixel] = parts[part] / scale;
  }
  return values;
}

// Curves

/** Draw values, with gaps where they are no numbers, into an `<svg>`. `along` is how far to the right each is, from 0 to 1, and `range` the bottom and the top. */
export function draw(svg, values, described, { along, range = [0, Math.max(...values.filter(Number.isFinite), 1e-9)] } = {}) {
  const [least, most] = range, hasZero = least <= 0 && most >= 0;
  const across = (index) => ((along?.[index] ?? index / (values.length - 1)) * WIDTH).toFixed(1);
  const heightOf = (value) => HEIGHT - 2 - ((value - least) / (most - least || 1)) * (HEIGHT - 8), base = heightOf(hasZero ? 0 : least);
  const points = values.map((value, index) => (Number.isFinite(value) ? `${across(index)},${heightOf(value).toFixed(1)}` : "|"));
  const parts = [shape("line", { class: "grid", x1: 0, x2: WIDTH, y1: base, y2: base })];
  for (const run of points.join(" ").split("|").map((part) => part.trim()).filter(Boolean)) {
    const ends = run.split(" "), [left, right] = [ends[0], ends.at(-1)].map((point) => parseFloat(point)), isDot = ends.length === 1;
    if (hasZero) parts.push(shape("polygon", { class: "area", points: `${left},${base} ${run} ${right},${base}` }));
    parts.push(shape("polyline", { class: isDot ? "curve dot" : "curve", points: isDot ? `${run} ${run}` : run }));
  }
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-label": described })) svg.setAttribute(name, value);
  svg.replaceChildren(...parts);
}

export function shape(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}
