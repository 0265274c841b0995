"""What a broker says of its entry cache, as text for people: a table of topics, and the life of one entry."""

from __future__ import annotations

from typing import TypedDict

from broker.model.spans import span

MIB = 1 << 20


class Topic(TypedDict):
    topic: str
    bytes: int
    entries: int
    hits: int
    misses: int
    coalesced: int
    hitRatio: float | None
    evictions: dict[str, int]


class Top(TypedDict):
    """`GET /admin/v2/magnetar/cache/top`, as far as it is shown."""

    sort: str
    usedBytes: int
    maxBytes: int
    entries: int
    topicsOpen: int
    topics: list[Topic]


class Event(TypedDict, total=False):
    secondsAgo: float
    event: str
    firstEntryId: int
    lastEntryId: int
    cursor: str
    cursors: list[str]
    expectedReads: int | None
    expected: bool
    cause: str
    reason: str


class Why(TypedDict):
    """`GET /admin/v2/magnetar/cache/why/…`, as far as it is shown."""

    topic: str
    ledgerId: int
    entryId: int
    conclusion: str
    events: list[Event]


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
CAUSES = {
    "expected_reads": "reads of it were expected",
    "recently_accessed": "it had been read since the last look",
    "may_return": "somebody who had not acknowledged it may return",
}
REASONS = {
    "ttl": "its time was over",
    "size": "the cache was full",
    "ledger": "its ledger was deleted or could not be read",
    "invalidate": "no reader needed it, or the topic was closed",
}
OBSTACLES = {
    "disabled": "the cache is switched off",
    "no_active_cursor": "no cursor was active",
    "nobody_to_come": "no active cursor was known to read it again",
    "full": "the cache was full, and no reader was known to come for it",
    "too_large": "larger than the cache",
}


def top_text(top: Top) -> str:
    head = (
        f"{_size(top['usedBytes'])} of {_size(top['maxBytes'])} in {top['entries']:,} entries,"
        f" {_plural(top['topicsOpen'], 'topic')} open; first by {top['sort']}"
    )
    if not top["topics"]:
        return head
    rows = [COLUMNS, *map(_cells, top["topics"])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join([head, "", *(_line(row, widths) for row in rows)])


def _cells(topic: Topic) -> tuple[str, ...]:
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


def why_text(why: Why) -> str:
    """A line per event, the oldest first, and the conclusion."""
    lines = [f"{span(event['secondsAgo']):>12} ago  {_event(why, event)}" for event in why["events"]]
    return "\n".join([f"{why['topic']} {why['ledgerId']}:{why['entryId']}", *lines, why["conclusion"]])


def _event(why: Why, event: Event) -> str:
    match event["event"]:
        case "insert":
            return f"inserted{_run(why, event)}, {_expected(event)}"
        case "hit":
            return f"read from the cache by {event['cursor']}"
        case "miss":
            return f"asked of storage by {event['cursor']}"
        case "coalesced":
            return f"asked for by {event['cursor']} while it was being read from storage"
        case "failed":
            return f"the storage read for {event['cursor']} failed"
        case "replay":
            return "to be delivered once more"
        case "kept_back":
            return "kept back undelivered, to be read once more"
        case "requeue":
            return f"requeued: {_words(CAUSES, event['cause'])}"
        case "evict":
            expected = ", although reads of it were expected" if event["expected"] else ""
            return f"evicted: {_words(REASONS, event['reason'])}{expected}"
        case "not_cached":
            return f"not cached: {_words(OBSTACLES, event['reason'])}"
        case other:
            return _words({}, other)


def _run(why: Why, event: Event) -> str:
    first, last = event["firstEntryId"], event["lastEntryId"]
    ledger = why["ledgerId"]
    return f" with {ledger}:{first} to {ledger}:{last}" if first != last else ""


def _expected(event: Event) -> str:
    count, cursors = event["expectedReads"], event["cursors"]
    if count is None:
        return "reads not counted"
    if not count:
        return "no reads expected"
    return f"{_plural(count, 'read')} expected: {', '.join(cursors)}"


def _words(known: dict[str, str], name: str) -> str:
    """A newer broker may know more of them."""
    return known.get(name, name.replace("_", " "))


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / MIB:,.1f} MiB" if size_bytes >= MIB else f"{size_bytes / 1024:.1f} KiB"
