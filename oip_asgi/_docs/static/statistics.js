// Numbers of a model between two moments. Knows nothing of the page, and no words.

/** What happened between two moments. Counters that go down are those of another process, or of one that began anew: null. */
export function change(before, after) {
  const [durations, queues] = ["durations", "queues"].map((name) => difference(before[name], after[name]));
  if ([...durations.counts, ...queues.counts].some((count) => count < 0)) return null;
  return { seconds: (after.now - before.now) / 1000, durations, queues };
}

function difference(before, after) {
  return { ...after, counts: after.counts.map((count, place) => count - before.counts[place]), sum: after.sum - before.sum };
}

/** What happened between each reading and the one before it; null where one of them is null, or of another process. */
export function momentsOf(readings) {
  return readings.slice(1).map((after, place) => after && readings[place] && change(readings[place], after));
}

/** Whether readings seem to be of several processes: counters went down more than once, as none does that begins anew. */
export function areOfSeveral(readings) {
  return momentsOf(readings).filter((moment, place) => !moment && readings[place] && readings[place + 1]).length > 1;
}

/** What happened up to `newest` since the earliest reading from which on nothing is unknown; null if there is none. */
export function recentChange(readings, newest) {
  const first = readings[momentsOf(readings).findLastIndex((moment) => !moment) + 1];
  return first ? change(first, newest) : null;
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
