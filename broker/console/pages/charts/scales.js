/**
 * Scales of charts: round ticks, and paths through known values. Pure.
 */

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
 * Writes the path of a line; an unknown value interrupts it.
 * @param {number[]} xs
 * @param {(number|null)[]} ys
 */
export function linePath(xs, ys) {
  const isKnown = (place) => ys[place] !== null && ys[place] !== undefined && Number.isFinite(ys[place]);
  return xs.map((x, place) => {
    if (!isKnown(place)) return "";
    const point = `${x.toFixed(1)} ${ys[place].toFixed(1)}`;
    if (isKnown(place - 1)) return `L${point}`;
    // A value between two unknown ones has no line; "h0" makes the round ends of the stroke a dot.
    return isKnown(place + 1) ? `M${point}` : `M${point}h0`;
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
