// Where a request has what the server refuses, as the text of its answer names it. Knows nothing of the page.

const INPUT = /^(?:inputs\[\d+\] \(|(?:(?:missing |unknown )?input|column|tensor) |rows\[(\d+)\](?:\.|: missing ))['"]?/;
const ROW = /^['")]*(?: cannot [^:]*)?[,:] (?:row (\d+)|data\[(\d+)\]|data: array (\d+)|(?:data: )?(?:\w+ )?element (\d+))/;

/** The name of the input, one of `names`, and its row, or its element where it is no table, from 0, if the text says which; null where it names no input. */
export function placeIn(error, names) {
  const [head, ofClass] = INPUT.exec(error) ?? [], rest = error.slice(head?.length);
  const [name] = names.filter((each) => head && rest.startsWith(each) && !/^\w/.test(rest.slice(each.length))).sort((one, other) => other.length - one.length);
  if (name === undefined) return null;
  const row = ofClass ?? ROW.exec(rest.slice(name.length))?.slice(1).find(Boolean);
  return { name, row: row && Number(row) };
}
