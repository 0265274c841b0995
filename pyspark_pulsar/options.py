"""Parses the options of source and sink, before anything is opened.

Names are those of Pulsar's JVM connector where it has the option. The results are frozen values that are pickled to the
tasks. docs/how-to/spark_source.md explains every option to users.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark_pulsar.client.cluster import ClusterSettings
from pyspark_pulsar.connection_options import CONNECTION, cluster_settings
from pyspark_pulsar.cutting.decryption import read_key
from pyspark_pulsar.errors import OptionError
from pyspark_pulsar.given_options import GivenOptions, parse_bytes
from pyspark_pulsar.places import LATEST, PlaceChoice, StreamPlace, choose_places
from pyspark_pulsar.position import EARLIEST
from pyspark_pulsar.topic_names import full_topic_name

_SCHEMA = ("schemaType", "schemaDefinition")
_CRYPTO_FAILURE: Final = "pulsar.reader.cryptoFailureAction"
SOURCE_NAMES: Final = (
    *CONNECTION,
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
    "decryptionKeys",
    _CRYPTO_FAILURE,
    "ledgers",
    "offloadUri",
    "offloadRegion",
    "offloadEndpoint",
)
"""Options of a read, batch or stream."""
SINK_NAMES: Final = (
    *CONNECTION,
    *_SCHEMA,
    "topic",
    "deliveryGuarantee",
    "pulsar.producer.compressionType",
    "pulsar.producer.batchingMaxMessages",
    "pulsar.producer.batchingMaxBytes",
    "pulsar.producer.sendTimeoutMs",
)
"""Options of a write, batch or stream."""


@dataclass(frozen=True)
class TopicChoice:
    """The topics of a query, from exactly one of `topic`, `topics` and `topicsPattern`."""

    names: tuple[str, ...]
    """Full names without duplicates; empty where a pattern is given."""
    pattern: str | None
    """Regular expression for names in one namespace."""


@dataclass(frozen=True)
class BatchLimits:
    """Limits of a micro-batch, which hold together; None is unlimited."""

    bytes_max: int | None
    """Payload bytes as stored, compressed or not."""
    entries_max: int | None
    """Entries over all topics; a batch counts as one."""
    rows_max: int | None
    """Messages over all topics."""

    @property
    def any(self) -> bool:
        """True if at least one limit is given."""
        return not (self.bytes_max is self.entries_max is self.rows_max is None)


@dataclass(frozen=True)
class SchemaChoice:
    """A schema given by the user, used instead of the topic's."""

    type_name: str
    """Upper-case name of a Pulsar schema type, for example AVRO."""
    definition: str | None
    """Avro definition of a record as JSON text, for JSON and AVRO."""


@dataclass(frozen=True)
class OffloadChoice:
    """The storage of offloaded ledgers, for a query that reads nothing else."""

    uri: str
    """`file:///FOLDER` or `s3://BUCKET`."""
    region: str
    """Of the bucket; empty = the default."""
    endpoint: str
    """URL of another S3 service than Amazon's; empty = Amazon's."""


@dataclass(frozen=True)
class SourceOptions:
    """The options of a read, batch or stream. Pickled to the tasks."""

    cluster: ClusterSettings
    """Address, security and timeout."""
    topics: TopicChoice
    """The choice as given; the driver resolves it to topics and partitions."""
    start: PlaceChoice
    """Begin of the query; a stream with a checkpoint ignores it."""
    end: PlaceChoice
    """Only used by batch queries."""
    columns: tuple[str, ...] | None
    """Names in the order of the rows; None is the value's columns and the default metadata."""
    partitions_max: int
    """Limit for the number of tasks, at least 1."""
    fail_on_data_loss: bool
    """True raises DataLoss for messages that are gone; False logs a warning and continues."""
    allow_different_schemas: bool
    """True reads every value as bytes, whatever the topics' schemas."""
    poll_timeout_s: float
    """Limit for the silence of a broker that still has messages to send."""
    wait_for_topics: bool
    """True waits for missing topics; False raises OptionError."""
    subscription: str | None
    """Subscription of a stream; None builds the name from `subscription_prefix` and the query's id."""
    subscription_prefix: str
    """Also the prefix of the short-lived subscriptions of driver and tasks."""
    limits: BatchLimits
    """Only used by streams."""
    schema: SchemaChoice | None
    """None uses the topics' schema."""
    offsets_location: str | None
    """Path or URI of the folder for large offsets; None keeps them in Spark's checkpoint."""
    private_keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """PEM by the name of the public key; the empty name stands for every other one. Secret."""
    discard_encrypted: bool = False
    """True leaves entries out that cannot be decrypted; False raises MalformedEntry."""
    offload: OffloadChoice | None = None
    """Read these ledgers alone, from their storage; None reads from brokers."""

    def with_token(self, token: bytes | None) -> SourceOptions:
        """Returns a copy whose token file is replaced by `token` on machines without it; unchanged for None."""
        security = self.cluster.security.with_token(token)
        return replace(self, cluster=self.cluster._replace(security=security))


@dataclass(frozen=True)
class SinkOptions:
    """The options of a write, batch or stream. Pickled to the tasks."""

    cluster: ClusterSettings
    """Address, security and timeout."""
    topic: str | None
    """Full name; None if each row names its topic in `__topic`."""
    exactly_once: bool
    """False for brokers without deduplication: tasks that run again then write rows twice."""
    compression: str
    """Upper-case name of a codec, or NONE."""
    batch_messages_max: int
    """Messages of an entry."""
    batch_bytes_max: int
    """Bytes of an entry before compression; a larger message is an entry of its own."""
    send_timeout_s: float
    """Limit for storing one entry, retries included."""
    schema: SchemaChoice | None
    """None derives the schema from the columns."""


def source_options(options: Mapping[str, str], *, streaming: bool | None) -> SourceOptions:
    """Parses the options of a read. OptionError names the option, the value and the expected form.

    `streaming` is None while Spark asks for the columns only and has not said which kind of query it is; rules of one
    kind of query are then not checked.
    """
    given = GivenOptions(options, SOURCE_NAMES, SINK_NAMES, "read")
    if streaming is False:
        for name in ("maxBytesPerTrigger", "maxEntriesPerTrigger", "maxRowsPerTrigger"):
            if given.text(name) is not None:
                raise OptionError(
                    f"{name} limits a stream's batches; a batch query reads up to endingOffsets"
                )
    columns = given.text("columns")
    offload = _offload(given, streaming)
    return SourceOptions(
        cluster=cluster_settings(given, url_needed=offload is None),
        topics=_topics(given),
        start=_places(given, "startingOffsets", "startingTime", LATEST if streaming else EARLIEST, streaming),
        end=_places(given, "endingOffsets", "endingTime", LATEST, streaming),
        columns=None
        if columns is None
        else tuple(name.strip() for name in columns.split(",") if name.strip()),
        # By default the CPUs of the driver's machine. A stream's checkpoint keeps the number (`offsets.task_limit`),
        # as a restart may run on another machine.
        partitions_max=given.count("numPartitions", max(2, os.cpu_count() or 2)),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        allow_different_schemas=given.flag("allowDifferentTopicSchemas", False),
        poll_timeout_s=given.seconds("pollTimeoutMs", 120_000),
        wait_for_topics=given.flag("waitingForNonExistedTopic", False),
        subscription=given.text("predefinedSubscription"),
        subscription_prefix=given.text("subscriptionPrefix") or "spark-pulsar",
        limits=BatchLimits(
            given.parsed(
                "maxBytesPerTrigger", parse_bytes, "a number of bytes such as 10485760 or 10m", None
            ),
            given.count("maxEntriesPerTrigger", None),
            given.count("maxRowsPerTrigger", None),
        ),
        schema=_schema(given),
        offsets_location=given.text("offsetsLocation"),
        private_keys=_private_keys(given),
        discard_encrypted=given.one_of(_CRYPTO_FAILURE, ("FAIL", "DISCARD"), "FAIL") == "DISCARD",
        offload=offload,
    )


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Parses the options of a write. OptionError as in `source_options`."""
    given = GivenOptions(options, SINK_NAMES, SOURCE_NAMES, "write")
    topic = given.text("topic")
    return SinkOptions(
        cluster=cluster_settings(given),
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


def _topics(given: GivenOptions) -> TopicChoice:
    named = {name: given.text(name) for name in ("topic", "topics", "topicsPattern") if given.text(name)}
    if len(named) != 1:
        found = " and ".join(named) if named else "none of them"
        raise OptionError(f"give exactly one of topic, topics and topicsPattern; given: {found}")
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


def _private_keys(given: GivenOptions) -> Mapping[str, bytes]:
    """Returns the keys of `decryptionKeys`, read here on the driver, so that the workers need no copy of the files."""
    text = given.text("decryptionKeys")
    if text is None:
        return {}
    if not text.lstrip().startswith("{"):
        return {"": read_key("", text.strip())}
    try:
        places = json.loads(text)
    except ValueError:
        # Without the text, which may hold the keys themselves.
        raise OptionError("decryptionKeys: a path or a JSON object from name to path is expected") from None
    return {name: read_key(name, str(place)) for name, place in places.items()}


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
"""Values of the option schemaType: the types of schemas whose values are columns."""


def _offload(given: GivenOptions, streaming: bool | None) -> OffloadChoice | None:
    uri = given.text("offloadUri")
    if given.one_of("ledgers", ("all", "offloaded"), "all") == "all":
        if uri is not None:
            raise OptionError("offloadUri is given without ledgers=offloaded, which reads from that storage")
        return None
    if streaming:
        raise OptionError("ledgers=offloaded is for a batch query: a stream needs the newest messages, too")
    if not uri:
        raise OptionError("ledgers=offloaded needs offloadUri: file:///FOLDER or s3://BUCKET")
    return OffloadChoice(uri, given.text("offloadRegion") or "", given.text("offloadEndpoint") or "")


def _places(
    given: GivenOptions, offsets: str, time: str, default: StreamPlace, streaming: bool | None
) -> PlaceChoice:
    return choose_places(
        offsets, given.text(offsets), time, given.text(time), default=default, streaming=streaming
    )


def _schema(given: GivenOptions) -> SchemaChoice | None:
    definition = given.text("schemaDefinition")
    if given.text("schemaType") is None:
        if definition is not None:
            raise OptionError("schemaDefinition is given without schemaType: JSON or AVRO is expected")
        return None
    return SchemaChoice(given.one_of("schemaType", SCHEMA_TYPES, "BYTES"), definition)
