// The views of an answer as elements, each with what copies and saves it: pictures on a canvas, which needs no address, so the page's policy stays as it is, and
// curves as SVG. Knows what is shown, not where it comes from.

import { typeOf } from "./cells.js";
import { build, copyButton, made, saveButton } from "./elements.js";
import { areShares, rangeOf } from "./looks.js";
import { digitsOf, imageIn, numberOf, slices, writtenOf } from "./tensors.js";
import { counted, short } from "./words.js";

const STOPS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];  // of viridis, which everyone can tell apart
const WIDTH = 300, HEIGHT = 80;  // of a curve, before it is stretched
const SMALL = 320;  // pixels: what is smaller is drawn larger, without a blur
const MOST_ROWS = 200;  // of a table
const MOST_BARS = 10;
const MOST_POINTS = 600;  // of a curve
const FIRST = 12;  // values of an array that nothing draws

const FIGURES = { table: tableFigure, scores: scoresFigure, text: textFigure, pictures: filesFigure, pixels: pixelsFigure, curve: curveFigure, vector: vectorFigure,
  heat: heatFigure, summary: summaryFigure, empty: emptyFigure };

/** The element of one view. */
export const figureOf = (look) => FIGURES[look.kind](look);

/** A figure with a line above it: its name, what is to be said of it, and its buttons. */
function figure(name, note, buttons, children) {
  const caption = build("figcaption", {}, [...(name ? [made("b", name)] : []), made("span", note, "faint"), build("div", { className: "tools" }, buttons)]);
  return build("figure", { className: "look" }, [caption, ...children]);
}

// Tables

/** A table of rows, or of what else a line of it stands for: of the output that it is called by, or of several. */
function tableFigure({ names, count, columns, noun = "row" }) {
  const buttons = tableTools("answer", (separator) => separated(columns, count, separator));
  const table = count === 1 ? oneRow(columns) : manyRows(columns, Math.min(count, MOST_ROWS), noun);
  const areSingle = count === 1 && noun === "row" && columns.length === names.length;  // values that nobody would count
  const mark = columns.some(({ areLargest }) => areLargest) ? ", ★ is the largest score of its row" : "";
  const name = names.length > 1 ? "" : names[0];
  const note = [name ? "" : counted(names.length, "output"), areSingle ? "" : counted(count, noun) + mark].filter(Boolean).join(", ");
  return figure(name, note, buttons, scrolled(table, [name, note].filter(Boolean).join(", "), count, noun));
}

/** A table that scrolls, and what it leaves out of `count` things. */
function scrolled(table, name, count, noun) {
  const left = count - MOST_ROWS, text = `${counted(left, `more ${noun}`)} ${left === 1 ? "is" : "are"} in the file that Save makes.`;
  const scroll = build("div", { className: "scroll tall", tabIndex: 0, role: "region", ariaLabel: name }, [table]);
  return left > 0 ? [scroll, made("p", text, "faint")] : [scroll];
}

/** A line for each value, counted from 0 as in code. */
function vectorFigure({ name, values, ...kind }) {
  const table = oneRow(values.slice(0, MOST_ROWS).map((value, place) => ({ name: `${place}`, ...kind, values: [value] })));
  return figure(name, counted(values.length, "value"), valueTools(name, values), scrolled(table, name, values.length, "value"));
}

/** One row, written from top to bottom. The name of a single value stands above it. */
function oneRow(columns) {
  const isNamed = columns.length > 1;
  const row = (column) => build("tr", {}, [...(isNamed ? [build("th", { scope: "row" }, [column.name])] : []), cell(column, 0)]);
  return build("table", { className: "values one" }, columns.map(row));
}

function manyRows(columns, count, noun) {
  const table = made("table", undefined, "values"), head = table.createTHead(), body = table.createTBody();
  const outputs = columns.filter(({ isInput }) => !isInput).length;
  if (outputs < columns.length) {
    const group = (text, colSpan, className) => build("th", { colSpan, className, scope: "colgroup" }, [text]);
    head.append(build("tr", { className: "group" }, [made("td"), group("answered", outputs), group("sent", columns.length - outputs, "sent-value")]));
  }
  const title = (column) => build("th", { scope: "col", className: classOf(column) }, [column.name]);
  head.append(build("tr", {}, [build("th", { scope: "col" }, [noun]), ...columns.map(title)]));
  for (let row = 0; row < count; row += 1) {
    body.append(build("tr", {}, [build("th", { scope: "row" }, [`${row + 1}`]), ...columns.map((column) => cell(column, row))]));
  }
  return table;
}

const classOf = ({ isNumber, isInput }) => [isNumber && "number", isInput && "sent-value"].filter(Boolean).join(" ");

/** A value; where it is shown shorter than it is, the whole is its title. */
function cell(column, row) {
  const value = column.values[row], whole = writtenOf(value);
  if (value === null || value === undefined || whole === "NaN") return build("td", { className: `${classOf(column)} missing` }, ["missing"]);
  const image = column.isNumber ? null : imageIn(value);
  if (image) return build("td", { className: classOf(column) }, [drawFile(image, `${column.name}, row ${row + 1}: a picture`, () => {})]);
  const { areLargest, isShare, isNumber, datatype } = column, className = areLargest?.[row] ? "number largest" : classOf(column);
  const text = areLargest ? scoreOf(numberOf(value), isShare) : isNumber ? digitsOf(value, datatype) : whole;
  return build("td", { className, title: text === whole ? "" : whole }, [text]);
}

/** The columns as text, below their names. */
export function separated(columns, count, separator) {
  const rows = Array.from({ length: count }, (_, row) => columns.map(({ values }) => values[row]));
  return linesOf([columns.map(({ name }) => name), ...rows], separator);
}

/** Rows as text: a missing value is nothing, and what holds the separator is quoted. */
function linesOf(rows, separator) {
  const quoted = (text) => (/["\n\r]/.test(text) || text.includes(separator) ? `"${text.replaceAll('"', '""')}"` : text);
  return rows.map((row) => `${row.map((value) => quoted(writtenOf(value))).join(separator)}\n`).join("");
}

// Scores

function scoresFigure({ name, rows }) {
  const lines = [["row", "label", "score"], ...rows.flatMap((row, place) => row.map(([label, score]) => [place + 1, label, score]))];
  const lists = rows.map((row, place) => bars(row, rows.length > 1 ? `Row ${place + 1}` : ""));
  return figure(name, "", tableTools(name, (separator) => linesOf(lines, separator)), lists);
}

function bars(row, title) {
  const scores = row.map(([, score]) => score), isShare = areShares(scores);
  const most = isShare ? 1 : Math.max(...scores.map(Math.abs), 1e-9);
  const lines = row.slice(0, MOST_BARS).map(([label, score]) => {
    const fill = made("span", undefined, score < 0 ? "fill negative" : "fill"), track = build("span", { className: "track" }, [fill]);
    fill.style.width = `${Math.min(Math.abs(score / most), 1) * 100}%`;
    return build("li", {}, [build("span", { className: "label", title: label }, [label]), track, made("span", scoreOf(score, isShare), "score")]);
  });
  const more = row.length > MOST_BARS ? [made("li", `and ${row.length - MOST_BARS} more`, "faint")] : [];
  const list = build("ol", { className: "bars" }, [...lines, ...more]);
  return title ? build("div", {}, [made("h4", title), list]) : list;
}

const scoreOf = (score, isShare) => (!isShare ? short(score) : score > 0 && score < 0.0005 ? "< 0.1 %" : `${(score * 100).toFixed(1)} %`);

// Texts and pictures

/** The figure of a text that is not there yet, and the element to put it in. */
export function growingText(name) {
  const text = build("p", { className: "text growing", tabIndex: 0 });
  return [figure(name, "", textTools(name, () => text.textContent), [text]), text];
}

/** The buttons beside what is a table: `textOf` writes it with a separator. */
function tableTools(name, textOf, copied = () => textOf("\t")) {
  return [copyButton(copied), saveButton(`${name}.csv`, () => new Blob([textOf(",")], { type: "text/csv" }))];
}

/** The buttons beside a text. */
const textTools = (name, textOf) => [copyButton(textOf), saveButton(`${name}.txt`, () => new Blob([textOf()], { type: "text/plain" }))];

function textFigure({ name, text }) {
  const note = text.length > 100 ? counted(text.length, "character") : "";
  return figure(name, note, textTools(name, () => text), [build("p", { className: "text", tabIndex: 0 }, [text || "(an empty text)"])]);
}

function filesFigure({ name, pictures, more }) {
  return gallery(name, pictures, more, ({ type, bytes }, title) => {
    const kind = type.split("/")[1], note = `${kind.toUpperCase()}, ${counted(bytes.length, "byte")}`;
    const canvas = drawFile({ type, bytes }, `${title}: a picture`, ({ width, height }) => {
      made.querySelector("figcaption span").textContent = `${width} × ${height} pixels, ${note}`;
      canvas.ariaLabel = `${title}: a picture of ${width} × ${height} pixels`;
    });
    const made = pictureFigure(title, note, canvas, saveButton(`${title}.${kind}`, () => new Blob([bytes], { type })));
    return made;
  });
}

function pixelsFigure({ name, pictures, more, ...layout }) {
  const { width, height, range, isStretched } = layout, size = `${width} × ${height} pixels`;
  const note = `${size}${isStretched ? `, black is ${short(range[0])} and white ${short(range[1])}` : ""}`;
  return gallery(name, pictures, more, (values, title) => {
    const canvas = drawPixels(pixelsOf(values, layout), layout, `${title}: a picture of ${size}`);
    return pictureFigure(title, note, canvas, saveButton(`${title}.png`, () => blobOf(canvas)));
  });
}

/** A picture, which can be copied where the browser has a clipboard for it: without TLS it has none. */
function pictureFigure(title, note, canvas, save) {
  const copy = () => copyButton(() => new ClipboardItem({ "image/png": blobOf(canvas) }));
  return figure(title, note, navigator.clipboard ? [copy(), save] : [save], [canvas]);
}

/** Pictures of an output, each in a figure with a title of its own, and how many more there are. */
function gallery(name, pictures, more, figureWith) {
  const figures = pictures.map((picture, place) => figureWith(picture, pictures.length > 1 ? `${name} ${place + 1}` : name));
  const rest = more > 0 ? [made("p", `${more} more ${more === 1 ? "is" : "are"} in the JSON.`, "faint")] : [];
  return figures.length === 1 ? figures[0] : build("div", { className: "gallery" }, [...figures, ...rest]);
}

// Curves, heat maps, and the rest

/** The buttons beside values, which are copied and saved a line each. */
const valueTools = (name, values) =>
  tableTools(name, (separator) => separated([{ name, values }], values.length, separator), () => `${values.map(writtenOf).join("\n")}\n`);

function curveFigure({ name, values }) {
  const [least, most] = rangeOf(values) ?? [0, 0];
  const described = `${values.length} values from ${short(least)} to ${short(most)}`;
  return figure(name, described, valueTools(name, values), [curve(values, `${name}: ${described}`)]);
}

/** A curve of values, with its least and largest beside it. */
export function curve(values, described) {
  const svg = shape("svg", { role: "img" });
  const step = Math.ceil(values.length / MOST_POINTS), drawn = values.filter((_, place) => place % step === 0);
  const [least, most] = rangeOf(drawn) ?? [0, 0];
  draw(svg, drawn, described, { range: [least, most] });
  return build("div", { className: "curve-box" }, [made("span", short(most), "faint"), svg, made("span", short(least), "faint")]);
}

function heatFigure({ name, values, datatype, ...layout }) {
  const { width, height, range: [least, most] } = layout;
  const described = `${height} rows of ${width} values, from ${short(least)} to ${short(most)}`;
  const canvas = drawPixels(heatOf(values, layout), layout, `${name}: ${described}`);
  const buttons = tableTools(name, (separator) => linesOf(slices(values, width), separator));
  const legend = build("p", { className: "legend faint" }, [short(least), made("span", undefined, "scale"), short(most)]);
  const value = made("output", "", "faint");
  canvas.addEventListener("pointermove", ({ offsetX, offsetY }) => {
    const [column, row] = [Math.floor((offsetX / canvas.clientWidth) * width), Math.floor((offsetY / canvas.clientHeight) * height)];
    value.textContent = row < height && column < width ? `[${row}, ${column}] ${digitsOf(values[row * width + column], datatype)}` : "";
  });
  return figure(name, `${height} rows, ${width} columns`, buttons, [canvas, build("div", { className: "legends" }, [legend, value])]);
}

function summaryFigure({ name, shape, datatype, data, range }) {
  const size = `${datatype ? typeOf(datatype) : "text"} [${shape.join(", ")}]`, numbers = data.slice(0, FIRST);
  const first = numbers.map((value) => digitsOf(value, datatype)).join(", ");
  const sentence = `${counted(data.length, "value")}${range ? ` from ${short(range[0])} to ${short(range[1])}` : ""}, which begin with`;
  return figure(name, size, valueTools(name, data), [build("p", {}, [sentence, " ", made("code", `${first}${data.length > FIRST ? ", …" : ""}`)])]);
}

function emptyFigure({ name, shape, datatype }) {
  return figure(name, `${typeOf(datatype)} [${shape.join(", ")}]`, [], [made("p", "It has no elements.", "faint")]);
}

// Drawing

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
