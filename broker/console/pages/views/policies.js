/**
 * The policies that hold for a topic, with the level that sets each: the topic, its namespace or the broker.
 */

import { h, setAttributes, setText } from "../dom/element.js";
import { button, panel } from "../dom/parts.js";
import { Table } from "../dom/table.js";

const LEVELS = ["topic", "namespace", "broker"];

/** The section; at first it shows the policies alone that the topic or its namespace sets. */
export class PolicyPanel {
  /** The section. */
  element;
  #policies = [];
  #all = false;
  #note = h("p", { class: "quiet" });
  #toggle = button("Show those of the broker", () => { this.#all = !this.#all; this.#draw(); });
  #table = policyTable();

  constructor() {
    this.element = panel("Policies", this.#table.element, h("div", { class: "buttons" }, this.#toggle, this.#note));
  }

  /** Shows the policies of the topic's answer. */
  show(policies) {
    this.#policies = [...policies].sort((a, b) => LEVELS.indexOf(a.origin) - LEVELS.indexOf(b.origin));
    this.#draw();
  }

  #draw() {
    const own = this.#policies.filter((policy) => policy.origin !== "broker");
    const shown = this.#all ? this.#policies : own;
    this.#table.element.hidden = !shown.length;
    this.#table.show(shown);
    setAttributes(this.#toggle, { "aria-pressed": String(this.#all) });
    setText(this.#note, own.length ? "" : "Neither the topic nor its namespace sets a policy.");
  }
}

function policyTable() {
  return new Table({
    caption: "Policies that hold for the topic", stacked: true, key: (policy) => policy.name, empty: "",
    columns: [
      { label: "Policy", header: true, text: (policy) => policy.name, node: nameCell },
      { label: "Value", text: (policy) => valueText(policy.value), node: (policy) => h("code", {}, valueText(policy.value)) },
      { label: "Set by", text: (policy) => policy.origin, node: (policy) => h("span", { class: `chip by-${policy.origin}` }, policy.origin) },
    ],
  });
}

function nameCell(policy) {
  return h("div", { class: "setting" }, policy.title ?? policy.name, h("p", { class: "quiet" }, policy.name));
}

/**
 * Writes a value without the marks of JSON: "limitSize 5, limitTime -1".
 * @param {*} value
 */
export function valueText(value) {
  if (Array.isArray(value)) return value.map(valueText).join(", ");
  if (value === null || typeof value !== "object") return String(value);
  return Object.entries(value)
    .map(([name, part]) => (part !== null && typeof part === "object" && !Array.isArray(part) ? `${name}: ${valueText(part)}` : `${name} ${valueText(part)}`))
    .join(Object.values(value).some((part) => part !== null && typeof part === "object") ? "; " : ", ");
}
