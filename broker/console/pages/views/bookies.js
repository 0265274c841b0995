/**
 * The bookies: their disks, the latency of their journals, their read caches, and the times of this broker's requests.
 */

import { bar } from "../dom/bar.js";
import { h, replace } from "../dom/element.js";
import { facts, panel } from "../dom/parts.js";
import { bytes, count, counted, duration, percent } from "../format/numbers.js";
import { get } from "../shell/api.js";
import { Refresh } from "../shell/refresh.js";

const PATH = "/admin/v2/magnetar/console/bookies";
const EVERY_MS = 5000;
const KINDS = { embedded: "in this process", memory: "in memory, nothing is kept", tcp: "over TCP" };
/** A disk with less free space than this share is marked. */
const LITTLE_FREE = 0.1;

/** Opens the view. */
export function openBookies() {
  const cards = h("div", { class: "cards" });
  const show = ({ bookies, more }) => replace(cards, bookies.length ? bookies.map(card) : h("p", { class: "empty" }, "No bookie is known."),
    more ? h("p", { class: "quiet" }, `${counted(more, "more bookie")} not shown.`) : null);
  const refresh = new Refresh((signal) => get(PATH, { signal }), show, EVERY_MS);
  refresh.now();
  const element = h("div", {}, h("h1", { tabindex: "-1" }, "Bookies"), refresh.error, cards);
  return { title: "Bookies", element, close: () => refresh.close() };
}

function card(bookie) {
  // An embedded bookie has no port; ledger metadata need a name for it all the same.
  return panel(bookie.kind === "tcp" ? bookie.id : "Embedded bookie",
    h("p", { class: "chips" }, stateChip(bookie.state),
      h("span", { class: "chip" }, KINDS[bookie.kind] ?? bookie.kind),
      bookie.connected === false ? h("span", { class: "chip bad" }, "not connected") : null),
    bookie.kind === "tcp" ? null : h("p", { class: "quiet note" }, "Ledger metadata names it ", h("code", {}, bookie.id), "; it has no port of its own."),
    bookie.disks ? disks(bookie.disks) : null,
    h("div", { class: "rows" }, facts([...directories(bookie.writableDirectories), ...journal(bookie.journal), ...readCache(bookie.readCache), ...requests(bookie.requests)])),
    bookie.notes.map((note) => h("p", { class: "quiet note" }, note)));
}

function stateChip(state) {
  const names = { writable: ["writable", "good"], readonly: ["read-only", "bad"] };
  const [text, style] = names[state] ?? ["state not known", ""];
  return h("span", { class: `chip ${style}` }, text);
}

function directories(found) {
  if (!found || found[1] === null) return [];
  return [["ledger directories", `${count(found[0])} of ${count(found[1])} writable`]];
}

function journal(found) {
  if (!found) return [];
  return [["newest journal syncs, 50 and 99\u00a0%", twoLatencies(found)]];
}

function readCache(cache) {
  if (!cache) return [];
  const reads = cache.hits + cache.misses;
  const evicted = cache.evictedBeforeUse;
  return [
    ["read cache hit ratio since the start", reads ? percent(cache.hits / reads) : "no reads yet"],
    ["evicted before first use since the start", evicted === null ? "not counted by it" : `${count(evicted)} entries`],
  ];
}

function requests(found) {
  if (!found) return [];
  return [["write from here, 50 and 99\u00a0%", twoLatencies(found.write)], ["read from here, 50 and 99\u00a0%", twoLatencies(found.read)]];
}

/** Writes median and 99th percentile; null is a time in which nothing was measured. */
function twoLatencies(found) {
  if (!found || found.p50Ms === null) return "none in a minute";
  return `${duration(found.p50Ms / 1000)}, ${duration(found.p99Ms / 1000)}`;
}

function disks(rows) {
  return h("ul", { class: "disks", "aria-label": "Disks" }, rows.map(disk));
}

function disk(one) {
  const size = one.usedBytes + one.freeBytes;
  const full = !one.writable || one.freeBytes < size * LITTLE_FREE;
  const text = `${bytes(one.freeBytes)} free of ${bytes(size)}`;
  return h("li", {}, one.path ? h("code", {}, one.path) : "all ledger disks", one.writable ? null : h("span", { class: "chip bad" }, "full"),
    bar(size ? one.usedBytes / size : 0, text, full ? "bad" : ""));
}
