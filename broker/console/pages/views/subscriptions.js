/**
 * The subscriptions of a topic with the actions that the role may take on each.
 */

import { h, replace, setText } from "../dom/element.js";
import { button, panel } from "../dom/parts.js";
import { Table } from "../dom/table.js";
import { count, percent, rate, short } from "../format/numbers.js";
import { get } from "../shell/api.js";
import { topicPath } from "../shell/routes.js";
import { messageCards } from "./messages.js";
import { deleteSubscription, expire, reset, skip } from "./topic_actions.js";

const PEEKED = 10;

/** The table, and the messages of the subscription that is peeked. */
export class SubscriptionPanel {
  /** The section. */
  element;
  #app;
  #topic;
  #rights = {};
  #table;
  #more = h("p", { class: "quiet" });
  #peeked = h("div", { class: "peeked" });
  #changed;

  /**
   * @param {Object} app
   * @param {string} topic
   * @param {function(): void} changed called after an action
   */
  constructor(app, topic, changed) {
    this.#app = app;
    this.#topic = topic;
    this.#changed = changed;
    this.#table = new Table({ caption: "Subscriptions", stacked: true, columns: this.#columns(), key: (one) => one.name, empty: "No subscriptions." });
    this.element = panel("Subscriptions", h("p", { class: "quiet" }, "Hit ratios are of the time since the subscription was opened."), this.#table.element, this.#more, this.#peeked);
  }

  /** Takes the rights of the role: by subscription, the actions with true or false. */
  allow(rights) {
    this.#rights = rights;
    this.element.classList.toggle("no-actions", !Object.values(rights).some((one) => Object.values(one).some(Boolean)));
  }

  /** Shows the cursors of the live values. */
  show(cursors, more) {
    this.#table.show(cursors);
    setText(this.#more, more ? `${count(more)} more subscriptions are not shown.` : "");
  }

  #columns() {
    return [
      { label: "Subscription", header: true, text: (one) => one.name },
      { label: "Type", minor: true, text: (one) => one.kind + (one.durable === false ? ", not durable" : "") },
      { label: "Backlog", number: true, text: (one) => short(one.backlog), title: "Entries that are not acknowledged" },
      { label: "Out", number: true, text: (one) => rate(one.messagesOut, "msg") },
      { label: "Pending", number: true, text: (one) => short(one.unacked), title: "Messages that consumers have and did not acknowledge" },
      { label: "Again", number: true, minor: true, text: (one) => short(one.redelivery), title: "Entries that wait to be delivered again" },
      { label: "Delayed", number: true, minor: true, text: (one) => short(one.delayed) },
      { label: "Hit ratio", number: true, minor: true, text: (one) => percent(one.hitRatio) },
      { label: "Consumers", number: true, minor: true, text: (one) => count(one.consumers.length + (one.consumersMore ?? 0)) },
      {
        // Drawn again when the rights change.
        label: "Actions", name: "actions", text: (one) => [one.name, ...this.#actions(one.name).map(([text]) => text)].join(),
        node: (one) => h("div", { class: "buttons small", role: "group", "aria-label": `Actions on ${one.name}` },
          this.#actions(one.name).map(([text, act, style]) => button(text, () => act(one.name), style))),
      },
    ];
  }

  /** Returns the actions that the role may take on a subscription. */
  #actions(name) {
    const allowed = this.#rights[name] ?? {};
    const acting = (action) => async (of) => { if (await action(this.#app, this.#topic, of)) this.#changed(); };
    return [
      [allowed.peek, "Peek", (of) => this.#peek(of)],
      [allowed.skip, "Skip", acting(skip)],
      [allowed.reset, "Reset", acting(reset)],
      [allowed.expire, "Expire", acting(expire)],
      [allowed.unsubscribe, "Delete", acting(deleteSubscription), "danger"],
    ].filter(([may]) => may).map(([, ...action]) => action);
  }

  async #peek(name) {
    const close = button("Close", () => replace(this.#peeked));
    const head = h("div", { class: "head" }, h("h3", { tabindex: "-1" }, `Next messages of ${name}`), close);
    try {
      const path = `/admin/v2/magnetar/console/messages/${topicPath(this.#topic)}/subscription/${encodeURIComponent(name)}?count=${PEEKED}`;
      const { messages, more } = await get(path);
      replace(this.#peeked, head, messages.length ? messageCards(messages, more) : h("p", { class: "empty" }, "No message waits to be acknowledged."));
    } catch (error) {
      replace(this.#peeked, head, h("p", { class: "error" }, error.message));
    }
    head.querySelector("h3").focus();
  }
}
