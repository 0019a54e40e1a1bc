// What is typed: controls for one value, which may be missing, lines of numbers, and rows of a spreadsheet. Knows no tensors and nothing of the page.

import { build } from "./elements.js";
import { exactly, tried, Written } from "./json.js";
import { counted } from "./words.js";

const NUMBER = /^[-+]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;
const JSON_NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const OF_JSON = { true: true, false: false, null: null, NaN: "NaN", Infinity: "Infinity", "-Infinity": "-Infinity" };
const WORDS = { ...OF_JSON, True: true, False: false, None: null, nan: "NaN", inf: "Infinity", "-inf": "-Infinity" };
const MOMENT = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?))?(Z?)$/;
const MIDNIGHT = /^[0:.]*$/, WHOLE_MINUTE = /^\d\d:\d\d(:[0.]*)?$/;

const OTHER = "other";  // the value of an option that is none of the choices

/** What the reader wrote cannot be sent. */
export class Mistake extends Error {
  constructor(control, message) {
    super(message);
    this.control = control;
  }
}

/** What `read` returns, or `instead` of its mistake. */
export const attempt = (read, instead) => tried(read, (error) => {
  if (error instanceof Mistake) return instead(error);
  throw error;
});

/** The type of a tensor in words: of BYTES, what its content type makes of them, dates with a time of the day if an example `hasTime`; and whether values may be missing. */
export function typeOf(datatype, contentType, { isNullable = false, hasTime = false } = {}) {
  const isText = datatype === "BYTES" && [undefined, "np", "str"].includes(contentType);
  const type = isText ? "text" : contentType === "datetime" ? (hasTime ? "date and time" : "date") : [datatype, contentType].filter(Boolean).join(" ");
  return isNullable ? `${type} or missing` : type;
}

/** Whether a text is a date with a time of the day. */
export const isMoment = (text) => !MIDNIGHT.test(MOMENT.exec(text)?.[2] ?? "");

/** A number as it is written, or the word for one; undefined if it is none. */
export function numberIn(word) {
  if (JSON_NUMBER.test(word)) return new Written(word);
  if (NUMBER.test(word)) return new Written(String(exactly(word)));
  return Object.hasOwn(WORDS, word) ? WORDS[word] : undefined;
}

/** Why a word is no number; a comma in it is mostly that of a decimal, of which `more` says what else to write. */
const noNumber = (word, more = "") => `${JSON.stringify(word)} is not a number${/\d,\d/.test(word) ? `: write decimals with a point, as in 1.5${more}` : ""}`;

/** The number that a word is; raises Mistake where it is none, or no whole one for integers. `place` says where it stands. The rest is the server's to say. */
export function readNumber(word, { datatype }, control, place, more) {
  const number = numberIn(word);
  if (number === undefined) throw new Mistake(control, `${place}: ${noNumber(word, more)}`);
  if (/^U?INT/.test(datatype) && number instanceof Written && !Number.isInteger(Number(number.source))) throw new Mistake(control, `${place}: ${word} is not an integer`);
  return number;
}

/** A control for a value of a column: `read` returns the value, null for a missing one, or undefined where nothing is to be sent. */
export function makeCell(column, label, value) {
  const { datatype, choices, contentType } = column, isNothing = value === null || value === undefined;
  if (choices || datatype === "BOOL") return choiceCell(column, label, value, choices ?? [true, false]);
  return contentType === "datetime" && (isNothing || MOMENT.test(value)) ? dateCell(column, label, value) : textCell(column, label, value);
}

/** What a control says where nothing is in it, if that is something. */
const nothingIn = ({ isNullable, isOptional, hint }) => isNullable ? "missing" : isOptional ? hint || "not sent" : "";

/** A value that is no choice stays in sight, and the server refuses it. */
function choiceCell(column, label, value, choices) {
  const options = choices.map((choice, place) => new Option(choice, place)), nothing = nothingIn(column);
  if (nothing) options.push(new Option(nothing, ""));
  const isNothing = value === null || value === undefined, place = isNothing ? -1 : choices.findIndex((choice) => String(choice) === String(value));
  const element = build("select", { ariaLabel: label }, options);
  element.value = place >= 0 ? place : !nothing && value === undefined ? 0 : "";
  if (place < 0 && !isNothing) element.append(new Option(value, OTHER, true, true));
  const read = () => (element.value === OTHER ? value : element.value === "" ? nothingOf(column, label, element, "a choice") : choices[element.value]);
  return { element, read };
}

/** A day; or a moment, if the first date of its column has a time of the day, or this one. */
function dateCell(column, label, value) {
  const [, day, time = "00:00:00", ownZone] = MOMENT.exec(value ?? "") ?? [], isMidnight = MIDNIGHT.test(time), zone = ownZone ?? column.zone ?? "";
  if (day) column.hasDays ??= isMidnight;
  const kind = column.hasDays && isMidnight ? { type: "date", value: day ?? "" }
    : { type: "datetime-local", step: WHOLE_MINUTE.test(time) ? 60 : 1, value: day ? `${day}T${time}` : "" };
  const element = build("input", { ariaLabel: label, ...kind });
  const read = () => {
    if (element.value) return `${element.value}${{ 10: "T00:00:00", 16: ":00" }[element.value.length] ?? ""}${zone}`;
    if (element.validity.badInput) throw new Mistake(element, `${placeOf(column, label)} needs the whole date`);
    return nothingOf(column, label, element, "a date");
  };
  return { element, read };
}

function textCell(column, label, value) {
  const text = value === null || value === undefined ? "" : String(value), nothing = nothingIn(column), isText = column.datatype === "BYTES";
  const element = build("input", { value: text, ariaLabel: label, autocomplete: "off", spellcheck: false, size: Math.min(Math.max(text.length, 8), 40) });
  if (/^UINT/.test(column.datatype) || column.least >= 0) element.inputMode = "decimal";  // whose keys on a phone have no minus
  element.placeholder = value === "" ? "empty text" : nothing;
  const mayBeEmpty = isText && (value === "" || !(nothing || value === null));
  const read = () => {
    const written = isText ? element.value : element.value.trim();
    if (!written && !mayBeEmpty) return nothingOf(column, label, element, isText ? "a text" : "a number");
    return isText ? written : readNumber(written, column, element, placeOf(column, label));
  };
  return { element, read };
}

function nothingOf(column, label, element, expected) {
  if (column.isNullable) return null;
  if (column.isOptional) return undefined;
  throw new Mistake(element, `${placeOf(column, label)} needs ${expected}`);
}

/** Where a mistake is: in which row, if there are several. */
const placeOf = ({ cells, name }, label) => cells?.length > 1 ? label : name;

// Lines of numbers, and rows from a spreadsheet or a CSV file

export const MISSING = ["", "NA", "NaN", "nan", "NULL", "null", "None", "NaT"];  // texts of a value that is missing

/** What parts the cells of a text: tabs, semicolons or commas, whichever its first line has. */
export const separatorOf = (text) => ["\t", ";", ","].find((each) => text.split("\n", 1)[0].includes(each)) ?? ",";

/** Read text as rows of texts, with quotes as RFC 4180 has them. */
export function readRows(text) {
  const separator = separatorOf(text), rows = [[]];
  const cells = new RegExp(`(?:"([^"]*(?:""[^"]*)*)"|([^${separator}\\r\\n]*))[^${separator}\\n]*?(${separator}|\\r?\\n|$)`, "g");
  for (const [, quoted, plain, end] of text.matchAll(cells)) {
    rows.at(-1).push(quoted?.replaceAll('""', '"') ?? plain);
    if (!end) break;
    if (end !== separator) rows.push([]);
  }
  return rows.filter((row) => row.length > 1 || row[0] !== "");
}

/** The texts of rows by column: by names in the first row, if half of `names` are there or it cannot be values (`areNames`), else in order from `first` on; and the rows' own names. */
export function columnsOf(rows, names, first, areNames) {
  const texts = rows[0]?.map((text) => text.trim()) ?? [];
  const known = names.filter((name) => texts.includes(name));
  const hasHead = areNames(texts) || (known.length > 0 && known.length * 2 >= Math.min(names.length, texts.length));
  const placeOf = (name) => (hasHead ? texts.indexOf(name) : names.indexOf(name) - first);
  const body = hasHead ? rows.slice(1) : rows;
  const found = names.map((name) => [name, placeOf(name)]).filter(([, place]) => place >= 0 && body.some((row) => place < row.length));
  const head = hasHead ? texts.filter(Boolean) : [];
  return { head, texts: new Map(found.map(([name, place]) => [name, body.map((row) => row[place] ?? "")])), unknown: head.filter((text) => !names.includes(text)) };
}

/** The words of each line of numbers as people write and copy them, or of each inner list as Python and JSON print it. `arePairs` is whether two numbers may be a row. */
export function wordsOf(text, arePairs) {
  const isList = /^\s*\[[^]*\]\s*$/.test(text);
  const lines = text.split(isList ? "]" : "\n").map((line) => (isList ? line.replace(/^[\s,[]+/, "") : line).trim()).filter(Boolean);
  const areSole = !isList && lines.length > 1 && !arePairs && lines.every((line) => line.split(",").length < 3);
  return lines.map((line) => {  // a comma parts two words if a blank follows, or if nothing else parts any: else it is that of a decimal
    const words = /[\s;]/.test(line) || areSole ? line.split(/[\s;]+/).map((word) => word.replace(/,+$/, "")) : line.split(",");
    return words.filter(Boolean);
  });
}

/** Whether the first row names the columns of numbers. */
export const isNamed = (rows) => rows[0]?.some((text) => /[^-+\d.,\s]/.test(text) && Number.isNaN(inCell(text)) && !MISSING.includes(text.trim()));

/** Rows of numbers, without a first line that names them; raises Error for a cell that is none, and where they are no array. */
export function numbersOf(rows) {
  const begin = isNamed(rows) ? 1 : 0, numbers = rows.slice(begin);
  if (!numbers.length) throw new Error("it has no numbers");
  return numbers.map((row, place) => {
    if (row.length !== numbers[0].length) throw new Error(`line ${begin + place + 1} has ${counted(row.length, "number")}, and the first ${numbers[0].length}`);
    return row.map((text) => {
      const number = inCell(text);
      if (!Number.isNaN(number) || MISSING.includes(text.trim())) return number;
      throw new Error(`line ${begin + place + 1}: ${noNumber(text)}`);
    });
  });
}

/** The number in a cell; NaN if there is none. */
const inCell = (text) => text.trim() ? exactly(text.replace(/^\s*([-+]?)inf(inity)?\s*$/i, "$1Infinity")) : NaN;
