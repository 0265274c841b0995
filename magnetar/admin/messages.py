"""Prints messages as pulsar-admin does, from an answer that shows an entry: its body and `X-Pulsar-…` headers. Pure."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from foundation.value import Json
from magnetar.admin.output import shown
from magnetar.clients.admin_client import Response, text_or_json
from magnetar.clients.client import CommandError

_BYTES_OF_LINE = 16


class _Message(NamedTuple):
    number: int | None
    event_ms: int
    properties: Mapping[str, str]
    payload: bytes


def peeked(answer: Response, values: Mapping[str, Json]) -> bool:
    """Returns True for an entry that the options of `peek-messages` show."""
    header = answer.headers.get
    if header("x-pulsar-marker-type") is not None and not values.get("show-server-marker"):
        return False
    if values.get("transaction-isolation-level") == "READ_UNCOMMITTED":
        return True
    return "true" not in (header("x-pulsar-txn-aborted"), header("x-pulsar-txn-uncommitted"))


def texts_of(answer: Response) -> list[str]:
    """Returns the text of each message of an entry. Raises CommandError for a batch that is damaged."""
    return ["\n".join(_lines(answer.headers, one)) + "\n" for one in _messages(answer)]


def _messages(answer: Response) -> list[_Message]:
    headers = answer.headers
    count = headers.get("x-pulsar-num-batch-message")
    # The batch of an encrypted entry is one that only its key opens.
    if count is None or headers.get("x-pulsar-is-encrypted", "false") == "true":
        stored = text_or_json(headers.get("x-pulsar-property", ""))
        properties = {name: str(one) for name, one in stored.items()} if isinstance(stored, dict) else {}
        return [_Message(None, _ms(headers.get("x-pulsar-event-time")), properties, answer.content)]
    # Imported here: the other commands start in two thirds of the time without them.
    from broker.compaction.entry_content import batch_messages
    from protocol.errors import ProtocolError
    from protocol.pulsar_api_pb2 import MessageMetadata

    try:
        parts = batch_messages(MessageMetadata(num_messages_in_batch=int(count)), answer.content)
    except (ProtocolError, ValueError) as error:
        raise CommandError(f"the answer has no batch of {count} messages: {error}") from None
    return [
        _Message(
            number,
            one.single.event_time,
            {pair.key: pair.value for pair in one.single.properties},
            answer.content[one.end - one.single.payload_size : one.end],
        )
        for number, one in enumerate(parts)
    ]


def _lines(headers: Mapping[str, str], message: _Message) -> Iterator[str]:
    place = headers.get("x-pulsar-message-id", "")
    yield f"Message ID: {place}" if message.number is None else f"Batch Message ID: {place}:{message.number}"
    yield f"Publish time: {_ms(headers.get('x-pulsar-publish-time'))}"
    yield f"Event time: {message.event_ms}"
    if (due := headers.get("x-pulsar-deliver-at-time")) is not None:
        yield f"Deliver at time: {_ms(due)}"
    if (stamped := headers.get("x-pulsar-broker-entry-metadata-timestamp")) is not None:
        yield f"Broker entry metadata timestamp: {_ms(stamped)}"
    if (index := headers.get("x-pulsar-broker-entry-metadata-index")) is not None:
        yield f"Broker entry metadata index: {index}"
    if message.properties:
        yield "Properties:"
        yield shown(dict(message.properties), "")
    yield from _dump(message.payload)


def _ms(text: str | None) -> int:
    """Returns the milliseconds of a time in a header; 0 without one."""
    if not text:
        return 0
    try:
        return round(datetime.datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise CommandError(f"the answer has a header with the time {json.dumps(text)}") from None


def _dump(payload: bytes) -> Iterator[str]:
    """Yields the payload in hexadecimal and as ASCII, in a frame."""
    if not payload:
        return
    digits = "".join(f"{number:3x}" for number in range(_BYTES_OF_LINE))
    edge = f"+{'-' * 8}+{'-' * 49}+{'-' * 16}+"
    yield f"{' ' * 9}+{'-' * 49}+"
    yield f"{' ' * 9}|{digits} |"
    yield edge
    for start in range(0, len(payload), _BYTES_OF_LINE):
        part = payload[start : start + _BYTES_OF_LINE]
        codes = "".join(f" {one:02x}" for one in part)
        letters = "".join(chr(one) if 32 <= one < 127 else "." for one in part)
        yield f"|{start:08x}|{codes:48} |{letters:16}|"
    yield edge
