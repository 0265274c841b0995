/**
 * The newest values of the live stream, and a signal to views that they changed.
 *
 * Views are called in an animation frame. A hidden tab has no stream: a browser opens six connections to a server, so the
 * streams of six tabs would leave none for requests. The stream begins with the history, so nothing is missing later.
 */

import { History } from "./history.js";
import { Stream } from "./stream.js";

const WARNINGS_MAX = 200;

/** Follows the stream for all views. */
export class Live {
  /** Rates, latencies and levels of the last second; null before the first event. */
  overview = null;
  /** The last hour and the last minutes. */
  history = new History();
  /** The log's last warnings, the newest first. */
  warnings = [];
  /** The values of the followed topic; null before its first event. */
  topic = null;
  /** The followed topic's last hour, from the first look of a page on. */
  topicHistory = new History();
  /** When the sampling of the followed topic began, in ms since 1970; null before its first event. */
  topicSinceMs = null;
  /** State of the connection: {name, error, retryAtMs}. */
  state = { name: "idle" };

  #takenMs = null;
  #views = new Set();
  #isWanted = false;
  #frame = null;
  #stream = new Stream((event, data) => this.#take(event, data), (state) => this.#enter(state));

  /** False for a role that may see the values of single topics alone: there is no stream without a topic. */
  isBroad = true;

  constructor() {
    document.addEventListener("visibilitychange", () => this.#pauseOrResume());
  }

  /** Opens the stream; names a topic to follow, null for none. */
  follow(topic) {
    this.topic = null;
    this.topicHistory = new History();
    this.topicSinceMs = null;
    if (topic === null && !this.isBroad) {
      this.close();
      this.#enter({ name: "idle" });
      return;
    }
    this.#isWanted = true;
    this.#stream.follow(topic);
    if (document.hidden) this.#pauseOrResume();
  }

  /** Tries again now. */
  retry() {
    this.#stream.open();
  }

  /** Ends the stream. */
  close() {
    this.#isWanted = false;
    this.#stream.close();
  }

  /**
   * Calls `draw` in an animation frame after each change, and once at first.
   * @returns {function(): void} ends the calls
   */
  watch(draw) {
    this.#views.add(draw);
    this.#schedule();
    return () => this.#views.delete(draw);
  }

  #pauseOrResume() {
    if (!this.#isWanted) return;
    if (!document.hidden) {
      this.#stream.open();
      return;
    }
    this.#stream.close();
    this.#enter({ name: "idle" });
  }

  /**
   * Returns the age of the newest values: since they came, and since the broker counted them.
   * @returns {?number} seconds, null before the first values of this connection
   */
  ageSeconds(nowMs) {
    if (this.#takenMs === null) return null;
    return Math.max(0, nowMs - this.#takenMs) / 1000 + (this.overview?.countedSecondsAgo ?? 0);
  }

  #take(event, data) {
    if (event === "overview" || event === "topic") this.#takenMs = Date.now();
    if (event === "history") this.history.fill(data);
    else if (event === "overview") this.#takeOverview(data);
    else if (event === "warning") this.#takeWarning(data);
    else if (event === "topic") this.#takeTopic(data);
    this.#schedule();
  }

  #takeOverview(data) {
    this.overview = data;
    this.history.add(data);
  }

  #takeTopic(data) {
    this.topic = data;
    if (data.gone) return;
    if (data.history) {
      this.topicHistory.fill(data.history);
      this.topicSinceMs = data.history.sinceMs;
    } else this.topicHistory.add(data); // The first values of a stream have no rates, which would end the lines.
  }

  #takeWarning(warning) {
    // After a lost connection the broker sends the last ones again.
    if (this.warnings.some((one) => one.number === warning.number && one.atMs === warning.atMs)) return;
    this.warnings = [warning, ...this.warnings].slice(0, WARNINGS_MAX);
  }

  #enter(state) {
    this.state = state;
    if (state.name !== "live") this.#takenMs = null;
    this.#schedule();
  }

  #schedule() {
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = null;
      for (const draw of [...this.#views]) draw();
    });
  }
}
