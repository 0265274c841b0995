/**
 * The miss-ratio curve of the cache: the share of reads that would miss, by the size of the cache, with its error band.
 */

import { h, replace, setAttributes, svg } from "../dom/element.js";
import { bytes, percent } from "../format/numbers.js";
import { bandPath, linePath, linear } from "./scales.js";

const HEIGHT = 220;
const MARGIN = { top: 10, right: 24, bottom: 34, left: 52 };
/** Tops of the scale; the smallest that has room for the curve is drawn. */
const TOPS = [0.04, 0.1, 0.2, 0.4, 1];
const LEVELS = 4;
const LABEL_WIDTH = 80;
/** Standard errors on each side: 95 % of the true values lie within. */
const BAND = 2;

/**
 * Reads the curve at a size, between two points by a straight line.
 * @param {{bytes: number, missRatio: number}[]} points with rising bytes
 * @returns {?number} null in front of the first point
 */
export function missRatioAt(points, size) {
  const after = points.findIndex((point) => point.bytes >= size);
  if (after < 0) return points.length ? points.at(-1).missRatio : null;
  if (points[after].bytes === size) return points[after].missRatio;
  if (after === 0) return null;
  const [low, high] = [points[after - 1], points[after]];
  const share = (size - low.bytes) / (high.bytes - low.bytes);
  return low.missRatio + share * (high.missRatio - low.missRatio);
}

/**
 * Chooses powers of two between two sizes, at most `wanted`.
 * @param {number} least in bytes
 * @param {number} most in bytes
 */
export function sizeTicks(least, most, wanted) {
  const [first, last] = [Math.ceil(Math.log2(least)), Math.floor(Math.log2(most))];
  const step = Math.max(1, Math.ceil((last - first + 1) / wanted));
  return Array.from({ length: Math.max(0, Math.floor((last - first) / step) + 1) }, (_, place) => 2 ** (first + place * step));
}

/** Returns the upper end of the band of a point, with sign -1 the lower one. */
function boundOf(point, sign) {
  return Math.min(1, Math.max(0, point.missRatio + sign * BAND * point.standardError));
}

function topOf(points, now) {
  const highest = Math.max(now.measured ?? 0, ...points.map((point) => boundOf(point, 1)));
  return TOPS.find((top) => top >= highest) ?? 1;
}

/** Draws the curve, the present size and a size to compare. */
export class Curve {
  /** The drawing. */
  element = svg("svg", { class: "chart", role: "img", height: HEIGHT });
  #width = 0;
  #shown = null;

  constructor() {
    new ResizeObserver(() => this.#resize()).observe(this.element);
  }

  /**
   * Shows a curve.
   * @param {{points: Object[], now: {bytes: number, measured: ?number}}} curve
   * @param {number} other size in bytes to compare
   */
  show(curve, other) {
    this.#shown = { curve, other };
    this.#draw();
  }

  #resize() {
    const width = Math.floor(this.element.getBoundingClientRect().width);
    if (!width || width === this.#width) return;
    this.#width = width;
    setAttributes(this.element, { viewBox: `0 0 ${width} ${HEIGHT}` });
    this.#draw();
  }

  #draw() {
    if (!this.#shown || !this.#width) return;
    const { curve: { points, now }, other } = this.#shown;
    const most = Math.max(points.at(-1)?.bytes ?? 1, now.bytes);
    const least = Math.min(points.find((point) => point.bytes > 0)?.bytes ?? 1, now.bytes);
    // By factors of the size: a cache of 8 MiB and one of 8 GiB fit into one picture.
    const x = linear(Math.log(least), Math.log(most), MARGIN.left, this.#width - MARGIN.right);
    const drawn = points.filter((point) => point.bytes >= least);
    const top = topOf(drawn, now);
    const y = linear(0, top, HEIGHT - MARGIN.bottom, MARGIN.top);
    const levels = Array.from({ length: LEVELS + 1 }, (_, place) => (top * place) / LEVELS);
    replace(this.element, levels.map((level) => this.#level(level, y(level))), this.#sizes(least, most, x),
      this.#line(drawn, (size) => x(Math.log(size)), y),
      this.#mark("now", x(Math.log(now.bytes)), `now ${bytes(now.bytes)}`),
      other === now.bytes ? null : this.#mark("other", x(Math.log(other)), bytes(other)),
      now.measured === null || now.measured === undefined ? null
        : svg("circle", { class: "dot measured", cx: x(Math.log(now.bytes)), cy: y(now.measured), r: 4 }));
    setAttributes(this.element, { "aria-label": this.#sentence(points, now) });
  }

  #line(points, x, y) {
    const xs = points.map((point) => x(point.bytes));
    const bound = (sign) => points.map((point) => y(boundOf(point, sign)));
    return [
      svg("path", { class: "band", d: bandPath(xs, bound(-1), bound(1)) }),
      svg("path", { class: "line line-0", d: linePath(xs, points.map((point) => y(point.missRatio))) }),
    ];
  }

  #level(level, y) {
    return svg("g", {}, svg("line", { class: "grid", x1: MARGIN.left, x2: this.#width - MARGIN.right, y1: y, y2: y }),
      svg("text", { class: "axis", x: MARGIN.left - 6, y: y + 4, "text-anchor": "end" }, percent(level)));
  }

  #sizes(least, most, x) {
    const room = this.#width - MARGIN.left - MARGIN.right;
    return sizeTicks(least, most, Math.max(2, Math.floor(room / LABEL_WIDTH))).map((size) =>
      svg("text", { class: "axis", x: x(Math.log(size)), y: HEIGHT - MARGIN.bottom + 16, "text-anchor": "middle" }, bytes(size)));
  }

  #mark(name, x, text) {
    const left = x > this.#width * 0.7;
    return svg("g", { class: `mark ${name}` },
      svg("line", { x1: x, x2: x, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }),
      svg("text", { class: "axis", x: x + (left ? -5 : 5), y: MARGIN.top + (name === "now" ? 8 : 22), "text-anchor": left ? "end" : "start" }, text));
  }

  #sentence(points, now) {
    const at = missRatioAt(points, now.bytes);
    return `Miss ratio by size of the cache. At the present size of ${bytes(now.bytes)} the curve says ${percent(at)}, `
      + `measured were ${percent(now.measured)}. The smallest size shown is ${bytes(points[0]?.bytes)} with ${percent(points[0]?.missRatio)}, `
      + `the largest ${bytes(points.at(-1)?.bytes)} with ${percent(points.at(-1)?.missRatio)}.`;
  }
}
