/**
 * The entry cache: who fills it, what enters and leaves and why, the removal queue, and the effect of another size.
 */

import { bar } from "../dom/bar.js";
import { h, setText } from "../dom/element.js";
import { Tiles, panel } from "../dom/parts.js";
import { Table } from "../dom/table.js";
import { bytes, count, duration, percent, rate, short } from "../format/numbers.js";
import { get } from "../shell/api.js";
import { Refresh } from "../shell/refresh.js";
import { topicHash } from "../shell/routes.js";
import { CAUSES, REASONS, words } from "./cache_events.js";
import { SizePanel } from "./cache_size.js";
import { fullName, topicLink } from "./topics.js";

const PATH = "/admin/v2/magnetar/console/cache?top=20";
const EVERY_MS = 2000;

const TILES = [["used", "In use"], ["hits", "Hit ratio since the start"], ["in", "Entries inserted"], ["out", "Entries evicted"], ["queue", "Removal queue"]];

/** Opens the view. */
export function openCache(app) {
  const tiles = new Tiles(TILES);
  const parts = [topicPart(), enteredPart(), flowPart(), requeuePart(), queuePart(), expectedPart(), workingSetPart()];
  const size = new SizePanel();
  const show = (cache) => {
    showTiles(tiles, cache);
    for (const part of parts) part.show(cache);
    size.show(cache);
  };
  const refresh = new Refresh((signal) => get(PATH, { signal }), show, EVERY_MS);
  refresh.now();
  const [topics, entered, flow, requeues, queue, expected, sets] = parts;
  const element = h("div", {},
    h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Entry cache"), whyForm(app)), refresh.error, tiles.element, sets.element,
    h("div", { class: "columns" },
      h("div", { class: "stack" }, size.element, queue.element),
      h("div", { class: "stack" }, topics.element, entered.element, flow.element, requeues.element, expected.element)));
  return { title: "Entry cache", element, close: () => refresh.close() };
}

function showTiles(tiles, cache) {
  const { hits, misses, coalesced } = cache.reads;
  const reads = hits + misses + coalesced;
  const evicted = Object.values(cache.evicted);
  tiles.set(
      "used",
      bytes(cache.chargedBytes),
      `of ${bytes(cache.maxBytes)}, ${short(cache.entries)} entries, ${bytes(cache.memoryBytes)} of memory, policy ${cache.policy}`,
    );
  tiles.set("hits", percent(reads ? hits / reads : null), `${short(hits)} hits, ${short(misses)} misses, ${short(coalesced)} coalesced`);
  const entered = enteredRows(cache);
  tiles.set("in", rate(sumOf(entered, "perSecond")), `${ratesOver(cache)}${short(sumOf(entered, "entries"))} since the start`);
  tiles.set("out", rate(sumOf(evicted, "perSecond")), `${ratesOver(cache)}${short(sumOf(evicted, "entries"))} since the start`);
  tiles.set("queue", short(cache.queue.length), "entries");
}

/** Names the time that the rates are of; the first answer has none. */
function ratesOver({ windowSeconds }) {
  return windowSeconds === null ? "" : `over ${duration(Math.max(1, Math.round(windowSeconds)))}; `;
}

/** Returns the sum of a field, null if one of them is not known. */
function sumOf(rows, field) {
  return rows.some((row) => row[field] === null) ? null : rows.reduce((sum, row) => sum + row[field], 0);
}

function topicPart() {
  const table = new Table({
    caption: "Topics by cached bytes", key: (row) => row.topic ?? "", empty: "The cache is empty.",
    columns: [
      { label: "Topic", header: true, text: (row) => row.topic ?? row.name, node: (row) => (row.topic ? topicLink(row.topic) : h("span", { class: "quiet" }, row.name)) },
      { label: "Bytes", text: (row) => `${bytes(row.bytes)} ${row.share}`, node: (row) => bar(row.share, bytes(row.bytes)) },
      { label: "Entries", number: true, minor: true, text: (row) => short(row.entries) },
      { label: "Hit ratio", number: true, text: (row) => percent(row.hitRatio) },
    ],
  });
  const show = ({ topics, restBytes, restTopics }) => {
    const rows = restTopics ? [...topics, { name: `${count(restTopics)} more topics`, bytes: restBytes, hitRatio: null }] : topics;
    const most = Math.max(1, ...rows.map((row) => row.bytes));
    table.show(rows.map((row) => ({ ...row, share: row.bytes / most })));
  };
  return { element: panel("Bytes by topic, and hit ratio since it was opened", table.element), show };
}

function enteredRows({ inserted }) {
  return [
    { cause: "it was published", entries: inserted.publishedEntries, perSecond: inserted.publishedPerSecond },
    { cause: "it was read from storage", entries: inserted.fromStorageEntries, perSecond: inserted.fromStoragePerSecond },
  ];
}

function enteredPart() {
  const table = new Table({
    caption: "Inserted entries by cause", key: (row) => row.cause,
    columns: [
      { label: "Entered because", header: true, text: (row) => row.cause },
      { label: "Entries", number: true, text: (row) => short(row.entries) },
      { label: "Rate", number: true, text: (row) => rate(row.perSecond) },
    ],
  });
  return { element: panel("Insertions since the start", table.element), show: (cache) => table.show(enteredRows(cache)) };
}

function flowPart() {
  const table = new Table({
    caption: "Evicted entries by reason", key: (row) => row.reason,
    columns: [
      { label: "Left because", header: true, text: (row) => words(REASONS, row.reason) },
      { label: "Entries", number: true, text: (row) => short(row.entries) },
      { label: "Bytes", number: true, minor: true, text: (row) => bytes(row.bytes) },
      { label: "Rate", number: true, text: (row) => rate(row.perSecond) },
      { label: "Still expected", number: true, text: (row) => short(row.expectedEntries), title: "Evicted although reads of them were expected" },
    ],
  });
  const show = ({ evicted }) => table.show(Object.entries(evicted).map(([reason, values]) => ({ reason, ...values })));
  return { element: panel("Evictions since the start", table.element), show };
}

function requeuePart() {
  const table = new Table({
    caption: "Requeued entries by cause", key: (row) => row.cause, empty: "No entry was requeued.",
    columns: [
      { label: "Requeued because", header: true, text: (row) => words(CAUSES, row.cause) },
      { label: "Entries", number: true, text: (row) => short(row.entries) },
    ],
  });
  const show = ({ requeued }) => table.show(Object.entries(requeued).map(([cause, entries]) => ({ cause, entries })));
  return { element: panel("Requeues since the start", table.element), show };
}

function queuePart() {
  const table = new Table({
    caption: "Entries of the removal queue by age", key: (row) => row.age, empty: "The removal queue is empty.",
    columns: [
      { label: "Age", header: true, text: (row) => row.age },
      { label: "Entries", text: (row) => `${row.entries} ${row.share}`, node: (row) => bar(row.share, short(row.entries), "second") },
      { label: "Bytes", number: true, text: (row) => bytes(row.bytes) },
    ],
  });
  const note = h("p", { class: "quiet" });
  const show = ({ queue }) => {
    const most = Math.max(1, ...queue.entries);
    table.show(ageLabels(queue.bucketSeconds).map((age, place) =>
      ({ age, entries: queue.entries[place], bytes: queue.bytes[place], share: queue.entries[place] / most })).filter(({ entries }) => entries > 0));
    setText(note, queue.sampled ? `Estimated from ${count(queue.walked)} of ${count(queue.length)} entries.` : "");
  };
  return { element: panel("Removal queue by age", table.element, note), show };
}

/** Returns the names of the buckets between the bounds. */
export function ageLabels(bounds) {
  const inner = bounds.slice(1).map((bound, place) => `${duration(bounds[place])} to ${duration(bound)}`);
  return [`under ${duration(bounds[0])}`, ...inner, `over ${duration(bounds.at(-1))}`];
}

function expectedPart() {
  const table = new Table({
    caption: "Cached entries by expected reads", key: (row) => row.reads, empty: "The cache is empty.",
    columns: [
      { label: "Expected reads", header: true, text: (row) => (row.reads === "notCounted" ? "not counted" : row.reads) },
      { label: "Entries", text: (row) => `${row.entries} ${row.share}`, node: (row) => bar(row.share, short(row.entries), "third") },
    ],
  });
  const show = ({ expectedReads }) => {
    const rows = Object.entries(expectedReads).map(([reads, entries]) => ({ reads, entries })).filter(({ entries }) => entries > 0);
    const most = Math.max(1, ...rows.map((row) => row.entries));
    table.show(rows.map((row) => ({ ...row, share: row.entries / most })));
  };
  return { element: panel("Expected reads", table.element), show };
}

function workingSetPart() {
  const table = new Table({
    caption: "Working sets of subscriptions", stacked: true, key: (row) => `${row.topic} ${row.subscription}`, empty: "No subscription with a consumer has entries to read.",
    columns: [
      { label: "Subscription", header: true, text: (row) => row.subscription },
      { label: "Topic", text: (row) => row.topic, node: (row) => topicLink(row.topic) },
      { label: "Bytes still to read", text: (row) => `${row.distanceBytes} ${row.share}`, node: (row) => bar(row.share, bytes(row.distanceBytes), row.fits ? "" : "bad") },
      { label: "Entries", number: true, minor: true, text: (row) => short(row.distanceEntries) },
      { label: "Hit ratio since it was opened", number: true, text: (row) => percent(row.hitRatio) },
      { label: "Reads now", text: (row) => (row.active ? "yes" : "no") },
    ],
  });
  const show = ({ workingSets, maxBytes }) => {
    const most = Math.max(1, ...workingSets.map((row) => row.distanceBytes));
    table.show(workingSets.map((row) => ({ ...row, share: row.distanceBytes / most, fits: row.distanceBytes <= maxBytes })));
  };
  return {
    element: panel("Working sets of subscriptions",
      h("p", { class: "quiet" }, "The bytes between a subscription and the newest entry of its topic. The cache must hold them for the subscription to read from memory; those that exceed its size are marked."),
      table.element),
    show,
  };
}

function whyForm(app) {
  const topic = h("input", { id: "why-topic", placeholder: "topic", autocomplete: "off", spellcheck: "false" });
  const entry = h("input", { id: "why-entry", placeholder: "ledger:entry", autocomplete: "off", size: 12 });
  const wrong = h("p", { class: "error", role: "alert" });
  const submit = (event) => {
    event.preventDefault();
    const name = fullName(topic.value.trim());
    const fits = /^\d+:\d+$/.test(entry.value.trim());
    setText(wrong, name && fits ? "" : "Write a topic, and an entry as ledger:entry");
    if (name && fits) app.go(topicHash(name, { entry: entry.value.trim() }));
  };
  return h("form", { class: "why-form", onsubmit: submit },
    h("label", { for: "why-topic" }, "Why is this entry cached or not?"), topic,
    h("label", { for: "why-entry", class: "unseen" }, "Entry"), entry, h("button", {}, "Ask"), wrong);
}
