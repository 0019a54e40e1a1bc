// Arrays from files and at random, and their bytes as the protocol has them: little-endian, row by row. Knows nothing of the page.

import { exactly, Written } from "./json.js";
import { ARRAYS, numberOf, writtenOf } from "./tensors.js";

const OF_NUMPY = { b1: "BOOL", u1: "UINT8", u2: "UINT16", u4: "UINT32", u8: "UINT64", i1: "INT8", i2: "INT16", i4: "INT32", i8: "INT64", f4: "FP32", f8: "FP64" };

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
  const bytes = new Uint8Array(buffer), view = new DataView(buffer);
  if (bytes.length < 12 || String.fromCharCode(...bytes.subarray(1, 6)) !== "NUMPY") throw new Error("numpy.save has not written it");
  const isFirst = bytes[6] === 1, begin = isFirst ? 10 : 12;
  const length = isFirst ? view.getUint16(8, true) : view.getUint32(8, true);
  const header = new TextDecoder().decode(bytes.subarray(begin, begin + length));
  const [, order, kind] = /'descr':\s*'([<>|=])(\w\d+)'/.exec(header) ?? [];
  const datatype = OF_NUMPY[kind];
  if (!datatype || order === ">") throw new Error(`it has a dtype that cannot be sent from here: expected one of ${Object.keys(OF_NUMPY).join(", ")}`);
  if (/'fortran_order':\s*True/.test(header)) throw new Error("it is in Fortran's order: save np.ascontiguousarray(array)");
  const shape = (/'shape':\s*\(([^)]*)\)/.exec(header)?.[1] ?? "").split(",").filter((part) => part.trim()).map(Number);
  const values = new ARRAYS[datatype](buffer.slice(begin + length, begin + length + sizeOf(shape) * ARRAYS[datatype].BYTES_PER_ELEMENT));
  return { shape, values: [...values].map((value) => (typeof value === "bigint" ? exactly(`${value}`) : Number(value))) };
}

/** The bytes of numbers; those of 64 bits may be Written. Raises Error for a number that they cannot hold, as they would be those of another one. */
export function bytesOf(datatype, values) {
  const Kind = ARRAYS[datatype], isBig = "BigInt64Array BigUint64Array".includes(Kind.name);
  const read = { FP16: halfOf, BF16: brainOf }[datatype] ?? ((value) => value);
  const array = Kind.from(values, (value) => (isBig ? bigOf(value) : read(numberOf(value))));
  const other = isFloating(datatype) ? -1 : values.findIndex((value, place) => `${array[place]}` !== writtenOf(value));
  if (other >= 0) throw new Error(`${writtenOf(values[other])} is no ${datatype}`);
  return new Uint8Array(array.buffer);
}

const bigOf = (value) => BigInt(value instanceof Written ? value.source : Math.trunc(value) || 0);

/** A number in 16 bits, with 5 bits for the exponent: the nearest, and of two the even one. */
export function halfOf(number) {
  const sign = number < 0 || Object.is(number, -0) ? 0x8000 : 0, size = Math.abs(number);
  if (Number.isNaN(number)) return 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  const exponent = Math.max(Math.floor(Math.log2(size || 1e-9)), -14), step = 2 ** (exponent - 10);
  const whole = size / step, floor = Math.floor(whole), rest = whole - floor;
  const count = floor + (rest > 0.5 || (rest === 0.5 && floor % 2) ? 1 : 0);
  return sign | (exponent === -14 ? count : ((exponent + 14) << 10) + count);
}

/** A number in 16 bits, which are the first of one in 32. */
function brainOf(number) {
  const [bits] = new Uint32Array(Float32Array.of(number).buffer);
  return Number.isNaN(number) ? 0x7fc0 : (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

/** Numbers at random: floats below 1, bytes of pixels, or small integers. */
export function randomValues(datatype, count) {
  const most = isFloating(datatype) ? 1 : { BOOL: 2, UINT8: 256 }[datatype] ?? 10;
  return Array.from({ length: count }, () => (isFloating(datatype) ? Math.floor(Math.random() * 1e6) / 1e6 : Math.floor(Math.random() * most)));
}

/** How Python makes such an array. */
export function randomCode(datatype, shape) {
  const size = `[${shape.join(", ")}]`;
  return isFloating(datatype) ? `np.random.default_rng().random(${size})` : `np.random.default_rng().integers(0, ${{ BOOL: 2, UINT8: 256 }[datatype] ?? 10}, ${size})`;
}

/** How Python reads an array from a CSV file: integers of 64 bits as such, as floats they would be rounded. */
export function csvCode(name, datatype, separator, hasNames) {
  const dtype = /INT64/.test(datatype) ? `, dtype="${datatype.toLowerCase()}"` : "";
  return `np.genfromtxt(${JSON.stringify(name)}, delimiter=${JSON.stringify(separator)}${hasNames ? ", skip_header=1" : ""}${dtype})`;
}

export const zerosCode = (shape) => `np.zeros([${shape.join(", ")}])`;

/**
 * The height, the width and the place of the colors in a shape of pictures, for one of this size; null if there are none. -1 is any size; of three sizes
 * it is that of rows only where none is of colors. A picture is scaled where both sizes are given, and is 1 high, or as wide as a row, only if it is so itself.
 */
export function layoutFor(shape, picture) {
  const own = shape.length === 4 && [1, -1].includes(shape[0]) ? shape.slice(1) : shape, isColors = (size) => own.length === 3 && [1, 3, 4].includes(size);
  const isLast = isColors(own[2]), isFirst = !isLast && isColors(own[0]), isGray = shape.length === 2 || (shape.length === 3 && shape[0] === -1);
  if (!isLast && !isFirst && !isGray) return null;
  const [height, width] = isLast ? own : own.slice(-2), sizes = [width, height];
  const fits = [picture.width, picture.height].every((size, axis) => [-1, size].includes(sizes[axis]));
  return fits || !sizes.some((size) => [-1, 1].includes(size)) ? { height, width, channels: isLast ? own[2] : isFirst ? own[0] : 1, isLast } : null;
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
