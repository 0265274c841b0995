"""Formats a broker's answers about its entry cache: a table of topics, and the history of one entry.

`broker/admin/cluster/cache.py` writes the answers.
"""

from __future__ import annotations

from foundation.model.spans import span
from foundation.units import MIB
from magnetar.clients.answer_object import AnswerObject
from magnetar.clients.cache_words import CAUSES, REASONS

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
OBSTACLES = {
    "disabled": "the cache is switched off",
    "no_active_cursor": "no cursor was active",
    "nobody_to_come": "no active cursor was known to read it again",
    "full": "the cache was full, and no reader of it was known",
    "too_large": "larger than the cache",
}
"""Reasons for not caching an entry in words."""


def top_text(top: AnswerObject) -> str:
    """Returns one line on the whole cache and a table with a row per topic."""
    head = (
        f"{_size(top.amount('usedBytes'))} of {_size(top.amount('maxBytes'))} in {top.amount('entries'):,} entries,"
        f" {_plural(top.amount('topicsOpen'), 'topic')} open; first by {top.text('sort')}"
    )
    topics = [_cells(topic) for topic in top.each("topics")]
    if not topics:
        return head
    rows = [COLUMNS, *topics]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join([head, "", *(_line(row, widths) for row in rows)])


def _cells(topic: AnswerObject) -> tuple[str, ...]:
    evictions = AnswerObject(topic.value["evictions"])
    by_time, by_size = evictions.amount("ttl"), evictions.amount("size")
    others = sum(map(evictions.amount, evictions.value)) - by_time - by_size
    ratio = topic.number("hitRatio")
    counts = (*map(topic.amount, ("hits", "misses", "coalesced")), by_time, by_size, others)
    return (
        _size(topic.amount("bytes")),
        f"{topic.amount('entries'):,}",
        "-" if ratio is None else f"{100 * ratio:.1f} %",
        *(f"{count:,}" for count in counts),
        topic.text("topic"),
    )


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    *numbers, topic = cells
    return "  ".join([*(text.rjust(width) for text, width in zip(numbers, widths, strict=False)), topic])


def why_text(why: AnswerObject) -> str:
    """Returns a line per event, the oldest first, and the conclusion."""
    lines = [
        f"{span(event.amount('secondsAgo')):>12} ago  {_event(why, event)}" for event in why.each("events")
    ]
    return "\n".join(
        [
            f"{why.text('topic')} {why.value['ledgerId']}:{why.value['entryId']}",
            *lines,
            why.text("conclusion"),
        ]
    )


def _event(why: AnswerObject, event: AnswerObject) -> str:
    match event.text("event"):
        case "insert":
            return f"inserted{_run(why, event)}, {_expected(event)}"
        case "hit":
            return f"read from the cache by {event.text('cursor')}"
        case "miss":
            return f"read from storage for {event.text('cursor')}"
        case "coalesced":
            return f"requested by {event.text('cursor')} while it was being read from storage"
        case "failed":
            return f"the storage read for {event.text('cursor')} failed"
        case "replay":
            return "to be delivered again"
        case "kept_back":
            return "not delivered, to be read again"
        case "requeue":
            return f"requeued: {_words(CAUSES, event.text('cause'))}"
        case "evict":
            expected = ", although reads of it were expected" if event.value["expected"] else ""
            return f"evicted: {_words(REASONS, event.text('reason'))}{expected}"
        case "not_cached":
            return f"not cached: {_words(OBSTACLES, event.text('reason'))}"
        case other:
            return _words({}, other)


def _run(why: AnswerObject, event: AnswerObject) -> str:
    first, last, ledger = event.value["firstEntryId"], event.value["lastEntryId"], why.value["ledgerId"]
    return f" with {ledger}:{first} to {ledger}:{last}" if first != last else ""


def _expected(event: AnswerObject) -> str:
    count = event.number("expectedReads")
    if count is None:
        return "reads not counted"
    if not count:
        return "no reads expected"
    return f"{_plural(count, 'read')} expected: {', '.join(map(str, event.list('cursors')))}"


def _words(known: dict[str, str], name: str) -> str:
    # A broker newer than this command may send names that are not in the table: show them as they are.
    return known.get(name, name.replace("_", " "))


def _plural(count: float, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _size(size_bytes: float) -> str:
    return f"{size_bytes / MIB:,.1f} MiB" if size_bytes >= MIB else f"{size_bytes / 1024:.1f} KiB"
