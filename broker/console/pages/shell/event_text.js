/**
 * Reads the text of server-sent events (HTML standard, 9.2.6), in pieces as they arrive. Pure.
 */

/** Cuts pieces of text into events. */
export class EventText {
  #rest = "";

  /**
   * Returns the events that a piece of text completes.
   * @param {string} piece
   * @returns {{event: string, data: string}[]}
   */
  add(piece) {
    this.#rest += piece;
    // A "\r" at the very end may be half of "\r\n", so it waits for the next piece.
    const whole = this.#rest.endsWith("\r") ? this.#rest.slice(0, -1) : this.#rest;
    const blocks = whole.replace(/\r\n?/g, "\n").split("\n\n");
    this.#rest = blocks.pop() + this.#rest.slice(whole.length);
    return blocks.map(readBlock).filter((one) => one.data !== null);
  }
}

function readBlock(block) {
  let event = "message";
  const data = [];
  for (const line of block.split("\n")) {
    const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line);
    if (field === "event") event = value;
    else if (field === "data") data.push(value);
  }
  return { event, data: data.length ? data.join("\n") : null };
}
