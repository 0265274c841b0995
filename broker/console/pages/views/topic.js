/**
 * One topic: rates, the strip of its ledgers and cursors, subscriptions, clients and policies, live.
 */

import { Strip } from "../charts/strip.js";
import { h, replace, setText } from "../dom/element.js";
import { Tiles, button, panel } from "../dom/parts.js";
import { byteRate, bytes, count, counted, percent, publishLatency, rate, short, windowText } from "../format/numbers.js";
import { clockWithSeconds } from "../format/times.js";
import { get } from "../shell/api.js";
import { Refresh } from "../shell/refresh.js";
import { topicHash, topicName, topicParts, topicPath } from "../shell/routes.js";
import { EntryPanel } from "./entry_panel.js";
import { PolicyPanel } from "./policies.js";
import { deleteTopic, sendMessage } from "./topic_actions.js";
import { clientsOf, consumerTable, producerTable } from "./topic_clients.js";
import { SubscriptionPanel } from "./subscriptions.js";
import { CHARTS, HOUR_MS, newChart, spanButtons } from "./overview.js";
import { Trimmed } from "./trimmed.js";

const PATH = "/admin/v2/magnetar/console";
/** The stream has the live values; ledgers, cached ranges and policies are loaded at this pause. */
const EVERY_MS = 2000;

const TILES = [
  ["in", "Published"], ["out", "Delivered"], ["latency", "Publish latency"], ["hits", "Cache hit ratio"],
  ["cached", "Cached"], ["backlog", "Backlog"], ["storage", "Storage"], ["clients", "Producers and consumers"],
];

/** Opens the view of the topic that the route names. */
export function openTopic(app, route) {
  const view = new TopicView(app, topicName(route.parts), route.query.entry);
  return { title: route.parts[3], element: view.element, update: (next) => view.choose(next.query.entry), close: () => view.close() };
}

class TopicView {
  element = h("div", { class: "topic-view" });
  #window = h("p", { class: "quiet" });
  #app;
  #name;
  #chosen;
  #answer = null;
  #tiles = new Tiles(TILES);
  #strip;
  #entry;
  #subscriptions;
  #producers = producerTable();
  #consumers = consumerTable();
  #charts = CHARTS.map(newChart);
  #spanMs = HOUR_MS;
  #since = h("p", { class: "quiet" });
  #trimmed;
  #policies = new PolicyPanel();
  #gone = h("p", { class: "error", role: "alert", hidden: true }, "The topic was deleted, or it was closed because no client uses it.");
  #elsewhere = h("p", { role: "status", hidden: true });
  #refresh;
  #unwatch;

  constructor(app, name, entry) {
    this.#app = app;
    this.#name = name;
    this.#chosen = entry;
    this.#trimmed = new Trimmed(name);
    this.#refresh = new Refresh((signal) => this.#load(signal), ([answer, rights]) => this.#show(answer, rights), EVERY_MS);
    this.#strip = new Strip((position) => app.go(topicHash(name, { entry: `${position.ledgerId}:${position.entryId}` })));
    app.live.follow(name);
    this.#unwatch = app.live.watch(() => this.#drawLive());
    replace(this.element, this.#head(null), this.#refresh.error, h("p", { class: "quiet loading" }, "Loading …"));
    this.#refresh.now();
  }

  /** Shows the entry that the route names, "ledger:entry". */
  choose(entry) {
    this.#chosen = entry;
    if (this.#answer) this.#showChosen();
  }

  close() {
    this.#refresh.close();
    this.#unwatch();
    this.#app.live.follow(null);
  }

  async #load(signal) {
    const asked = new URLSearchParams({ topic: this.#name });
    const [answer, rights] = await Promise.all([
      get(`${PATH}/topics/${topicPath(this.#name)}`, { signal }),
      get(`${PATH}/rights?${asked}`, { signal }).then((found) => ({ ...found.topic, why: found.console, subscriptions: found.subscriptions })),
    ]);
    return [{ ...answer, trimmed: rights.read ? await this.#trimmed.count(answer) : null }, rights];
  }

  #show(answer, rights) {
    const first = this.#answer === null;
    this.#answer = answer;
    if (first) this.#build(rights);
    this.#showOwner();
    this.#subscriptions.allow(rights.subscriptions);
    this.#policies.show(answer.policies);
    this.#drawLive(answer.live);
    if (first) this.#showChosen();
  }

  #build(rights) {
    this.#entry = new EntryPanel(this.#name, rights);
    this.#subscriptions = new SubscriptionPanel(this.#app, this.#name, () => this.#refresh.now());
    const hadFocus = this.element.contains(document.activeElement);
    replace(this.element, this.#head(rights), this.#refresh.error, this.#gone, this.#elsewhere,
      this.#window, this.#tiles.element,
      this.#chartPanel(),
      panel("Log and cursors", this.#strip.element), this.#entry.element, this.#subscriptions.element,
      panel("Consumers", this.#consumers.element), panel("Producers", this.#producers.element), this.#policies.element);
    // The title has the focus after a change of view; a screen reader would lose its place with the old title.
    if (hadFocus) this.element.querySelector("h1").focus();
  }

  /** The stream of this broker has the values of its own topics alone. */
  #isElsewhere() {
    return this.#answer.owner.broker !== this.#app.session.broker;
  }

  #showOwner() {
    const { broker, url } = this.#answer.owner;
    this.#elsewhere.hidden = !this.#isElsewhere();
    if (this.#elsewhere.dataset.broker === broker) return;
    this.#elsewhere.dataset.broker = broker;
    replace(this.#elsewhere, `Broker ${broker} has this topic. `, h("a", { href: `${url}/${topicHash(this.#name)}` }, "Its page"), " shows rates and charts, too.");
  }

  #chartPanel() {
    const spans = spanButtons((chosen) => { this.#spanMs = chosen; this.#drawCharts(); });
    return h("section", { "aria-label": "Charts" }, h("div", { class: "head" }, h("h2", {}, "Over time"), this.#since, spans),
      h("div", { class: "charts" }, this.#charts.map((chart) => chart.element)));
  }

  #drawCharts() {
    const { topicHistory, topicSinceMs } = this.#app.live;
    setText(this.#since, topicSinceMs ? `Sampled since ${clockWithSeconds(topicSinceMs)}: a topic has samples from the first look at it until an hour after the last one.` : "");
    const rows = topicHistory.rows(this.#spanMs);
    for (const chart of this.#charts) chart.show(rows, this.#spanMs);
  }

  #head(rights) {
    const [domain, tenant, namespace, local] = topicParts(this.#name);
    return h("div", { class: "head" },
      h("div", { class: "title" }, h("p", { class: "quiet" }, `${domain}://${tenant}/${namespace}/`), h("h1", { tabindex: "-1" }, local)),
      rights?.produce ? button("Send a message", () => sendMessage(this.#app, this.#name), "primary") : null,
      rights?.delete ? button("Delete topic", () => deleteTopic(this.#app, this.#name), "danger") : null);
  }

  #drawLive(given) {
    if (!this.#answer) return;
    const live = this.#isElsewhere() ? this.#answer.live : this.#app.live.topic ?? given;
    if (!live || live.topic !== this.#name) return;
    this.#gone.hidden = !live.gone;
    if (live.gone) return;
    setText(this.#window, windowText(live.windowSeconds));
    showTiles(this.#tiles, live);
    this.#drawCharts();
    // Ledgers and cached ranges are of one moment. Growing the newest ledger here would show its entries as not cached.
    // Subscriptions of a non-persistent topic have no place in a log.
    this.#strip.show(this.#answer.ledgers, live.cursors.filter((cursor) => cursor.markDelete), this.#answer);
    this.#subscriptions.show(live.cursors, live.cursorsMore);
    this.#consumers.show(clientsOf(live.cursors));
    this.#producers.show(live.producers);
  }

  #showChosen() {
    const found = /^(\d+):(\d+)$/.exec(this.#chosen ?? "");
    if (!found) {
      this.#entry.clear();
      return;
    }
    const position = { ledgerId: Number(found[1]), entryId: Number(found[2]) };
    this.#strip.select(position);
    this.#entry.ask(position);
  }
}

function showTiles(tiles, live) {
  const producers = live.producers.length + (live.producersMore ?? 0);
  const consumers = live.cursors.reduce((sum, cursor) => sum + cursor.consumers.length + (cursor.consumersMore ?? 0), 0);
  tiles.set("in", rate(live.messagesIn, "msg"), byteRate(live.bytesIn));
  tiles.set("out", rate(live.messagesOut, "msg"), byteRate(live.bytesOut));
  tiles.set("latency", publishLatency(live.publishP50Ms), `median of the last minute; 99 %: ${publishLatency(live.publishP99Ms)}`);
  tiles.set("hits", percent(live.hitRatio), `since the topic was opened: ${percent(live.hitRatioTotal)}`);
  tiles.set("cached", bytes(live.cachedBytes), `${short(live.cachedEntries)} entries`);
  tiles.set("backlog", short(live.backlog), "entries not acknowledged");
  tiles.set("storage", bytes(live.storageBytes));
  tiles.set("clients", count(producers + consumers), `${counted(producers, "producer")}, ${counted(consumers, "consumer")}`);
}
