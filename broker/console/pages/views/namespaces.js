/**
 * Tenants, their namespaces, and all topics of one namespace, also those that are not open.
 */

import { h, replace, setText } from "../dom/element.js";
import { button, panel, searchField } from "../dom/parts.js";
import { count } from "../format/numbers.js";
import { get } from "../shell/api.js";
import { Refresh } from "../shell/refresh.js";
import { format, topicHash, topicParts } from "../shell/routes.js";
import { createNamespace, createTopic, deleteNamespace, namespacePath } from "./namespace_actions.js";

const TOPICS_SHOWN = 200;

/** Opens the view: all tenants, or the namespace that the route names. */
export function openNamespaces(app, route) {
  return route.parts.length === 2 ? openNamespace(app, route.parts.join("/")) : openTenants(app);
}

function openTenants(app) {
  const list = h("div", { class: "cards" });
  let tenants = [];
  const load = async (signal) => {
    const names = await get("/admin/v2/tenants", { signal });
    return Promise.all(names.map(async (tenant) => [tenant, await get(`/admin/v2/namespaces/${encodeURIComponent(tenant)}`, { signal })]));
  };
  const refresh = new Refresh(load, (found) => {
    tenants = found.map(([tenant]) => tenant);
    replace(list, found.map(([tenant, namespaces]) => panel(tenant, namespaceList(namespaces))));
  }, 0);
  refresh.now();
  const element = h("div", {},
    h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Namespaces"), button("New namespace", () => createNamespace(app, tenants), "primary")),
    refresh.error, list);
  return { title: "Namespaces", element, close: () => refresh.close() };
}

function namespaceList(namespaces) {
  if (!namespaces.length) return h("p", { class: "empty" }, "No namespaces.");
  return h("ul", { class: "names" }, namespaces.map((name) => h("li", {}, h("a", { href: format("namespaces", name.split("/")) }, name))));
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
