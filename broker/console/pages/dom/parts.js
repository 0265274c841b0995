/**
 * Parts of which views are made: panels, tiles with one number, lists of facts.
 */

import { freshId, h, setText } from "./element.js";

/** Makes a section with a heading, for the list of headings of a screen reader. */
export function panel(title, ...children) {
  const id = freshId("panel");
  return h("section", { class: "panel", "aria-labelledby": id }, h("h2", { id }, title), children);
}

/** Tiles: a name, a number, and a line with details for each. */
export class Tiles {
  /** The list. */
  element = h("dl", { class: "tiles" });
  #values = new Map();

  /** @param {[string, string][]} tiles name of the value, and the label that is shown */
  constructor(tiles) {
    // Wide screens show all tiles in one row or in two of the same length.
    this.element.style.setProperty("--tiles", tiles.length > 8 ? Math.ceil(tiles.length / 2) : tiles.length);
    this.element.style.setProperty("--fewer-tiles", tiles.length > 5 ? Math.ceil(tiles.length / 2) : tiles.length);
    for (const [name, label] of tiles) {
      const value = h("span", { class: "big" });
      const detail = h("span", { class: "detail" });
      this.#values.set(name, { value, detail });
      this.element.append(h("div", { class: "tile" }, h("dt", {}, label), h("dd", {}, value, detail)));
    }
  }

  /** Shows a value and its details. */
  set(name, value, detail = "") {
    const tile = this.#values.get(name);
    setText(tile.value, value);
    setText(tile.detail, detail);
  }
}

/** Makes a list of facts: [name, text or node] pairs; null leaves a fact out. */
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined)
    .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** Makes text whose parts between backticks are code. */
export function prose(text) {
  return text.split("`").map((part, place) => (place % 2 ? h("code", {}, part) : part));
}

/** Makes a button that acts. */
export function button(text, act, name = null) {
  return h("button", { type: "button", class: name, onclick: act }, text);
}

/** Makes a field to search with: `onText` gets the text after a pause in typing. */
export function searchField(label, text, onText) {
  const id = freshId("search");
  let timer = null;
  // The user may have gone to another view during the pause; a search would bring back this one.
  const search = () => { if (input.isConnected) onText(input.value); };
  const input = h("input", {
    id, type: "search", value: text, autocomplete: "off", spellcheck: "false", placeholder: label,
    oninput: () => { clearTimeout(timer); timer = setTimeout(search, 250); },
  });
  return h("div", { class: "field inline" }, h("label", { for: id, class: "unseen" }, label), input);
}
