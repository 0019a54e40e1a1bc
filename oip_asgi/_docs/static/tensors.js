// Tensors: read from a body to be looked at, from files, or made; and their bytes, as the protocol has them. Knows nothing of the page.

import { exactly, isJSON, parse, tried, Written } from "./json.js";
import { counted, single } from "./words.js";

const OF_PROTOCOL = ["model_name", "model_version", "id", "parameters"];  // members of a flat object that are no tensors
/** What holds the elements of each datatype; those of BF16 as they are written. */
export const ARRAYS = {
  BOOL: Uint8Array, UINT8: Uint8Array, UINT16: Uint16Array, UINT32: Uint32Array, UINT64: BigUint64Array, INT8: Int8Array, INT16: Int16Array,
  INT32: Int32Array, INT64: BigInt64Array, FP16: globalThis.Float16Array, BF16: Uint16Array, FP32: Float32Array, FP64: Float64Array,
};
const OF_NUMPY = { b1: "BOOL", u1: "UINT8", u2: "UINT16", u4: "UINT32", u8: "UINT64", i1: "INT8", i2: "INT16", i4: "INT32", i8: "INT64", f4: "FP32", f8: "FP64" };
const NOT_FINITE = ["NaN", "Infinity", "-Infinity"];

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
  const brain = (bits) => new Float32Array(Uint32Array.of(bits << 16).buffer)[0];  // its 16 bits are the first of 32
  const read = { BOOL: Boolean, BF16: brain }[datatype] ?? ((value) => (typeof value === "bigint" ? new Written(`${value}`) : value));
  return Array.from(new ARRAYS[datatype](bytes.slice().buffer), (value) => read(value));
}

function texts(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset), found = [];
  for (let at = 0; at < bytes.length;) {
    const end = at + 4 + view.getUint32(at, true);
    const element = bytes.subarray(at + 4, end);
    found.push(tried(() => new TextDecoder("utf-8", { fatal: true }).decode(element)) ?? element);
    at = end;
  }
  return found;
}

/** An element as a number, for what is drawn; null if it is none. */
export function numberOf(value) {
  const isNumber = value instanceof Written || ["number", "boolean"].includes(typeof value) || NOT_FINITE.includes(value);
  return isNumber ? Number(value) : null;
}

/** An element as text, whole. */
export function writtenOf(value) {
  if (value instanceof Uint8Array) return counted(value.length, "byte");
  return value === null || value === undefined ? "" : String(value);
}

/** An element as text, with all its digits: one of FP32 without those that only 64 bits have. */
export function digitsOf(value, datatype) {
  const number = datatype === "FP32" ? numberOf(value) : null, shorter = single(number);
  return Number.isFinite(number) && shorter !== number ? String(shorter) : writtenOf(value);
}

const IMAGES = [["image/png", /^iVBORw0KGg/], ["image/jpeg", /^[/]9j[/]/], ["image/gif", /^R0lGOD[dl]h/], ["image/webp", /^UklGR.{6}XRUJQ/]];  // their heads in base64

/** The picture that an element of BYTES holds, as it is or in base64: its bytes and its media type; null if it holds none. */
export function imageIn(element) {
  const isText = typeof element === "string", head = isText ? element : element instanceof Uint8Array ? btoa(String.fromCharCode(...element.subarray(0, 12))) : "";
  const type = IMAGES.find(([, begin]) => begin.test(head))?.[0];
  if (!type || (isText && (element.length % 4 || !/^[A-Za-z0-9+/]{24,}={0,2}$/.test(element)))) return null;
  return { type, bytes: isText ? Uint8Array.from(atob(element), (each) => each.charCodeAt(0)) : element };
}

// Arrays from files, at random, and their bytes: little-endian, row by row

export const isFloating = (datatype) => /^(FP|BF)/.test(datatype);

/** The number of elements of a shape; each -1 counts as 1. */
export const sizeOf = (shape) => shape.reduce((product, size) => product * (size === -1 ? 1 : size), 1);

/** The shape of so many elements, as a member of a flat object has none; undefined where more than one of its sizes is free. */
export function shapeOfCount(declared, count) {
  const free = declared.filter((size) => size === -1).length, fixed = sizeOf(declared);
  return free > 1 || !fixed ? undefined : declared.map((size) => (size === -1 ? count / fixed : size));
}

/** An array of numpy's file format: its shape and its values as numbers, which are Written where they would be rounded. Raises Error where it is none that can be read. */
export function readNpy(buffer) {
  const bytes = new Uint8Array(buffer);
  if (String.fromCharCode(...bytes.subarray(1, 8)) !== "NUMPY\x01\0") throw new Error("numpy.save has not written it");  // its other versions are for other dtypes
  const begin = 10 + new DataView(buffer).getUint16(8, true), header = new TextDecoder().decode(bytes.subarray(10, begin));
  const [, order, kind] = /'descr':\s*'([<>|=])(\w\d+)'/.exec(header) ?? [];
  const datatype = OF_NUMPY[kind];
  if (!datatype || order === ">") throw new Error(`it has a dtype that cannot be sent from here: expected one of ${Object.keys(OF_NUMPY).join(", ")}`);
  if (/'fortran_order':\s*True/.test(header)) throw new Error("it is in Fortran's order: save np.ascontiguousarray(array)");
  const shape = (/'shape':\s*\(([^)]*)\)/.exec(header)?.[1] ?? "").split(",").filter((part) => part.trim()).map(Number);
  const values = new ARRAYS[datatype](buffer.slice(begin, begin + sizeOf(shape) * ARRAYS[datatype].BYTES_PER_ELEMENT));
  return { shape, values: [...values].map((value) => (typeof value === "bigint" ? exactly(`${value}`) : Number(value))) };
}

/** The bytes of numbers; those of 64 bits may be Written. Raises Error for a number that they cannot hold, as they would be those of another one. */
export function bytesOf(datatype, values) {
  const bigOf = (value) => BigInt(value instanceof Written ? value.source : Math.trunc(value) || 0);
  const Kind = ARRAYS[datatype], isBig = "BigInt64Array BigUint64Array".includes(Kind.name);
  const read = datatype === "BF16" ? brainOf : (value) => value;
  const array = Kind.from(values, (value) => (isBig ? bigOf(value) : read(numberOf(value))));
  const other = isFloating(datatype) ? -1 : values.findIndex((value, place) => `${array[place]}` !== writtenOf(value));
  if (other >= 0) throw new Error(`${writtenOf(values[other])} is no ${datatype}`);
  return new Uint8Array(array.buffer);
}

/** A number in 16 bits, which are the first of one in 32. */
function brainOf(number) {
  const [bits] = new Uint32Array(Float32Array.of(number).buffer);
  return Number.isNaN(number) ? 0x7fc0 : (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

/** Numbers at random, floats below 1, bytes of pixels or small integers, in a shape without -1; and how Python makes them. */
export function randomIn(datatype, shape) {
  const isFloat = isFloating(datatype), most = { BOOL: 2, UINT8: 256 }[datatype] ?? 10, size = `[${shape.join(", ")}]`;
  const one = () => (isFloat ? Math.floor(Math.random() * 1e6) / 1e6 : Math.floor(Math.random() * most));
  const code = `np.random.default_rng().${isFloat ? `random(${size})` : `integers(0, ${most}, ${size})`}`;
  return { shape, values: Array.from({ length: sizeOf(shape) }, one), code };
}

/** Zeros in a shape without -1; and how Python makes them. */
export const zerosIn = (shape) => ({ shape, values: Array(sizeOf(shape)).fill(0), code: `np.zeros([${shape.join(", ")}])` });

/** How Python reads an array from a CSV file: integers of 64 bits as such, as floats they would be rounded. */
export function csvCode(name, datatype, separator, hasNames) {
  const dtype = /INT64/.test(datatype) ? `, dtype="${datatype.toLowerCase()}"` : "";
  return `np.genfromtxt(${JSON.stringify(name)}, delimiter=${JSON.stringify(separator)}${hasNames ? ", skip_header=1" : ""}${dtype})`;
}

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
