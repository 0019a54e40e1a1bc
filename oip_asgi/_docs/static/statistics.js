// Numbers of a model between two moments. Knows nothing of the page.

/** What happened between two moments. Counters that go down are those of another process, or of one that began anew: null. */
export function change(before, after) {
  const counts = (name) => after[name].counts.map((count, place) => count - before[name].counts[place]);
  const [durations, queues] = [counts("durations"), counts("queues")];
  if ([...durations, ...queues].some((count) => count < 0)) return null;
  return {
    seconds: (after.now - before.now) / 1000,
    durations: { bounds: after.durations.bounds, counts: durations },
    queues: { bounds: after.queues.bounds, counts: queues },
  };
}

export function total(counts) {
  return counts.reduce((sum, count) => sum + count, 0);
}

/** The value below which a share of a histogram's values are: the middle of its bucket, which is within 5 %. Null if there are no values. */
export function quantile({ bounds, counts }, share) {
  let left = total(counts) * share;
  if (!left) return null;
  for (const [place, count] of counts.entries()) {
    if (place === bounds.length) return Infinity;
    const lower = place ? bounds[place - 1] : 0;
    if (left <= count) return Math.sqrt(lower * bounds[place]);
    left -= count;
  }
  return Infinity;
}

/** Seconds for people. */
export function duration(seconds, most) {
  if (seconds === null) return "–";
  if (seconds === Infinity) return `over ${most} s`;
  return seconds < 1 ? `${digits(seconds * 1000)} ms` : `${digits(seconds)} s`;
}

/** A number with three digits that matter. */
export function digits(number) {
  return number >= 100 ? number.toFixed(0) : number.toPrecision(3).replace(/\.?0+$/, "");
}

/** A number as short as it can be read: integers whole, six digits of others. `written` is how an integer that is too long is written. */
export function short(value, written = String(value)) {
  const number = Number(written);
  if (written.length <= 8 || Number.isInteger(number) && !/[.e]/i.test(written) || Number.isNaN(number)) return written;
  return String(Number(number.toPrecision(6)));
}
