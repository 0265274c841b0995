/** The rows that charts draw: seconds where there are some, rows of ten seconds elsewhere. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { History } from "../pages/shell/history.js";

const FIELDS = ["atMs", "hitRatio"];
const FROM = 1_800_000_000_000;
const tens = (from, to, value) => Array.from({ length: (to - from) / 10 + 1 }, (_, place) => [FROM + (from + 10 * place) * 1000, value]);
const seconds = (from, to, value) => Array.from({ length: to - from + 1 }, (_, place) => [FROM + (from + place) * 1000, value]);

function history(fine, coarse) {
  const found = new History();
  found.fill({ fields: FIELDS, seconds: fine, tens: coarse });
  return found;
}

test("rows of ten seconds fill the time between two visits", () => {
  const found = history([...seconds(0, 10, 1), ...seconds(55, 60, 1)], [[FROM, 1], ...tens(10, 50, 0.61), [FROM + 60000, 1]]);
  for (const spanMs of [3600e3, 300e3]) {
    const rows = found.rows(spanMs);
    const between = rows.column("atMs").map((at, place) => [(at - FROM) / 1000, rows.column("hitRatio")[place]]).filter(([at]) => at > 10 && at < 55);
    assert.deepEqual(between, [[20, 0.61], [30, 0.61], [40, 0.61], [50, 0.61]]);
  }
});

test("rows are in the order of time and no older than the span", () => {
  const found = history(seconds(3300, 3600, 1), tens(0, 3600, 0.5));
  const five = found.rows(300e3).column("atMs");
  assert.deepEqual(five, [...five].sort((one, other) => one - other));
  // Three hundred seconds, and the row of ten before them.
  assert.equal(five.length, 301);
  assert.ok(five[0] >= FROM + 3300e3);
  // A long time is drawn of rows of one resolution.
  assert.equal(found.rows(3600e3).length, 360);
});

test("the newest second ends an hour of tens", () => {
  const rows = history(seconds(3600, 3607, 0.9), tens(0, 3600, 0.5)).rows(3600e3);
  assert.deepEqual(rows.column("atMs").slice(-2), [FROM + 3600e3, FROM + 3607e3]);
  assert.equal(rows.column("hitRatio").at(-1), 0.9);
  // Also in the moment in which a row of tens is made.
  assert.equal(history(seconds(3600, 3610, 0.9), tens(0, 3610, 0.5)).rows(3600e3).column("hitRatio").at(-1), 0.9);
});

test("a history without rows has no values", () => {
  assert.equal(history([], []).rows(3600e3).length, 0);
  assert.equal(new History().rows(300e3).length, 0);
});
