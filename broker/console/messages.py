"""Messages of a topic as people read them: batches taken apart, payloads decoded by their schema.

The admin API answers a message as bytes, whose form only clients know. Nothing here moves a cursor: entries are found as by
the routes of `broker/admin/topics/messages.py`. Unlike those, a look leaves the counts of the cache as they are, because
the console shows them.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from typing import Final

from aiohttp import web

from broker.admin.http.answers import answer, topic_of
from broker.admin.service_view import BROKER, BrokerView
from broker.admin.topics.topic_access import one_persistent, subscription_of
from broker.compaction.entry_content import BatchMessage, batch_messages, read_entry, unpacked
from broker.console.requests import whole
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.single_entry import look_at_entry
from broker.schemas.decoding import Undecodable, decode, readable, text_or_hex
from broker.schemas.schema import Schema
from broker.service.subscriptions.backlog.open_runs import nth_open
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic_schemas import version_of
from foundation.model.entry import Entry
from foundation.model.position import Position
from foundation.model.topic_name import TopicName
from foundation.value import Json
from protocol.broker_entry_metadata import decode as decode_stamp
from protocol.errors import ProtocolError
from protocol.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata

ENTRIES_MAX: Final = 50
"""The most entries of one answer."""
MESSAGES_MAX: Final = 500
"""The most messages of one answer; a batch may hold many."""
SHOWN_BYTES: Final = 64 << 10
"""Bytes of a payload that an answer shows."""
ANSWER_BYTES: Final = 2 << 20
"""Bytes of payloads and decoded values after which an answer ends: writing them holds the loop."""


async def peeked(request: web.Request) -> web.Response:
    """Returns the first unacknowledged messages of a subscription, decoded by their schema; `count` entries."""
    topic = await one_persistent(request.app[BROKER], topic_of(request), "Peek messages")
    count = whole(request, "count", 5, 1, ENTRIES_MAX)
    first = whole(request, "first", 1, 1, 1_000_000_000)
    cursor = subscription_of(topic, request.match_info["subscription"]).cursor
    places: list[Position] = []
    for number in range(first, first + count):
        place = await nth_open(cursor, number)
        if place is None:
            break
        places.append(place)
    return await _shown(request.app[BROKER], topic, places)


async def from_place(request: web.Request) -> web.Response:
    """Returns the messages from a ledger's entry on, decoded by their schema; `count` entries."""
    topic = await one_persistent(request.app[BROKER], topic_of(request), "Show messages")
    count = whole(request, "count", 5, 1, ENTRIES_MAX)
    place = topic.ledger.ledgers.at_or_after(
        (int(request.match_info["ledger"]), int(request.match_info["entry"]))
    )
    return await _shown(request.app[BROKER], topic, _following(topic.ledger, place, count))


def _following(log: ManagedLedger, place: Position, count: int) -> list[Position]:
    places: list[Position] = []
    while len(places) < count and place <= log.last_confirmed:
        places.append(place)
        place = log.ledgers.next_valid(place)
    return places


async def _shown(broker: BrokerView, topic: PersistentTopic, places: list[Position]) -> web.Response:
    shown: list[Json] = []
    left = ANSWER_BYTES
    for place in places:
        entry = await look_at_entry(topic.ledger.context, place)
        async for message in _messages(broker, topic.name, entry):
            if len(shown) == MESSAGES_MAX or left <= 0:
                return answer({"messages": shown, "more": True})
            shown.append(message)
            left -= _weight(message)
            # Decoding one message takes up to 10 ms, and a batch has thousands.
            await asyncio.sleep(0)
    return answer({"messages": shown, "more": False})


def _weight(message: Mapping[str, Json]) -> int:
    return sum(len(str(message.get(part) or "")) for part in ("base64", "decodedText"))


async def _messages(broker: BrokerView, name: TopicName, entry: Entry) -> AsyncIterator[dict[str, Json]]:
    try:
        metadata, payload = read_entry(entry.body)
    except ProtocolError as error:
        yield {"ledgerId": entry.ledger_id, "entryId": entry.entry_id, "why": f"no message: {error}"}
        return
    whole_entry = _facts(entry, metadata)
    if metadata.encryption_keys or metadata.num_chunks_from_msg > 1 or metadata.HasField("marker_type"):
        why = "encrypted" if metadata.encryption_keys else "a part of a message, or a marker of the broker"
        yield {**whole_entry, **_single(metadata), **_payload(bytes(payload), None, why)}
        return
    schema = await _schema(broker, name, metadata)
    batch: list[BatchMessage] = []
    try:
        data = await asyncio.to_thread(unpacked, metadata, payload)
        if metadata.HasField("num_messages_in_batch"):
            batch = batch_messages(metadata, data)
    except ProtocolError as error:
        yield {**whole_entry, **_single(metadata), **_payload(bytes(payload), None, str(error))}
        return
    if not batch:
        yield {**whole_entry, **_single(metadata), **_decoded(bytes(data), schema, metadata)}
    for index, one in enumerate(batch):
        body = bytes(data[one.end - one.single.payload_size : one.end])
        place = {"batchIndex": index, "batchSize": len(batch)}
        yield {**whole_entry, **_single(one.single), **place, **_decoded(body, schema, one.single)}


async def _schema(broker: BrokerView, name: TopicName, metadata: MessageMetadata) -> Schema | None:
    if not metadata.HasField("schema_version"):
        return None
    found = await broker.registry.schemas.get(name, version_of(metadata.schema_version))
    return None if found is None else found.schema


def _facts(entry: Entry, metadata: MessageMetadata) -> dict[str, Json]:
    return {
        "ledgerId": entry.ledger_id,
        "entryId": entry.entry_id,
        "batchIndex": -1,
        "batchSize": 0,
        # The broker numbers the messages of a topic (PIP-70); that of an entry is the number of its last message.
        "index": decode_stamp(entry.header).index,
        "entryMessages": metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else 1,
        "publishTimeMs": metadata.publish_time,
        "producer": _text(metadata.producer_name),
        "deliverAtMs": metadata.deliver_at_time if metadata.HasField("deliver_at_time") else None,
    }


def _single(metadata: MessageMetadata | SingleMessageMetadata) -> dict[str, Json]:
    return {
        "sequenceId": metadata.sequence_id,
        "key": text_or_hex(_key(metadata)) if metadata.HasField("partition_key") else None,
        "eventTimeMs": metadata.event_time if metadata.event_time else None,
        "properties": {_text(one.key): _text(one.value) for one in metadata.properties},
    }


def _decoded(
    body: bytes, schema: Schema | None, metadata: MessageMetadata | SingleMessageMetadata
) -> dict[str, Json]:
    if schema is None:
        return _payload(body, None, "the message has no schema")
    if len(body) > SHOWN_BYTES:
        return _payload(body, schema, f"longer than {SHOWN_BYTES} bytes")
    try:
        decoded = decode(schema, body, _key(metadata))
    except Undecodable as error:
        return _payload(body, schema, str(error))
    # A page shows the text: JavaScript would round whole numbers above 2^53.
    text = json.dumps(decoded, indent=2, ensure_ascii=False)
    return {**_payload(body, schema, None), "decoded": decoded, "decodedText": text}


def _key(metadata: MessageMetadata | SingleMessageMetadata) -> bytes:
    key = _text(metadata.partition_key).encode()
    return base64.b64decode(key, validate=False) if metadata.partition_key_b64_encoded else key


def _payload(body: bytes, schema: Schema | None, why: str | None) -> dict[str, Json]:
    shown = body[:SHOWN_BYTES]
    return {
        "bytes": len(body),
        "schema": "NONE" if schema is None else schema.type.name,
        "decoded": None,
        "decodedText": None,
        "text": readable(shown),
        "base64": base64.b64encode(shown).decode(),
        "why": why,
    }


def _text(text: str | bytes) -> str:
    # protobuf returns `bytes` for a text that is not UTF-8.
    return text.decode(errors="replace") if isinstance(text, bytes) else text
