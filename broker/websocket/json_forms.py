"""The JSON of the WebSocket API, as recorded of Pulsar 4.2.4. Pure.

    producer    {"payload": base64, "properties", "context", "key", "replicationClusters", "eventTime", "deliverAt", …}
    answer      {"result": "ok", "messageId": base64, "context", "errorCode": 0, "schemaVersion": 0}
    message     {"messageId", "payload", "properties", "publishTime", "redeliveryCount", "eventTime", "key"}
    consumer    {"messageId"} | {"type": "negativeAcknowledge" | "permit" | "unsubscribe" | "isEndOfTopic", …}

A message id is the base64 of Pulsar's MessageIdData.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from broker.websocket.errors import BadCommand, Refused, SendError
from foundation.model.position import Position
from foundation.settings.keys import LONG_MAX
from protocol.given_message import GivenMessage
from protocol.pulsar_api_pb2 import MessageIdData, MessageMetadata

Parsed: TypeAlias = object
"""A parsed value: None, bool, int, float, str, list or dict."""
NO_INDEX: Final = -1
"""Batch index of a message outside of a batch, and partition of a topic that is none."""
VALUES_MAX: Final = 20_000
"""Commas and opening brackets of one text, which bound the time of parsing to 10 ms."""
_TOP_BIT: Final = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRequest(GivenMessage):
    """A message that a client sent."""

    payload: bytes
    """The decoded payload."""
    context: str | None = None
    """The client's own mark, which the answer repeats."""


class MessageId(NamedTuple):
    """A message id of a client."""

    position: Position
    """Of the entry."""
    partition: int
    """-1 = none."""
    batch_index: int
    """-1 = the entry is no batch."""
    batch_size: int
    """0 = unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerCommand:
    """A text of a consumer."""

    kind: str
    """`ack`, `negativeAcknowledge`, `permit`, `unsubscribe` or `isEndOfTopic`."""
    message_id: MessageId | None = None
    """Of `ack` and `negativeAcknowledge`."""
    permits: int = 0
    """Of `permit`."""


def read_send(text: str, now_ms: int) -> SendRequest:
    """Returns the message in a text. Raises Refused with the number that the answer has."""
    value = _parsed(text)
    if value is None:
        raise Refused(SendError.PAYLOAD, "the text is null; an object with a payload is expected")
    if not isinstance(value, dict):
        raise Refused(SendError.JSON, f"the text must be a JSON object, not {text[:50]}")
    context = _text(value, "context")
    try:
        return _send_request(value, context, now_ms)
    except Refused as error:
        error.context = context
        raise


def _send_request(value: Mapping[str, Parsed], context: str | None, now_ms: int) -> SendRequest:
    payload = _text(value, "payload")
    if payload is None:
        raise Refused(SendError.PAYLOAD, "payload is missing: send it in base64")
    properties = value.get("properties") or {}
    clusters = value.get("replicationClusters") or []
    if not isinstance(properties, dict) or not isinstance(clusters, list):
        raise Refused(SendError.JSON, "properties must be an object, replicationClusters a list")
    # Checked, and without effect as in Pulsar: the numbers of messages come from `initialSequenceId`.
    _whole(value, "sequenceId")
    deliver_at_ms = _whole(value, "deliverAt")
    if after_ms := _whole(value, "deliverAfterMs"):
        deliver_at_ms = min(now_ms + after_ms, LONG_MAX)
    return SendRequest(
        payload=_payload(payload),
        properties={_encodable(name): _as_text(one) for name, one in properties.items()},
        context=context,
        key=_text(value, "key"),
        replicate_to=tuple(map(_as_text, clusters)),
        event_time_ms=_time(_text(value, "eventTime")),
        deliver_at_ms=max(0, deliver_at_ms),
    )


def read_command(text: str) -> ConsumerCommand:
    """Returns the command in a consumer's text. Raises BadCommand."""
    try:
        value = _parsed(text)
    except Refused as error:
        raise BadCommand(str(error)) from None
    if not isinstance(value, dict):
        raise BadCommand("a JSON object is expected")
    kind = value.get("type", "ack")
    if kind == "permit":
        permits = value.get("permitMessages")
        if type(permits) is not int or not 0 < permits < 1 << 31:
            raise BadCommand("Missing required permitMessages field for 'permit' command")
        return ConsumerCommand(kind="permit", permits=permits)
    if kind in ("unsubscribe", "isEndOfTopic"):
        return ConsumerCommand(kind=str(kind))
    if kind not in ("ack", "negativeAcknowledge"):
        raise BadCommand(f"unknown type {str(kind)[:50]!r}")
    return ConsumerCommand(kind=str(kind), message_id=_message_id(value.get("messageId")))


def ack_json(message_id: str, context: str | None) -> str:
    """Returns the answer to a stored message."""
    answer: dict[str, Parsed] = {"result": "ok", "messageId": message_id}
    return _answer(answer, context)


def refusal_json(number: SendError, reason: str, context: str | None) -> str:
    """Returns the answer to a message that is not stored."""
    answer: dict[str, Parsed] = {"result": f"send-error:{int(number)}", "errorMsg": reason}
    return _answer(answer, context)


def end_of_topic_json(ended: bool) -> str:
    """Returns the answer to `isEndOfTopic`."""
    return '{"endOfTopic":true}' if ended else '{"endOfTopic":false}'


def message_id_text(
    position: Position, *, partition: int = NO_INDEX, batch_index: int = NO_INDEX, batch_size: int = 0
) -> str:
    """Returns a message id as clients get it; the size stands in it always, as in Pulsar."""
    sent = MessageIdData(ledgerId=position.ledger_id, entryId=position.entry_id, batch_size=batch_size)
    if partition >= 0:
        sent.partition = partition
    if batch_index >= 0:
        sent.batch_index = batch_index
    return base64.b64encode(sent.SerializeToString()).decode()


def position_of(sent: MessageIdData) -> Position:
    """Returns the position in a message id, whose numbers are signed although protobuf has them unsigned."""
    return Position(
        sent.ledgerId - 2 * (sent.ledgerId & _TOP_BIT), sent.entryId - 2 * (sent.entryId & _TOP_BIT)
    )


def message_json(message_id: str, payload: bytes, metadata: DeliveredMetadata, redelivery_count: int) -> str:
    """Returns a message as consumers and readers get it."""
    value: dict[str, Parsed] = {
        "messageId": message_id,
        "payload": base64.b64encode(payload).decode(),
        "properties": metadata.properties,
        "publishTime": time_text(metadata.publish_time_ms),
        "redeliveryCount": redelivery_count,
    }
    if metadata.event_time_ms:
        value["eventTime"] = time_text(metadata.event_time_ms)
    if metadata.encryption is not None:
        value["encryptionContext"] = metadata.encryption
    if metadata.key is not None:
        value["key"] = metadata.key
    return _compact(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredMetadata:
    """The part of a message's metadata that clients get."""

    properties: Mapping[str, str]
    """Text by name."""
    publish_time_ms: int
    """The producer's clock, since 1970."""
    event_time_ms: int
    """0 = none."""
    key: str | None
    """Partition key."""
    encryption: Mapping[str, Parsed] | None = None
    """`encryptionContext` of an encrypted message."""


def encryption_context(metadata: MessageMetadata) -> Mapping[str, Parsed] | None:
    """Returns the facts with which a client can decrypt a payload; None for a plain message."""
    if not metadata.encryption_keys:
        return None
    keys = {
        pair.key: {
            "keyValue": base64.b64encode(pair.value).decode(),
            "metadata": {one.key: one.value for one in pair.metadata},
        }
        for pair in metadata.encryption_keys
    }
    batched = metadata.HasField("num_messages_in_batch")
    return {
        "keys": keys,
        "param": base64.b64encode(metadata.encryption_param).decode(),
        "algorithm": metadata.encryption_algo,
        "compressionType": ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")[metadata.compression],
        "uncompressedMessageSize": metadata.uncompressed_size,
        "batchSize": metadata.num_messages_in_batch if batched else None,
    }


def time_text(ms: int) -> str:
    """Returns a time in Pulsar's form, in UTC: `2026-11-22T21:03:24.186Z`."""
    try:
        moment = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        # Clients may give any 64-bit number.
        moment = datetime.datetime.fromtimestamp(0, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _parsed(text: str) -> Parsed:
    # base64 has neither, so only a message with thousands of properties comes near the limit.
    if text.count(",") + text.count("[") + text.count("{") > VALUES_MAX:
        raise Refused(SendError.JSON, f"more than {VALUES_MAX} values in one text")
    try:
        value: Parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(SendError.JSON, f"the text is no JSON: {error}") from None
    return value


def _text(value: Mapping[str, Parsed], name: str) -> str | None:
    found = value.get(name)
    return None if found is None else _as_text(found)


def _as_text(value: Parsed) -> str:
    # Pulsar takes numbers and truth values for their text.
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | str):
        return _encodable(str(value))
    raise Refused(SendError.JSON, "a text is expected where the message has a list, an object or null")


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused(SendError.JSON, "a text has half of a surrogate pair, which UTF-8 lacks") from None
    return text


def _whole(value: Mapping[str, Parsed], name: str) -> int:
    found = value.get(name)
    if found is None:
        return 0
    if type(found) is int and -LONG_MAX - 1 <= found <= LONG_MAX:
        return found
    raise Refused(SendError.JSON, f"{name} must be a whole number of 64 bits, not {str(found)[:50]!r}")


def _payload(text: str) -> bytes:
    try:
        # Java accepts base64 without its padding.
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused(SendError.PAYLOAD, f"Invalid Base64 message-payload error={error}") from None


def _time(text: str | None) -> int:
    if text is None:
        return 0
    try:
        moment = datetime.datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError("no zone")
        return max(0, round(moment.timestamp() * 1000))
    except (ValueError, OverflowError):
        reason = f"Text '{text[:50]}' could not be parsed: 2026-01-02T03:04:05.678Z is the form of eventTime"
        raise Refused(SendError.PAYLOAD, reason) from None


def _message_id(text: Parsed) -> MessageId:
    if not isinstance(text, str):
        raise BadCommand("messageId is missing")
    try:
        sent = MessageIdData.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        raise BadCommand(f"messageId {text[:50]!r} is no message id") from None
    return MessageId(
        position_of(sent),
        sent.partition if sent.HasField("partition") else NO_INDEX,
        sent.batch_index if sent.HasField("batch_index") else NO_INDEX,
        sent.batch_size,
    )


def _answer(answer: dict[str, Parsed], context: str | None) -> str:
    if context is not None:
        answer["context"] = context
    answer["errorCode"] = answer["schemaVersion"] = 0
    return _compact(answer)


def _compact(value: Parsed) -> str:
    # Not ASCII alone: Pulsar sends UTF-8.
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
