// The events of a stream, as they come: parted by empty lines, with their data behind "data:". Knows nothing of the page.

/** Read text in pieces of any length: `read` returns the data of the events that are whole by now. */
export class EventReader {
  #rest = "";

  read(piece) {
    const blocks = (this.#rest + piece).split(/\r?\n\r?\n/);
    this.#rest = blocks.pop();
    return blocks.map(dataOf).filter((data) => data !== "");
  }
}

function dataOf(block) {
  const lines = block.split(/\r?\n/).filter((line) => line.startsWith("data:"));
  return lines.map((line) => line.slice("data:".length).replace(/^ /, "")).join("\n");
}
