// The tensors of a body, as values to look at: from JSON, from flat objects, and from the bytes behind JSON. Knows nothing of the page.

import { isJSON, parse, Written } from "./json.js";
import { counted, single } from "./words.js";

const OF_PROTOCOL = ["model_name", "model_version", "id", "parameters"];  // members of a flat object that are no tensors
/** What holds the elements of each datatype; those of 16 bits as they are written. */
export const ARRAYS = {
  BOOL: Uint8Array, UINT8: Uint8Array, UINT16: Uint16Array, UINT32: Uint32Array, UINT64: BigUint64Array, INT8: Int8Array, INT16: Int16Array,
  INT32: Int32Array, INT64: BigInt64Array, FP16: Uint16Array, BF16: Uint16Array, FP32: Float32Array, FP64: Float64Array,
};
const NOT_FINITE = { NaN: NaN, Infinity, "-Infinity": -Infinity };

/** The outputs of an answer, each with flat data. `binary` are the bytes behind the JSON, of the outputs that have a `binary_data_size`. */
export function outputsOf(text, binary = new Uint8Array()) {
  const document = parse(text);
  const { outputs } = document;
  if (!Array.isArray(outputs) || !outputs.every((output) => output?.shape)) return flatOutputs(document);
  let place = 0;
  return outputs.map(({ data, ...output }) => {
    const shape = output.shape.map(numberOf), size = numberOf(output.parameters?.binary_data_size);
    if (size === null) return { ...output, shape, data: plainData({ ...output, data }) };
    const bytes = binary.subarray(place, place += size);
    return { ...output, shape, data: elementsOf(output.datatype, bytes) };
  });
}

/** The elements of a tensor in JSON, flat: those that are JSON texts as what they stand for, and a date that is missing as null. */
export function plainData({ data, parameters }) {
  const elements = [data ?? []].flat(Infinity), type = parameters?.content_type;
  const isPlainJSON = (text) => typeof text === "string" && isJSON(text) && !/^\s*[[{]/.test(text);  // nested JSON is shown as its text
  if (type === "pd_json") return elements.map((text) => (isPlainJSON(text) ? parse(text) : text));
  return elements.map((element) => (element === "NaT" && type === "datetime" ? null : element));
}

/** The members of a flat object, as `generate` answers them. Their shapes are those of their lists. */
function flatOutputs(document) {
  const members = Object.entries(membersOf(document) ?? {}).filter(([name]) => !OF_PROTOCOL.includes(name));
  return members.map(([name, value]) => {
    const data = [value].flat(Infinity);
    return { name, shape: shapeOf(value), datatype: typeof data[0] === "string" ? "BYTES" : "FP64", data };
  });
}

/** The members of a flat object; of a list of them, which are rows, the columns. */
export function membersOf(document) {
  if (!Array.isArray(document)) return document;
  const names = new Set(document.flatMap((row) => Object.keys(row ?? {})));
  return Object.fromEntries([...names].map((name) => [name, document.map((row) => row?.[name] ?? null)]));
}

/** Elements as rows of a size. */
export const slices = (elements, size) => Array.from({ length: size && Math.ceil(elements.length / size) }, (_, place) => elements.slice(place * size, (place + 1) * size));

/** The shape of lists in lists; that of an element is empty. */
export const shapeOf = (value) => Array.isArray(value) ? [value.length, ...(value.length ? shapeOf(value[0]) : [])] : [];

/** The elements in the bytes of a tensor: numbers and booleans; and of BYTES texts, or bytes where they are no text. */
export function elementsOf(datatype, bytes) {
  if (datatype === "BYTES") return texts(bytes);
  const read = { BOOL: Boolean, FP16: half, BF16: brain }[datatype] ?? ((value) => (typeof value === "bigint" ? new Written(`${value}`) : value));
  return Array.from(new ARRAYS[datatype](bytes.slice().buffer), (value) => read(value));
}

function texts(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset), found = [];
  for (let at = 0; at < bytes.length;) {
    const end = at + 4 + view.getUint32(at, true);
    found.push(textOf(bytes.subarray(at + 4, end)));
    at = end;
  }
  return found;
}

function textOf(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return bytes;
  }
}

/** A number of 16 bits, with 5 bits for the exponent. */
export function half(bits) {
  const exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const size = exponent === 31 ? (fraction ? NaN : Infinity)
    : exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024);
  return bits & 0x8000 ? -size : size;
}

/** A number of 16 bits, which are the first of one of 32. */
const brain = (bits) => new Float32Array(new Uint32Array([bits << 16]).buffer)[0];

/** An element as a number, for what is drawn; null if it is none. */
export function numberOf(value) {
  if (value instanceof Written) return Number(value.source);
  if (typeof value === "boolean") return Number(value);
  if (typeof value === "string" && Object.hasOwn(NOT_FINITE, value)) return NOT_FINITE[value];
  return typeof value === "number" ? value : null;
}

/** An element as text, whole. */
export function writtenOf(value) {
  if (value instanceof Written) return value.source;
  if (value instanceof Uint8Array) return counted(value.length, "byte");
  return value === null || value === undefined ? "" : String(value);
}

/** An element as text, with all its digits: one of FP32 without those that only 64 bits have. */
export function digitsOf(value, datatype) {
  const number = datatype === "FP32" ? numberOf(value) : null, shorter = single(number);
  return Number.isFinite(number) && shorter !== number ? String(shorter) : writtenOf(value);
}

const IMAGES = [["image/png", /^\x89PNG\r\n\x1a\n/], ["image/jpeg", /^\xff\xd8\xff/], ["image/gif", /^GIF8[79]a/], ["image/webp", /^RIFF[^]{4}WEBP/]];
const BASE64 = /^[A-Za-z0-9+/]{24,}={0,2}$/;

/** The picture that an element of BYTES holds, as it is or in base64: its bytes and its media type; null if it holds none. */
export function imageIn(element) {
  if (element instanceof Uint8Array) return typed(element);
  if (typeof element !== "string" || element.length % 4 || !typeOf(atobOrNothing(element.slice(0, 24)))) return null;
  return BASE64.test(element) ? typed(Uint8Array.from(atob(element), (each) => each.charCodeAt(0))) : null;
}

function typed(bytes) {
  const type = typeOf(String.fromCharCode(...bytes.subarray(0, 12)));
  return type ? { bytes, type } : null;
}

const typeOf = (head) => IMAGES.find(([, magic]) => magic.test(head))?.[0];

function atobOrNothing(text) {
  try {
    return atob(text);
  } catch {
    return "";
  }
}
