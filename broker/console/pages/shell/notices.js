/**
 * Messages to the user: what an action did, and errors of the server in its own words.
 *
 * Successes are announced politely and leave after a while. Errors stay until the user closes them.
 */

import { h } from "../dom/element.js";

const SUCCESS_MS = 8000;
const SHOWN_MAX = 4;

/** The region of the page that shows notices. */
export class Notices {
  /** The region; stands once in the page. */
  element = h("div", { class: "notices", role: "status", "aria-live": "polite" });

  /** Tells what was done. */
  success(text) {
    const notice = this.#show("success", text);
    setTimeout(() => notice.remove(), SUCCESS_MS);
  }

  /** Tells what failed, with the server's reason whole. */
  failure(what, error) {
    this.#show("failure", `${what}: ${error.message}`);
  }

  #show(kind, text) {
    const close = h("button", { type: "button", class: "plain", "aria-label": "Close this message" }, "×");
    const notice = h("div", { class: `notice ${kind}` }, h("p", {}, text), close);
    close.addEventListener("click", () => notice.remove());
    this.element.append(notice);
    while (this.element.children.length > SHOWN_MAX) this.element.firstElementChild.remove();
    return notice;
  }
}
