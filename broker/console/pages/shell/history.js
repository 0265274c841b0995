/**
 * Values over time as columns: the last hour by ten seconds, the last five minutes by seconds. Pure.
 */

const SECONDS_MAX = 300;
const TENS_MAX = 360;
const TEN_MS = 10000;

/** Rows of numbers in columns by name; "atMs" is the time of a row. */
export class Columns {
  #rowsMax;
  #byName = { atMs: [] };

  constructor(rowsMax) {
    this.#rowsMax = rowsMax;
  }

  /** Number of rows. */
  get length() {
    return this.#byName.atMs.length;
  }

  /** Returns the values of a column, the oldest first. An unknown name has none. */
  column(name) {
    return this.#byName[name] ?? [];
  }

  /** Replaces all rows. */
  fill(fields, rows) {
    const kept = rows.slice(-this.#rowsMax);
    this.#byName = Object.fromEntries(fields.map((name, place) => [name, kept.map((row) => row[place])]));
    this.#byName.atMs ??= [];
  }

  /** Adds a row; the oldest one leaves a full table. */
  add(row) {
    for (const name of Object.keys(this.#byName)) {
      this.#byName[name].push(row[name] ?? null);
      if (this.#byName[name].length > this.#rowsMax) this.#byName[name].shift();
    }
  }
}

/** Both resolutions. */
export class History {
  /** One row a second, five minutes. */
  seconds = new Columns(SECONDS_MAX);
  /** One row for ten seconds, an hour. */
  tens = new Columns(TENS_MAX);
  #fields = [];

  /** Takes the event "history". */
  fill({ fields, seconds, tens }) {
    this.#fields = fields;
    this.seconds.fill(fields, seconds);
    this.tens.fill(fields, tens);
  }

  /**
   * Returns the finest rows that there are of a time before the newest row: seconds, and rows of ten seconds where
   * no page asked for seconds. Of a longer time, the rows of ten seconds and the newest second.
   * @param {number} spanMs
   */
  rows(spanMs) {
    const shown = new Columns(Infinity);
    const [fine, coarse] = [this.seconds.column("atMs"), this.tens.column("atMs")];
    const end = Math.max(fine.at(-1) ?? 0, coarse.at(-1) ?? 0);
    const known = end - Math.min(fine[0] ?? end, coarse[0] ?? end);
    const takesFine = Math.min(spanMs, known) <= SECONDS_MAX * 1000;
    // The newest second ends a line of tens, so that its legend says what the tiles of the same moment say.
    const fromMs = takesFine || !coarse.length ? end - spanMs : fine.at(-1) ?? Infinity;
    const seconds = this.#places(this.seconds, fromMs);
    const chosen = this.#places(this.tens, end - spanMs).filter(({ atMs }) =>
      // A row of ten seconds repeats the seconds within it.
      !seconds.some((second) => second.atMs > atMs - TEN_MS && second.atMs <= atMs));
    chosen.push(...seconds);
    chosen.sort((one, other) => one.atMs - other.atMs);
    shown.fill(this.#fields, chosen.map(({ columns, place }) => this.#fields.map((field) => columns.column(field)[place])));
    return shown;
  }

  /** Takes an event "overview" or "topic"; its `ten` is the broker's newest row of ten seconds. */
  add(row) {
    if (!this.#fields.length) return;
    this.seconds.add(row);
    const ten = Object.fromEntries((row.ten ?? []).map((value, place) => [this.#fields[place], value]));
    if (ten.atMs > (this.tens.column("atMs").at(-1) ?? 0)) this.tens.add(ten);
  }

  #places(columns, fromMs) {
    return columns.column("atMs").map((atMs, place) => ({ columns, place, atMs })).filter(({ atMs }) => atMs >= fromMs);
  }
}
