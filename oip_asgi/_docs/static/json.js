// JSON as text: read without a loss, and written for people, for Python, and on one line. Knows nothing of the page.

export function isJSON(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const NEXT = /[ \t\r\n]*([{}[\],:]|"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[\da-fA-F]{4}))*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null)?/y;
const VALUES = ["{", "[", "text", "word"];
const MAY_BE = { value: VALUES, item: [...VALUES, "]"], member: ["text", "}"], name: ["text"], colon: [":"], end: [] };

/** The place in a text at which it stops being JSON; its length if something is missing there, or nothing is wrong. */
export function mistakeIn(text) {
  const closers = [];  // of what is open
  NEXT.lastIndex = 0;
  for (let next = "value"; ;) {
    const [, token = ""] = NEXT.exec(text), place = NEXT.lastIndex - token.length;
    const kind = token.startsWith('"') ? "text" : /^[\w-]/.test(token) ? "word" : token;
    if (!(next === "comma" ? [",", closers.at(-1)] : MAY_BE[next]).includes(kind)) return place;
    if (kind === "{" || kind === "[") closers.push(kind === "{" ? "}" : "]");
    if (kind === closers.at(-1)) closers.pop();
    if (kind === "{") next = "member";
    else if (kind === "[") next = "item";
    else if (kind === ",") next = closers.at(-1) === "}" ? "name" : "value";
    else if (kind === ":") next = "value";
    else next = kind === "text" && (next === "member" || next === "name") ? "colon" : closers.length ? "comma" : "end";
  }
}

const TOKENS = /"(?:[^"\\]|\\.)*"|true|false|null|[^"tfn]+|[tfn]/g;
const NAMES = { true: "True", false: "False", null: "None" };

/** JSON as a literal of Python; numbers stay as they are written. Text that is no JSON stays as it is. */
export function literal(json) {
  if (!isJSON(json)) return json;
  const words = (json.match(TOKENS) ?? []).map((token) =>
    token.startsWith('"') ? JSON.stringify(JSON.parse(token)) : NAMES[token] ?? token);
  return words.join("").replaceAll("\n", "\n    ");
}

/** JSON without the white space between its tokens, so that it is one line, or with a `gap` behind its commas; text that is no JSON stays as it is. */
export function compact(json, gap = "") {
  if (!isJSON(json)) return json;
  const closer = (token) => token.replace(/[ \t\r\n]+/g, "").replaceAll(",", `,${gap}`);
  return (json.match(TOKENS) ?? []).map((token) => (token.startsWith('"') ? token : closer(token))).join("");
}

const OPENED = ['{"', "[{"];  // the outer object, and lists of objects in it, have lines for what is in them

/** JSON with a line for each tensor of a request, or for each member of a flat object. All stands as it is written. */
export function onLines(json) {
  if (!isJSON(json)) return json;
  const inside = [];  // whether what is in each bracket that is open has lines of its own
  const newLine = () => `\n${"  ".repeat(inside.filter(Boolean).length)}`;
  return compact(json, " ").replace(/"(?:[^"\\]|\\.)*"|[[\]{}]|, /g, (part, place, text) => {
    if (part === ", ") return inside.at(-1) ? `,${newLine()}` : part;
    if (part === "]" || part === "}") return inside.pop() ? newLine() + part : part;
    if (part !== "[" && part !== "{") return part;
    inside.push(inside.length < OPENED.length && text.startsWith(OPENED[inside.length], place));
    return inside.at(-1) ? part + newLine() : part;
  });
}

/** A number as it is written in JSON: an integer of 64 bits is more than a number of JavaScript can hold. */
export class Written {
  constructor(source) { this.source = source; }
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
  if (isPlain(value)) return word(value);
  const line = oneLine(value);
  if (line !== null && indent.length + line.length <= width) return line;
  const deeper = indent + "  ";
  if (!Array.isArray(value)) {
    const members = Object.entries(value).map(([key, item]) => `${deeper}${JSON.stringify(key)}: ${pretty(item, deeper, width)}`);
    return `{\n${members.join(",\n")}\n${indent}}`;
  }
  if (value.every(isPlain)) return `[\n${deeper}${wrapped(value.map(word), width - deeper.length).join(`,\n${deeper}`)}\n${indent}]`;
  return `[\n${value.map((item) => deeper + pretty(item, deeper, width)).join(",\n")}\n${indent}]`;
}

const isPlain = (value) => value === null || typeof value !== "object" || value instanceof Written;

function word(value) {
  return value instanceof Written ? value.source : JSON.stringify(value);
}

/** A list without objects, or an empty object, on one line; null for what is no such thing. */
function oneLine(value) {
  if (isPlain(value)) return word(value);
  if (!Array.isArray(value)) return Object.keys(value).length ? null : "{}";
  if (value.length > 100) return null;
  const items = value.map(oneLine);
  return items.includes(null) ? null : `[${items.join(", ")}]`;
}

function wrapped(words, width) {
  const lines = [[]];
  let length = 0;
  for (const each of words) {
    if (length && length + each.length > width) { lines.push([]); length = 0; }
    lines[lines.length - 1].push(each);
    length += each.length + 2;
  }
  return lines.map((line) => line.join(", "));
}
