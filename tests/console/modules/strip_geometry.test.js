/** Positions and ranges of a topic's log as places on a line. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { EntryLine, beforeLine, cursorRanges, gaps, merged, movedTo, rectangles, zoomed } from "../pages/charts/strip_geometry.js";

const LEDGERS = [
  { ledgerId: 3, entries: 50, cached: [] },
  { ledgerId: 4, entries: 0, cached: [] },
  { ledgerId: 7, entries: 30, cached: [[10, 19], [25, 29]] },
  { ledgerId: 9, entries: 0, cached: [] },
];
const line = new EntryLine(LEDGERS);
const at = (ledgerId, entryId) => ({ ledgerId, entryId });

test("positions become indexes", () => {
  assert.equal(line.total, 80);
  assert.equal(line.index(at(3, 0)), 0);
  assert.equal(line.index(at(7, 5)), 55);
  assert.equal(line.index(at(1, 9)), 0, "a trimmed ledger lies in front of the line");
  assert.equal(line.index(at(5, 0)), 50, "a ledger that was trimmed in between");
  assert.equal(line.index(at(9, 0)), 80);
  assert.equal(line.indexBehind(at(3, -1)), 0);
  assert.equal(line.indexBehind(at(7, 29)), 80);
});

test("indexes become positions, and empty ledgers have none", () => {
  assert.deepEqual(line.position(0), at(3, 0));
  assert.deepEqual(line.position(49), at(3, 49));
  assert.deepEqual(line.position(50), at(7, 0));
  assert.deepEqual(line.position(79), at(7, 29));
  assert.equal(line.position(80), null);
  assert.equal(line.position(-1), null);
  assert.equal(new EntryLine([]).position(0), null);
});

test("every index finds its way back", () => {
  for (let index = 0; index < line.total; index += 1) assert.equal(line.index(line.position(index)), index);
});

test("cached ranges are in indexes", () => {
  assert.deepEqual(line.cached(), [[60, 70], [75, 80]]);
});

test("a cursor splits the line into acknowledged, open and unread", () => {
  const cursor = { markDelete: at(3, 9), read: at(7, 10), holes: [[3, 20, 29], [7, 0, 4]] };
  assert.deepEqual(cursorRanges(line, cursor), {
    acknowledged: [[0, 10], [20, 30], [50, 55]], open: [[10, 20], [30, 50], [55, 60]], unlisted: [], read: 60,
  });
});

test("entries behind the last listed hole are not called open", () => {
  const cursor = { markDelete: at(3, 9), read: at(7, 10), holes: [[3, 20, 29]], holesMore: 7 };
  assert.deepEqual(cursorRanges(line, cursor), {
    acknowledged: [[0, 10], [20, 30]], open: [[10, 20]], unlisted: [[30, 60]], read: 60,
  });
  const fresh = { markDelete: at(3, -1), read: at(7, 10), holes: [], holesMore: 7 };
  assert.deepEqual(cursorRanges(line, fresh), { acknowledged: [], open: [], unlisted: [[0, 60]], read: 60 });
});

test("a cursor that has read everything leaves nothing open", () => {
  assert.deepEqual(cursorRanges(line, { markDelete: at(7, 29), read: at(7, 30), holes: [] }), {
    acknowledged: [[0, 80]], open: [], unlisted: [], read: 80,
  });
});

test("a fresh cursor has acknowledged nothing", () => {
  assert.deepEqual(cursorRanges(line, { markDelete: at(3, -1), read: at(3, 0), holes: [] }), { acknowledged: [], open: [], unlisted: [], read: 0 });
});

test("ranges are joined, and gaps are what they leave", () => {
  assert.deepEqual(merged([[5, 9], [0, 5], [20, 30], [25, 26]]), [[0, 9], [20, 30]]);
  assert.deepEqual(gaps([[0, 9], [20, 30]], 5, 40), [[9, 20], [30, 40]]);
  assert.deepEqual(gaps([[0, 50]], 5, 40), []);
});

test("one entry among a million stays visible", () => {
  const [one] = rectangles([[500000, 500001]], { from: 0, to: 1e6 }, 1000, 2);
  assert.equal(one.width, 2);
  assert.equal(one.x, 500);
  const [last] = rectangles([[999999, 1000000]], { from: 0, to: 1e6 }, 1000, 2);
  assert.ok(last.x + last.width <= 1000, "the last one stays within the row");
});

test("a row has no more rectangles than pixels can show", () => {
  const ranges = Array.from({ length: 100000 }, (_, number) => [number * 10, number * 10 + 5]);
  assert.ok(rectangles(ranges, { from: 0, to: 1e6 }, 1000).length < 1000);
});

test("only the shown part is drawn", () => {
  assert.deepEqual(rectangles([[0, 10], [40, 60], [90, 100]], { from: 50, to: 70 }, 100), [{ x: 0, width: 50 }]);
});

test("zooming keeps its centre and stays within the line", () => {
  assert.deepEqual(zoomed({ from: 0, to: 80 }, 0.25, 40, 80), { from: 30, to: 50 });
  assert.deepEqual(zoomed({ from: 30, to: 50 }, 4, 31, 80), { from: 0, to: 80 });
  assert.deepEqual(zoomed({ from: 60, to: 80 }, 0.1, 79, 80), { from: 69.5, to: 79.5 });
});

test("the shown part follows the selected entry", () => {
  assert.deepEqual(movedTo({ from: 30, to: 50 }, 50, 80), { from: 31, to: 51 });
  assert.deepEqual(movedTo({ from: 30, to: 50 }, 3, 80), { from: 3, to: 23 });
  assert.deepEqual(movedTo({ from: 30, to: 50 }, 40, 80), { from: 30, to: 50 });
});

test("a cursor in ledgers that are left out is told from one at their end", () => {
  const lastBefore = at(2, 99);
  const before = (markDelete, read) => beforeLine({ markDelete, read }, lastBefore);
  assert.equal(before(at(2, 99), at(3, 0)), "", "all of them are acknowledged");
  assert.equal(before(at(2, 98), at(3, 0)), "open");
  assert.equal(before(at(1, 5), at(7, 3)), "open");
  assert.equal(before(at(1, 5), at(2, 99)), "reads");
  assert.equal(before(at(3, 4), at(3, 5)), "");
  assert.equal(beforeLine({ markDelete: at(-1, -1), read: at(3, 0) }, null), "", "no ledger is left out");
});
