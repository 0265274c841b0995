/** Texts of amounts, durations and moments. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { byteRate, bytes, count, duration, percent, publishLatency, rate, short } from "../pages/format/numbers.js";
import { ago, moment } from "../pages/format/times.js";

test("numbers have separators or a letter", () => {
  assert.equal(count(1234567), "1,234,567");
  assert.deepEqual([0, 7, 999, 1000, 12345, 999600, 1e6].map(short), ["0", "7", "999", "1 k", "12.3 k", "1 M", "1 M"]);
  assert.equal(short(0.25), "0.25");
});

test("bytes use binary units", () => {
  assert.deepEqual([0, 1023, 1024, 8 << 20, 1536, 1048570].map(bytes), ["0 B", "1,023 B", "1 KiB", "8 MiB", "1.5 KiB", "1 MiB"]);
  assert.equal(byteRate(2048), "2 KiB/s");
});

test("rates name their unit", () => {
  assert.equal(rate(12300, "msg"), "12.3 k msg/s");
  assert.equal(rate(0.5, "msg"), "0.5 msg/s");
});

test("a percentage reaches 100 only without a miss", () => {
  assert.deepEqual([0, 0.5, 0.701, 0.99999, 1].map(percent), ["0 %", "50 %", "70.1 %", "99.9 %", "100 %"]);
});

test("durations have one unit, two above a minute", () => {
  assert.deepEqual([0, 2.7e-7, 0.00173, 2.7, 59, 60, 200, 3600, 90000].map(duration),
    ["0 s", "< 1 µs", "1.73 ms", "2.7 s", "59 s", "1 min", "3 min 20 s", "1 h", "1 d 1 h"]);
});

test("unknown values are a dash, never 0", () => {
  for (const format of [count, short, bytes, byteRate, percent, duration, (value) => rate(value, "msg")]) {
    assert.equal(format(null), "–");
    assert.equal(format(undefined), "–");
    assert.equal(format(NaN), "–");
  }
});

test("moments are relative, and 1970 is never", () => {
  assert.equal(moment("1970-01-01T00:00:00Z"), null);
  assert.equal(moment(0), null);
  assert.equal(moment("2026-11-23T03:08:26.828000Z"), Date.UTC(2026, 10, 23, 3, 8, 26, 828));
  assert.equal(ago(1000, 1500), "now");
  assert.equal(ago(1000, 201000), "3 min 20 s ago");
  assert.equal(ago(5000, 1000), "in 4 s");
});

test("a publish latency above the last bucket says so", () => {
  assert.deepEqual([null, 2.7, 999, 1000].map(publishLatency), ["–", "2.7 ms", "999 ms", "> 1 s"]);
});
