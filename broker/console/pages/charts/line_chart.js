/**
 * Lines over time, with a legend that shows the newest values or those under the pointer, and a table of the same data.
 */

import { freshId, h, replace, setAttributes, setText, svg } from "../dom/element.js";
import { clock, clockWithSeconds } from "../format/times.js";
import { linePath, linear, nearest, ticks, timeTicks } from "./scales.js";

const HEIGHT = 132;
const MARGIN = { top: 8, right: 28, bottom: 20, left: 74 };
const TABLE_ROWS_MAX = 60;
const LABEL_WIDTH = 72;
/** The axis is at least as long as this, so that the first values of a fresh broker are not drawn apart. */
const SHORTEST_MS = 60e3;
/** A shorter axis names the seconds. */
const MINUTES_MS = 600e3;
/** The longest time between two values that a line joins: rows of ten seconds come late on a busy machine. */
const JOINED_MS = 25e3;

/**
 * One line of a chart.
 * @typedef {Object} Series
 * @property {string} label
 * @property {string} name of the column in the history
 */

/** A chart of up to three lines with one unit. */
export class LineChart {
  /** The figure. */
  element;
  #series;
  #format;
  #axis;
  #base;
  #top;
  #width = 0;
  #shown = null;
  #hover = null;
  #svg = svg("svg", { class: "chart", role: "img", height: HEIGHT });
  #values;
  #table = h("div");
  #details;

  /**
   * @param {Object} options
   * @param {string} options.title
   * @param {Series[]} options.series
   * @param {function(?number): string} options.format value with unit
   * @param {function(?number): string} [options.axis] writes the levels, where `format` would say more than the level
   * @param {number} [options.base] of round ticks: 1000, or 1024 for bytes
   * @param {number} [options.top] fixed top of the scale
   */
  constructor({ title, series, format, axis = format, base = 1000, top }) {
    this.#series = series;
    this.#format = format;
    this.#axis = axis;
    this.#base = base;
    this.#top = top;
    this.title = title;
    this.#values = series.map(() => h("span", { class: "value" }));
    this.#details = h("details", { ontoggle: () => this.#fillTable() }, h("summary", {}, "Table of these values"), this.#table);
    this.element = h("figure", { class: "panel" }, this.#caption(freshId("chart")), this.#svg, this.#details);
    this.#svg.addEventListener("pointermove", (event) => this.#point(event));
    this.#svg.addEventListener("pointerleave", () => this.#point(null));
    new ResizeObserver(() => this.#resize()).observe(this.element);
  }

  /**
   * Shows columns of the history.
   * @param {import("../shell/history.js").Columns} columns
   * @param {number} longestMs length of the time axis; it is shorter while there are no older values
   */
  show(columns, longestMs) {
    const times = columns.column("atMs");
    const spanMs = Math.min(longestMs, Math.max(SHORTEST_MS, times.at(-1) - times[0] || 0));
    this.#shown = { times, lines: this.#series.map(({ name }) => columns.column(name)), spanMs };
    this.#draw();
  }

  #caption(id) {
    const legend = this.#series.map(({ label }, place) =>
      h("span", { class: "key" }, h("i", { class: `swatch line-${place}`, "aria-hidden": "true" }), label, " ", this.#values[place]));
    return h("figcaption", { id }, h("h3", {}, this.title), h("div", { class: "legend" }, legend));
  }

  #resize() {
    const width = Math.floor(this.#svg.getBoundingClientRect().width);
    if (!width || width === this.#width) return;
    this.#width = width;
    setAttributes(this.#svg, { viewBox: `0 0 ${width} ${HEIGHT}` });
    this.#draw();
  }

  #point(event) {
    this.#hover = event ? event.offsetX : null;
    this.#draw();
  }

  #draw() {
    if (!this.#shown || !this.#width) return;
    const { times, lines, spanMs } = this.#shown;
    const end = times.at(-1) ?? Date.now();
    const x = linear(end - spanMs, end, MARGIN.left, this.#width - MARGIN.right);
    const levels = this.#levels(lines);
    const y = linear(0, levels.at(-1), HEIGHT - MARGIN.bottom, MARGIN.top);
    const xs = times.map(x);
    const joined = x(JOINED_MS) - x(0);
    const place = this.#hover === null ? times.length - 1 : nearest(xs, this.#hover);
    replace(this.#svg,
      levels.map((level) => this.#level(level, y(level))),
      this.#timeLabels(end, spanMs, x),
      lines.map((line, number) => svg("path", {
        class: `line line-${number}`, d: linePath(xs, line.map((value) => (value === null ? null : y(value))), joined),
      })),
      place < 0 ? null : this.#marks(xs[place], lines.map((line) => line[place]), y));
    this.#tell(place);
  }

  #levels(lines) {
    if (this.#top) return [0, this.#top / 2, this.#top];
    const known = lines.flat().filter((value) => value !== null && value !== undefined);
    return ticks(known.reduce((most, value) => Math.max(most, value), 0), this.#base);
  }

  #level(level, y) {
    return svg("g", {},
      svg("line", { class: "grid", x1: MARGIN.left, x2: this.#width - MARGIN.right, y1: y, y2: y }),
      svg("text", { class: "axis", x: MARGIN.left - 6, y: y + 4, "text-anchor": "end" }, this.#axis(level)));
  }

  #timeLabels(end, spanMs, x) {
    const room = this.#width - MARGIN.left - MARGIN.right;
    return timeTicks(end - spanMs, end, Math.max(1, Math.min(6, Math.floor(room / LABEL_WIDTH)))).map((time) =>
      svg("text", { class: "axis", x: x(time), y: HEIGHT - 4, "text-anchor": "middle" },
        spanMs < MINUTES_MS ? clockWithSeconds(time) : clock(time)));
  }

  /** Marks the newest values, or with a line those under the pointer. */
  #marks(x, values, y) {
    const dots = values.map((value, number) =>
      value === null || value === undefined ? null : svg("circle", { class: `dot line-${number}`, cx: x, cy: y(value), r: 2.6 }));
    const line = this.#hover === null ? null : svg("line", { class: "cross", x1: x, x2: x, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom });
    return svg("g", {}, line, dots);
  }

  /** Writes the values at a place into the legend, and the sentence for screen readers. */
  #tell(place) {
    const { times, lines } = this.#shown;
    this.#values.forEach((value, number) => setText(value, this.#format(lines[number][place])));
    setAttributes(this.#svg, { "aria-label": this.#sentence(lines) });
    this.#svg.classList.toggle("pointed", this.#hover !== null);
    setText(this.element.querySelector("h3"),
      this.#hover === null || place < 0 ? this.title : `${this.title} at ${clockWithSeconds(times[place])}`);
  }

  #sentence(lines) {
    const parts = this.#series.map(({ label }, number) => {
      const known = lines[number].filter((value) => value !== null && value !== undefined);
      if (!known.length) return `${label}: no data`;
      const [low, high] = [Math.min(...known), Math.max(...known)];
      return `${label}: now ${this.#format(lines[number].at(-1))}, lowest ${this.#format(low)}, highest ${this.#format(high)}`;
    });
    return `${this.title}. ${parts.join(". ")}.`;
  }

  /** Fills the table when it is opened; it stays as it was then, so that it can be read. */
  #fillTable() {
    if (!this.#details.open || !this.#shown) return;
    const { times, lines } = this.#shown;
    const every = Math.max(1, Math.ceil(times.length / TABLE_ROWS_MAX));
    const rows = times.map((_, place) => place).filter((place) => (times.length - 1 - place) % every === 0).reverse();
    replace(this.#table, h("table", {}, h("caption", { class: "unseen" }, this.title),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Time"),
        this.#series.map(({ label }) => h("th", { scope: "col", class: "number" }, label)))),
      h("tbody", {}, rows.map((place) => h("tr", {}, h("th", { scope: "row" }, clockWithSeconds(times[place])),
        lines.map((line) => h("td", { class: "number" }, this.#format(line[place]))))))));
  }
}
