/**
 * One entry of the strip: why it is cached or not, and its messages.
 */

import { h, replace, timeElement } from "../dom/element.js";
import { get } from "../shell/api.js";
import { topicPath } from "../shell/routes.js";
import { eventText } from "./cache_events.js";
import { messageCards } from "./messages.js";

/** Messages of a batch that are shown. */
const SHOWN_MAX = 20;

/** The section below the strip; hidden until an entry is chosen. */
export class EntryPanel {
  /** The section. */
  element = h("section", { class: "panel", hidden: true, "aria-label": "Entry" });
  #topic;
  #rights;
  #asked = 0;

  /**
   * @param {string} topic
   * @param {{read: boolean, why: boolean}} rights of the role
   */
  constructor(topic, rights) {
    this.#topic = topic;
    this.#rights = rights;
  }

  /** Hides the section. */
  clear() {
    this.#asked += 1;
    this.element.hidden = true;
  }

  /** Asks the broker about an entry and shows its answers. */
  async ask(position) {
    this.#asked += 1;
    const asked = this.#asked;
    const [why, messages] = await Promise.all([this.#why(position), this.#messages(position)]);
    // The user may have clicked another entry since.
    if (asked !== this.#asked) return;
    this.element.hidden = false;
    replace(this.element, h("h2", {}, `Entry ${position.ledgerId}:${position.entryId}`), h("div", { class: "columns" }, why, messages));
  }

  async #why({ ledgerId, entryId }) {
    if (!this.#rights.why) return null;
    try {
      const answer = await get(`/admin/v2/magnetar/cache/why/${topicPath(this.#topic)}/${ledgerId}/${entryId}`);
      return h("div", { class: "why" },
        h("p", { class: "conclusion", role: "status" }, answer.conclusion),
        h("ol", { class: "story" }, answer.events.map((event) =>
          h("li", {}, timeElement(Date.parse(event.at)), h("span", {}, eventText(event, ledgerId))))));
    } catch (error) {
      return h("p", { class: "error", role: "alert" }, error.message);
    }
  }

  async #messages({ ledgerId, entryId }) {
    if (!this.#rights.read) return null;
    try {
      const path = `/admin/v2/magnetar/console/messages/${topicPath(this.#topic)}/ledger/${ledgerId}/entry/${entryId}?count=1`;
      const { messages, more: unsent } = await get(path);
      const title = messages.length === 1 ? "Message" : `${messages.length}${unsent ? " and more" : ""} messages`;
      const more = unsent || messages.length > SHOWN_MAX ? h("p", { class: "quiet" }, `The first ${Math.min(SHOWN_MAX, messages.length)} are shown.`) : null;
      return h("div", {}, h("h3", {}, title), more, messageCards(messages.slice(0, SHOWN_MAX)));
    } catch (error) {
      return h("p", { class: "error", role: "alert" }, error.message);
    }
  }
}
