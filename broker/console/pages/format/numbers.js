/**
 * Texts of amounts: counts, bytes, rates, durations and ratios, each with its unit.
 *
 * Every function returns "–" for null and undefined: a value that is not known is never shown as 0.
 */

export const UNKNOWN = "–";

const BINARY_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const DECIMAL_UNITS = ["", "k", "M", "G", "T"];
/** Units of durations with their length in seconds, the longest first. */
const DURATIONS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1], ["ms", 1e-3], ["µs", 1e-6]];

const WHOLE = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });

/** @returns {boolean} true for a number that can be shown. */
function isKnown(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** Formats with three significant digits, so that 9.87, 98.7 and 987 take the same room. */
function threeDigits(value) {
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return WHOLE.format(value);
  return value.toFixed(size >= 10 ? 1 : 2).replace(/\.?0+$/, "");
}

/**
 * Formats a whole number with separators: "12,345".
 * @param {?number} value
 */
export function count(value) {
  return isKnown(value) ? WHOLE.format(value) : UNKNOWN;
}

/**
 * Formats a number with its noun: "1 producer", "3 producers".
 * @param {?number} value
 * @param {string} noun in the singular
 */
export function counted(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/**
 * Shortens a number with k, M, G, T: "12.3 k".
 * @param {?number} value
 */
export function short(value) {
  if (!isKnown(value)) return UNKNOWN;
  const [number, unit] = scaled(value, 1000, DECIMAL_UNITS);
  return unit ? `${number} ${unit}` : number;
}

/**
 * Formats an amount of memory or disk: "8 MiB".
 * @param {?number} value in bytes
 */
export function bytes(value) {
  return isKnown(value) ? scaled(value, 1024, BINARY_UNITS).join(" ") : UNKNOWN;
}

/**
 * Formats a rate with its unit: rate(12300, "msg") is "12.3 k msg/s", rate(7) is "7 /s".
 * @param {?number} perSecond
 * @param {string} [unit]
 */
export function rate(perSecond, unit = "") {
  return isKnown(perSecond) ? `${short(perSecond)} ${unit}/s` : UNKNOWN;
}

/**
 * Formats a throughput: "8 MiB/s".
 * @param {?number} perSecond in bytes per second
 */
export function byteRate(perSecond) {
  return isKnown(perSecond) ? `${bytes(perSecond)}/s` : UNKNOWN;
}

/**
 * Formats a share of 1 as a percentage: "70.1 %".
 * @param {?number} share 0 to 1
 */
export function percent(share) {
  if (!isKnown(share)) return UNKNOWN;
  const value = share * 100;
  // 99.96 is shown as 99.9: a rounded "100 %" would hide the misses.
  const shown = value < 100 ? Math.floor(value * 10 + 1e-9) / 10 : value;
  return `${Number(shown.toFixed(1))} %`;
}

/**
 * Formats a duration with one unit, two above a minute: "2.7 s", "3 min 20 s".
 * @param {?number} seconds
 */
export function duration(seconds) {
  if (!isKnown(seconds)) return UNKNOWN;
  if (seconds === 0) return "0 s";
  if (seconds < 0) return `-${duration(-seconds)}`;
  const place = DURATIONS.findIndex(([, length]) => seconds >= length);
  if (place < 0) return "< 1 µs";
  const [unit, length] = DURATIONS[place];
  if (length <= 1) return `${threeDigits(seconds / length)} ${unit}`;
  return longDuration(Math.floor(seconds), place);
}

/**
 * Says which time rates and hit ratio of one moment are of.
 * @param {?number} seconds null before the second count
 */
export function windowText(seconds) {
  if (!seconds) return "The first rates come with the next sample.";
  const whole = Math.max(1, Math.round(seconds));
  return `Rates and hit ratio are of the last ${whole === 1 ? "second" : duration(whole)}, all others of now where no other time is named.`;
}

/** The last bound of the broker's buckets of publish latencies. */
const LATENCY_TOP_MS = 1000;

/**
 * Formats a publish latency: "2.7 ms", and "> 1 s" where the broker's buckets end.
 * @param {?number} ms
 */
export function publishLatency(ms) {
  if (!isKnown(ms)) return UNKNOWN;
  return ms >= LATENCY_TOP_MS ? "> 1 s" : duration(ms / 1000);
}

function longDuration(seconds, place) {
  const [unit, length] = DURATIONS[place];
  const [nextUnit, nextLength] = DURATIONS[place + 1];
  const whole = Math.floor(seconds / length);
  const rest = Math.floor((seconds - whole * length) / nextLength);
  return rest ? `${whole} ${unit} ${rest} ${nextUnit}` : `${whole} ${unit}`;
}

/** Returns [number, unit] of the largest unit that leaves a number of at least 1. */
function scaled(value, base, units) {
  let place = 0;
  let rest = value;
  // 999.6 would be rounded to "1,000", which belongs to the next unit.
  while (Math.abs(rest) >= base - 0.5 && place < units.length - 1) {
    rest /= base;
    place += 1;
  }
  return [threeDigits(place === 0 && Math.abs(rest) >= 100 ? Math.round(rest) : rest), units[place]];
}
