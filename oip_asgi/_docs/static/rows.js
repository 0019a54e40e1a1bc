// Rows from a spreadsheet or a CSV file. Knows nothing of the page.

import { DECIMALS } from "./cells.js";
import { exactly } from "./json.js";
import { counted } from "./words.js";

export const MISSING = ["", "NA", "NaN", "nan", "NULL", "null", "None", "NaT"];  // texts of a value that is missing

/** What parts the cells of a text: tabs, semicolons or commas, whichever its first line has. */
export const separatorOf = (text) => ["\t", ";", ","].find((each) => text.split("\n", 1)[0].includes(each)) ?? ",";

/** Read text as rows of texts, with quotes as RFC 4180 has them. */
export function readRows(text) {
  const separator = separatorOf(text), rows = [[""]];
  let isQuoted = false;
  for (let place = 0; place < text.length; place += 1) {
    const letter = text[place], row = rows.at(-1);
    if (isQuoted && letter === '"' && text[place + 1] === '"') row[row.length - 1] += text[place += 1];
    else if (letter === '"' && (isQuoted || row.at(-1) === "")) isQuoted = !isQuoted;
    else if (isQuoted) row[row.length - 1] += letter;
    else if (letter === separator) row.push("");
    else if (letter === "\n") rows.push([""]);
    else if (letter !== "\r") row[row.length - 1] += letter;
  }
  return rows.filter((row) => row.length > 1 || row[0] !== "");
}

/**
 * Put rows into columns of these names: by the first row if it has at least half of the names, or cannot be values (`areNames`); else in order from
 * `first` on. Returns for each name its `texts`, where it is among the rows, the names that the rows have themselves (`head`), and those of them
 * that are `unknown`.
 */
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

/**
 * The lines of numbers as people write and copy them, and as Python and JSON print lists: each inner list is a line there. Returns for each line
 * its words. A comma parts two of them if a blank follows, or if the line has no other separator: else it is that of a decimal, and stays in its
 * word. So is the only comma of a line where no other has more, but in a list, or if rows of two numbers are expected (`arePairs`).
 */
export function wordsOf(text, arePairs) {
  const isList = /^\s*\[[^]*\]\s*$/.test(text);
  const lines = text.split(isList ? "]" : "\n").map((line) => (isList ? line.replace(/^[\s,[]+/, "") : line).trim()).filter(Boolean);
  const areSole = !isList && lines.length > 1 && !arePairs && lines.every((line) => line.split(",").length < 3);
  return lines.map((line) => {
    const words = /[\s;]/.test(line) || areSole ? line.split(/[\s;]+/).map((word) => word.replace(/,+$/, "")) : line.split(",");
    return words.filter(Boolean);
  });
}

/** Whether the first row names the columns of numbers. */
export const isNamed = (rows) => rows[0]?.some((text) => /[^-+\d.,\s]/.test(text) && Number.isNaN(numberIn(text)) && !MISSING.includes(text.trim()));

/** Rows of numbers, without a first line that names them; raises Error for a cell that is none, and where they are no array. */
export function numbersOf(rows) {
  const begin = isNamed(rows) ? 1 : 0, numbers = rows.slice(begin);
  if (!numbers.length) throw new Error("it has no numbers");
  return numbers.map((row, place) => {
    if (row.length !== numbers[0].length) throw new Error(`line ${begin + place + 1} has ${counted(row.length, "number")}, and the first ${numbers[0].length}`);
    return row.map((text) => {
      const number = numberIn(text);
      if (!Number.isNaN(number) || MISSING.includes(text.trim())) return number;
      throw new Error(`line ${begin + place + 1}: ${JSON.stringify(text)} is not a number${/,\d/.test(text) ? `: ${DECIMALS}` : ""}`);
    });
  });
}

/** The number in a cell; NaN if there is none. */
const numberIn = (text) => text.trim() ? exactly(text.replace(/^\s*([-+]?)inf(inity)?\s*$/i, "$1Infinity")) : NaN;
