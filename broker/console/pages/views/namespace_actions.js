/**
 * Dialogs that create and delete tenants, namespaces and topics.
 */

import { openForm } from "../dom/dialog.js";
import { h } from "../dom/element.js";
import { change } from "../shell/api.js";
import { format, topicHash, topicPath } from "../shell/routes.js";

/** Asks for a topic and creates it. */
export async function createTopic(app, namespace = "public/default") {
  let made = null;
  const done = await openForm({
    title: "New topic", action: "Create topic",
    fields: [
      { name: "namespace", label: "Namespace", value: namespace, hint: "tenant/namespace, which must exist" },
      { name: "name", label: "Name" },
      { name: "partitions", label: "Partitions", type: "number", value: 0, min: 0, hint: "0 makes a topic without partitions" },
    ],
    perform: async ({ namespace: where, name, partitions }) => {
      made = `persistent://${where}/${name}`;
      const path = `/admin/v2/${topicPath(made)}`;
      if (Number(partitions)) await change("PUT", `${path}/partitions`, Number(partitions));
      else await change("PUT", path);
      if (Number(partitions)) made += "-partition-0";
    },
  });
  if (!done) return;
  app.notices.success(`Created ${made}`);
  app.go(topicHash(made));
}

/** Asks for the name of a tenant and a namespace, and creates what is missing. */
export async function createNamespace(app, tenants) {
  let made = null;
  const done = await openForm({
    title: "New namespace", action: "Create namespace",
    fields: [
      { name: "tenant", label: "Tenant", value: "public", hint: "A tenant that does not exist is created." },
      { name: "namespace", label: "Namespace" },
    ],
    perform: async ({ tenant, namespace }) => {
      made = `${tenant}/${namespace}`;
      if (!tenants.includes(tenant)) {
        await change("PUT", `/admin/v2/tenants/${encodeURIComponent(tenant)}`, { allowedClusters: [app.session.cluster], adminRoles: [] });
      }
      await change("PUT", namespacePath(made), {});
    },
  });
  if (!done) return;
  app.notices.success(`Created the namespace ${made}`);
  app.go(format("namespaces", made.split("/")));
}

/** Deletes a namespace after its name was typed. */
export async function deleteNamespace(app, namespace) {
  const done = await openForm({
    title: `Delete ${namespace}`, action: "Delete namespace", danger: true,
    intro: h("p", {}, "A namespace that has topics is not deleted; the broker says so."),
    fields: [{ name: "typed", label: `Type ${namespace} to confirm`, mustEqual: namespace }],
    perform: () => change("DELETE", namespacePath(namespace)),
  });
  if (!done) return;
  app.notices.success(`Deleted the namespace ${namespace}`);
  app.go(format("namespaces"));
}

/** Returns the path of requests about a namespace. */
export function namespacePath(namespace) {
  return `/admin/v2/namespaces/${namespace.split("/").map(encodeURIComponent).join("/")}`;
}
