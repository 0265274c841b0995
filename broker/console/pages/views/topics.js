/**
 * The open and dormant topics: search, order and pages, all done by the broker, so that 100,000 names are no burden for the browser.
 */

import { h, setText } from "../dom/element.js";
import { button, searchField } from "../dom/parts.js";
import { Table } from "../dom/table.js";
import { byteRate, bytes, count, duration, percent, rate, short } from "../format/numbers.js";
import { get } from "../shell/api.js";
import { Refresh } from "../shell/refresh.js";
import { format, topicHash, topicParts } from "../shell/routes.js";
import { createTopic } from "./namespace_actions.js";

const PATH = "/admin/v2/magnetar/console/topics";
const PAGE = 50;
const EVERY_MS = 2000;
/** Orders that begin with the smallest value; all others begin with the largest. */
const RISING = new Set(["name"]);

const COLUMNS = [
  { label: "Topic", sort: "name", header: true, text: (one) => one.topic, node: (one) => topicLink(one.topic, one.dormant) },
  { label: "In", sort: "messagesIn", number: true, text: (one) => rate(one.messagesIn, "msg") },
  { label: "Out", sort: "messagesOut", number: true, text: (one) => rate(one.messagesOut, "msg") },
  { label: "Bytes in", sort: "bytesIn", number: true, minor: true, text: (one) => byteRate(one.bytesIn) },
  { label: "Bytes out", sort: "bytesOut", number: true, minor: true, text: (one) => byteRate(one.bytesOut) },
  { label: "Backlog", sort: "backlog", number: true, text: (one) => short(one.backlog), title: "Entries that are not acknowledged, all subscriptions" },
  { label: "Storage", sort: "storageBytes", number: true, minor: true, text: (one) => bytes(one.storageBytes) },
  { label: "Cached", sort: "cachedBytes", number: true, minor: true, text: (one) => bytes(one.cachedBytes) },
  { label: "Hit ratio", sort: "hitRatio", number: true, minor: true, text: (one) => percent(one.hitRatio) },
  { label: "Prod.", sort: "producers", number: true, minor: true, text: (one) => count(one.producers), title: "Producers" },
  { label: "Subs.", sort: "subscriptions", number: true, minor: true, text: (one) => count(one.subscriptions), title: "Subscriptions" },
  { label: "Cons.", sort: "consumers", number: true, minor: true, text: (one) => count(one.consumers), title: "Consumers" },
];

/** Behind a start of the broker: sums over topics are too small until all of them are known. */
export const FILLING = "The broker still reads the topics on disk, so some are missing. ";

/** Makes a link to a topic: its own name, and below it the namespace; `dormant` says that it sleeps. */
export function topicLink(name, dormant = false) {
  const [domain, tenant, namespace, local] = topicParts(name);
  return h("a", { class: "topic", href: topicHash(name), title: name }, h("b", {}, local),
    h("span", { class: "quiet" }, `${domain === "persistent" ? "" : "non-persistent "}${tenant}/${namespace}${dormant ? ", dormant" : ""}`));
}

/** Opens the view. */
export function openTopics(app, route) {
  let asked = readQuery(route.query);
  const go = (changes) => app.go(format("topics", [], writeQuery({ ...asked, offset: 0, ...changes })));
  const table = new Table({
    caption: "Open and dormant topics", columns: COLUMNS, key: (one) => one.topic,
    onSort: (sort) => go({ sort, descending: sort === asked.sort ? !asked.descending : !RISING.has(sort) }),
  });
  const amount = h("p", { class: "quiet", "aria-live": "polite" });
  const pages = pageButtons((offset) => go({ offset }));
  const show = (answer) => {
    table.show(answer.topics, answer.total ? "No topic of these has this text in its name." : "No topic is open or dormant.");
    table.markOrder(asked.sort, asked.descending);
    setText(amount, `${answer.filling ? FILLING : ""}${count(answer.found)} of ${count(answer.total)} open and dormant topics; rates over ${duration(Math.round(answer.windowSeconds))}, hit ratios since the topics were opened`);
    pages.show(answer);
  };
  const refresh = new Refresh((signal) => get(`${PATH}?${new URLSearchParams({ ...asked, limit: PAGE })}`, { signal }), show, EVERY_MS);
  refresh.now();
  const element = h("div", {},
    h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Topics"),
      searchField("Search names", asked.search, (search) => go({ search })),
      app.rights.console ? button("New topic", () => createTopic(app), "primary") : null),
    app.rights.console ? null : openByName(app), amount, refresh.error, table.element, pages.element,
    h("p", { class: "quiet" }, "A topic is open while clients use it, and may be dormant afterwards. ",
      app.rights.console ? [h("a", { href: format("namespaces") }, "Namespaces"), " list every topic."] : null));
  return {
    title: "Topics", element, close: () => refresh.close(),
    update: (next) => { asked = readQuery(next.query); refresh.now(); },
  };
}

/** A role that is no superuser is shown the topics of its namespaces alone; it names others that it may use. */
function openByName(app) {
  const input = h("input", { id: "topic-name", placeholder: "persistent://public/default/orders", spellcheck: "false", autocomplete: "off" });
  const wrong = h("p", { class: "error", role: "alert" });
  const submit = (event) => {
    event.preventDefault();
    const name = fullName(input.value.trim());
    setText(wrong, name ? "" : `${input.value} is no topic: write persistent://tenant/namespace/topic`);
    if (name) app.go(topicHash(name));
  };
  return h("form", { class: "panel by-name", onsubmit: submit },
    h("p", {}, `The list has the topics of the namespaces that ${app.rights.role ?? "this role"} may use. Open another one by its name:`),
    h("label", { for: "topic-name", class: "unseen" }, "Topic"), input, h("button", { class: "primary" }, "Open"), wrong);
}

/**
 * Completes a name as Pulsar's clients do: "orders" is in public/default.
 * @returns {?string} null for a text that names no topic
 */
export function fullName(text) {
  if (/^(non-)?persistent:\/\/[^/]+\/[^/]+\/.+$/.test(text)) return text;
  if (/^[^/:]+$/.test(text)) return `persistent://public/default/${text}`;
  return /^[^/:]+\/[^/]+\/[^/]+$/.test(text) ? `persistent://${text}` : null;
}

function readQuery(query) {
  return {
    search: query.search ?? "", sort: query.sort ?? "name", descending: query.descending === "true", offset: Number(query.offset ?? 0),
  };
}

function writeQuery({ search, sort, descending, offset }) {
  return { search, sort: sort === "name" ? "" : sort, descending: descending ? "true" : "", offset: offset || "" };
}

function pageButtons(go) {
  let offset = 0;
  const back = button("Previous", () => go(Math.max(0, offset - PAGE)));
  const on = button("Next", () => go(offset + PAGE));
  const text = h("span", { class: "quiet" });
  return {
    element: h("nav", { class: "buttons pages", "aria-label": "Pages of topics" }, back, text, on),
    show: (answer) => {
      offset = answer.offset;
      const end = Math.min(offset + PAGE, answer.found);
      setText(text, answer.found ? `${count(offset + 1)} to ${count(end)}` : "");
      back.disabled = offset === 0;
      on.disabled = end >= answer.found;
    },
  };
}
