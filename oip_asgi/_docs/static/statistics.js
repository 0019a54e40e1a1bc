// Numbers of a model between two moments. Knows nothing of the page.

/** The statistics of all versions together: `count` requests in `ns` nanoseconds, `queued` of them spent in the queue. */
export function sumOf(all) {
  const sum = { count: 0, ns: 0, failed: 0, queued: 0 };
  for (const { inference_stats: { success, fail, queue } } of all) {
    sum.count += success.count + fail.count;
    sum.failed += fail.count;
    sum.ns += success.ns + fail.ns;
    sum.queued += queue.ns;
  }
  return sum;
}

/** What happened between two moments. Counters that go down are those of another process, or of one that began anew. */
export function change(before, after, now) {
  const count = after.count - before.count;
  if (count < 0) return { rate: null, latency: null, isOther: true };
  return { rate: count / ((now - before.now) / 1000), latency: count ? (after.ns - before.ns) / count / 1e6 : null };
}

/** A number with three digits that matter. */
export function digits(number) {
  return number >= 100 ? number.toFixed(0) : number.toPrecision(3).replace(/\.?0+$/, "");
}
