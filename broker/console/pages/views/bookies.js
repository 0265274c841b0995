/**
 * The bookies: their disks, the latency of their journals and their read caches.
 */

import { bar } from "../dom/bar.js";
import { h, replace } from "../dom/element.js";
import { facts, panel } from "../dom/parts.js";
import { bytes, count, duration, percent } from "../format/numbers.js";
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
  const show = ({ bookies }) => replace(cards, bookies.length ? bookies.map(card) : h("p", { class: "empty" }, "No bookie is known."));
  const refresh = new Refresh((signal) => get(PATH, { signal }), show, EVERY_MS);
  refresh.now();
  const element = h("div", {}, h("h1", { tabindex: "-1" }, "Bookies"), refresh.error, cards);
  return { title: "Bookies", element, close: () => refresh.close() };
}

function card(bookie) {
  return panel(bookie.id,
    h("p", { class: "chips" }, stateChip(bookie.state),
      h("span", { class: "chip" }, KINDS[bookie.kind] ?? bookie.kind),
      bookie.connected === false ? h("span", { class: "chip bad" }, "not connected") : null),
    bookie.disks ? disks(bookie.disks) : null,
    facts([
      ["journal, median", bookie.journal ? latency(bookie.journal.p50Ms) : null],
      ["journal, 99 %", bookie.journal ? latency(bookie.journal.p99Ms) : null],
      ...readCache(bookie.readCache),
    ]),
    bookie.unknown ? h("p", { class: "quiet" }, bookie.unknown) : null);
}

function stateChip(state) {
  const names = { writable: ["writable", "good"], readonly: ["read-only", "bad"] };
  const [text, style] = names[state] ?? ["state not known", ""];
  return h("span", { class: `chip ${style}` }, text);
}

function readCache(cache) {
  if (!cache) return [];
  const reads = cache.hits + cache.misses;
  return [
    ["read cache hit ratio", percent(reads ? cache.hits / reads : null)],
    ["evicted before use", `${count(cache.evictedBeforeUse)} entries`],
  ];
}

function disks(rows) {
  const head = ["Disk", "Used", "Free"].map((text) => h("th", { scope: "col" }, text));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Disks" },
    h("table", {}, h("caption", { class: "unseen" }, "Disks"), h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows.map(disk))));
}

function disk(one) {
  const size = one.usedBytes + one.freeBytes;
  const full = !one.writable || one.freeBytes < size * LITTLE_FREE;
  return h("tr", {}, h("th", { scope: "row" }, h("code", {}, one.path), one.writable ? null : h("span", { class: "chip bad" }, "full")),
    h("td", {}, bar(size ? one.usedBytes / size : 0, bytes(one.usedBytes), full ? "bad" : "")), h("td", {}, bytes(one.freeBytes)));
}

function latency(ms) {
  return duration(ms === null ? null : ms / 1000);
}
