/**
 * The messages of a topic that were trimmed: the broker numbers all messages of a topic (PIP-70), so the number of the first
 * one that is still there is the count of those in front of it.
 */

import { get } from "../shell/api.js";
import { topicPath } from "../shell/routes.js";

/** Counts the trimmed messages of one topic. */
export class Trimmed {
  #topic;
  #firstLedger = null;
  #count = null;

  /** @param {string} topic */
  constructor(topic) {
    this.#topic = topic;
  }

  /**
   * Returns the count; null if the broker does not number messages, or the topic is empty.
   * @param {{ledgers: {entries: number}[], trimmedBefore: ?{ledgerId: number, entryId: number}}} answer of the topic; its
   *   first ledger may be a later one than that of `trimmedBefore`, because the oldest are left out of a long list
   */
  async count({ ledgers, trimmedBefore }) {
    if (!trimmedBefore || !ledgers.some((ledger) => ledger.entries > 0)) return null;
    // Ledgers are trimmed as a whole, so the answer holds until another ledger is the first.
    if (trimmedBefore.ledgerId !== this.#firstLedger) {
      this.#count = await this.#ask(trimmedBefore);
      this.#firstLedger = trimmedBefore.ledgerId;
    }
    return this.#count;
  }

  async #ask({ ledgerId, entryId }) {
    try {
      const { messages } = await get(`/admin/v2/magnetar/console/messages/${topicPath(this.#topic)}/ledger/${ledgerId}/entry/${entryId}?count=1`);
      return messagesBefore(messages[0]);
    } catch {
      // The ledger may have been trimmed since the list was made; the next list has another one.
      return null;
    }
  }
}

/**
 * Returns the messages in front of an entry.
 * @param {{index: ?number, entryMessages: number}} message of the entry; `index` is the number of its last message, from 0
 */
export function messagesBefore({ index, entryMessages }) {
  return index === null ? null : index - entryMessages + 1;
}
