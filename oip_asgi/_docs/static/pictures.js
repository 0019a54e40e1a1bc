// Pictures on a canvas: files of images, arrays of pixels, and heat maps. A canvas needs no address, so the page's policy stays as it is.

import { build } from "./elements.js";

const STOPS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];  // of viridis, which everyone can tell apart
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

/** A picture whose pixels are numbers, of which `scale` are black and white. */
export function drawPixels(values, layout, described) {
  return paint(pixelsOf(values, layout), layout, described);
}

function paint(bytes, { width, height }, described) {
  const canvas = makeCanvas(described);
  size(canvas, width, height);
  canvas.getContext("2d").putImageData(new ImageData(bytes, width, height), 0, 0);
  return canvas;
}

/** The picture in a file; raises Error where there is none. */
export const openPicture = (file) =>
  createImageBitmap(file).catch(() => { throw new Error("it is neither npy nor CSV, nor a picture that the browser can read"); });

/** The pixels of a picture, four bytes each, in the size that a layout asks for; -1 is its own. */
export function pixelsIn(bitmap, layout) {
  const width = layout.width === -1 ? bitmap.width : layout.width, height = layout.height === -1 ? bitmap.height : layout.height;
  const canvas = Object.assign(makeCanvas(""), { width, height }), context = canvas.getContext("2d");
  context.drawImage(bitmap, 0, 0, width, height);
  return { pixels: context.getImageData(0, 0, width, height).data, width, height };
}

/** The four bytes of each pixel. */
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

/** Numbers as colors, from the least to the largest. */
export function drawHeat(values, { width, height, range: [least, most] }, described) {
  const bytes = new Uint8ClampedArray(width * height * 4);
  values.forEach((value, place) => {
    if (Number.isFinite(value)) bytes.set([...colorOf((value - least) / (most - least || 1)), 255], place * 4);
  });
  return paint(bytes, { width, height }, described);
}

/** A color between violet, 0, and yellow, 1. */
export function colorOf(share) {
  const place = Math.min(Math.max(share, 0), 1) * (STOPS.length - 1), before = Math.min(Math.floor(place), STOPS.length - 2);
  return STOPS[before].map((part, index) => Math.round(part + (STOPS[before + 1][index] - part) * (place - before)));
}

function makeCanvas(described) {
  const canvas = build("canvas", { className: "picture", role: "img" });
  canvas.setAttribute("aria-label", described);
  return canvas;
}

function size(canvas, width, height) {
  Object.assign(canvas, { width, height });
  const larger = Math.max(1, Math.floor(SMALL / Math.max(width, height)));
  canvas.classList.toggle("coarse", larger > 1);
  canvas.style.width = `${width * larger}px`;
}

export const blobOf = (canvas) => new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
