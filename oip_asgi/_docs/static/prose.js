// A docstring as people write it: paragraphs, which flow, headings, parameters, lists, code, and words in bold, italics or code. Knows nothing
// of the page.

import { build } from "./elements.js";

const ITEM = /^(\s*)(?:[-*+•]|\d+[.)])\s+(.*)$/;
const NUMBERED = /^\s*\d+[.)]\s/;
const UNDERLINE = /^\s*(-{3,}|={3,})\s*$/;  // of a heading
const SECTION = /^(Args|Arguments|Parameters|Other Parameters|Attributes|Returns|Yields|Raises|Warns|Examples?|Notes?|References|See Also):$/;
const ESSAY = /^(Examples?|Notes?|References)$/;  // sections of prose: others have entries, such as parameters
const ENTRY = /^\s+\*{0,2}\w[\w.]*( \([^)]*\))?:(\s|$)/;  // in the style of Google
const PROMPT = /^\s*>>> /;
const WORDS = /(`+)([^`]+?)\1|\*\*([^*\s](?:[^*]*[^*\s])?)\*\*|(?<![\w*])\*([^*\s](?:[^*]*[^*\s])?)\*(?![\w*])/g;

/** The blocks of a text: `{ kind: "text" | "inner" | "heading" | "code", lines }`, of which "inner" says more of the text before it, and `{ kind: "list", isNumbered, items }`. */
export function blocksOf(text) {
  const blocks = [];
  let last = null;  // the block that goes on, if there is one
  let isProse = false;  // whether what is indented is text: below a heading in the style of Google, but for examples
  let hasTerms = false;  // in the style of numpy: what is indented belongs to the term before it
  for (const line of inPlainWords(text).split("\n")) {
    if (/^\S/.test(line)) isProse = SECTION.test(line) && !line.startsWith("Example");
    const item = ITEM.exec(line), isIndented = /^ {4}/.test(line);
    if (!line.trim()) last = last?.kind === "list" || last?.kind === "code" ? { ...last, isParted: true } : isProse ? { kind: "section" } : null;
    else if (UNDERLINE.test(line) && last?.kind === "text" && last.lines.length === 1) {
      const [title] = last.lines;
      hasTerms = SECTION.test(`${title}:`) && !ESSAY.test(title);
      last.kind = "heading";
      last = null;
    } else if (SECTION.test(line)) {
      blocks.push({ kind: "heading", lines: [line.slice(0, -1)] });
      [last, hasTerms] = [isProse ? { kind: "section" } : null, false];
    } else if (PROMPT.test(line) || last?.isSession && !last.isParted) {
      last = addLine(blocks, last?.isSession ? last : null, "code", line.trim());
      last.isSession = true;
    } else if (item) last = addItem(blocks, last, item[2], NUMBERED.test(line));
    else if (last?.kind === "list" && !last.isParted && /^\s/.test(line)) last.items[last.items.length - 1] += ` ${line.trim()}`;
    else if (hasTerms) last = addLine(blocks, isIndented && last?.kind === "inner" ? last : null, isIndented ? "inner" : "text", line.trim());
    else if (isIndented && (!last || last.kind === "code" || last.isParted)) last = addLine(blocks, last?.kind === "code" ? last : null, "code", line.slice(4));
    else last = addLine(blocks, last?.isParted || last?.kind !== "text" || isProse && ENTRY.test(line) ? null : last, "text", line.trim());
  }
  return blocks;
}

/** The marks of reStructuredText as words: roles, links, directives and fields. */
function inPlainWords(text) {
  return text
    .replace(/(?<!\w):([a-z][\w:+-]*):`(~?)([^`]+)`/g, (_, role, isShort, target) => {
      const title = /^([^<]*\S)\s*<[^<>]*>$/.exec(target)?.[1];
      return title ?? (/^(ref|term|doc)$/.test(role) ? target : `\`${isShort ? target.split(".").at(-1) : target}\``);
    })
    .replace(/`([^`<]*[^`<\s])\s*<[^`<>]+>`__?/g, "$1").replace(/(?<!`)`([^`]+)`__?(?!\w)/g, "$1").replace(/\[(\w+)\]_(?!\w)/g, "[$1]")
    .replace(/^[ \t]*\.\. _[^:\n]+:.*\n?/gm, "").replace(/^([ \t]*)\.\. (?=\[\w+\] )/gm, "$1")
    .replace(/^[ \t]*\.\. (?:code|code-block|sourcecode|math)::.*$/gm, "")
    .replace(/^([ \t]*)\.\. ([a-z-]+)::[ \t]*(.*)(?:\n[ \t]*(?=\n\1[ \t]+\S))?/gm, (_, space, name, rest) => `${space}${directive(name, rest)}`)
    .replace(/(\S)::[ \t]*$/gm, "$1:")
    .replace(/^[ \t]*:(?:param|parameter|arg|argument|key|keyword|raises?|except|exception|type)\s+(?:([^:\n]*)\s)?([^\s:]+):/gm,
      (_, type, name) => `- \`${name}\`${type ? ` (${type})` : ""}:`)
    .replace(/^[ \t]*:returns?:/gm, "\nReturns:").replace(/^[ \t]*:rtype:/gm, "\nReturn type:");
}

function directive(name, rest) {
  const words = { versionadded: "Added in version", versionchanged: "Changed in version", deprecated: "Deprecated since version" }[name];
  if (words) return rest.replace(/^(\S*)\s*(.*)$/, (_, version, text) => `${words} ${version}${text ? `: ${text}` : "."}`);
  return `${name[0].toUpperCase()}${name.slice(1)}: ${rest}`;
}

function addItem(blocks, last, text, isNumbered) {
  if (last?.kind === "list" && last.isNumbered === isNumbered) last.items.push(text);
  else blocks.push({ kind: "list", isNumbered, items: [text] });
  return blocks.at(-1);
}

function addLine(blocks, last, kind, line) {
  if (last) last.lines.push(...(last.isParted ? [""] : []), line);
  else blocks.push({ kind, lines: [line] });
  return blocks.at(-1);
}

/** The parts of a line: `[kind, text]`, of which the kind is "plain", "code", "strong" or "em". */
export function partsOf(line) {
  const kinds = ["plain", "marks", "code", "strong", "em"];  // what is between two words that are found, and the groups of WORDS
  return line.split(WORDS).map((text, place) => [kinds[place % kinds.length], text]).filter(([kind, text]) => text && kind !== "marks");
}

/** The elements of a docstring. */
export function elementsOf(text) {
  return blocksOf(text).map(({ kind, lines, items, isNumbered }) => {
    if (kind === "list") return build(isNumbered ? "ol" : "ul", {}, items.map((item) => build("li", {}, inline(item))));
    if (kind === "heading") return build("h3", {}, inline(lines[0]));
    return kind === "code" ? build("pre", {}, [lines.join("\n")]) : build("p", kind === "inner" ? { className: kind } : {}, inline(lines.join(" ")));
  });
}

const inline = (text) => partsOf(text).map(([kind, part]) => (kind === "plain" ? part : build(kind, {}, [part])));
