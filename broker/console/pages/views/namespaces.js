/**
 * Tenants, their namespaces, and all topics of one namespace, also those that are not open.
 */

import { h, replace, setText } from "../dom/element.js";
import { button, searchField } from "../dom/parts.js";
import { Table } from "../dom/table.js";
import { count, duration, rate, short } from "../format/numbers.js";
import { get } from "../shell/api.js";
import { Refresh } from "../shell/refresh.js";
import { format, topicHash, topicParts } from "../shell/routes.js";
import { createNamespace, createTopic, deleteNamespace, namespacePath } from "./namespace_actions.js";
import { valueText } from "./policies.js";
import { FILLING } from "./topics.js";

const PATH = "/admin/v2/magnetar/console/namespaces";
const TOPICS_SHOWN = 200;

/** Opens the view: all tenants, or the namespace that the route names. */
export function openNamespaces(app, route) {
  return route.parts.length === 2 ? openNamespace(app, route.parts.join("/")) : openTenants(app);
}

function openTenants(app) {
  const table = namespaceTable();
  const window = h("p", { class: "quiet" });
  let tenants = [];
  const load = (signal) => Promise.all([get("/admin/v2/tenants", { signal }), get(PATH, { signal })]);
  const refresh = new Refresh(load, ([names, answer]) => {
    tenants = names;
    const empty = names.filter((tenant) => !answer.namespaces.some(({ namespace }) => namespace.startsWith(`${tenant}/`)));
    setText(window, `${answer.filling ? FILLING : ""}Rates, over ${duration(Math.round(answer.windowSeconds))}, and backlog are of open and dormant topics.`
      + (empty.length ? ` Tenants without a namespace: ${empty.join(", ")}.` : ""));
    table.show(answer.namespaces);
  }, 0);
  refresh.now();
  const element = h("div", {},
    h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Namespaces"), button("New namespace", () => createNamespace(app, tenants), "primary")),
    refresh.error, window, table.element);
  return { title: "Namespaces", element, close: () => refresh.close() };
}

function namespaceTable() {
  return new Table({
    caption: "Namespaces", stacked: true, key: (one) => one.namespace, empty: "No namespaces.",
    columns: [
      { label: "Namespace", header: true, text: (one) => one.namespace, node: ({ namespace }) => h("a", { href: format("namespaces", namespace.split("/")) }, namespace) },
      { label: "Topics", number: true, text: (one) => count(one.topics) },
      { label: "In", number: true, text: (one) => rate(one.messagesIn, "msg") },
      { label: "Out", number: true, text: (one) => rate(one.messagesOut, "msg") },
      { label: "Backlog", number: true, text: (one) => short(one.backlog) },
      { label: "Policies other than the broker's", text: ({ policies }) => Object.entries(policies).map(([title, value]) => `${title}: ${valueText(value)}`).join("; ") || "none" },
    ],
  });
}

function openNamespace(app, namespace) {
  const list = h("ul", { class: "names" });
  const empty = h("p", { class: "empty", hidden: true });
  const amount = h("p", { class: "quiet", "aria-live": "polite" });
  let [topics, wanted] = [[], ""];
  const draw = () => {
    const found = topics.filter((name) => name.toLowerCase().includes(wanted));
    const more = found.length > TOPICS_SHOWN ? `; the first ${TOPICS_SHOWN} are shown` : "";
    setText(amount, `${count(found.length)} of ${count(topics.length)} topics${more}`);
    empty.hidden = found.length > 0;
    setText(empty, topics.length ? "No topic has this text in its name." : "The namespace has no topic.");
    replace(list, found.slice(0, TOPICS_SHOWN).map((name) => h("li", {}, topicItem(name))));
  };
  const refresh = new Refresh((signal) => get(`${namespacePath(namespace)}/topics?mode=ALL`, { signal }), (found) => { topics = found.sort(); draw(); }, 0);
  refresh.now();
  const element = h("div", {},
    h("div", { class: "head" }, h("h1", { tabindex: "-1" }, namespace),
      searchField("Search names", "", (text) => { wanted = text.toLowerCase(); draw(); }),
      button("New topic", () => createTopic(app, namespace), "primary"),
      button("Delete namespace", () => deleteNamespace(app, namespace), "danger")),
    h("p", {}, h("a", { href: format("namespaces") }, "All namespaces")),
    amount, refresh.error, h("section", { class: "panel", "aria-label": "Topics" }, list, empty));
  return { title: namespace, element, close: () => refresh.close() };
}

function topicItem(name) {
  const [domain, , , local] = topicParts(name);
  return [h("a", { href: topicHash(name) }, local), domain === "persistent" ? null : h("span", { class: "quiet" }, " non-persistent")];
}
