/**
 * The one live stream of the page: opens it, reads it, and opens it again with growing pauses after it was lost.
 *
 * EventSource would send no Authorization header, so the stream is read with fetch.
 */

import { ApiError, openStream } from "./api.js";
import { EventText } from "./event_text.js";

const PATH = "/admin/v2/magnetar/console/events";
const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 30000;
/** The broker sends something every second. Longer silence means that the connection is dead. */
const SILENCE_MS = 15000;

/**
 * Says how long to wait before the next attempt: doubles up to half a minute, with jitter so that many pages do not
 * come back at the same moment.
 * @param {number} failures attempts in a row without an event
 * @param {number} random 0 to 1
 */
export function pauseMs(failures, random) {
  const longest = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.max(0, failures - 1));
  return Math.round(longest * (0.5 + random / 2));
}

/** Reads the stream until `close`. */
export class Stream {
  #onEvent;
  #onState;
  #topic = null;
  #controller = null;
  #failures = 0;
  #failure = null;
  #timer = null;
  #watch = null;

  /**
   * @param {function(string, *): void} onEvent name and data of each event
   * @param {function({name: string, error?: ?Error, retryAtMs?: number}): void} onState "connecting", "live", "lost",
   *   "refused"; `error` is the last one since the stream was live
   */
  constructor(onEvent, onState) {
    this.#onEvent = onEvent;
    this.#onState = onState;
  }

  /** Follows a topic as well, null for none; opens a stream for it in place of the present one. */
  follow(topic) {
    if (topic === this.#topic && this.#controller) return;
    this.#topic = topic;
    this.open();
  }

  /** Opens the stream now, also while the next attempt is waited for. */
  open() {
    this.close();
    this.#controller = new AbortController();
    this.#read(this.#controller);
  }

  /** Ends the stream and its attempts. */
  close() {
    clearTimeout(this.#timer);
    clearTimeout(this.#watch);
    this.#controller?.abort();
    this.#controller = null;
  }

  async #read(controller) {
    this.#onState({ name: "connecting", error: this.#failure });
    const query = this.#topic ? `?topic=${encodeURIComponent(this.#topic)}` : "";
    let failure = null;
    try {
      const response = await openStream(PATH + query, controller.signal);
      await this.#readBody(response.body, controller);
    } catch (error) {
      failure = error;
    }
    // A stream that breaks after its beginning has an error of the browser, "network error" or the like.
    if (!(failure instanceof ApiError)) failure = new ApiError(0, "The connection to the broker was lost", `GET ${PATH}`);
    clearTimeout(this.#watch);
    if (controller === this.#controller) this.#lost(failure);
  }

  async #readBody(body, controller) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    const text = new EventText();
    let live = false;
    for (;;) {
      this.#expectSound(controller);
      const { value, done } = await reader.read();
      if (done || controller !== this.#controller) return;
      if (!live) this.#onState({ name: "live" });
      live = true;
      this.#failures = 0;
      this.#failure = null;
      for (const { event, data } of text.add(value)) this.#onEvent(event, JSON.parse(data));
    }
  }

  #expectSound(controller) {
    clearTimeout(this.#watch);
    this.#watch = setTimeout(() => controller.abort(), SILENCE_MS);
  }

  #lost(error) {
    if (error.status === 401 || error.status === 403) {
      this.#onState({ name: "refused", error });
      return;
    }
    this.#failures += 1;
    this.#failure = error;
    const wait = pauseMs(this.#failures, Math.random());
    this.#onState({ name: "lost", error, retryAtMs: Date.now() + wait });
    this.#timer = setTimeout(() => this.open(), wait);
  }
}
