"""DeadLetters: publishes messages that were delivered too often to the dead letter topic, then acknowledges them.

The message keeps its bytes, metadata and key. Its properties say where it came from, under the names of Pulsar's clients.
A message that cannot be published is delivered again after a delay, which grows with each failure up to a minute. It
keeps its permit until then, so at most the session's permits wait.
"""

from __future__ import annotations

import asyncio
import logging

from broker.security.authorization.access import produce
from broker.service.ports import SinglePort
from broker.service.producer import Producer
from broker.service.subscriptions.dispatch.read_retry import ReadRetry
from broker.websocket.consumer_lane import ConsumerLane
from broker.websocket.session import WebSocketSession
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError, ServiceNotReady
from foundation.model.position import PositionKey
from foundation.model.topic_name import TopicName
from protocol.errors import ProtocolError
from protocol.frame import message_body, metadata_span
from protocol.pulsar_api_pb2 import MessageMetadata

log = logging.getLogger("magnetar.websocket")


class DeadLetters(SinglePort):
    """The dead letter producer of one session; it opens its topic with the first message."""

    def __init__(self, session: WebSocketSession, topic: TopicName) -> None:
        """`session`: its client publishes, so its rights count; `topic`: the dead letter topic."""
        self.topic = topic
        """The dead letter topic."""
        self._session = session
        self._context = session.context
        self._opening: asyncio.Lock = asyncio.Lock()
        self._producer: Producer | None = None
        self._sequence_id = 0
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._failed: list[tuple[ConsumerLane, PositionKey, int]] = []
        self._delay = ReadRetry(self._context.call_later, self)

    def add(self, lane: ConsumerLane, entry: Entry) -> None:
        """Moves an entry; it stays unacknowledged, and comes again, when that fails."""
        self._context.spawn(self._move(lane, entry), f"dead letter to {self.topic}")

    async def _move(self, lane: ConsumerLane, entry: Entry) -> None:
        key, permits = (entry.ledger_id, entry.entry_id), max(1, entry.messages)
        try:
            await self._publish(_marked(lane, entry), permits)
        except (BrokerError, ProtocolError) as error:
            if not self._delay.waiting:
                # One line per delay: every later message may fail for the same reason.
                log.warning("! %d:%d of %s cannot go to %s: %s", *key, lane.topic.name, self.topic, error)
            self._failed.append((lane, key, permits))
            self._delay.failed()
            return
        self._delay.succeeded()
        lane.acknowledge([key])
        lane.flow(permits)

    def wake(self) -> None:
        """Lets the messages that could not be moved come again; called after the delay."""
        failed, self._failed = self._failed, []
        if self._session.ended:
            return
        by_lane: dict[ConsumerLane, list[PositionKey]] = {}
        for lane, key, permits in failed:
            by_lane.setdefault(lane, []).append(key)
            # The failed delivery has used them up.
            lane.flow(permits)
        for lane, keys in by_lane.items():
            lane.redeliver(keys)

    async def _publish(self, body: bytes, messages: int) -> None:
        async with self._opening:
            if self._session.ended:
                # A producer that is opened now would never leave its topic.
                raise ServiceNotReady("the session has ended")
            if self._producer is None:
                self._producer = await self._open()
        # Again for each letter, because the right may have been withdrawn since the topic was opened.
        self._session.rights.require(produce(self.topic))
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        number, self._sequence_id = self._sequence_id, self._sequence_id + 1
        self._waiting[number] = stored
        self._producer.publish(number, 0, messages, [body], len(body), chunk=False, delayed=False)
        await stored

    async def _open(self) -> Producer:
        # Before the topic is looked at: a client without the right must not create one.
        self._session.rights.require(produce(self.topic))
        topic = await self._context.registry.get(self.topic, create=True)
        producer = Producer(
            topic,
            self,
            producer_id=0,
            name=self._context.producer_name(),
            connection=self,
            connected_at_ms=self._context.wall_ms(),
        )
        await topic.add_producer(producer)
        return producer

    async def close(self) -> None:
        """Leaves the topic."""
        async with self._opening:
            if self._producer is not None:
                await self._producer.topic.remove_producer(self._producer)

    def _settle(self, number: int, error: BrokerError | None) -> None:
        stored = self._waiting.pop(number, None)
        if stored is None or stored.done():
            return
        if error is None:
            stored.set_result(None)
        else:
            stored.set_exception(error)

    # Port

    def receipt(
        self, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int, size: int
    ) -> None:
        """The message is stored."""
        self._settle(sequence_id, None)

    def refused(self, sequence_id: int, highest_sequence_id: int, size: int, error: BrokerError) -> None:
        """The message is not stored."""
        self._settle(sequence_id, error)

    def pause(self) -> None:
        """Does nothing: dead letters are rare, and nothing is read for them."""

    def go_on(self) -> None:
        """Does nothing, for the same reason as `pause`."""

    def ready(self, topic_epoch: int | None) -> None:
        """Never called: the access of this producer is shared."""

    def failed(self, error: BrokerError) -> None:
        """Never called, for the same reason as `ready`."""

    def closed_by_broker(self) -> None:
        """Opens the topic anew with the next message."""
        self._producer = None


def _marked(lane: ConsumerLane, entry: Entry) -> bytes:
    """Returns the body with properties that name its origin."""
    body = entry.body
    try:
        start, end = metadata_span(body)
        metadata = MessageMetadata.FromString(bytes(body[start:end]))
    except ValueError as error:
        raise ProtocolError(f"unreadable message metadata: {error}") from None
    origin = {
        "REAL_TOPIC": str(lane.topic.name),
        "REAL_SUBSCRIPTION": lane.consumer.options.subscription,
        "ORIGIN_MESSAGE_ID": f"{entry.ledger_id}:{entry.entry_id}:{lane.partition}",
    }
    for name, value in origin.items():
        metadata.properties.add(key=name, value=value)
    return message_body(metadata, bytes(body[end:]))
