// Numbers and times in words for people. Knows nothing of what they are of.

/** Seconds for people. */
export function duration(seconds, most) {
  if (seconds === null) return "–";
  if (seconds === Infinity) return `over ${most} s`;
  return seconds < 1 ? `${digits(seconds * 1000)} ms` : `${digits(seconds)} s`;
}

/** A number with three digits that matter. */
export function digits(number) {
  return number >= 100 ? number.toFixed(0) : String(Number(number.toPrecision(3)));
}

/** A number as short as it can be read: integers whole, six digits of others. `written` is how an integer that is too long is written. */
export function short(value, written = String(value)) {
  const number = Number(written);
  if (written.length <= 8 || Number.isInteger(number) && !/[.e]/i.test(written) || Number.isNaN(number)) return written;
  return String(Number(number.toPrecision(6)));
}

/** A number of things. */
export function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

/** The time that one has looked, in whole seconds, or in minutes where those are enough. */
export function lately(seconds) {
  const whole = Math.ceil(seconds);
  return `in the last ${whole < 2 ? "second" : whole < 120 ? `${whole} s` : `${Math.round(whole / 60)}\u00a0minutes`}`;
}
