// A docstring as people write it: paragraphs with their line breaks, headings, lists, code, and words in bold, italics or code. Knows nothing
// of the page.

import { build } from "./elements.js";

const ITEM = /^(\s*)(?:[-*+•]|\d+[.)])\s+(.*)$/;
const NUMBERED = /^\s*\d+[.)]\s/;
const UNDERLINE = /^\s*(-{3,}|={3,})\s*$/;  // of a heading
const SECTION = /^(Args|Arguments|Parameters|Other Parameters|Attributes|Returns|Yields|Raises|Warns|Examples?|Notes?|References|See Also):$/;
const PROMPT = /^\s*>>> /;
const WORDS = /(`+)([^`]+?)\1|\*\*([^*\s](?:[^*]*[^*\s])?)\*\*|(?<![\w*])\*([^*\s](?:[^*]*[^*\s])?)\*(?![\w*])/g;

/** The blocks of a text: `{ kind: "text" | "heading" | "code", lines }`, and `{ kind: "list", isNumbered, items }`. */
export function blocksOf(text) {
  const blocks = [];
  let last = null;  // the block that goes on, if there is one
  let isProse = false;  // whether what is indented is text: below a heading in the style of Google, but for examples
  for (const line of text.split("\n")) {
    if (/^\S/.test(line)) isProse = SECTION.test(line) && !line.startsWith("Example");
    const item = ITEM.exec(line), isIndented = /^ {4}/.test(line);
    if (!line.trim()) last = last?.kind === "list" || last?.kind === "code" ? { ...last, isParted: true } : isProse ? { kind: "section" } : null;
    else if (UNDERLINE.test(line) && last?.kind === "text" && last.lines.length === 1) last = makeHeading(last);
    else if (SECTION.test(line)) last = addSection(blocks, line.slice(0, -1));
    else if (PROMPT.test(line) || last?.isSession && !last.isParted) last = addSession(blocks, last, line.trim());
    else if (item) last = addItem(blocks, last, item[2], NUMBERED.test(line));
    else if (last?.kind === "list" && !last.isParted && /^\s/.test(line)) last.items[last.items.length - 1] += ` ${line.trim()}`;
    else if (isIndented && (!last || last.kind === "code" || last.isParted)) last = addLine(blocks, last?.kind === "code" ? last : null, "code", line.slice(4));
    else last = addLine(blocks, last?.isParted || last?.kind !== "text" ? null : last, "text", line.trim());
  }
  return blocks;
}

function addItem(blocks, last, text, isNumbered) {
  if (last?.kind === "list" && last.isNumbered === isNumbered) {
    last.items.push(text);
    return blocks.at(-1);
  }
  blocks.push({ kind: "list", isNumbered, items: [text] });
  return blocks.at(-1);
}

function addLine(blocks, last, kind, line) {
  if (!last) {
    blocks.push({ kind, lines: [line] });
    return blocks.at(-1);
  }
  if (last.isParted) last.lines.push("");
  last.lines.push(line);
  return blocks.at(-1);
}

function makeHeading(block) {
  block.kind = "heading";
  return null;
}

/** A heading in the style of Google. */
function addSection(blocks, title) {
  blocks.push({ kind: "heading", lines: [title] });
  return title.startsWith("Example") ? null : { kind: "section" };
}

/** A line of what is typed into Python, or of what it prints. */
function addSession(blocks, last, line) {
  const block = addLine(blocks, last?.isSession ? last : null, "code", line);
  block.isSession = true;
  return block;
}

/** The parts of a line: `[kind, text]`, of which the kind is "plain", "code", "strong" or "em". */
export function partsOf(line) {
  const parts = [];
  let end = 0;
  for (const found of line.matchAll(WORDS)) {
    const [whole, , code, strong, em] = found;
    if (found.index > end) parts.push(["plain", line.slice(end, found.index)]);
    parts.push(code ? ["code", code] : strong ? ["strong", strong] : ["em", em]);
    end = found.index + whole.length;
  }
  return end < line.length ? [...parts, ["plain", line.slice(end)]] : parts;
}

/** The elements of a docstring. */
export function elementsOf(text) {
  return blocksOf(text).map(({ kind, lines, items, isNumbered }) => {
    if (kind === "list") return build(isNumbered ? "ol" : "ul", {}, items.map((item) => build("li", {}, inline(item))));
    if (kind === "heading") return build("h3", {}, inline(lines[0]));
    return kind === "code" ? build("pre", {}, [lines.join("\n")]) : build("p", {}, inline(lines.join("\n")));
  });
}

function inline(text) {
  return partsOf(text).map(([kind, part]) => (kind === "plain" ? part : build(kind, {}, [part])));
}
