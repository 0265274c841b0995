/**
 * Loads data again and again while the tab is visible, and shows the newest error in the server's words.
 */

import { h, setText } from "../dom/element.js";
import { pauseBetweenLoads } from "./pace.js";

/** Repeats one load. */
export class Refresh {
  /** Shows the error of the last load; empty after a good one. */
  error = h("p", { class: "error", role: "alert", hidden: true });
  #load;
  #show;
  #everyMs;
  #timer = null;
  #controller = null;
  #closed = false;
  #onVisible = () => { if (!document.hidden) this.now(); };

  /**
   * @param {function(AbortSignal): Promise<*>} load
   * @param {function(*): void} show gets the loaded data
   * @param {number} everyMs pause between two loads; 0 loads once. Longer after data whose `costMs` is large
   */
  constructor(load, show, everyMs) {
    this.#load = load;
    this.#show = show;
    this.#everyMs = everyMs;
    document.addEventListener("visibilitychange", this.#onVisible);
  }

  /** Loads now; a load that is under way is given up. Returns after the data are shown. */
  async now() {
    clearTimeout(this.#timer);
    this.#controller?.abort();
    const controller = new AbortController();
    this.#controller = controller;
    let costMs = 0;
    try {
      const data = await this.#load(controller.signal);
      if (controller.signal.aborted || this.#closed) return;
      this.#tell(null);
      this.#show(data);
      costMs = data?.costMs ?? 0;
    } catch (error) {
      if (controller.signal.aborted || this.#closed) return;
      this.#tell(error);
    }
    this.#again(costMs);
  }

  /** Ends the loads. */
  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#controller?.abort();
    document.removeEventListener("visibilitychange", this.#onVisible);
  }

  #again(costMs) {
    if (this.#everyMs && !document.hidden) this.#timer = setTimeout(() => this.now(), pauseBetweenLoads(this.#everyMs, costMs));
  }

  #tell(error) {
    this.error.hidden = !error;
    setText(this.error, error ? error.message : "");
  }
}
