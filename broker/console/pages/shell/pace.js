/**
 * The pace of loads that the page repeats by itself. Pure.
 */

/** A load comes at the earliest after this many times the broker's work for the last one: half a per cent of a core. */
const SHARE = 200;
/** Longest pause. */
const PAUSE_MAX_MS = 60_000;

/**
 * Returns the pause until the next load.
 * @param {number} everyMs the pause after an answer that cost nothing
 * @param {number} costMs processor time of the last answer, as the broker tells it
 */
export function pauseBetweenLoads(everyMs, costMs) {
  return Math.max(everyMs, Math.min(PAUSE_MAX_MS, SHARE * costMs));
}
