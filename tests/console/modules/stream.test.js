/** Events of a stream, its history, its pauses, and addresses of views. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { EventText } from "../pages/shell/event_text.js";
import { History } from "../pages/shell/history.js";
import { pauseBetweenLoads } from "../pages/shell/pace.js";
import { format, parse, topicHash, topicName, topicPath } from "../pages/shell/routes.js";
import { pauseMs } from "../pages/shell/stream.js";

const STREAM = ": hello\n\nevent: overview\ndata: {\"a\": 1}\n\ndata: one\ndata: two\r\n\r\nevent: end\rdata:\r\r";
const EVENTS = [
  { event: "overview", data: '{"a": 1}' }, { event: "message", data: "one\ntwo" }, { event: "end", data: "" },
];

test("events are read in any pieces", () => {
  for (let size = 1; size <= STREAM.length; size += 1) {
    const text = new EventText();
    const found = [];
    for (let start = 0; start < STREAM.length; start += size) found.push(...text.add(STREAM.slice(start, start + size)));
    // The "\r" at the very end may be half of a line end; one more line settles it.
    found.push(...text.add("\n"), ...text.add(": x\n\n"));
    assert.deepEqual(found, EVENTS, `pieces of ${size}`);
  }
});

test("history keeps its length, and takes the broker's rows of ten seconds once each", () => {
  const history = new History();
  history.fill({ fields: ["atMs", "rate", "hitRatio"], seconds: [[1000, 4, null]], tens: [[1000, 5, 0.5]] });
  for (let second = 2; second <= 4001; second += 1) {
    const ten = Math.floor((second - 1) / 10) * 10 + 1;
    history.add({ atMs: second * 1000, rate: second, hitRatio: 0.9, ten: [ten * 1000, ten, 0.009] });
  }
  assert.equal(history.seconds.length, 300);
  assert.equal(history.seconds.column("rate").at(-1), 4001);
  assert.equal(history.tens.length, 360);
  assert.deepEqual(history.tens.column("atMs").slice(-2), [3991000, 4001000]);
  assert.equal(history.tens.column("hitRatio").at(-1), 0.009, "the broker counts what a mean of ratios cannot tell");
  history.add({ atMs: 4002000, rate: 1, hitRatio: null });
  assert.equal(history.tens.length, 360, "a broker without rows of ten seconds yet");
  assert.deepEqual(history.seconds.column("nosuch"), []);
});

test("values before the history are not kept", () => {
  const history = new History();
  history.add({ atMs: 1000, rate: 1 });
  assert.equal(history.seconds.length, 0);
});

test("pauses double up to half a minute", () => {
  assert.deepEqual([1, 2, 3, 9, 100].map((failures) => pauseMs(failures, 1)), [1000, 2000, 4000, 30000, 30000]);
  assert.equal(pauseMs(1, 0), 500);
});

test("addresses of views are read as they are written", () => {
  const hash = topicHash("persistent://public/default/a/b ?#%é", { entry: "3:20" });
  const route = parse(hash);
  assert.equal(route.view, "topic");
  assert.equal(topicName(route.parts), "persistent://public/default/a/b ?#%é");
  assert.deepEqual(route.query, { entry: "3:20" });
  assert.deepEqual(parse(""), { view: "overview", parts: [], query: {} });
  assert.deepEqual(parse("#/topics?search=%zz").query, { search: "%zz" });
  assert.equal(format("topics", [], { search: "", offset: 50 }), "#/topics?offset=50");
  assert.equal(topicPath("persistent://t/n/a b"), "persistent/t/n/a%20b");
});

test("loads that cost the broker much come less often", () => {
  assert.deepEqual([0, 5, 10, 40, 1000].map((costMs) => pauseBetweenLoads(2000, costMs)), [2000, 2000, 2000, 8000, 60000]);
});
