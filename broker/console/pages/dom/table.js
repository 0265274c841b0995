/**
 * A table whose rows stay in place while their values change: focus and selection survive an update.
 */

import { h, setAttributes, setText } from "./element.js";

/**
 * One column.
 * @typedef {Object} Column
 * @property {string} label
 * @property {function(*): string} text of a row's cell; decides whether the cell is drawn again
 * @property {function(*): Node} [node] draws the cell; without it the text is shown
 * @property {boolean} [number] right-aligned, digits below digits
 * @property {boolean} [header] the cell names the row
 * @property {string} [sort] name of the order that a click on the head asks for
 * @property {string} [title] explains the head
 * @property {boolean} [minor] left out on narrow screens
 * @property {string} [name] class of the column's cells
 */

/** A table of keyed rows. */
export class Table {
  /** The table in a container that scrolls sideways. */
  element;
  #columns;
  #key;
  #body = h("tbody");
  #heads;
  #rows = new Map();
  #empty;

  /**
   * @param {Object} options
   * @param {string} options.caption names the table for screen readers
   * @param {Column[]} options.columns
   * @param {function(*): string} options.key tells rows apart
   * @param {string} [options.empty] text of a table without rows
   * @param {boolean} [options.stacked] on narrow screens each row is a card
   * @param {function(string): void} [options.onSort] gets the name of an order
   */
  constructor({ caption, columns, key, empty = "None.", onSort, stacked = false }) {
    this.#columns = columns;
    this.#key = key;
    this.#heads = columns.map((column) => headOf(column, onSort));
    this.#empty = h("p", { class: "empty" }, empty);
    const table = h("table", { class: stacked ? "stacked" : null }, h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, this.#heads)), this.#body);
    this.element = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table, this.#empty);
  }

  /** Shows rows in their order. `empty` is the text without rows, in place of the one that the table was made with. */
  show(rows, empty = null) {
    if (empty !== null) setText(this.#empty, empty);
    this.#empty.hidden = rows.length > 0;
    const kept = new Map();
    let place = this.#body.firstElementChild;
    for (const row of rows) {
      const key = this.#key(row);
      const element = this.#rows.get(key) ?? this.#newRow();
      kept.set(key, element);
      this.#fill(element, row);
      // Moving an element takes its focus away, so only those out of order move.
      if (element === place) place = place.nextElementSibling;
      else this.#body.insertBefore(element, place);
    }
    for (const [key, element] of this.#rows) if (kept.get(key) !== element) element.remove();
    this.#rows = kept;
  }

  /** Marks the column of the present order. */
  markOrder(sort, descending) {
    this.#columns.forEach((column, place) => {
      const order = column.sort === sort ? (descending ? "descending" : "ascending") : null;
      setAttributes(this.#heads[place], { "aria-sort": order });
    });
  }

  #newRow() {
    return h("tr", {}, this.#columns.map((column) =>
      h(column.header ? "th" : "td", { class: classOf(column), scope: column.header ? "row" : null, "data-label": column.label })));
  }

  #fill(element, row) {
    this.#columns.forEach((column, place) => {
      const cell = element.children[place];
      const text = column.text(row);
      if (cell.drawn === text) return;
      cell.drawn = text;
      if (column.node) cell.replaceChildren(column.node(row));
      else setText(cell, text);
      // Zeros step back, so that the eye finds the rows in use.
      cell.classList.toggle("zero", Boolean(column.number) && /^0( |$)/.test(text));
    });
  }
}

function headOf(column, onSort) {
  const attributes = { scope: "col", class: classOf(column), title: column.title };
  if (!column.sort || !onSort) return h("th", attributes, column.label);
  return h("th", attributes, h("button", { type: "button", class: "sort", onclick: () => onSort(column.sort) }, column.label));
}

function classOf(column) {
  return [column.number && "number", column.minor && "minor", column.name].filter(Boolean).join(" ") || null;
}
