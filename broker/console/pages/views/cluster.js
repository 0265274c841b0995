/**
 * The brokers on the metadata store, their bundles, and what became of bundles lately, with the reasons.
 */

import { h, replace, setText } from "../dom/element.js";
import { panel } from "../dom/parts.js";
import { Table } from "../dom/table.js";
import { count, counted, percent } from "../format/numbers.js";
import { absolute, ago } from "../format/times.js";
import { get } from "../shell/api.js";
import { Refresh } from "../shell/refresh.js";

const PATH = "/admin/v2/magnetar/console/cluster";
const EVERY_MS = 2000;
const ALONE = "This broker owns all topics: its metadata store is its own.";
const SUSPENDED = "The metadata store does not answer, or leases are of an older session: nothing new opens at this broker.";
const LEADERLESS = "No broker leads.";
const KINDS = { taken: "good", "given up": "", lost: "bad", decided: "" };

/** Opens the view. */
export function openCluster() {
  const state = h("p", { class: "quiet", role: "status" });
  const brokers = brokersTable();
  const moves = movesTable();
  const bundles = h("div", { class: "rows" });
  const lists = new BundleLists(bundles);
  const show = (found) => {
    const leaderless = found.brokers.some(({ leads }) => leads) ? "" : LEADERLESS;
    setText(state, found.isShared ? [found.isServing ? "" : SUSPENDED, leaderless, summary(found)].filter(Boolean).join(" ") : ALONE);
    state.classList.toggle("error", !found.isServing || leaderless !== "");
    brokers.show(found.brokers);
    moves.show(found.moves);
    lists.show(found.isShared ? found.brokers : []);
  };
  const refresh = new Refresh((signal) => get(PATH, { signal }), show, EVERY_MS);
  refresh.now();
  const element = h("div", {},
    h("h1", { tabindex: "-1" }, "Cluster"), refresh.error, state, brokers.element,
    panel("Bundles, by their owners' last load reports", bundles), panel("Last moves", moves.element));
  return { title: "Cluster", element, close: () => refresh.close() };
}

function summary({ brokers, sessionsEnded }) {
  const owned = brokers.reduce((sum, { bundleCount }) => sum + bundleCount, 0);
  const ended = sessionsEnded ? ` ${counted(sessionsEnded, "session")} of this broker ended since its start.` : "";
  return `${counted(brokers.length, "broker")} own ${counted(owned, "bundle")}.${ended}`;
}

function brokersTable() {
  return new Table({
    caption: "Brokers", stacked: true, key: ({ name }) => name, empty: "No broker is registered.",
    columns: [
      { label: "Broker", header: true, text: ({ name }) => name, node: ({ name, adminUrl }) => h("a", { href: `${adminUrl}/#/cluster` }, name) },
      { label: "Part", text: part, node: (one) => h("span", {}, part(one)) },
      { label: "Use", number: true, text: ({ used }) => percent(used) },
      { label: "Messages/s", number: true, text: ({ messageRate }) => count(Math.round(messageRate)) },
      { label: "Measured", text: ({ reportAgeMs }) => ago(0, reportAgeMs) },
      { label: "Bundles", number: true, text: ({ bundleCount }) => count(bundleCount) },
      { label: "For clients", text: ({ serviceUrl }) => serviceUrl },
    ],
  });
}

function part({ isSelf, leads }) {
  return [leads ? "leads" : "", isSelf ? "this one" : ""].filter(Boolean).join(", ") || "member";
}

function movesTable() {
  return new Table({
    caption: "Last moves", stacked: true, key: ({ atMs, bundle, broker, kind }) => [atMs, bundle, broker, kind].join(" "), empty: "No bundle has moved.",
    columns: [
      { label: "When", text: ({ atMs }) => absolute(atMs) },
      { label: "Bundle", header: true, text: ({ bundle }) => bundle },
      { label: "Broker", text: ({ broker }) => broker },
      { label: "What", text: ({ kind }) => kind, node: ({ kind }) => h("span", { class: `chip ${KINDS[kind] ?? ""}` }, kind) },
      { label: "Why", text: ({ why }) => why },
    ],
  });
}

/** The bundles of each broker. A list that the user has opened stays open, and keeps its focus, while it changes. */
class BundleLists {
  #element;
  #lists = new Map();

  constructor(element) {
    this.#element = element;
  }

  show(brokers) {
    const names = brokers.map(({ name }) => name);
    if (names.join(" ") !== [...this.#lists.keys()].join(" ")) {
      this.#lists = new Map(names.map((name) => [name, this.#lists.get(name) ?? h("details", {}, h("summary"), h("ul", { class: "names" }))]));
      replace(this.#element, [...this.#lists.values()]);
    }
    for (const broker of brokers) fill(this.#lists.get(broker.name), broker);
  }
}

function fill(list, { name, bundles, bundleCount }) {
  const [title, items] = list.children;
  const more = bundleCount > bundles.length ? `; the first ${count(bundles.length)} are shown` : "";
  setText(title, `${name}: ${counted(bundleCount, "bundle")}${more}`);
  if (items.drawn === bundles.join(" ")) return;
  items.drawn = bundles.join(" ");
  replace(items, bundles.map((bundle) => h("li", {}, h("code", {}, bundle))));
}
