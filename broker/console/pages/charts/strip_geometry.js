/**
 * A topic's log as a line of entries: positions to places on the line, and ranges to rectangles. Pure.
 *
 * The index of an entry is its number from the first ledger that is shown. A range is [first, behind the last] in indexes.
 */

/**
 * A position in the log.
 * @typedef {{ledgerId: number, entryId: number}} Position
 */

/** Maps positions of entries to indexes and back. */
export class EntryLine {
  #ledgers;
  #starts = [];
  /** Number of entries. */
  total = 0;

  /** @param {{ledgerId: number, entries: number}[]} ledgers the oldest first */
  constructor(ledgers) {
    this.#ledgers = ledgers;
    for (const ledger of ledgers) {
      this.#starts.push(this.total);
      this.total += ledger.entries;
    }
  }

  /** Returns [start, ledger] of each ledger. */
  ledgers() {
    return this.#ledgers.map((ledger, place) => [this.#starts[place], ledger]);
  }

  /**
   * Returns the index of a position, moved into the line: 0 in front of it, `total` behind it.
   * @param {Position} position
   */
  index({ ledgerId, entryId }) {
    for (let place = 0; place < this.#ledgers.length; place += 1) {
      const ledger = this.#ledgers[place];
      if (ledgerId < ledger.ledgerId) return this.#starts[place];
      if (ledgerId === ledger.ledgerId) {
        return this.#starts[place] + Math.min(Math.max(entryId, 0), ledger.entries);
      }
    }
    return this.total;
  }

  /**
   * Returns the index behind a position: the first one that `markDelete` leaves unacknowledged.
   * @param {Position} position
   */
  indexBehind({ ledgerId, entryId }) {
    return this.index({ ledgerId, entryId: entryId + 1 });
  }

  /** Returns the position of an index, null outside of the line. */
  position(index) {
    if (index < 0 || index >= this.total) return null;
    let place = this.#starts.length - 1;
    // Empty ledgers share their start with the next one and have no entry.
    while (this.#starts[place] > index || this.#ledgers[place].entries === 0) place -= 1;
    return { ledgerId: this.#ledgers[place].ledgerId, entryId: Math.floor(index) - this.#starts[place] };
  }

  /** Returns the ranges of the entries that the cache has. */
  cached() {
    return this.ledgers().flatMap(([start, ledger]) =>
      (ledger.cached ?? []).map(([first, last]) => [start + first, start + last + 1]));
  }
}

/**
 * Splits the line as a cursor sees it.
 * @param {EntryLine} line
 * @param {{markDelete: Position, read: Position, holes: number[][], holesMore: ?number}} cursor `holes` are the first
 *   acknowledged ranges behind `markDelete`, as [ledger, first, last]; `holesMore` counts those left out
 * @returns {{acknowledged: number[][], open: number[][], unlisted: number[][], read: number}} ranges, and the index that is
 *   read next; `open` was delivered and awaits its acknowledgement, `unlisted` has both kinds in ranges that the answer
 *   left out
 */
export function cursorRanges(line, cursor) {
  const behind = line.indexBehind(cursor.markDelete);
  const read = Math.max(line.index(cursor.read), behind);
  const beyond = cursor.holes
    .map(([ledgerId, first, last]) => [line.index({ ledgerId, entryId: first }), line.indexBehind({ ledgerId, entryId: last })])
    .filter(([first, end]) => end > first);
  const acknowledged = merged([[0, behind], ...beyond].filter(([first, end]) => end > first));
  // Behind the last listed hole an entry that no hole covers may be acknowledged all the same.
  const listed = cursor.holesMore > 0 ? Math.min(read, acknowledged.at(-1)?.[1] ?? 0) : read;
  return { acknowledged, open: gaps(acknowledged, behind, listed), unlisted: listed < read ? [[listed, read]] : [], read };
}

/**
 * Says what a cursor has in front of the line, in the ledgers that are left out.
 * @param {{markDelete: Position, read: Position}} cursor
 * @param {?Position} lastBefore last entry of the ledgers that are left out, null if none has entries
 * @returns {string} "reads" if its next entry lies there, "open" if an entry that it has passed is not acknowledged there,
 *   or empty
 */
export function beforeLine({ markDelete, read }, lastBefore) {
  if (!lastBefore) return "";
  if (!isBehind(read, lastBefore)) return "reads";
  return isBehind(lastBefore, markDelete) ? "open" : "";
}

function isBehind(one, other) {
  return one.ledgerId > other.ledgerId || (one.ledgerId === other.ledgerId && one.entryId > other.entryId);
}

/** Joins ranges that touch or overlap; returns them in order. */
export function merged(ranges) {
  const result = [];
  for (const [first, end] of [...ranges].sort((a, b) => a[0] - b[0])) {
    const last = result.at(-1);
    if (last && first <= last[1]) last[1] = Math.max(last[1], end);
    else result.push([first, end]);
  }
  return result;
}

/** Returns the parts of [from, to) that no range covers; the ranges are in order. */
export function gaps(ranges, from, to) {
  const result = [];
  let place = from;
  for (const [first, end] of ranges) {
    if (first >= to) break;
    if (first > place) result.push([place, first]);
    place = Math.max(place, end);
  }
  if (place < to) result.push([place, to]);
  return result;
}

/**
 * Turns ranges into rectangles of a row, as few as the pixels can show.
 * @param {number[][]} ranges in order
 * @param {{from: number, to: number}} shown part of the line that fills the row
 * @param {number} width in pixels
 * @param {number} narrowest smallest width of a rectangle: one entry among a million stays visible
 * @returns {{x: number, width: number}[]}
 */
export function rectangles(ranges, shown, width, narrowest = 1) {
  const scale = width / (shown.to - shown.from || 1);
  const result = [];
  for (const [first, end] of ranges) {
    if (end <= shown.from || first >= shown.to) continue;
    const left = (Math.max(first, shown.from) - shown.from) * scale;
    const right = (Math.min(end, shown.to) - shown.from) * scale;
    const x = Math.min(left, width - narrowest);
    const last = result.at(-1);
    if (last && x - (last.x + last.width) < 0.5) last.width = Math.max(last.width, Math.max(right, x + narrowest) - last.x);
    else result.push({ x, width: Math.max(right - x, narrowest) });
  }
  return result;
}

/**
 * Zooms by a factor around an index; the result stays within the line and shows at least ten entries.
 * @param {{from: number, to: number}} shown
 * @param {number} factor below 1 shows fewer entries
 * @param {number} around index that keeps its place as far as possible
 * @param {number} total entries of the line
 */
export function zoomed(shown, factor, around, total) {
  const length = Math.min(total, Math.max(10, (shown.to - shown.from) * factor));
  const share = (around - shown.from) / (shown.to - shown.from || 1);
  return within(around - share * length, length, total);
}

/** Moves the shown part as little as possible, so that it contains an index. */
export function movedTo(shown, index, total) {
  const length = shown.to - shown.from;
  if (index < shown.from) return within(index, length, total);
  if (index >= shown.to) return within(index + 1 - length, length, total);
  return shown;
}

function within(from, length, total) {
  const start = Math.max(0, Math.min(from, total - length));
  return { from: start, to: start + length };
}
