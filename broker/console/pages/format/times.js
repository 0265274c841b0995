/**
 * Texts of moments: relative to now for reading, absolute for the tooltip.
 */

import { UNKNOWN, duration } from "./numbers.js";

const ABSOLUTE = new Intl.DateTimeFormat("en-GB", {
  year: "numeric", month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
  timeZoneName: "short",
});
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const CLOCK_WITH_SECONDS = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit", minute: "2-digit", second: "2-digit",
});
/** Moments closer than this are "now": the clocks of browser and broker differ by a little. */
const NOW_SECONDS = 1;

/**
 * Reads a moment. Pulsar says 0 or 1970 for "never".
 * @param {number|string|null|undefined} value ms since 1970, or ISO 8601
 * @returns {?number} ms since 1970, null for never
 */
export function moment(value) {
  if (value === null || value === undefined || value === "") return null;
  const ms = typeof value === "number" ? value : Date.parse(value);
  return Number.isFinite(ms) && ms > 0 ? ms : null;
}

/**
 * Says how long ago a moment was: "3 min 20 s ago".
 * @param {?number} ms since 1970
 * @param {number} nowMs
 */
export function ago(ms, nowMs) {
  if (ms === null || ms === undefined) return UNKNOWN;
  const seconds = (nowMs - ms) / 1000;
  if (Math.abs(seconds) < NOW_SECONDS) return "now";
  return seconds > 0 ? `${duration(Math.round(seconds))} ago` : `in ${duration(Math.round(-seconds))}`;
}

/**
 * Formats a moment with date and time zone: "23 Nov 2026, 03:08:26 UTC".
 * @param {?number} ms since 1970
 */
export function absolute(ms) {
  return ms === null || ms === undefined ? UNKNOWN : ABSOLUTE.format(ms);
}

/**
 * Formats the time of day: "03:08".
 * @param {number} ms since 1970
 */
export function clock(ms) {
  return CLOCK.format(ms);
}

/**
 * Formats the time of day with seconds: "03:08:26".
 * @param {number} ms since 1970
 */
export function clockWithSeconds(ms) {
  return CLOCK_WITH_SECONDS.format(ms);
}
