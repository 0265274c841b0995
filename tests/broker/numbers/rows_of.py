"""Readings for tests, made of the few numbers that a test names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from broker.numbers.columns import Columns, Number
from broker.numbers.readings import CONSUMERS, PRODUCERS, SUBSCRIPTIONS, TOPICS, PartReading, TopicReading

SHORT = {
    "added": "ledger.stats.entries_added",
    "added_bytes": "ledger.stats.bytes_added",
    "read": "ledger.stats.entries_read",
    "read_errors": "ledger.stats.read_errors",
    "expired": "expired.total",
    "hits": "cursor.reader.reads.hit_entries",
    "misses": "cursor.reader.reads.miss_entries",
    "coalesced": "cursor.reader.reads.coalesced_entries",
}
"""Sources by a word that can be the name of a parameter."""


def numbers_of(columns: Columns, numbers: Mapping[str, Number]) -> tuple[Number, ...]:
    """Returns a row; a number that the columns do not have is an error."""
    found = {SHORT.get(name, name): number for name, number in numbers.items()}
    assert set(found) <= set(columns.names), found
    return columns.row(found)


def topic_of(
    namespace: str,
    topic: str,
    *,
    subscriptions: Sequence[PartReading] = (),
    publishers: Sequence[PartReading] = (),
    parts: Mapping[str, Any] | None = None,
    **numbers: Number,
) -> TopicReading:
    """Returns the reading of a topic; `parts` are other fields of it."""
    row = numbers_of(TOPICS, {"subscriptions": len(subscriptions), **numbers})
    return TopicReading(namespace, topic, row, subscriptions, publishers, **(parts or {}))


def subscription_of(name: str, parts: Sequence[PartReading] = (), /, **numbers: Number) -> PartReading:
    """Returns the reading of a subscription."""
    return PartReading((name, 0), numbers_of(SUBSCRIPTIONS, numbers), parts)


def consumer_of(name: str, number: int, **numbers: Number) -> PartReading:
    """Returns the reading of a consumer."""
    return PartReading((name, number), numbers_of(CONSUMERS, numbers))


def producer_of(name: str, number: int, **numbers: Number) -> PartReading:
    """Returns the reading of a producer."""
    return PartReading((name, number), numbers_of(PRODUCERS, numbers))
