/**
 * A bar in a cell of a table: its number stands beside it, so the bar itself is silent for screen readers.
 */

import { h } from "./element.js";

/**
 * Makes a bar with its text.
 * @param {number} share 0 to 1 of the longest bar
 * @param {string} text the number that the bar shows
 * @param {string} [name] class of its colour
 */
export function bar(share, text, name = "") {
  const fill = h("i", { class: `fill ${name}` });
  // The policy of the page forbids the attribute "style"; the property is allowed.
  fill.style.width = `${Math.min(100, Math.max(0, share * 100)).toFixed(2)}%`;
  return h("span", { class: "bar" }, h("span", { class: "track", "aria-hidden": "true" }, fill), h("span", { class: share > 0 ? "amount" : "amount zero" }, text));
}
