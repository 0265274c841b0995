/** Scales of charts, paths, the miss-ratio curve. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { missRatioAt, sizeTicks } from "../pages/charts/curve.js";
import { bandPath, linePath, nearest, ticks, timeTicks } from "../pages/charts/scales.js";
import { messagesBefore } from "../pages/views/trimmed.js";

test("ticks are round and reach the largest value", () => {
  assert.deepEqual(ticks(2300), [0, 1000, 2000, 3000]);
  assert.deepEqual(ticks(0.034), [0, 0.01, 0.02, 0.03, 0.04]);
  assert.deepEqual(ticks(3 << 20, 1024), [0, 1 << 20, 2 << 20, 3 << 20]);
  assert.deepEqual(ticks(0), [0, 1]);
  for (const max of [1, 7, 99, 1e3, 123456, 7e9]) {
    for (const base of [1000, 1024]) {
      const found = ticks(max, base);
      assert.ok(found.at(-1) >= max && found.length <= 6, `${max} ${base}: ${found}`);
    }
  }
});

test("an unknown value interrupts the line, and a lonely one is a dot", () => {
  assert.equal(linePath([0, 1, 2, 3, 4], [5, 6, null, 7, null]), "M0.0 5.0L1.0 6.0M3.0 7.0h0");
  assert.equal(linePath([], []), "");
});

test("a gap interrupts the line", () => {
  assert.equal(linePath([0, 1, 9, 10, 30], [5, 6, 7, 8, 9], 3), "M0.0 5.0L1.0 6.0M9.0 7.0L10.0 8.0M30.0 9.0h0");
});

test("times on the axis are round and evenly spaced", () => {
  const from = Date.UTC(2026, 10, 23, 21, 3, 7);
  for (const [spanS, wanted] of [[60, 4], [100, 3], [300, 4], [640, 5], [3600, 4], [3600, 6], [60, 1]]) {
    const found = timeTicks(from, from + spanS * 1000, wanted);
    const step = found[1] - found[0];
    assert.ok(found.length >= 1 && found.length <= wanted + 1, `${spanS}: ${found}`);
    found.forEach((time, place) => {
      assert.equal(time, found[0] + place * (step || 0));
      assert.equal(time % Math.max(5000, step || 0), 0);
      assert.ok(time >= from && time <= from + spanS * 1000);
    });
  }
});

test("the band is a closed area", () => {
  assert.equal(bandPath([0, 1], [9, 8], [1, 2]), "M0.0 1.0L1.0 2.0L1.0 8.0L0.0 9.0Z");
});

test("the nearest place is found", () => {
  assert.equal(nearest([0, 10, 20], 14), 1);
  assert.equal(nearest([0, 10, 20], 16), 2);
  assert.equal(nearest([0, 10, 20], -5), 0);
  assert.equal(nearest([], 3), -1);
});

test("sizes on the axis of the curve are powers of two", () => {
  assert.deepEqual(sizeTicks(1 << 20, 16 << 20, 8), [1, 2, 4, 8, 16].map((size) => size << 20));
  assert.deepEqual(sizeTicks(1 << 20, 16 << 20, 3), [1, 4, 16].map((size) => size << 20));
  assert.deepEqual(sizeTicks(3 << 20, 3.5 * (1 << 20), 3), []);
});

test("the curve is read between its points", () => {
  const points = [{ bytes: 100, missRatio: 0.8 }, { bytes: 200, missRatio: 0.4 }, { bytes: 400, missRatio: 0.2 }];
  assert.equal(missRatioAt(points, 200), 0.4);
  assert.ok(Math.abs(missRatioAt(points, 150) - 0.6) < 1e-9);
  assert.equal(missRatioAt(points, 50), null);
  assert.equal(missRatioAt(points, 1000), 0.2);
  assert.equal(missRatioAt([], 5), null);
});

test("the number of the first message counts those in front of it", () => {
  assert.equal(messagesBefore({ index: 0, entryMessages: 1 }), 0);
  assert.equal(messagesBefore({ index: 800, entryMessages: 1 }), 800);
  assert.equal(messagesBefore({ index: 819, entryMessages: 20 }), 800);
  assert.equal(messagesBefore({ index: null, entryMessages: 1 }), null);
});
