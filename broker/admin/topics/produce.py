"""`POST /topics/…`: publishes the messages of a request and answers with their ids.

A request is a producer of its own on each partition that gets a message, so the limits, quotas and access modes of the topic
hold for it. It leaves again when every message has its outcome. Other brokers are asked to publish to their partitions.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from aiohttp import web

from broker.admin.http.answers import answer, body_of, topic_of
from broker.admin.http.pressure import before_asking_others
from broker.admin.http.request_path import TOPIC_NAME
from broker.admin.service_view import BROKER, BrokerView
from broker.admin.topics.message_requests import (
    RestMessage,
    RestRequest,
    encoder_of,
    entry_of,
    read_message,
    read_request,
)
from broker.admin.topics.over_owners import OwnerAnswer, owned_elsewhere, publish_at_owners
from broker.admin.topics.topic_access import check_namespace
from broker.peers.peers import PeerRefused
from broker.schemas.schema import Schema, SchemaType
from broker.service.ports import SinglePort
from broker.service.producer import Producer
from broker.service.subscriptions.dispatch.key_shared import sticky_key_hash
from broker.service.topics.topic_ownership import Addresses
from broker.service.topics.topic_schemas import version_bytes, version_of
from foundation.model.errors import BrokerError, TopicNotFound
from foundation.model.topic_name import TopicName
from foundation.value import Json

_TOPIC: Final = f"/topics/{TOPIC_NAME}"
_MESSAGES_PER_SLICE: Final = 50
"""Messages that are published before clients get their turn: about a millisecond."""
_NOT_PUBLISHED: Final = 2
"""Pulsar's code of the outcome of a message that is not stored."""
_VERSION: Final = "REST"
"""Client version in statistics."""


_WAIT_SHARE: Final = 0.5
"""Part of a request's time that publish rates may take, so that its answer comes before the deadline."""
_LATE_RECEIPTS_S: Final = 1.0
"""Time for receipts of messages that were published before their topic was closed."""


class TooLarge(BrokerError):
    """A message is longer than `maxMessageSize`."""

    status = 413


async def produce(request: web.Request) -> web.Response:
    """Publishes messages to a topic; to its partitions by key, or in turns, where it has several."""
    broker, name = request.app[BROKER], topic_of(request)
    check_namespace(broker, name)
    wanted = read_request(await body_of(request))
    count = await broker.registry.partitions.count(name)
    if not count and not await broker.registry.exists(name):
        raise TopicNotFound(f"Topic {name} not found")
    parts = [name.with_partition(index) for index in range(count)]
    return await _published(request, parts or [name], wanted)


async def produce_to_partition(request: web.Request) -> web.Response:
    """Publishes messages to one partition; 404 if the topic has no such partition."""
    broker, name = request.app[BROKER], topic_of(request)
    check_namespace(broker, name)
    wanted = read_request(await body_of(request))
    part = name.with_partition(int(request.match_info["partition"]))
    if part.partition >= await broker.registry.partitions.count(name):
        raise TopicNotFound(f"Topic {part} not found")
    return await _published(request, [part], wanted)


async def _published(request: web.Request, parts: list[TopicName], wanted: RestRequest) -> web.Response:
    """Publishes to these partitions, or to the topic without any; owners of partitions elsewhere are asked to."""
    broker = request.app[BROKER]
    version, schema = await _schema(broker, parts[0].base, wanted)
    messages = await _encoded(broker, wanted, schema)
    # Pulsar's clients begin at a partition of their choice too.
    turn = secrets.randbelow(len(parts))
    chosen = [_part_for(parts, one.message.key, turn + place) for place, one in enumerate(messages)]
    # Only those that get a message need an owner. A topic without partitions is this broker's: others sent it here. So is a
    # partition in the path, and such a request, which another broker may have sent, asks nobody.
    is_part = "partition" in request.match_info
    asked = [part for part in dict.fromkeys(chosen) if part.partition >= 0 and not is_part]
    elsewhere = await owned_elsewhere(broker, asked)
    if elsewhere:
        await before_asking_others(request)
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    publication = Publication(broker, wanted.producer_name, version, f"{peer[0]}:{peer[1]}" if peer else "")
    try:
        for part in dict.fromkeys(chosen):
            if part not in elsewhere:
                await publication.join(part)
        await _publish_elsewhere(publication, wanted, chosen, elsewhere)
        for place, (part, one) in enumerate(zip(chosen, messages, strict=True)):
            if part not in elsewhere:
                await publication.send(place, part, one)
            if place % _MESSAGES_PER_SLICE == _MESSAGES_PER_SLICE - 1:
                await asyncio.sleep(0)
        await publication.wait_for_all(len(messages))
    finally:
        await publication.leave()
    number = version_of(version) if version else -1
    results: list[Json] = [
        {**publication.outcomes[place], "schemaVersion": number} for place in range(len(messages))
    ]
    return answer({"messagePublishResults": results, "schemaVersion": number})


async def _publish_elsewhere(
    publication: Publication,
    wanted: RestRequest,
    chosen: Sequence[TopicName],
    elsewhere: Mapping[TopicName, Addresses],
) -> None:
    """Has the owners of partitions publish their messages. Raises a refusal where all refuse and none is left for here."""
    places: dict[TopicName, list[int]] = {}
    for place, part in enumerate(chosen):
        if part in elsewhere:
            places.setdefault(part, []).append(place)
    if not places:
        return
    bodies = {part: wanted.part(publication.name, of) for part, of in places.items()}
    answers = await publish_at_owners(publication.broker, elsewhere, bodies)
    errors = [one.error for one in answers if one.error is not None]
    if len(errors) == len(answers) and elsewhere.keys() >= set(chosen):
        raise errors[0]
    for (part, of), one in zip(places.items(), answers, strict=True):
        publication.outcomes.update(zip(of, _outcomes(part, one, len(of)), strict=True))


def _outcomes(part: TopicName, answered: OwnerAnswer, count: int) -> list[dict[str, Json]]:
    """Returns the outcome of each of `count` messages of a partition at another broker."""
    body, error = answered.body, answered.error
    results = body.get("messagePublishResults") if isinstance(body, dict) else None
    found = [one for one in results if isinstance(one, dict)] if isinstance(results, list) else []
    if len(found) == count:
        return found
    # Another error than a refusal: the owner may have got the messages, and its answer is lost.
    stored = "" if isinstance(error, PeerRefused) else "; the message may be stored"
    return [_refusal(part.partition, f"{error or 'no outcome came'}{stored}")] * count


def _refusal(partition: int, reason: str) -> dict[str, Json]:
    return {"errorMsg": reason, "messageId": str(partition), "errorCode": _NOT_PUBLISHED}


async def _schema(broker: BrokerView, name: TopicName, wanted: RestRequest) -> tuple[bytes, Schema]:
    """Returns version and schema of the messages. TopicNotFound for a version that the topic does not have."""
    schemas = broker.registry.schemas
    if wanted.schema_version >= 0:
        found = await schemas.get(name, wanted.schema_version)
        if found is None or found.schema is None:
            raise TopicNotFound(f"Schema version {wanted.schema_version} of {name} not found")
        return version_bytes(found.version), found.schema
    # Before the schema is added: nothing may be stored for a type that no payload can have here.
    encoder_of(wanted.schema)
    formless = wanted.schema.type in (SchemaType.NONE, SchemaType.BYTES)
    return await schemas.for_producer(name, None if formless else wanted.schema), wanted.schema


class _Encoded(NamedTuple):
    """A message with the bytes of its payload."""

    message: RestMessage
    payload: bytes


async def _encoded(broker: BrokerView, wanted: RestRequest, schema: Schema) -> list[_Encoded]:
    """Returns all messages. BadRequest or TooLarge for one that is wrong, before any is published."""
    encode, now_ms = encoder_of(schema), broker.environment.wall_ms()
    limit = broker.settings.int("maxMessageSize")
    found: list[_Encoded] = []
    for place, given in enumerate(wanted.messages, 1):
        message = read_message(given, now_ms)
        payload = encode(message.payload)
        if len(payload) > limit:
            raise TooLarge(f"payload: {len(payload)} bytes; maxMessageSize={limit} are allowed")
        found.append(_Encoded(message, payload))
        if place % _MESSAGES_PER_SLICE == 0:
            await asyncio.sleep(0)
    return found


def _part_for(parts: list[TopicName], key: str | None, turn: int) -> TopicName:
    number = turn if key is None else sticky_key_hash(key.encode())
    return parts[number % len(parts)]


class Publication:
    """The producers of one request, and the outcomes of its messages."""

    def __init__(self, broker: BrokerView, producer_name: str, schema_version: bytes, address: str) -> None:
        """`producer_name` is empty for a name that no other producer has."""
        self.outcomes: dict[int, dict[str, Json]] = {}
        """Pulsar's JSON about each message, by its place in the request."""
        self.broker = broker
        """The broker that was asked."""
        self.name = producer_name or f"rest-{secrets.token_hex(8)}"
        """The name of the producers."""
        self._schema_version = schema_version
        self._address = address
        self._lanes: dict[TopicName, PublicationLane] = {}
        self._changed = asyncio.Event()
        time_s = broker.settings.int("magnetarHttpRequestTimeoutSeconds")
        self._until_s = asyncio.get_running_loop().time() + _WAIT_SHARE * time_s

    async def join(self, name: TopicName) -> None:
        """Adds a producer to the topic, opened if need be. BrokerErrors refuse."""
        topic = await self.broker.registry.get(name, create=True)
        topic.check_may_publish(encrypted=False)
        lane = PublicationLane(self, name.partition)
        lane.producer = Producer(
            topic,
            lane,
            producer_id=len(self._lanes),
            name=self.name,
            connection=self,
            address=self._address,
            client_version=_VERSION,
            schema_version=self._schema_version,
            connected_at_ms=self.broker.environment.wall_ms(),
        )
        await topic.add_producer(lane.producer)
        lane.next_sequence_id = topic.last_sequence_id(self.name) + 1
        self._lanes[name] = lane

    async def send(self, place: int, name: TopicName, one: _Encoded) -> None:
        """Publishes a message; waits first while a publish rate is exceeded, and refuses it in the end."""
        lane = self._lanes[name]
        try:
            async with asyncio.timeout_at(self._until_s):
                while lane.pauses and not lane.closed:
                    await self._change()
        except TimeoutError:
            lane.note_refusal(place, "The publish rate is exceeded; send the message again")
            return
        sequence_id = one.message.sequence_id
        if sequence_id is None:
            sequence_id, lane.next_sequence_id = lane.next_sequence_id, lane.next_sequence_id + 1
        now_ms = self.broker.environment.wall_ms()
        body = entry_of(one.message, one.payload, self.name, sequence_id, now_ms, self._schema_version)
        limit = self.broker.settings.int("maxMessageSize")
        if len(body) > limit:
            lane.note_refusal(place, f"The message has {len(body)} bytes; maxMessageSize={limit} are allowed")
        else:
            lane.publish(place, sequence_id, body, delayed=one.message.deliver_at_ms > 0)

    async def wait_for_all(self, count: int) -> None:
        """Returns when so many messages have an outcome."""
        while len(self.outcomes) < count:
            await self._change()

    async def leave(self) -> None:
        """Removes the producers."""
        for lane in self._lanes.values():
            await lane.producer.topic.remove_producer(lane.producer)

    def changed(self) -> None:
        """Looks at the outcomes again. Called by the lanes."""
        self._changed.set()

    async def _change(self) -> None:
        await self._changed.wait()
        self._changed.clear()


class PublicationLane(SinglePort):
    """A ProducerPort for one topic or partition. See `broker/service/ports.py` for the port's methods."""

    producer: Producer
    """Set before the first message."""

    def __init__(self, publication: Publication, partition: int) -> None:
        """`partition`: -1 for a topic without partitions."""
        self.next_sequence_id = 0
        """Number of the next message that has none of its own."""
        self.pauses = 0
        """Publish rates that are exceeded."""
        self.closed = False
        """The topic has removed the producer."""
        self._publication = publication
        self._partition = partition
        # Places of messages by sequence id, which a client may give twice.
        self._waiting: dict[int, deque[int]] = {}

    def publish(self, place: int, sequence_id: int, body: bytes, *, delayed: bool) -> None:
        """Publishes an entry; its outcome comes later, or at once."""
        if self.closed:
            self.note_refusal(place, f"{self.producer.topic.name} was closed; send the message again")
            return
        self._waiting.setdefault(sequence_id, deque()).append(place)
        self.producer.publish(sequence_id, 0, 1, [body], len(body), chunk=False, delayed=delayed)

    def note_refusal(self, place: int, reason: str) -> None:
        """Notes that a message is not stored."""
        self._note(place, _refusal(self._partition, reason))

    def _note(self, place: int, outcome: dict[str, Json]) -> None:
        self._publication.outcomes[place] = outcome
        self._publication.changed()

    def _take(self, sequence_id: int) -> int | None:
        places = self._waiting.get(sequence_id)
        return places.popleft() if places else None

    # Port

    def receipt(
        self, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int, size: int
    ) -> None:
        """Notes the id of a message."""
        place = self._take(sequence_id)
        if place is not None:
            self._note(place, {"messageId": f"{ledger_id}:{entry_id}:{self._partition}", "errorCode": 0})

    def refused(self, sequence_id: int, highest_sequence_id: int, size: int, error: BrokerError) -> None:
        """Notes the error."""
        place = self._take(sequence_id)
        if place is not None:
            self.note_refusal(place, str(error))

    def pause(self) -> None:
        """Holds further messages back."""
        self.pauses += 1

    def go_on(self) -> None:
        """Ends one `pause`."""
        self.pauses -= 1
        self._publication.changed()

    def ready(self, topic_epoch: int | None) -> None:
        """Never called: the access of these producers is shared."""

    def failed(self, error: BrokerError) -> None:
        """Never called: these producers do not wait for access."""

    def closed_by_broker(self) -> None:
        """Refuses further messages; receipts of those that were published may still come."""
        self.closed = True
        self._publication.changed()
        asyncio.get_running_loop().call_later(_LATE_RECEIPTS_S, self._give_up)

    def _give_up(self) -> None:
        for places in self._waiting.values():
            while places:
                self.note_refusal(
                    places.popleft(), f"{self.producer.topic.name} was closed; the message may be stored"
                )


PRODUCE_ROUTES = (
    web.post(_TOPIC, produce),
    web.post(_TOPIC + "/partitions/{partition:[0-9]{1,9}}", produce_to_partition),
)
"""The routes."""
