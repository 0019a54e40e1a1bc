// JSON as text: read without a loss, and written for people, for Python, and on one line. Knows nothing of the page.

/** What `read` returns; where it fails, as on a text that is no JSON, what `instead` makes of its error: null. */
export function tried(read, instead = () => null) {
  try {
    return read();
  } catch (error) {
    return instead(error);
  }
}

/** Why a text is no JSON, as the browser says it; nothing if it is JSON. */
export const mistakeIn = (text) => tried(() => { JSON.parse(text); return ""; }, ({ message }) => `The JSON has a mistake: ${message}.`);

export const isJSON = (text) => !mistakeIn(text);

const NAMES = { true: "True", false: "False", null: "None" };

/** JSON as a literal of Python; numbers stay as they are written. */
export const literal = (json) =>
  json.replace(/"(?:[^"\\]|\\.)*"|true|false|null/g, (token) => NAMES[token] ?? JSON.stringify(JSON.parse(token))).replaceAll("\n", "\n    ");

/** JSON without the white space between its tokens, so that it is one line. */
export const compact = (json) => json.replace(/("(?:[^"\\]|\\.)*")|\s+/g, (_, text = "") => text);

/** A number as it is written in JSON: an integer of 64 bits is more than a number of JavaScript can hold. */
export class Written {
  constructor(source) { this.source = source; }

  toString() { return this.source; }
}

/** The number that a text writes: an integer that a number of JavaScript would round, such as one of 64 bits, is Written. */
export function exactly(text) {
  const [, integer] = /^\s*([-+]?\d+)(?:\.0*)?\s*$/.exec(text) ?? [], number = Number(text);
  return integer && !Number.isSafeInteger(number) ? new Written(`${BigInt(integer)}`) : number;
}

/** Read JSON for `pretty`, which then writes numbers as they were written, where the browser tells how that was. */
export const parse = (json) => JSON.parse(json, (_, value, context) => (typeof value === "number" && context?.source ? new Written(context.source) : value));

/** JSON for people: an object on several lines, and lists on as few as their `width` in characters allows. */
export function pretty(value, indent = "", width = 88) {
  const line = holdsObjects(value) ? null : oneLine(value);
  if (line !== null && (isPlain(value) || indent.length + line.length <= width)) return line;
  const deeper = indent + "  ";
  const items = isObject(value) ? Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${pretty(item, deeper, width)}`)
    : value.every(isPlain) ? wrapped(value.map(oneLine), width - deeper.length)
      : value.map((item) => pretty(item, deeper, width));
  return onLinesOf(items, isObject(value) ? "{}" : "[]", indent);
}

/** JSON with a line for each tensor of a request, or for each member of a flat object. */
export function onLines(json) {
  const written = (value) => (Array.isArray(value) && value.some(isObject) ? onLinesOf(value.map(oneLine), "[]", "  ") : oneLine(value));
  const document = parse(json), members = () => Object.entries(document).map(([name, value]) => `${JSON.stringify(name)}: ${written(value)}`);
  return isObject(document) ? onLinesOf(members(), "{}", "") : oneLine(document);
}

const onLinesOf = (items, [begin, end], indent) => `${begin}\n${items.map((item) => `${indent}  ${item}`).join(",\n")}\n${indent}${end}`;

const isPlain = (value) => value === null || typeof value !== "object" || value instanceof Written;

const isObject = (value) => !isPlain(value) && !Array.isArray(value) && Object.keys(value).length > 0;

const holdsObjects = (value) => Array.isArray(value) ? value.some(holdsObjects) : isObject(value);

/** JSON on one line, with a blank wherever it may be broken. */
export function oneLine(value) {
  if (value instanceof Written) return value.source;
  if (Array.isArray(value)) return `[${value.map(oneLine).join(", ")}]`;
  return isObject(value) ? `{${Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${oneLine(item)}`).join(", ")}}` : JSON.stringify(value);
}

function wrapped(words, width) {
  const lines = [];
  for (const word of words) {
    const line = lines.at(-1);
    if (line && line.length + word.length + 2 <= width) lines[lines.length - 1] += `, ${word}`;
    else lines.push(word);
  }
  return lines;
}
