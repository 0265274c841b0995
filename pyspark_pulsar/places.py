"""Parses the begin and end of a query: startingOffsets, endingOffsets, startingTime and endingTime.

Users name messages that are read, at both ends. Inside the source a range is open at its start (see `position`), so a
start becomes the position before the named message.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from google.protobuf.message import DecodeError

from protocol.pulsar_api_pb2 import MessageIdData
from pyspark_pulsar.errors import OptionError
from pyspark_pulsar.position import EARLIEST, MessagePosition, before
from pyspark_pulsar.topic_names import base_topic, full_topic_name

LATEST: Final = "latest"
"""The end of a topic at the time the query is planned."""
StreamPlace = MessagePosition | Literal["latest"]
"""A position, or "latest": the end of the topic at the time the query is planned."""

_NO_LEDGER: Final = 2**63 - 1
"""Ledger of MessageId.latest; MessageId.earliest has -1, which is 2**64 - 1 on the wire."""
_TIMES_OF_JVM: Final[dict[object, StreamPlace]] = {-1: EARLIEST, -2: LATEST}
"""Times that the JVM connector writes for the ends of a topic, in JSON."""
_POSITION = re.compile(r"(\d+):(-?\d+)(?::(\d+))?")


@dataclass(frozen=True)
class PlaceChoice:
    """The begin or the end of a query: a default, and exceptions for single topics.

    Exceptions are found by the partition's name first, then by the name of its partitioned topic.
    """

    default: StreamPlace
    """Place for topics without an exception."""
    by_topic: Mapping[str, StreamPlace]
    """Exceptions by full topic name."""
    time_ms: int | None = None
    """Publish time in milliseconds since 1970. `default` is then the widest place; tasks compare each message's time."""
    time_ms_by_topic: Mapping[str, int] = field(default_factory=dict)
    """Exceptions to `time_ms` by full topic name."""

    def place(self, topic: str) -> StreamPlace:
        """Returns the place that holds for a topic or partition."""
        return self.by_topic.get(topic, self.by_topic.get(base_topic(topic), self.default))

    def time_of(self, topic: str) -> int | None:
        """Returns the publish time that holds for a topic, in milliseconds since 1970; None without one."""
        return self.time_ms_by_topic.get(topic, self.time_ms_by_topic.get(base_topic(topic), self.time_ms))

    def check_names(self, name: str, topics: Iterable[str]) -> None:
        """Raises OptionError for an exception whose topic the query does not read; `name` is the option's name."""
        known = {*topics, *map(base_topic, topics)}
        for topic in (*self.by_topic, *self.time_ms_by_topic):
            if topic not in known:
                raise OptionError(f"{name} names {topic}, which the query does not read")


def choose_places(
    offsets: str,
    by_place: str | None,
    time: str,
    by_time: str | None,
    *,
    default: StreamPlace,
    streaming: bool | None,
) -> PlaceChoice:
    """Parses the values of two options, whose names are `offsets` and `time`. OptionError.

    `streaming` is None while the kind of query is unknown; rules of one kind are then not checked.
    """
    if by_place is not None and by_time is not None:
        raise OptionError(f"{offsets} and {time} are both given: leave one of them out")
    ends = offsets == "endingOffsets"
    if ends and streaming and (by_place or by_time):
        raise OptionError(f"{offsets if by_place else time} is given, but a stream has no end")
    if by_time is not None:
        widest: StreamPlace = LATEST if ends else EARLIEST
        return _times(time, by_time, widest)
    if by_place is None:
        return PlaceChoice(default, {})
    choice = _read_places(offsets, by_place, default)
    if streaming is False and not ends and LATEST in (choice.default, *choice.by_topic.values()):
        raise OptionError("startingOffsets is latest: a batch query would have nothing to read")
    if ends and EARLIEST in (choice.default, *choice.by_topic.values()):
        raise OptionError("endingOffsets is earliest: a batch query would have nothing to read")
    return choice


def _read_places(name: str, text: str, default: StreamPlace) -> PlaceChoice:
    ends = name == "endingOffsets"
    if not text.lstrip().startswith("{"):
        return PlaceChoice(_place(name, text.strip(), ends), {})
    by_topic = {
        full_topic_name(topic): _place(name, value, ends) for topic, value in _json_object(name, text).items()
    }
    return PlaceChoice(default, by_topic)


def _place(name: str, value: object, ends: bool) -> StreamPlace:
    if value == "earliest":
        return EARLIEST
    if value == "latest":
        return LATEST
    if isinstance(value, list) and all(isinstance(byte, int) for byte in value):
        try:
            # Java's bytes are signed, and its clients print them so: -1 stands for 255.
            message_id = MessageIdData.FromString(bytes(byte & 0xFF for byte in value))
        except DecodeError:
            raise OptionError(
                f"{name}: {value} is no message id: a serialized MessageIdData is expected"
            ) from None
        # MessageId.earliest and MessageId.latest of the clients; ids are int64, and the field is uint64.
        if message_id.ledgerId >= _NO_LEDGER:
            return EARLIEST if message_id.ledgerId > _NO_LEDGER else LATEST
        # -1 stands for the whole entry on the wire, here None does.
        batch = message_id.batch_index if message_id.batch_index >= 0 else None
        return _at(message_id.ledgerId, message_id.entryId, batch, ends)
    match = _POSITION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise OptionError(
            f"{name}: {value!r} is no place: earliest, latest, ledger:entry, ledger:entry:batch or the bytes of "
            "a message id are expected"
        )
    return _at(int(match[1]), int(match[2]), None if match[3] is None else int(match[3]), ends)


def _at(ledger: int, entry: int, batch: int | None, ends: bool) -> MessagePosition:
    """Returns the position for a message that is read as the last one (`ends`) or as the first one."""
    if ends:
        return MessagePosition(ledger, entry) if batch is None else MessagePosition(ledger, entry, batch)
    return before(ledger, entry, batch)


def _times(name: str, text: str, widest: StreamPlace) -> PlaceChoice:
    expected = "milliseconds since 1970 or an ISO time such as 2026-01-31T12:00:00Z"
    try:
        if text.lstrip().startswith("{"):
            given = {full_topic_name(key): value for key, value in _json_object(name, text).items()}
            places = {topic: _TIMES_OF_JVM[time] for topic, time in given.items() if time in _TIMES_OF_JVM}
            times = {topic: parse_time_ms(time) for topic, time in given.items() if topic not in places}
            return PlaceChoice(widest, places, None, times)
        return PlaceChoice(widest, {}, parse_time_ms(text))
    except (ValueError, TypeError) as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError(f"{name} is {text!r}: {expected} is expected") from None


def _json_object(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise OptionError(f"{name} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise OptionError(f"{name} is {text!r}: a JSON object from topic to place is expected")
    return found


def parse_time_ms(text: str | int) -> int:
    """Parses milliseconds since 1970 or ISO 8601, without a zone as UTC; returns milliseconds. ValueError."""
    if isinstance(text, int) or text.strip().isdigit():
        if int(text) < 0:
            raise ValueError(text)
        return int(text)
    moment = datetime.datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return int(moment.timestamp() * 1000)
