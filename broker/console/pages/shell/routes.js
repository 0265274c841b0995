/**
 * Addresses of views in the hash of the URL: "#/topic/persistent/public/default/orders?ledger=3". Pure.
 */

/**
 * Reads a hash.
 * @param {string} hash
 * @returns {{view: string, parts: string[], query: Object<string, string>}}
 */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [view, ...parts] = path.split("/").map(decoded);
  return { view: view || "overview", parts, query: Object.fromEntries(new URLSearchParams(query)) };
}

/**
 * Writes a hash; empty values of the query are left out.
 * @param {string} view
 * @param {string[]} [parts]
 * @param {Object<string, *>} [query]
 */
export function format(view, parts = [], query = {}) {
  const path = [view, ...parts].map(encodeURIComponent).join("/");
  const known = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const text = new URLSearchParams(known).toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

/** Splits "persistent://tenant/namespace/topic" into four parts; a topic's own name may have slashes. */
export function topicParts(name) {
  const [domain, rest] = name.split("://", 2);
  const [tenant, namespace, ...local] = rest.split("/");
  return [domain, tenant, namespace, local.join("/")];
}

/** Joins the parts again. */
export function topicName([domain, tenant, namespace, local]) {
  return `${domain}://${tenant}/${namespace}/${local}`;
}

/** Returns the parts for the path of a request. */
export function topicPath(name) {
  return topicParts(name).map(encodeURIComponent).join("/");
}

/** Returns the address of a topic's view. */
export function topicHash(name, query = {}) {
  return format("topic", topicParts(name), query);
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
