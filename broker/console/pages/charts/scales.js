/**
 * Scales of charts: round ticks, and paths through known values. Pure.
 */

/** Steps of a time axis in seconds. */
const TIME_STEPS = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600];

const DECIMAL_STEPS = [1, 2, 5, 10];
const BINARY_STEPS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
const TICKS_WANTED = 4;

/**
 * Chooses round ticks from 0 to at least `max`.
 * @param {number} max largest value
 * @param {number} base 1000, or 1024 for bytes
 * @returns {number[]} rising, the first is 0; their last is the top of the chart
 */
export function ticks(max, base = 1000) {
  if (!(max > 0)) return [0, 1];
  const rough = max / TICKS_WANTED;
  const step = base === 1024 && rough >= 1 ? binaryStep(rough) : decimalStep(rough);
  const count = Math.ceil(max / step - 1e-9);
  return Array.from({ length: count + 1 }, (_, place) => place * step);
}

/**
 * Chooses round times between two moments, evenly spaced.
 * @param {number} from in ms since 1970
 * @param {number} to
 * @param {number} wanted most of them
 */
export function timeTicks(from, to, wanted) {
  const fits = (seconds) => (to - from) / (seconds * 1000) <= wanted;
  const step = (TIME_STEPS.find(fits) ?? TIME_STEPS.at(-1)) * 1000;
  const first = Math.ceil(from / step) * step;
  return Array.from({ length: Math.max(0, Math.floor((to - first) / step) + 1) }, (_, place) => first + place * step);
}

function decimalStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return DECIMAL_STEPS.find((step) => step * power >= rough * (1 - 1e-9)) * power;
}

function binaryStep(rough) {
  const power = 1024 ** Math.floor(Math.log(rough) / Math.log(1024));
  return BINARY_STEPS.find((step) => step * power >= rough) * power;
}

/**
 * Maps a range to another one, linearly.
 * @returns {function(number): number}
 */
export function linear(from, to, start, end) {
  const length = to - from || 1;
  return (value) => start + ((value - from) / length) * (end - start);
}

/**
 * Writes the path of a line; an unknown value interrupts it, and so does a gap.
 * @param {number[]} xs rising or falling
 * @param {(number|null)[]} ys
 * @param {number} [longest] the longest distance of two xs that a line joins
 */
export function linePath(xs, ys, longest = Infinity) {
  const isKnown = (place) => ys[place] !== null && ys[place] !== undefined && Number.isFinite(ys[place]);
  const joins = (place) => isKnown(place) && isKnown(place - 1) && Math.abs(xs[place] - xs[place - 1]) <= longest;
  return xs.map((x, place) => {
    if (!isKnown(place)) return "";
    const point = `${x.toFixed(1)} ${ys[place].toFixed(1)}`;
    if (joins(place)) return `L${point}`;
    // A value without a neighbour has no line; "h0" makes the round ends of the stroke a dot.
    return joins(place + 1) ? `M${point}` : `M${point}h0`;
  }).join("");
}

/** Writes the path of the area between two lines, as of an error band. */
export function bandPath(xs, lows, highs) {
  if (!xs.length) return "";
  const back = [...xs].reverse();
  return `${linePath(xs, highs)}L${linePath(back, [...lows].reverse()).slice(1)}Z`;
}

/** Returns the place of the value nearest to `wanted` among rising values, -1 without values. */
export function nearest(values, wanted) {
  let low = 0;
  let high = values.length - 1;
  if (high < 0) return -1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low > 0 && wanted - values[low - 1] < values[low] - wanted ? low - 1 : low;
}
