// How an answer is best looked at: as pictures, bars, text, a curve, a heat map or a table. Decides, and draws nothing.

import { imageIn, numberOf, shapeOfCount, slices } from "./tensors.js";

const MOST_COLUMNS = 12;  // of one output in a table
const MOST_BARS = 6;  // rows of scores that are shown as bars, where they are no table
const MOST_PICTURES = 8;
const SMALLEST = 8, LARGEST = 4096;  // pixels of a side
const SMALLEST_GRAY = 28;  // of a picture of one layer that is not in bytes: smaller ones are mostly no pictures
const SHORT = 80;  // characters of a text that fits into a table
const CURVE = 16;  // values from which a curve shows more than they do
const MOST_CELLS = 65536;  // of a heat map

/** The views of an answer, by `kind`. All else stands in a table for each number of rows, beside the inputs with as many, if those are several. `sent` are these, and `declared` are shapes. */
export function looksOf(outputs, { sent = [], labels = {}, declared = {} } = {}) {
  const isAlone = outputs.length === 1, rowsIn = rowsOfAll(sent);
  const looks = [], tables = new Map();
  for (const output of outputs.map((each) => withRank(each, declared[each.name]))) {
    const look = lookOf(output, labels[output.name], { isAlone, rowsIn, declared: declared[output.name] });
    if (look) looks.push({ name: output.name, ...look });
    else tables.set(rowsOf(output), [...(tables.get(rowsOf(output)) ?? []), output]);
  }
  for (const [count, members] of tables) {
    const beside = count > 1 && count === rowsIn ? sent.flatMap((input) => columnsOf(input).map((column) => ({ ...column, isInput: true }))) : [];
    looks.push({ kind: "table", names: members.map(({ name }) => name), count, columns: [...members.flatMap((output) => columnsOf(output, labels[output.name])), ...beside] });
  }
  return looks;
}

/** An output with the shape that is declared, where it comes from a flat object, which has its elements alone. */
function withRank(output, declared = []) {
  const { shape, data } = output, isFlat = shape.length === 1 && declared.length > 1;
  return isFlat ? { ...output, shape: shapeOfCount(declared, data.length) ?? shape } : output;
}

/** What an output is shown as if it is no column of a table. */
function lookOf(output, labels, context) {
  if (!output.data.length) return { kind: "empty", shape: output.shape, datatype: output.datatype };
  if (areRowsOfScores(output, labels)) return null;
  const look = output.datatype === "BYTES" ? picturesIn(output) ?? textIn(output, context) : scoresIn(output, labels) ?? pixelsIn(output) ?? drawingOf(output, context);
  return look ?? vectorIn(output, context);
}

function picturesIn({ data }) {
  const pictures = data.slice(0, MOST_PICTURES).map(imageIn);
  return pictures.every(Boolean) ? { kind: "pictures", pictures, more: data.length - pictures.length } : null;
}

function textIn({ data, shape }, { isAlone }) {
  const [text] = data;
  const isText = data.length === 1 && typeof text === "string" && (isAlone || text.length > SHORT || text.includes("\n"));
  if (isText) return { kind: "text", text };
  return shape.length > 2 ? { kind: "summary", shape, data } : null;
}

/** A vector that is no column: its length is declared, or is not the number of rows that were sent. */
function vectorIn({ data, shape, datatype }, { rowsIn, declared }) {
  const isColumn = mayHaveRows(declared) && (rowsIn === null || shape[0] === rowsIn);
  return shape.length === 1 && shape[0] > 1 && !isColumn ? { kind: "vector", values: data, isNumber: datatype !== "BYTES", datatype } : null;
}

/** Whether the first dimension counts rows: none is declared that may be of any size, or of one row. */
const mayHaveRows = ([first] = [-1]) => first === -1 || first === 1;

/** Whether an output is several rows of scores, which are compared best below each other: a table has a column for each label. */
function areRowsOfScores({ shape, datatype }, labels = []) {
  const [count, width] = shape, isFloat = /^B?F/.test(datatype);
  return isFloat && shape.length === 2 && count > 1 && width > 1 && width === labels.length && width <= MOST_COLUMNS;
}

/** Whether scores are shares of one whole, as probabilities are. */
export const areShares = (scores) => Math.min(...scores) >= 0 && Math.abs(scores.reduce((one, other) => one + other, 0) - 1) < 0.02;

/** Rows of scores with the labels of their elements, the largest first. */
function scoresIn({ data, shape }, labels) {
  if (!labels || data.length % labels.length || (shape.length < 2 && data.length !== labels.length)) return null;
  const rows = slices(data.map(numberOf), labels.length);
  if (rows.length > MOST_BARS || labels.length < 2) return null;
  return { kind: "scores", rows: rows.map((row) => row.map((score, place) => [labels[place], score]).sort(([, one], [, other]) => other - one)) };
}

/** Arrays whose shape is one of pictures: [h, w], [h, w, c] and [c, h, w], or several of them, in a range that shows. */
function pixelsIn({ data, shape, datatype }) {
  const layout = layoutOf(shape.length > 2 && shape[0] === 1 ? shape.slice(1) : shape);
  if (!layout) return null;
  const { count, width, height, channels } = layout;
  const values = data.map(numberOf), range = rangeOf(values);
  const scale = scaleOf(range, datatype);
  const isGray = datatype === "UINT8" || (scale && Math.min(width, height) >= SMALLEST_GRAY);
  if (!range || (channels === 1 && !isGray)) return null;  // one layer of any numbers is a heat map
  const pictures = slices(values, width * height * channels).slice(0, MOST_PICTURES);
  return { kind: "pixels", ...layout, range, scale: scale ?? range, isStretched: !scale, pictures, more: count - pictures.length };
}

function layoutOf(shape) {
  const sides = (height, width) => Math.min(height, width) >= SMALLEST && Math.max(height, width) <= LARGEST;
  const [count, ...rest] = shape.length === 4 ? shape : [1, ...shape];
  const [one, two, three] = rest;
  const isColor = (channels) => [1, 3, 4].includes(channels);
  if (rest.length === 2 && sides(one, two)) return { count, height: one, width: two, channels: 1, isLast: true };
  if (rest.length !== 3) return null;
  if (isColor(three) && sides(one, two)) return { count, height: one, width: two, channels: three, isLast: true };
  if (isColor(one) && sides(two, three)) return { count, height: two, width: three, channels: one, isLast: false };
  return shape.length === 3 && sides(two, three) ? { count: one, height: two, width: three, channels: 1, isLast: true } : null;
}

/** What is black and what is white; null if the numbers are not those of a picture. */
function scaleOf(range, datatype) {
  const scales = datatype === "UINT8" ? [[0, 255]] : [[0, 1], [0, 255], [-1, 1]];
  return scales.find(([black, white]) => range && black <= range[0] && range[1] <= white) ?? null;
}

/** Curves and heat maps of numbers, and for what nothing fits its shape and range. */
function drawingOf({ data, shape, datatype }, { rowsIn }) {
  const sides = shape.filter((size, place) => size !== 1 || place === shape.length - 1);
  const values = data.map(numberOf);
  const areRows = shape[0] === rowsIn && rowsIn > 1;
  if (sides.length === 1 && sides[0] >= CURVE && !areRows) return { kind: "curve", values };
  const [height, width] = sides, isHeat = width > MOST_COLUMNS || (!areRows && height >= 4 && width >= 4);
  if (sides.length === 2 && data.length <= MOST_CELLS && isHeat) return { kind: "heat", height, width, values, datatype, range: rangeOf(values) ?? [0, 0] };
  const isTable = shape.length < 2 || (shape.length === 2 && shape[1] <= MOST_COLUMNS);
  return isTable ? null : { kind: "summary", shape, datatype, data, range: rangeOf(values) };
}

/** The least and the largest of the finite numbers; null if there are none. */
export function rangeOf(values) {
  const finite = values.filter(Number.isFinite), bound = (choose) => finite.reduce((one, other) => choose(one, other));
  return finite.length ? [bound(Math.min), bound(Math.max)] : null;
}

/** How many rows all tensors have, if each is a column or a few of them; else null. */
function rowsOfAll(tensors) {
  const counts = new Set(tensors.map(({ shape, data, declared }) => (Array.isArray(data) && isNarrow(shape) && mayHaveRows(declared) ? Number(shape?.[0] ?? data.length) : null)));
  return counts.size === 1 ? [...counts][0] : null;
}

const isNarrow = (shape) => !shape || shape.length === 1 || (shape.length === 2 && shape[1] <= MOST_COLUMNS);

const rowsOf = ({ shape, data }) => shape?.length ? Number(shape[0]) : data.length;

/** A tensor as columns, each with its name and values. */
function columnsOf(tensor, labels) {
  const { name, datatype, data } = tensor, rows = rowsOf(tensor), width = rows ? data.length / rows : 0;
  const isNumber = datatype !== "BYTES";
  if (width <= 1) return [{ name, isNumber, datatype, values: data }];
  const nameOf = (place) => (labels?.length === width ? labels[place] : `${name} ${place}`);
  const column = (place) => data.filter((_, index) => index % width === place);
  const scored = areRowsOfScores(tensor, labels) ? scoredOf(slices(data.map(numberOf), width)) : () => ({});
  return Array.from({ length: width }, (_, place) => ({ name: nameOf(place), isNumber, datatype, values: column(place), ...scored(place) }));
}

/** What a column of scores has besides: whether they are shares, and in which rows it has the largest. */
function scoredOf(rows) {
  const largest = rows.map((row) => row.indexOf(Math.max(...row.filter((score) => score !== null && !Number.isNaN(score)))));
  const whole = rows.filter((row) => row.every(Number.isFinite)), isShare = whole.length > 0 && whole.every(areShares);
  return (place) => ({ isShare, areLargest: largest.map((found) => found === place) });
}
