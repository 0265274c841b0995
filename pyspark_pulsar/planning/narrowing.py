"""Reads from the conditions of a query (`WHERE`) which topics, ledgers and times it needs. Pure functions.

Law: a narrowed query reads every row that the conditions accept, and may read others: Spark compares each row that it
is given. A condition that is not understood narrows nothing.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from google.protobuf.message import DecodeError
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from protocol.pulsar_api_pb2 import MessageIdData
from pyspark_pulsar.planning.split import LAST_ENTRY
from pyspark_pulsar.position import FOREVER_MS, Position, TopicRange, before

_LEDGER_MAX: Final = 2**62


@dataclass(frozen=True)
class Interval:
    """Whole numbers from `low` to `high`, both included; empty where `low` is greater."""

    low: int
    """The smallest number."""
    high: int
    """The greatest number."""

    def intersect(self, other: Interval) -> Interval:
        """Returns the numbers in both."""
        return Interval(max(self.low, other.low), min(self.high, other.high))


@dataclass(frozen=True)
class Narrowing:
    """The part of its topics that a query needs, as far as its conditions tell."""

    topics: tuple[Callable[[str], bool], ...] = ()
    """Conditions on the full name, which hold together."""
    times_ms: Interval = Interval(0, FOREVER_MS)
    """Publish times in milliseconds since 1970."""
    ledgers: Interval = Interval(-1, _LEDGER_MAX)
    """Ledger ids."""
    entries: Interval = Interval(-1, LAST_ENTRY)
    """Entry ids; they narrow a query of one ledger alone, since ids begin anew in each."""
    message: tuple[int, int] | None = None
    """Ledger and entry of the only message that is wanted."""

    def wants_topic(self, topic: str) -> bool:
        """Returns True for a topic whose rows the conditions may accept."""
        return all(accepts(topic) for accepts in self.topics)

    @property
    def is_everything(self) -> bool:
        """True where the conditions narrow no range."""
        everything = Narrowing(self.topics)
        return self == everything

    def narrow(self, ranges: Sequence[TopicRange]) -> list[TopicRange]:
        """Returns the ranges without the parts that are not needed; those without a rest are left out."""
        first, last = self._ends()
        found = []
        for one in ranges:
            times = self.times_ms.intersect(Interval(one.from_ms, one.to_ms))
            start, end = max(one.start, first), min(one.end, last)
            if start < end and times.low <= times.high:
                found.append(one._replace(start=start, end=end, from_ms=times.low, to_ms=times.high))
        return found

    def _ends(self) -> tuple[Position, Position]:
        """Returns the position behind which the wanted messages begin, and that of the last one."""
        ledgers, entries = self.ledgers, self.entries
        if self.message is not None:
            ledgers = ledgers.intersect(Interval(self.message[0], self.message[0]))
            entries = entries.intersect(Interval(self.message[1], self.message[1]))
        if ledgers.low < ledgers.high:
            return before(max(-1, ledgers.low), 0, None), Position(ledgers.high, LAST_ENTRY)
        return before(ledgers.low, max(0, entries.low), None), Position(ledgers.high, entries.high)


def narrowing_of(filters: Iterable[Filter]) -> Narrowing:
    """Returns what the filters say, which hold together."""
    narrowing = Narrowing()
    for one in filters:
        narrowing = _narrowed(narrowing, one)
    return narrowing


def _column(one: Filter) -> str:
    named = one.child if isinstance(one, Not) else one
    path: tuple[str, ...] = getattr(named, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _narrowed(narrowing: Narrowing, one: Filter) -> Narrowing:
    """Returns the narrowing with one more condition."""
    column = _column(one)
    value = getattr(one, "value", None)
    if column == "__topic" and (accepts := _name_condition(one)) is not None:
        return replace(narrowing, topics=(*narrowing.topics, accepts))
    if column == "__messageId" and (message := _message(one)) is not None:
        return replace(narrowing, message=message)
    if column == "__publishTime" and isinstance(value, datetime.datetime) and value.tzinfo is not None:
        times = _interval(one, *_milliseconds(value))
        return replace(narrowing, times_ms=narrowing.times_ms.intersect(times))
    if column == "__ledger" and isinstance(value, int):
        return replace(narrowing, ledgers=narrowing.ledgers.intersect(_interval(one, value, value)))
    if column == "__entry" and isinstance(value, int):
        return replace(narrowing, entries=narrowing.entries.intersect(_interval(one, value, value)))
    return narrowing


def _interval(one: Filter, floor: int, ceiling: int) -> Interval:
    """Returns the whole numbers that a comparison accepts; its value lies between `floor` and `ceiling`.

    Both are the value itself where it is whole. Every number for another kind of condition.
    """
    low, high = -(2**62), FOREVER_MS
    match one:
        case EqualTo() | EqualNullSafe():
            return Interval(ceiling, floor)
        case GreaterThan():
            return Interval(floor + 1, high)
        case GreaterThanOrEqual():
            return Interval(ceiling, high)
        case LessThan():
            return Interval(low, ceiling - 1)
        case LessThanOrEqual():
            return Interval(low, floor)
    return Interval(low, high)


def _milliseconds(moment: datetime.datetime) -> tuple[int, int]:
    """Returns the whole milliseconds since 1970 at or before a moment, and at or behind it."""
    since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    microseconds = since // datetime.timedelta(microseconds=1)
    return microseconds // 1000, -(-microseconds // 1000)


def _name_condition(one: Filter) -> Callable[[str], bool] | None:
    """Returns the condition on a topic's full name; None for one that is not understood."""
    match one:
        case Not(child=child):
            inner = _name_condition(child)
            return None if inner is None else lambda topic: not inner(topic)
        case EqualTo(value=value) | EqualNullSafe(value=value):
            return lambda topic: topic == value
        # SQL's `NOT IN` accepts nothing where the list has a null, which Python's does not know.
        case In(value=values) if None not in values:
            return lambda topic: topic in values
        case StringStartsWith(value=value):
            return lambda topic: topic.startswith(value)
        case StringEndsWith(value=value):
            return lambda topic: topic.endswith(value)
        case StringContains(value=value):
            return lambda topic: value in topic
    return None


def _message(one: Filter) -> tuple[int, int] | None:
    """Returns ledger and entry of the message id that the column is to equal; None for another condition."""
    value: Any = getattr(one, "value", None)
    if not isinstance(one, EqualTo | EqualNullSafe) or not isinstance(value, bytes | bytearray):
        return None
    try:
        found = MessageIdData.FromString(bytes(value))
    except DecodeError:
        return None
    return found.ledgerId, found.entryId
