"""Formats a broker's answers about its entry cache: a table of topics, and the history of one entry.

The typed dictionaries name the fields of the answers that are shown; `broker/admin/cluster/cache.py` writes them.
"""

from __future__ import annotations

from typing import TypedDict

from foundation.model.spans import span
from foundation.units import MIB


class TopicUse(TypedDict):
    """One topic's use of the cache. Hits, misses and coalesced reads are entries since the topic was opened."""

    topic: str
    """Full name, `persistent://tenant/namespace/name`."""
    bytes: int
    """Bytes of its cached entries."""
    entries: int
    """Cached entries."""
    hits: int
    """Entries read from the cache."""
    misses: int
    """Entries read from storage."""
    coalesced: int
    """Entries received from a storage read that another reader had begun."""
    hitRatio: float | None
    """Hits by all reads, 0 to 1; None before the first read."""
    evictions: dict[str, int]
    """Evicted entries by reason, with `ttl` and `size` always present."""


class Top(TypedDict):
    """`GET /admin/v2/magnetar/cache/top`, as far as it is shown."""

    sort: str
    """One of the orders of `magnetar cache top --sort`."""
    usedBytes: int
    """Bytes of all cached entries."""
    maxBytes: int
    """`managedLedgerCacheSizeMB` in bytes."""
    entries: int
    """All cached entries."""
    topicsOpen: int
    """Open topics, more than `topics` when the list is cut."""
    topics: list[TopicUse]
    """The first ones of the order."""


class EventRow(TypedDict, total=False):
    """One decision of the cache about a run of entries; the last six fields depend on `event`."""

    secondsAgo: float
    """Age of the event."""
    event: str
    """`insert`, `hit`, `miss`, … as `_event` lists them."""
    firstEntryId: int
    """First entry of the run."""
    lastEntryId: int
    """Last entry of the run, inclusive."""
    cursor: str
    """The reading cursor."""
    cursors: list[str]
    """At an insert: the active cursors that were still to read the entry."""
    expectedReads: int | None
    """At an insert: the number of expected reads; None where they are not counted."""
    expected: bool
    """At an eviction: reads were still expected."""
    cause: str
    """At a requeue: a key of `CAUSES`."""
    reason: str
    """At an eviction: a key of `REASONS`; of an entry that was not cached: a key of `OBSTACLES`."""


class CacheWhy(TypedDict):
    """`GET /admin/v2/magnetar/cache/why/…`, as far as it is shown."""

    topic: str
    """Full name."""
    ledgerId: int
    """Ledger of the entry."""
    entryId: int
    """Number of the entry in its ledger."""
    conclusion: str
    """One sentence: the entry's state and its reason."""
    events: list[EventRow]
    """Oldest first; only those that the broker still keeps."""


COLUMNS = (
    "size",
    "entries",
    "hit ratio",
    "hits",
    "misses",
    "coalesced",
    "evicted by time",
    "by size",
    "other",
    "topic",
)
"""Head of the table of topics."""
CAUSES = {
    "expected_reads": "reads of it were expected",
    "recently_accessed": "it had been read since the last pass",
    "may_return": "a consumer that had not acknowledged it may return",
}
"""Causes of a requeue in words."""
REASONS = {
    "ttl": "its time was over",
    "size": "the cache was full",
    "ledger": "its ledger was deleted or could not be read",
    "invalidate": "no cursor needed it any more, or the topic was closed",
}
"""Reasons of an eviction in words."""
OBSTACLES = {
    "disabled": "the cache is switched off",
    "no_active_cursor": "no cursor was active",
    "nobody_to_come": "no active cursor was known to read it again",
    "full": "the cache was full, and no reader of it was known",
    "too_large": "larger than the cache",
}
"""Reasons for not caching an entry in words."""


def top_text(top: Top) -> str:
    """Returns one line on the whole cache and a table with a row per topic."""
    head = (
        f"{_size(top['usedBytes'])} of {_size(top['maxBytes'])} in {top['entries']:,} entries,"
        f" {_plural(top['topicsOpen'], 'topic')} open; first by {top['sort']}"
    )
    if not top["topics"]:
        return head
    rows = [COLUMNS, *map(_cells, top["topics"])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join([head, "", *(_line(row, widths) for row in rows)])


def _cells(topic: TopicUse) -> tuple[str, ...]:
    evictions = topic["evictions"]
    others = sum(evictions.values()) - evictions["ttl"] - evictions["size"]
    ratio = topic["hitRatio"]
    counts = (topic["hits"], topic["misses"], topic["coalesced"], evictions["ttl"], evictions["size"], others)
    return (
        _size(topic["bytes"]),
        f"{topic['entries']:,}",
        "-" if ratio is None else f"{100 * ratio:.1f} %",
        *(f"{count:,}" for count in counts),
        topic["topic"],
    )


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    *numbers, topic = cells
    return "  ".join([*(text.rjust(width) for text, width in zip(numbers, widths, strict=False)), topic])


def why_text(why: CacheWhy) -> str:
    """Returns a line per event, the oldest first, and the conclusion."""
    lines = [f"{span(event['secondsAgo']):>12} ago  {_event(why, event)}" for event in why["events"]]
    return "\n".join([f"{why['topic']} {why['ledgerId']}:{why['entryId']}", *lines, why["conclusion"]])


def _event(why: CacheWhy, event: EventRow) -> str:
    match event["event"]:
        case "insert":
            return f"inserted{_run(why, event)}, {_expected(event)}"
        case "hit":
            return f"read from the cache by {event['cursor']}"
        case "miss":
            return f"read from storage for {event['cursor']}"
        case "coalesced":
            return f"requested by {event['cursor']} while it was being read from storage"
        case "failed":
            return f"the storage read for {event['cursor']} failed"
        case "replay":
            return "to be delivered again"
        case "kept_back":
            return "not delivered, to be read again"
        case "requeue":
            return f"requeued: {_words(CAUSES, event['cause'])}"
        case "evict":
            expected = ", although reads of it were expected" if event["expected"] else ""
            return f"evicted: {_words(REASONS, event['reason'])}{expected}"
        case "not_cached":
            return f"not cached: {_words(OBSTACLES, event['reason'])}"
        case other:
            return _words({}, other)


def _run(why: CacheWhy, event: EventRow) -> str:
    first, last = event["firstEntryId"], event["lastEntryId"]
    ledger = why["ledgerId"]
    return f" with {ledger}:{first} to {ledger}:{last}" if first != last else ""


def _expected(event: EventRow) -> str:
    count, cursors = event["expectedReads"], event["cursors"]
    if count is None:
        return "reads not counted"
    if not count:
        return "no reads expected"
    return f"{_plural(count, 'read')} expected: {', '.join(cursors)}"


def _words(known: dict[str, str], name: str) -> str:
    # A broker newer than this command may send names that are not in the table: show them as they are.
    return known.get(name, name.replace("_", " "))


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / MIB:,.1f} MiB" if size_bytes >= MIB else f"{size_bytes / 1024:.1f} KiB"
