"""Reads the query parameters of a WebSocket request: names, forms and limits are those of Pulsar 4.2.4. Pure.

An unknown parameter is ignored, as there. A parameter that asks for something that a broker cannot do is refused.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from broker.service.consumer import SubscriptionType
from broker.websocket.errors import InvalidQuery
from broker.websocket.json_forms import position_of
from foundation.model.position import EARLIEST, LATEST, Position
from foundation.model.topic_name import TopicName
from foundation.settings.keys import INT_MAX, LONG_MAX
from protocol.pulsar_api_pb2 import CompressionType, MessageIdData

QUEUE_MAX: Final = 1000
"""Largest receiver queue; a larger one is cut down to it, as in Pulsar."""
ACK_TIMEOUT_MIN_MS: Final = 1000
"""Pulsar's clients refuse a shorter time, except 0."""
NEGATIVE_ACK_DELAY_MS: Final = 60_000
"""Default of Pulsar's clients."""
BATCH_MESSAGES: Final = 1000
BATCH_DELAY_MS: Final = 1
SEND_TIMEOUT_MS: Final = 30_000
"""Defaults of Pulsar's clients."""
_TYPES: Final[Mapping[str, SubscriptionType]] = {kind.label: kind for kind in SubscriptionType}
_ROUTING: Final = ("SinglePartition", "RoundRobinPartition", "CustomPartition")
_HASHING: Final = ("JavaStringHash", "Murmur3_32Hash")
_CRYPTO_FAILURE: Final = ("FAIL", "DISCARD", "CONSUME")

Query = Mapping[str, str]
"""Parameters of a request; of a repeated one the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerParameters:
    """Parameters of a producer."""

    name: str | None
    """Name of the producer, None = the broker makes one."""
    initial_sequence_id: int
    """The first message has the next number."""
    hashing: str
    """Hash that chooses the partition of a key."""
    send_timeout_ms: int
    """Time for a message to be stored; 0 = no limit."""
    batching: bool
    """Gather messages into batches."""
    batch_messages_max: int
    """Messages of one batch."""
    batch_delay_ms: int
    """Time for which a batch may wait for more messages."""
    pending_max: int | None
    """Messages without an answer at which the session is not read; None = the broker's limit."""
    one_partition: bool
    """Messages without a key go to one partition, else to all in turns."""
    compression: int
    """Number of Pulsar's CompressionType."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerParameters:
    """Parameters of a consumer, or of a reader, which has fewer."""

    kind: SubscriptionType = SubscriptionType.EXCLUSIVE
    """Type of the subscription."""
    durable: bool = True
    """False: the subscription ends with the session."""
    start: Position | None = None
    """Next position of a reader."""
    skipped_indexes: int = 0
    """Messages at the begin of the batch at `start` that a reader has read already."""
    earliest: bool = False
    """A new subscription starts at the first message."""
    queue_size: int = QUEUE_MAX
    """Messages that the client may have without acknowledging them, at least 1."""
    pull: bool = False
    """Messages are sent as the client permits, in place of `queue_size`."""
    name: str = ""
    """Name of the consumer, empty = the broker makes one."""
    priority: int = 0
    """Lower numbers receive first."""
    ack_timeout_ms: int = 0
    """Time after which an unacknowledged message is sent again; 0 = never."""
    negative_ack_delay_ms: int = NEGATIVE_ACK_DELAY_MS
    """Time after which a negatively acknowledged message is sent again."""
    redeliveries_max: int | None = None
    """Redeliveries before a message goes to the dead letter topic; None = no end."""
    dead_letter_topic: str | None = None
    """None = `TOPIC-SUBSCRIPTION-DLQ`."""
    crypto_failure: str = "FAIL"
    """`CONSUME` sends encrypted messages as they are, `DISCARD` acknowledges them, `FAIL` withholds them."""


def producer_parameters(query: Query) -> ProducerParameters:
    """Returns the parameters of a producer. Raises InvalidQuery."""
    for name in query:
        if name == "encryptionKeys" or name.startswith("encryptionKeyValues"):
            raise InvalidQuery(f"{name}: the broker encrypts no messages; encrypt them in the client")
    hashing = _word(query, "hashingScheme", _HASHING)
    batching = _true(query, "batchingEnabled")
    return ProducerParameters(
        name=query.get("producerName"),
        initial_sequence_id=_number(query, "initialSequenceId", -1, low=-1, high=LONG_MAX),
        hashing=hashing,
        send_timeout_ms=_number(query, "sendTimeoutMillis", SEND_TIMEOUT_MS),
        batching=batching,
        # Without batching Pulsar ignores the three that follow, wrong values included.
        batch_messages_max=_number(query, "batchingMaxMessages", BATCH_MESSAGES, low=1) if batching else 1,
        batch_delay_ms=_number(query, "batchingMaxPublishDelay", BATCH_DELAY_MS) if batching else 0,
        pending_max=(_number(query, "maxPendingMessages", 0) or None) if batching else None,
        one_partition=_word(query, "messageRoutingMode", _ROUTING) != "RoundRobinPartition",
        compression=CompressionType.Value(_word(query, "compressionType", tuple(CompressionType.keys()))),
    )


def consumer_parameters(query: Query) -> ConsumerParameters:
    """Returns the parameters of a consumer. Raises InvalidQuery."""
    ack_timeout_ms = _number(query, "ackTimeoutMillis", 0)
    if 0 < ack_timeout_ms < ACK_TIMEOUT_MIN_MS:
        raise InvalidQuery(f"Ack timeout should be greater than {ACK_TIMEOUT_MIN_MS} ms")
    redeliveries_max = _number(query, "maxRedeliverCount", 0) if "maxRedeliverCount" in query else None
    if redeliveries_max == 0:
        raise InvalidQuery("MaxRedeliverCount must be > 0.")
    if redeliveries_max is None and "deadLetterTopic" in query:
        raise InvalidQuery("deadLetterTopic needs maxRedeliverCount")
    initial = _word(query, "subscriptionInitialPosition", ("Latest", "Earliest"))
    kind = _TYPES[_word(query, "subscriptionType", tuple(_TYPES))]
    return ConsumerParameters(
        kind=kind,
        durable=_word(query, "subscriptionMode", ("Durable", "NonDurable")) == "Durable",
        earliest=initial == "Earliest",
        queue_size=_queue_size(query),
        pull=_true(query, "pullMode"),
        name=query.get("consumerName", ""),
        priority=_number(query, "priorityLevel", 0),
        ack_timeout_ms=ack_timeout_ms,
        negative_ack_delay_ms=_number(query, "negativeAckRedeliveryDelay", NEGATIVE_ACK_DELAY_MS),
        redeliveries_max=redeliveries_max,
        dead_letter_topic=query.get("deadLetterTopic"),
        crypto_failure=_crypto_failure(query),
    )


def dead_letter_topic(parameters: ConsumerParameters, topic: TopicName, subscription: str) -> str | None:
    """Returns the name of the dead letter topic of a consumer whose first topic is `topic`; None without one."""
    if parameters.redeliveries_max is None:
        return None
    return parameters.dead_letter_topic or f"{topic}-{subscription}-DLQ"


def reader_parameters(query: Query) -> ConsumerParameters:
    """Returns the parameters of a reader. Raises InvalidQuery."""
    start, skipped = _start(query.get("messageId", ""))
    return ConsumerParameters(
        durable=False,
        start=start,
        skipped_indexes=skipped,
        queue_size=_queue_size(query),
        name=query.get("readerName", ""),
        crypto_failure=_crypto_failure(query),
    )


def _start(text: str) -> tuple[Position, int]:
    if text in ("", "latest"):
        return LATEST, 0
    if text == "earliest":
        return EARLIEST, 0
    try:
        sent = MessageIdData.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        raise InvalidQuery("Invalid messageId value") from None
    position = position_of(sent)
    if position in (EARLIEST, LATEST):
        return position, 0
    # Pulsar's reader begins after the named message, which may stand in the middle of a batch.
    if sent.HasField("batch_index") and sent.batch_index >= 0:
        return position, sent.batch_index + 1
    return Position(position.ledger_id, position.entry_id + 1), 0


def _queue_size(query: Query) -> int:
    text = query.get("receiverQueueSize")
    if text is None:
        return QUEUE_MAX
    if text.startswith("-"):
        raise InvalidQuery("receiverQueueSize needs to be >= 0")
    return max(1, min(_number(query, "receiverQueueSize", QUEUE_MAX), QUEUE_MAX))


def _crypto_failure(query: Query) -> str:
    # Pulsar ignores an unknown word, and its default is the one that shows nothing.
    word = query.get("cryptoFailureAction", "FAIL")
    return word if word in _CRYPTO_FAILURE else "FAIL"


def _word(query: Query, name: str, allowed: tuple[str, ...]) -> str:
    """Returns the parameter; the first one that is allowed is the default."""
    word = query.get(name, allowed[0])
    if word not in allowed:
        raise InvalidQuery(f"Invalid {name} {word[:50]}")
    return word


def _true(query: Query, name: str) -> bool:
    return query.get(name, "").lower() == "true"


def _number(query: Query, name: str, default: int, *, low: int = 0, high: int = INT_MAX) -> int:
    text = query.get(name)
    if text is None:
        return default
    # 20 characters, because Python refuses to read a number of thousands of digits, with another error.
    if len(text) > 20 or not text.lstrip("-").isascii() or not text.lstrip("-").isdigit():
        raise InvalidQuery(f'{name}: For input string: "{text[:50]}"')
    number = int(text)
    if not low <= number <= high:
        raise InvalidQuery(f"{name}={number}: {low} to {high} are allowed")
    return number
