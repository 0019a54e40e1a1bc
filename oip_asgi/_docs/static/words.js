// Numbers and times in words for people. Knows nothing of what they are of.

const MOST_LISTED = 20;  // words, which are a few lines

/** Seconds for people. */
export function duration(seconds, most) {
  if (seconds === null) return "–";
  if (seconds === Infinity) return `over ${most} s`;
  return seconds < 1 ? `${digits(seconds * 1000)}\u00a0ms` : `${digits(seconds)}\u00a0s`;
}

/** A number with three digits that matter. */
export const digits = (number) => number >= 100 ? number.toFixed(0) : String(Number(number.toPrecision(3)));

/** A number beside a drawing: what is before the point is whole, and of what is behind it six digits in all stay, at least one. */
export function short(number) {
  const text = String(number);
  if (text.length <= 8 || !Number.isFinite(number) || Number.isInteger(number)) return text;
  return String(Number(Math.abs(number) < 1e5 ? number.toPrecision(6) : number.toFixed(1)));
}

/** A number of 32 bits with as few digits as tell it from all others; another number as it is. */
export function single(number) {
  if (Math.fround(number) !== number || Number.isInteger(number)) return number;  // an integer's digits are all its own
  const shorter = [6, 7, 8, 9].map((count) => Number(number.toPrecision(count)));  // all numbers of 6 digits differ in 32 bits, and 9 tell each
  return shorter.find((each) => Math.fround(each) === number);
}

/** A number of things. */
export const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/** Whether words are too many to be all listed. */
export const areMany = (words) => words.length > MOST_LISTED;

/** Words after each other; of very many the first, and how many there are. */
export const listed = (words) => areMany(words) ? `${words.slice(0, MOST_LISTED).join(", ")}, … (${words.length.toLocaleString("en")} in all)` : words.join(", ");

/** The time that one has looked, in whole seconds, or in minutes where those are enough. */
export function lately(seconds) {
  const whole = Math.ceil(seconds);
  return `in the last ${whole < 2 ? "second" : whole < 120 ? `${whole} s` : `${Math.round(whole / 60)}\u00a0minutes`}`;
}
