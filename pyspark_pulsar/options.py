"""The options of source and sink: the JVM connector's names where it has one, checked before anything is opened."""

from __future__ import annotations

import datetime
import difflib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from google.protobuf.message import DecodeError

from protocol.pulsar_api_pb2 import MessageIdData
from pyspark_pulsar.client.cluster import ClusterSettings, endpoints
from pyspark_pulsar.client.connection import Credentials, Security
from pyspark_pulsar.errors import OptionError
from pyspark_pulsar.planning.position import EARLIEST, Position, before

LATEST: Final = "latest"
Place = Position | Literal["latest"]
"""A position, or the end of the topic when the query is planned."""

_BYTES = re.compile(r"(\d+)\s*([kmg]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_POSITION = re.compile(r"(\d+):(-?\d+)(?::(\d+))?")

_CONNECTION = (
    "service.url",
    "admin.url",
    "pulsar.client.authPluginClassName",
    "pulsar.client.authParams",
    "pulsar.client.operationTimeoutMs",
    "pulsar.client.tlsTrustCertsFilePath",
    "pulsar.client.tlsHostnameVerificationEnable",
)
_SCHEMA = ("schemaType", "schemaDefinition")
SOURCE_NAMES: Final = (
    *_CONNECTION,
    *_SCHEMA,
    "topic",
    "topics",
    "topicsPattern",
    "startingOffsets",
    "endingOffsets",
    "startingTime",
    "endingTime",
    "columns",
    "numPartitions",
    "failOnDataLoss",
    "allowDifferentTopicSchemas",
    "pollTimeoutMs",
    "waitingForNonExistedTopic",
    "predefinedSubscription",
    "subscriptionPrefix",
    "maxBytesPerTrigger",
    "maxEntriesPerTrigger",
    "maxRowsPerTrigger",
    "offsetsLocation",
)
SINK_NAMES: Final = (
    *_CONNECTION,
    *_SCHEMA,
    "topic",
    "deliveryGuarantee",
    "pulsar.producer.compressionType",
    "pulsar.producer.batchingMaxMessages",
    "pulsar.producer.batchingMaxBytes",
    "pulsar.producer.sendTimeoutMs",
)


@dataclass(frozen=True)
class TopicChoice:
    """Exactly one of the three."""

    names: tuple[str, ...]
    pattern: str | None


@dataclass(frozen=True)
class PlaceChoice:
    """Where to begin or to end: for all topics, and for single ones by name."""

    default: Place
    by_topic: Mapping[str, Place]
    time_ms: int | None = None
    """Publish time; then the place is the widest possible and messages are chosen by their time."""
    time_ms_by_topic: Mapping[str, int] = field(default_factory=dict)

    def place(self, topic: str) -> Place:
        return self.by_topic.get(topic, self.by_topic.get(base_topic(topic), self.default))

    def time_of(self, topic: str) -> int | None:
        return self.time_ms_by_topic.get(topic, self.time_ms_by_topic.get(base_topic(topic), self.time_ms))

    def check_names(self, name: str, topics: Iterable[str]) -> None:
        """OptionError where a topic is named that the query does not read."""
        known = {*topics, *map(base_topic, topics)}
        for topic in (*self.by_topic, *self.time_ms_by_topic):
            if topic not in known:
                raise OptionError(f"{name} names {topic}, which the query does not read")


def base_topic(topic: str) -> str:
    """The partitioned topic that a partition is of; any other name as it is."""
    base, mark, number = topic.rpartition("-partition-")
    return base if mark and number.isdigit() else topic


def partition_of(topic: str) -> int:
    """-1 for a topic that is no partition of another."""
    base = base_topic(topic)
    return -1 if base == topic else int(topic[len(base) + len("-partition-") :])


@dataclass(frozen=True)
class Limits:
    """None = unlimited."""

    bytes_max: int | None
    entries_max: int | None
    rows_max: int | None

    @property
    def any(self) -> bool:
        return not (self.bytes_max is self.entries_max is self.rows_max is None)


@dataclass(frozen=True)
class SchemaChoice:
    """A schema given by the user instead of the one that the topic has."""

    type_name: str
    definition: str | None


@dataclass(frozen=True)
class SourceOptions:
    cluster: ClusterSettings
    topics: TopicChoice
    start: PlaceChoice
    end: PlaceChoice
    columns: tuple[str, ...] | None
    partitions_max: int
    fail_on_data_loss: bool
    allow_different_schemas: bool
    poll_timeout_s: float
    wait_for_topics: bool
    subscription: str | None
    """Named by the user; None = made from `subscription_prefix`."""
    subscription_prefix: str
    limits: Limits
    schema: SchemaChoice | None
    offsets_location: str | None


@dataclass(frozen=True)
class SinkOptions:
    cluster: ClusterSettings
    topic: str | None
    exactly_once: bool
    compression: str
    batch_messages_max: int
    batch_bytes_max: int
    send_timeout_s: float
    schema: SchemaChoice | None


_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""Spark hands these on to the sink of a stream."""


class _Given:
    """Options as given, by any spelling of upper and lower case."""

    def __init__(self, options: Mapping[str, str], names: Iterable[str]) -> None:
        self._names = {name.lower(): name for name in names}
        self._values = {key.lower(): value for key, value in options.items()}
        for key in self._values:
            if key not in self._names and key not in _OF_SPARK:
                raise OptionError(f"no option {_as_given(key, options)!r}{_nearest(key, self._names)}")

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def parsed(self, name: str, parse: Callable[[str], Any], expected: str, default: Any) -> Any:
        value = self.text(name)
        if value is None:
            return default
        try:
            return parse(value)
        except (ValueError, KeyError):
            raise OptionError(f"{name} is {value!r}: {expected} is expected") from None

    def flag(self, name: str, default: bool) -> bool:
        words = {"true": True, "false": False}
        return bool(self.parsed(name, lambda text: words[text.strip().lower()], "true or false", default))

    def count(self, name: str, default: int | None) -> Any:
        return self.parsed(name, _positive, "a whole number from 1 on", default)

    def seconds(self, name: str, default_ms: int) -> float:
        return float(self.count(name, default_ms)) / 1000

    def one_of(self, name: str, words: Iterable[str], default: str) -> str:
        known = {word.lower(): word for word in words}
        return str(
            self.parsed(
                name, lambda text: known[text.strip().lower()], "one of " + ", ".join(known.values()), default
            )
        )


def _as_given(key: str, options: Mapping[str, str]) -> str:
    return next(name for name in options if name.lower() == key)


def _nearest(key: str, names: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(key, names, 1, 0.6)
    return f": did you mean {names[near[0]]!r}?" if near else "; docs/spark_source.md lists them"


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def parse_bytes(text: str) -> int:
    """`10485760`, `10m`, `1 GB`: units are powers of 1024. ValueError."""
    match = _BYTES.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise ValueError(text)
    return int(match[1]) * _UNITS[match[2].lower()]


def parse_time_ms(text: str | int) -> int:
    """Milliseconds since 1970, or ISO 8601; without a zone it is UTC. ValueError."""
    if isinstance(text, int) or text.strip().isdigit():
        return int(text)
    moment = datetime.datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return int(moment.timestamp() * 1000)


def source_options(options: Mapping[str, str], *, streaming: bool | None) -> SourceOptions:
    """OptionError that names the option, what was given and what is expected.

    `streaming` None: not known yet, so what is wrong for one kind of query only is not looked for.
    """
    given = _Given(options, SOURCE_NAMES)
    if streaming is False:
        for name in ("maxBytesPerTrigger", "maxEntriesPerTrigger", "maxRowsPerTrigger"):
            if given.text(name) is not None:
                raise OptionError(
                    f"{name} limits a stream's batches; a batch query reads up to endingOffsets"
                )
    columns = given.text("columns")
    return SourceOptions(
        cluster=_cluster(given),
        topics=_topics(given),
        start=_places(given, "startingOffsets", "startingTime", LATEST if streaming else EARLIEST, streaming),
        end=_places(given, "endingOffsets", "endingTime", LATEST, streaming),
        columns=None
        if columns is None
        else tuple(name.strip() for name in columns.split(",") if name.strip()),
        partitions_max=given.count("numPartitions", max(2, os.cpu_count() or 2)),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        allow_different_schemas=given.flag("allowDifferentTopicSchemas", False),
        poll_timeout_s=given.seconds("pollTimeoutMs", 120_000),
        wait_for_topics=given.flag("waitingForNonExistedTopic", False),
        subscription=given.text("predefinedSubscription"),
        subscription_prefix=given.text("subscriptionPrefix") or "spark-pulsar",
        limits=Limits(
            given.parsed(
                "maxBytesPerTrigger", parse_bytes, "a number of bytes such as 10485760 or 10m", None
            ),
            given.count("maxEntriesPerTrigger", None),
            given.count("maxRowsPerTrigger", None),
        ),
        schema=_schema(given),
        offsets_location=given.text("offsetsLocation"),
    )


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """OptionError as with `source_options`."""
    given = _Given(options, SINK_NAMES)
    topic = given.text("topic")
    return SinkOptions(
        cluster=_cluster(given),
        topic=None if topic is None else full_topic_name(topic),
        exactly_once=given.one_of("deliveryGuarantee", ("exactly-once", "at-least-once"), "exactly-once")
        == "exactly-once",
        compression=given.one_of(
            "pulsar.producer.compressionType", ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"), "NONE"
        ),
        batch_messages_max=given.count("pulsar.producer.batchingMaxMessages", 1000),
        batch_bytes_max=given.parsed(
            "pulsar.producer.batchingMaxBytes",
            parse_bytes,
            "a number of bytes such as 131072 or 128k",
            128 * 1024,
        ),
        send_timeout_s=given.seconds("pulsar.producer.sendTimeoutMs", 30_000),
        schema=_schema(given),
    )


def _cluster(given: _Given) -> ClusterSettings:
    url = given.text("service.url")
    if not url:
        raise OptionError(
            'service.url is missing: give the cluster, as in .option("service.url", "pulsar://host:6650")'
        )
    endpoints(url)
    security = Security(
        _credentials(given),
        given.text("pulsar.client.tlsTrustCertsFilePath"),
        given.flag("pulsar.client.tlsHostnameVerificationEnable", True),
    )
    return ClusterSettings(url, security, given.seconds("pulsar.client.operationTimeoutMs", 30_000))


def _credentials(given: _Given) -> Credentials | None:
    plugin = given.text("pulsar.client.authPluginClassName")
    params = given.text("pulsar.client.authParams") or ""
    if plugin is None:
        return None
    if not plugin.endswith("AuthenticationToken") and plugin != "token":
        raise OptionError(
            f"pulsar.client.authPluginClassName is {plugin!r}: only token authentication is built in "
            "(org.apache.pulsar.client.impl.auth.AuthenticationToken)"
        )
    if params.startswith("file://"):
        with open(params.removeprefix("file://"), "rb") as file:
            return Credentials("token", file.read().strip())
    return Credentials("token", params.removeprefix("token:").encode())


def _topics(given: _Given) -> TopicChoice:
    named = {name: given.text(name) for name in ("topic", "topics", "topicsPattern") if given.text(name)}
    if len(named) != 1:
        found = " and ".join(named) if named else "none of them"
        raise OptionError(f"exactly one of topic, topics and topicsPattern says what to read; given: {found}")
    if pattern := named.get("topicsPattern"):
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(
                f"topicsPattern is {pattern!r}, which is no regular expression: {error}"
            ) from None
        return TopicChoice((), pattern)
    if topic := named.get("topic"):
        return TopicChoice((full_topic_name(topic),), None)
    names = [full_topic_name(name.strip()) for name in (named["topics"] or "").split(",") if name.strip()]
    return TopicChoice(tuple(dict.fromkeys(names)), None)


def full_topic_name(name: str) -> str:
    """`persistent://tenant/namespace/topic` for any of the three forms of a name. OptionError."""
    if name.startswith("non-persistent://"):
        raise OptionError(f"{name}: a non-persistent topic keeps nothing that could be read or written again")
    rest = name.removeprefix("persistent://").split("/")
    if len(rest) == 1 and rest[0] and "://" not in name:
        return f"persistent://public/default/{rest[0]}"
    if len(rest) != 3 or not all(rest):
        raise OptionError(
            f"{name!r} is no topic name: topic, tenant/namespace/topic or persistent://… is expected"
        )
    return f"persistent://{'/'.join(rest)}"


def _places(given: _Given, offsets: str, time: str, default: Place, streaming: bool | None) -> PlaceChoice:
    by_place, by_time = given.text(offsets), given.text(time)
    if by_place is not None and by_time is not None:
        raise OptionError(f"{offsets} and {time} are both given: only one can hold")
    ends = offsets == "endingOffsets"
    if ends and streaming and (by_place or by_time):
        raise OptionError(f"{offsets if by_place else time} is given, but a stream has no end")
    if by_time is not None:
        widest: Place = LATEST if ends else EARLIEST
        return _times(time, by_time, widest)
    if by_place is None:
        return PlaceChoice(default, {})
    choice = _read_places(offsets, by_place, default)
    if streaming is False and not ends and LATEST in (choice.default, *choice.by_topic.values()):
        raise OptionError("startingOffsets is latest: a batch query would have nothing to read")
    if ends and EARLIEST in (choice.default, *choice.by_topic.values()):
        raise OptionError("endingOffsets is earliest: a batch query would have nothing to read")
    return choice


def _read_places(name: str, text: str, default: Place) -> PlaceChoice:
    ends = name == "endingOffsets"
    if not text.lstrip().startswith("{"):
        return PlaceChoice(_place(name, text.strip(), ends), {})
    by_topic = {
        full_topic_name(topic): _place(name, value, ends) for topic, value in _json_object(name, text).items()
    }
    return PlaceChoice(default, by_topic)


def _place(name: str, value: object, ends: bool) -> Place:
    if value == "earliest":
        return EARLIEST
    if value == "latest":
        return LATEST
    if isinstance(value, list) and all(isinstance(byte, int) for byte in value):
        try:
            message_id = MessageIdData.FromString(bytes(byte & 0xFF for byte in value))
        except DecodeError:
            raise OptionError(f"{name}: {value} are no bytes of a message id") from None
        batch = message_id.batch_index if message_id.batch_index >= 0 else None
        return _at(message_id.ledgerId, message_id.entryId, batch, ends)
    match = _POSITION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise OptionError(
            f"{name}: {value!r} is no place: earliest, latest, ledger:entry, ledger:entry:batch or the bytes of "
            "a message id are expected"
        )
    return _at(int(match[1]), int(match[2]), None if match[3] is None else int(match[3]), ends)


def _at(ledger: int, entry: int, batch: int | None, ends: bool) -> Position:
    """Starts and ends are both messages that are read."""
    if ends:
        return Position(ledger, entry) if batch is None else Position(ledger, entry, batch)
    return before(ledger, entry, batch)


def _times(name: str, text: str, widest: Place) -> PlaceChoice:
    expected = "milliseconds since 1970 or an ISO time such as 2026-01-31T12:00:00Z"
    try:
        if text.lstrip().startswith("{"):
            by_topic = {
                full_topic_name(key): parse_time_ms(value) for key, value in _json_object(name, text).items()
            }
            return PlaceChoice(widest, {}, None, by_topic)
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


SCHEMA_TYPES: Final = (
    "BYTES",
    "STRING",
    "JSON",
    "AVRO",
    "BOOLEAN",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FLOAT",
    "DOUBLE",
    "DATE",
    "TIME",
    "TIMESTAMP",
    "INSTANT",
    "LOCAL_DATE",
    "LOCAL_TIME",
    "LOCAL_DATE_TIME",
)


def _schema(given: _Given) -> SchemaChoice | None:
    definition = given.text("schemaDefinition")
    if given.text("schemaType") is None:
        if definition is not None:
            raise OptionError("schemaDefinition is given without schemaType: JSON or AVRO is expected")
        return None
    return SchemaChoice(given.one_of("schemaType", SCHEMA_TYPES, "BYTES"), definition)
