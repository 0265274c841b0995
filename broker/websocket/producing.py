"""ProducerSession: a WebSocket that publishes.

A text becomes a message of one entry, or a part of a batch. Every text is answered, in the order in which the broker knows
the outcome. The session is not read while too many messages wait for their outcome.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aiohttp import web

from broker.service.ports import SinglePort
from broker.service.producer import Producer
from broker.service.subscriptions.dispatch.key_shared import sticky_key_hash
from broker.websocket.bodies import Sender, batch_body, single_body
from broker.websocket.context import WebSocketContext
from broker.websocket.errors import RESTART, Refused, SendError
from broker.websocket.json_forms import (
    NO_INDEX,
    SendRequest,
    ack_json,
    message_id_text,
    read_send,
    refusal_json,
)
from broker.websocket.parameters import ProducerParameters
from broker.websocket.rights import SessionClient
from broker.websocket.session import OUTGOING_BYTES_MAX, WebSocketSession
from foundation.model.errors import BrokerError
from foundation.model.position import Position

log = logging.getLogger("magnetar.websocket")

BATCH_BYTES_MAX = 128 * 1024
"""Payload of one batch, as in Pulsar's clients."""
_PENDING = "pending publishes"
_BUFFER = "publish buffer"
_UNSENT = "unsent answers"
_RATE = "publish rate"


@dataclass(slots=True)
class _Pending:
    """An entry without a receipt yet."""

    contexts: list[str | None]
    """Of its messages, in their order."""
    is_batch: bool
    sent_s: float
    """Loop time of the publish."""
    timed_out: bool = False
    """The client was told that it took too long."""


class MessageRouter:
    """Chooses partitions for the messages of one session, as Pulsar's clients do."""

    def __init__(self, parameters: ProducerParameters) -> None:
        self._parameters = parameters
        self._next = 0

    def choose(self, key: str | None, count: int) -> int:
        """Returns the partition of a message with this key, 0 to `count` - 1."""
        if count == 1:
            return 0
        if key is not None:
            java = self._parameters.hashing == "JavaStringHash"
            return (java_string_hash(key) if java else sticky_key_hash(key.encode())) % count
        if self._parameters.one_partition:
            if not self._next:
                # Chosen by chance, so that many producers do not fill the first partition.
                self._next = random.randrange(count) + 1
            return self._next - 1
        self._next += 1
        return self._next % count


class ProducerSession(WebSocketSession):
    """The producers of one WebSocket, one for each partition of its topic."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        context: WebSocketContext,
        peer: SessionClient,
        parameters: ProducerParameters,
    ) -> None:
        super().__init__(socket, context, peer)
        self.parameters = parameters
        """Of the request."""
        self.lanes: list[ProducerLane] = []
        """By partition; one for a topic without partitions. Filled before `run`."""
        self.pending = 0
        """Messages that were read and not answered."""
        self._pauses = 0
        self._router = MessageRouter(parameters)
        self._buffer_waits = False
        self._timer_runs = False

    def handle_text(self, text: str) -> None:
        """Publishes a message, or answers with its error."""
        try:
            request = read_send(text, self.context.wall_ms())
        except Refused as error:
            self.send(refusal_json(error.number, str(error), error.context))
        else:
            self.pending += 1
            self.lanes[self._router.choose(request.key, len(self.lanes))].add(request)
            self._watch_time()
        self.look_at_limits()

    def answered(self, texts: Sequence[str], size: int) -> None:
        """Answers messages whose outcome is known; `size` bytes are pending no longer."""
        self.pending -= len(texts)
        self.context.publish_buffer.give_back(size)
        for text in texts:
            self.send(text)
        self.look_at_limits()

    def published(self, size: int) -> None:
        """Counts bytes that wait for their confirmation."""
        if self.context.publish_buffer.take(size) and not self._buffer_waits:
            self._buffer_waits = True
            self.stop_reading(_BUFFER)
            self.context.publish_buffer.wait(self)

    def resume_publishing(self) -> None:
        """The publish buffer has space again. Called by the buffer."""
        self._buffer_waits = False
        self.read_again(_BUFFER)

    def pause(self) -> None:
        """A publish rate is exceeded."""
        self._pauses += 1
        self.stop_reading(_RATE)

    def go_on(self) -> None:
        """Ends one `pause`."""
        self._pauses -= 1
        if not self._pauses:
            self.read_again(_RATE)

    def written(self) -> None:
        """The client has taken answers."""
        self.look_at_limits()

    def look_at_limits(self) -> None:
        """Stops or resumes reading."""
        limit = self.context.settings.pending_publishes_max
        if self.parameters.pending_max is not None:
            limit = min(limit, self.parameters.pending_max)
        if self.pending >= limit:
            # A batch that waits for more messages would wait for ever.
            for lane in self.lanes:
                lane.flush()
            self.stop_reading(_PENDING)
        elif self.pending <= limit // 2:
            self.read_again(_PENDING)
        if self.outgoing_bytes >= OUTGOING_BYTES_MAX:
            self.stop_reading(_UNSENT)
        else:
            self.read_again(_UNSENT)

    def _watch_time(self) -> None:
        timeout_ms = self.parameters.send_timeout_ms
        if timeout_ms and not self._timer_runs:
            self._timer_runs = True
            self.context.call_later(timeout_ms / 1000, self._look_for_late)

    def _look_for_late(self) -> None:
        self._timer_runs = False
        before_s = asyncio.get_running_loop().time() - self.parameters.send_timeout_ms / 1000
        for lane in self.lanes:
            lane.time_out(before_s)
        if self.pending and not self.ended:
            self._watch_time()

    async def leave(self) -> None:
        """Publishes what waits in batches, then leaves the topics."""
        for lane in self.lanes:
            lane.flush()
        self.context.publish_buffer.forget(self)
        for lane in self.lanes:
            lane.leave()
            await lane.producer.topic.remove_producer(lane.producer)
            log.info("- %s producer %s on %s", self.address, lane.producer.name, lane.producer.topic.name)


class ProducerLane(SinglePort):
    """A ProducerPort for one topic or partition. See `broker/service/ports.py` for the port's methods."""

    producer: Producer
    """Set before the first message."""

    def __init__(self, session: ProducerSession, partition: int) -> None:
        """`partition`: -1 for a topic without partitions."""
        self._session = session
        self._partition = partition if partition >= 0 else NO_INDEX
        self._sender = Sender("", 0)
        self._next_sequence_id = 0
        self._batch: list[SendRequest] = []
        self._batch_bytes = 0
        self._pending: dict[int, deque[_Pending]] = {}
        self._pending_bytes = 0

    def start(self, producer: Producer, next_sequence_id: int) -> None:
        """Begins to publish; the first message gets this sequence id."""
        self.producer = producer
        self._sender = Sender(producer.name, self._session.parameters.compression)
        self._next_sequence_id = next_sequence_id

    def add(self, request: SendRequest) -> None:
        """Publishes a message, at once or with its batch."""
        parameters = self._session.parameters
        if not parameters.batching or request.deliver_at_ms:
            # Before it, so that messages keep their order.
            self.flush()
            self._publish([request], is_batch=False)
            return
        if self._batch and self._batch[0].replicate_to != request.replicate_to:
            self.flush()
        self._batch.append(request)
        self._batch_bytes += len(request.payload)
        if len(self._batch) >= parameters.batch_messages_max or self._batch_bytes >= BATCH_BYTES_MAX:
            self.flush()
        elif len(self._batch) == 1:
            self._session.context.call_later(parameters.batch_delay_ms / 1000, self.flush)

    def flush(self) -> None:
        """Publishes the messages that wait for more."""
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        if batch:
            self._publish(batch, is_batch=len(batch) > 1)

    def _publish(self, requests: list[SendRequest], *, is_batch: bool) -> None:
        session = self._session
        first = self._next_sequence_id
        self._next_sequence_id += len(requests)
        now_ms = session.context.wall_ms()
        if is_batch:
            body = batch_body(self._sender, first, now_ms, requests)
        else:
            body = single_body(self._sender, first, now_ms, requests[0])
        contexts = [request.context for request in requests]
        limit = session.context.settings.message_bytes_max
        if len(body) > limit:
            reason = f"The message has {len(body)} bytes; maxMessageSize={limit} are allowed"
            session.answered([refusal_json(SendError.UNKNOWN, reason, one) for one in contexts], 0)
            return
        sent = _Pending(contexts, is_batch, asyncio.get_running_loop().time())
        self._pending.setdefault(first, deque()).append(sent)
        self._pending_bytes += len(body)
        session.published(len(body))
        last = first + len(requests) - 1
        self.producer.publish(
            first,
            last if is_batch else 0,
            len(requests),
            [body],
            len(body),
            chunk=False,
            delayed=requests[0].deliver_at_ms > 0,
        )

    def time_out(self, before_s: float) -> None:
        """Tells the client of messages that were published before that loop time and have no receipt."""
        for sequence_id, waiting in list(self._pending.items()):
            for sent in waiting:
                if sent.sent_s < before_s and not sent.timed_out:
                    sent.timed_out = True
                    reason = (
                        f"The message {sequence_id} was not stored within sendTimeoutMillis; it may be later"
                    )
                    self._session.answered(
                        [refusal_json(SendError.UNKNOWN, reason, one) for one in sent.contexts], 0
                    )

    def leave(self) -> None:
        """Returns the bytes of messages whose outcome the client will not learn."""
        self._session.context.publish_buffer.give_back(self._pending_bytes)
        self._pending_bytes = 0
        self._pending.clear()

    def _settle(self, sequence_id: int, size: int, text: Callable[[int, _Pending], str]) -> None:
        waiting = self._pending.get(sequence_id)
        if not waiting:  # The session has ended.
            return
        sent = waiting.popleft()
        if not waiting:
            del self._pending[sequence_id]
        self._pending_bytes -= size
        texts = [] if sent.timed_out else [text(index, sent) for index in range(len(sent.contexts))]
        self._session.answered(texts, size)

    # Port

    def receipt(
        self, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int, size: int
    ) -> None:
        """Answers with the message ids."""

        def text(index: int, sent: _Pending) -> str:
            place = message_id_text(
                Position(ledger_id, entry_id),
                partition=self._partition,
                batch_index=index if sent.is_batch else NO_INDEX,
            )
            return ack_json(place, sent.contexts[index])

        self._settle(sequence_id, size, text)

    def refused(self, sequence_id: int, highest_sequence_id: int, size: int, error: BrokerError) -> None:
        """Answers with the error."""
        self._settle(
            sequence_id,
            size,
            lambda index, sent: refusal_json(SendError.UNKNOWN, str(error), sent.contexts[index]),
        )

    def pause(self) -> None:
        """Pauses the session."""
        self._session.pause()

    def go_on(self) -> None:
        """Ends one `pause`."""
        self._session.go_on()

    def ready(self, topic_epoch: int | None) -> None:
        """Never called: the access of these producers is shared."""

    def failed(self, error: BrokerError) -> None:
        """Ends the session."""
        self._session.end(RESTART, str(error))

    def closed_by_broker(self) -> None:
        """Ends the session; the client connects again."""
        self._session.end(RESTART, f"{self.producer.topic.name} was closed; connect again")


def java_string_hash(text: str) -> int:
    """Returns Java's hash of a text without its sign, as Pulsar's clients choose partitions."""
    units = text.encode("utf-16-be", "surrogatepass")
    total = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        total = (31 * total + (high << 8 | low)) & 0xFFFF_FFFF
    return total & 0x7FFF_FFFF
