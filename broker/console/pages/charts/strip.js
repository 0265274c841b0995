/**
 * The strip: a topic's ledgers from the oldest entry to the newest, with the cached part, and each cursor on a row of its own.
 *
 * One entry is selected by a click or with the keyboard: arrows move by one entry, Page keys by a tenth of the shown part,
 * Home and End to its ends, Enter asks for the entry.
 */

import { h, replace, setAttributes, setText, svg } from "../dom/element.js";
import { count, counted } from "../format/numbers.js";
import { EntryLine, beforeLine, cursorRanges, movedTo, rectangles, zoomed } from "./strip_geometry.js";

const LEDGER_HEIGHT = 30;
const CURSOR_HEIGHT = 16;
const NARROWEST_OPEN = 2;
const LABEL_WIDTH = 44;
const ZOOM = 4;
/** Subscriptions in front of the strip that its note names. */
const NAMED_MAX = 5;

const LEGEND = [
  ["cached", "in the cache"], ["disk", "on disk"], ["acknowledged", "acknowledged"], ["open", "delivered, not acknowledged"],
  ["unlisted", "too many holes to draw"],
  ["ahead", "to be read"], ["gone", "trimmed"],
];

const BEFORE = {
  reads: "reads in ledgers before those shown; of those shown ",
  open: "has entries to acknowledge in ledgers before those shown; of those shown ",
  "": "",
};

/** Draws ledgers and cursors of one topic. */
export class Strip {
  /** The figure. */
  element;
  #onPick;
  #line = new EntryLine([]);
  #cursors = [];
  #lastBefore = null;
  #whole = true;
  #shown = { from: 0, to: 0 };
  #selected = null;
  #position = null;
  #width = 0;
  #ledgerRow;
  #rows = h("div", { class: "strip-rows" });
  #readout = h("p", { class: "readout" });
  #trimmed = h("p", { class: "quiet" });

  /** @param {function({ledgerId: number, entryId: number}): void} onPick gets the entry that the user asks for */
  constructor(onPick) {
    this.#onPick = onPick;
    this.#ledgerRow = svg("svg", { class: "strip-row ledgers", height: LEDGER_HEIGHT, "aria-hidden": "true" });
    this.slider = h("div", {
      class: "strip-slider", role: "slider", tabindex: "0", "aria-label": "Entry of the topic", "aria-valuemin": 0,
      onkeydown: (event) => this.#key(event), onclick: (event) => this.#click(event),
      onpointermove: (event) => this.#tell(this.#indexAt(event)), onpointerleave: () => this.#tell(this.#selected),
    }, this.#ledgerRow);
    this.element = h("figure", { class: "strip" },
      h("div", { class: "strip-head" }, this.#legend(), this.#buttons()),
      h("div", { class: "strip-line" }, h("span", { class: "strip-label" }, "ledgers"), this.slider),
      this.#rows, this.#readout, this.#trimmed);
    new ResizeObserver(() => this.#resize()).observe(this.#ledgerRow);
  }

  /**
   * Shows a topic.
   * @param {Object[]} ledgers of the topic's answer
   * @param {Object[]} cursors of its live values
   * @param {{trimmed: ?number, ledgersMore: number, lastBefore: ?Object}} before messages that were trimmed, ledgers that are
   *   left out, and the position of their last entry
   */
  show(ledgers, cursors, { trimmed, ledgersMore, lastBefore }) {
    this.#lastBefore = lastBefore;
    this.#line = new EntryLine(ledgers);
    this.#cursors = cursors;
    if (this.#whole) this.#shown = { from: 0, to: this.#line.total };
    // Trimming moves the indexes, and a chosen entry may be newer than the ledgers were at the last load.
    if (this.#position) this.#selected = this.#onLine(this.#line.index(this.#position));
    this.element.classList.toggle("holey", cursors.some((cursor) => cursor.holesMore > 0));
    this.#showTrimmed(trimmed, ledgersMore, cursors.filter((cursor) => beforeLine(cursor, lastBefore)));
    this.#draw();
  }

  /** Selects an entry, without asking for it. */
  select(position) {
    this.#move(this.#line.index(position));
    this.#position = position;
    this.#tell(this.#selected);
  }

  /** Shows a piece of fixed length in front of the strip, because trimmed messages may be many more than those left. */
  #showTrimmed(messages, ledgersMore, early) {
    this.element.classList.toggle("trimmed", messages > 0 || ledgersMore > 0);
    const gone = messages > 0 ? `${counted(messages, "older message")} ${messages === 1 ? "was" : "were"} trimmed. ` : "";
    const left = ledgersMore > 0 ? `${counted(ledgersMore, "older ledger")} not shown.` : "";
    const names = early.slice(0, NAMED_MAX).map((cursor) => cursor.name).join(", ");
    const others = early.length > NAMED_MAX ? ` and ${count(early.length - NAMED_MAX)} more` : "";
    setText(this.#trimmed, gone + left + (early.length ? ` Entries to read or to acknowledge are there for ${names}${others}.` : ""));
  }

  #legend() {
    return h("div", { class: "legend" }, LEGEND.map(([name, text]) =>
      h("span", { class: `key ${name}-key` }, h("i", { class: `swatch ${name}`, "aria-hidden": "true" }), text)));
  }

  #buttons() {
    const zoom = (factor) => () => {
      this.#whole = false;
      const around = this.#selected ?? (this.#shown.from + this.#shown.to) / 2;
      this.#shown = zoomed(this.#shown, factor, around, this.#line.total);
      this.#draw();
    };
    const all = () => {
      this.#whole = true;
      this.#shown = { from: 0, to: this.#line.total };
      this.#draw();
    };
    return h("div", { class: "buttons", role: "group", "aria-label": "Part of the log" },
      h("button", { type: "button", onclick: zoom(1 / ZOOM) }, "Zoom in"),
      h("button", { type: "button", onclick: zoom(ZOOM) }, "Zoom out"),
      h("button", { type: "button", onclick: all }, "All"));
  }

  #resize() {
    const width = Math.floor(this.#ledgerRow.getBoundingClientRect().width);
    if (!width || width === this.#width) return;
    this.#width = width;
    this.#draw();
  }

  #draw() {
    if (!this.#width) return;
    this.#drawLedgers();
    this.#drawCursors();
    this.#tell(this.#selected);
  }

  #drawLedgers() {
    const size = [this.#width, LEDGER_HEIGHT];
    const ledgers = this.#line.ledgers().filter(([, ledger]) => ledger.entries > 0);
    replace(this.#ledgerRow,
      this.#rects("disk", [[0, this.#line.total]], size),
      this.#rects("cached", this.#line.cached(), size),
      ledgers.map(([start, ledger]) => this.#ledgerMark(start, ledger)),
      this.#cross(LEDGER_HEIGHT));
    setAttributes(this.#ledgerRow, { viewBox: `0 0 ${size.join(" ")}` });
  }

  #ledgerMark(start, ledger) {
    const [x, end] = [this.#x(start), this.#x(start + ledger.entries)];
    if (end < 0 || x > this.#width) return null;
    const left = Math.max(x, 0);
    const fits = Math.min(end, this.#width) - left > LABEL_WIDTH;
    return svg("g", {},
      x > 0 ? svg("line", { class: "edge", x1: x, x2: x, y1: 0, y2: LEDGER_HEIGHT }) : null,
      fits ? svg("text", { class: "ledger-id", x: left + 5, y: 19 }, ledger.ledgerId) : null);
  }

  #drawCursors() {
    replace(this.#rows, this.#cursors.map((cursor) => {
      const ranges = cursorRanges(this.#line, cursor);
      const unread = this.#line.total - ranges.read;
      const open = ranges.open.reduce((sum, [first, end]) => sum + end - first, 0);
      const before = beforeLine(cursor, this.#lastBefore);
      const text = `${cursor.name}: ${BEFORE[before]}${count(open)} delivered and not acknowledged in ${count(ranges.open.length)} `
        + `${ranges.open.length === 1 ? "range" : "ranges"}, ${unlistedText(cursor, ranges)}${count(unread)} to be read`;
      return h("div", { class: "strip-line" }, h("span", { class: "strip-label", title: cursor.name }, cursor.name),
        this.#cursorRow(ranges, text, before));
    }));
  }

  #cursorRow(ranges, text, before) {
    const size = [this.#width, CURSOR_HEIGHT];
    const read = this.#x(ranges.read);
    return svg("svg", { class: "strip-row", role: "img", "aria-label": text, height: CURSOR_HEIGHT, viewBox: `0 0 ${size.join(" ")}` },
      svg("title", {}, text),
      this.#rects("ahead", [[0, this.#line.total]], size),
      this.#rects("acknowledged", ranges.acknowledged, size),
      this.#rects("unlisted", ranges.unlisted, size),
      this.#rects("open", ranges.open, size, NARROWEST_OPEN),
      read >= 0 && read <= this.#width && before !== "reads" ? svg("path", { class: "read", d: `M${read - 5} 0h10l-5 8z` }) : null,
      // An arrow to the left: the place lies in ledgers that are not drawn.
      before && this.#shown.from === 0 ? svg("path", { class: "read", d: "M0 8l8-5v10z" }) : null,
      this.#cross(CURSOR_HEIGHT));
  }

  #rects(name, ranges, [width, height], narrowest = 1) {
    return rectangles(ranges, this.#shown, width, narrowest).map((one) =>
      svg("rect", { class: name, x: one.x.toFixed(2), y: 0, width: one.width.toFixed(2), height }));
  }

  #cross(height) {
    if (this.#selected === null) return null;
    const x = this.#x(this.#selected + 0.5);
    return svg("line", { class: "cross", x1: x, x2: x, y1: 0, y2: height });
  }

  #x(index) {
    return ((index - this.#shown.from) / (this.#shown.to - this.#shown.from || 1)) * this.#width;
  }

  #indexAt(event) {
    const { left } = this.#ledgerRow.getBoundingClientRect();
    const share = (event.clientX - left) / (this.#width || 1);
    const index = Math.floor(this.#shown.from + share * (this.#shown.to - this.#shown.from));
    return this.#onLine(index);
  }

  #click(event) {
    const index = this.#indexAt(event);
    if (index === null) return;
    this.#move(index);
    this.#onPick(this.#line.position(index));
  }

  #key(event) {
    if (!this.#line.total) return;
    const length = this.#shown.to - this.#shown.from;
    const page = Math.max(1, Math.round(length / 10));
    const at = this.#selected ?? Math.floor(this.#shown.to) - 1;
    const moves = {
      ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, PageDown: at - page, PageUp: at + page,
      Home: Math.ceil(this.#shown.from), End: Math.floor(this.#shown.to) - 1,
    };
    if (event.key in moves) this.#move(moves[event.key]);
    else if (event.key === "Enter") this.#onPick(this.#line.position(at));
    else return;
    event.preventDefault();
  }

  #move(index) {
    if (!this.#line.total) return;
    this.#selected = this.#onLine(index);
    this.#position = this.#line.position(this.#selected);
    if (!this.#whole) this.#shown = movedTo(this.#shown, this.#selected, this.#line.total);
    this.#draw();
  }

  #onLine(index) {
    return this.#line.total ? Math.min(Math.max(index, 0), this.#line.total - 1) : null;
  }

  /** Writes the entry under the pointer, or the selected one, below the strip and for screen readers. */
  #tell(index) {
    const text = index === null ? this.#summary() : this.#named(index);
    setText(this.#readout, text);
    setAttributes(this.slider, {
      "aria-valuemax": Math.max(0, this.#line.total - 1), "aria-valuenow": index ?? Math.max(0, this.#line.total - 1),
      "aria-valuetext": text,
    });
  }

  /** Names an entry. The selected one may be newer than the ledgers were at the last load, and then has no place yet. */
  #named(index) {
    const position = this.#line.position(index);
    if (!position) return this.#summary();
    const wanted = index === this.#selected && this.#position ? this.#position : position;
    const drawn = wanted.ledgerId === position.ledgerId && wanted.entryId === position.entryId;
    return `Entry ${wanted.ledgerId}:${wanted.entryId}, ${drawn ? this.#place(index) : "not drawn yet"}`;
  }

  #place(index) {
    return this.#line.cached().some(([first, end]) => index >= first && index < end) ? "in the cache" : "on disk";
  }

  #summary() {
    if (!this.#line.total) return "The topic has no entries.";
    const length = this.#shown.to - this.#shown.from;
    return `${count(Math.round(length))} of ${count(this.#line.total)} entries are shown. Click an entry to ask about it.`;
  }
}

/** Says how many holes are not drawn, and in how many entries they lie. */
function unlistedText({ holesMore }, { unlisted }) {
  if (!unlisted.length) return "";
  const [[first, end]] = unlisted;
  return `${count(holesMore)} more holes in ${count(end - first)} entries, `;
}
