/**
 * Decisions of the entry cache in words, the same words as those of `magnetar cache why`. Pure.
 */

/** Reasons of an eviction. */
export const REASONS = {
  ttl: "its time was over",
  size: "the cache was full",
  ledger: "its ledger was deleted or could not be read",
  invalidate: "no cursor needed it any more, or the topic was closed",
};

/** Causes of a requeue. */
export const CAUSES = {
  expected_reads: "reads of it were expected",
  recently_accessed: "it had been read since the last pass",
  may_return: "a consumer that had not acknowledged it may return",
};

const OBSTACLES = {
  disabled: "the cache is switched off",
  no_active_cursor: "no cursor was active",
  nobody_to_come: "no active cursor was known to read it again",
  full: "the cache was full, and no reader of it was known",
  too_large: "larger than the cache",
};

const TEXTS = {
  insert: (event, ledgerId) => `inserted${run(event, ledgerId)}, ${expected(event)}`,
  hit: (event) => `read from the cache by ${event.cursor}`,
  miss: (event) => `read from storage for ${event.cursor}`,
  coalesced: (event) => `requested by ${event.cursor} while it was being read from storage`,
  failed: (event) => `the storage read for ${event.cursor} failed`,
  replay: () => "to be delivered again",
  kept_back: () => "not delivered, to be read again",
  requeue: (event) => `requeued: ${words(CAUSES, event.cause)}`,
  evict: (event) => `evicted: ${words(REASONS, event.reason)}${event.expected ? ", although reads of it were expected" : ""}`,
  not_cached: (event) => `not cached: ${words(OBSTACLES, event.reason)}`,
};

/**
 * Says what the cache did.
 * @param {Object} event of the answer of `cache/why`
 * @param {number} ledgerId
 */
export function eventText(event, ledgerId) {
  const text = TEXTS[event.event];
  return text ? text(event, ledgerId) : words({}, event.event);
}

/** Returns the words of a name. A newer broker may send names that this page lacks; they are shown as they are. */
export function words(known, name) {
  return known[name] ?? name.replaceAll("_", " ");
}

function run({ firstEntryId, lastEntryId }, ledgerId) {
  return firstEntryId === lastEntryId ? "" : ` with ${ledgerId}:${firstEntryId} to ${ledgerId}:${lastEntryId}`;
}

function expected({ expectedReads, cursors }) {
  if (expectedReads === null) return "reads not counted";
  if (!expectedReads) return "no reads expected";
  return `${expectedReads} ${expectedReads === 1 ? "read" : "reads"} expected: ${cursors.join(", ")}`;
}
