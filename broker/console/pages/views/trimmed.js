/**
 * The messages of a topic that were trimmed: the broker numbers all messages of a topic (PIP-70), so the number of the first
 * one that is still there is the count of those in front of it.
 */

import { headers } from "../shell/api.js";
import { topicPath } from "../shell/routes.js";

const INDEX = "X-Pulsar-Broker-Entry-METADATA-index";
const BATCH = "X-Pulsar-num-batch-message";

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
      const found = await headers(`/admin/v2/${topicPath(this.#topic)}/ledger/${ledgerId}/entry/${entryId}`);
      return messagesBefore(found.get(INDEX), found.get(BATCH));
    } catch {
      // The ledger may have been trimmed since the list was made; the next list has another one.
      return null;
    }
  }
}

/**
 * Returns the messages in front of an entry.
 * @param {?string} index number of the last message of the entry, from 0
 * @param {?string} batch messages in the entry, null for one that is no batch
 */
export function messagesBefore(index, batch) {
  return index === null ? null : Number(index) - Number(batch ?? 1) + 1;
}
