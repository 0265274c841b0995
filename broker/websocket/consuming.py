"""ConsumerSession: a WebSocket that receives messages of one or several topics.

Lanes (one per topic or partition) put entries into a queue; `pump` takes them apart and sends messages while the client's
window and the unsent texts allow. The queue has at most `incoming.BYTES_MAX` and what one run of entries adds, because the
lanes are not `writable` beyond it. So a slow client costs the broker a bounded amount of memory.

    push    the window is `receiverQueueSize` less the unacknowledged messages
    pull    the window is what the client permitted
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from aiohttp import web

from broker.service.subscriptions.subscription import Subscription
from broker.websocket.bodies import Contents, Message, contents_of, unpack_chunks
from broker.websocket.consumer_lane import ConsumerLane, SentOnLane
from broker.websocket.context import WebSocketContext
from broker.websocket.dead_letters import DeadLetters
from broker.websocket.errors import BROKEN, BadCommand
from broker.websocket.incoming import Incoming, Opened, Queued
from broker.websocket.json_forms import (
    ConsumerCommand,
    MessageId,
    end_of_topic_json,
    message_id_text,
    message_json,
    read_command,
)
from broker.websocket.negative_acks import NegativeAcks
from broker.websocket.parameters import ConsumerParameters
from broker.websocket.rights import SessionClient
from broker.websocket.session import OUTGOING_BYTES_MAX, WebSocketSession
from broker.websocket.unacked import ENTRIES_MAX, Unacked
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError
from foundation.model.position import Position, PositionKey
from protocol.errors import ProtocolError

log = logging.getLogger("magnetar.websocket")

TICK_S: Final = 0.1
"""Time between two checks for messages that are to be sent again."""


class ConsumerSession(WebSocketSession):
    """The consumers, or the readers, of one WebSocket."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        context: WebSocketContext,
        peer: SessionClient,
        parameters: ConsumerParameters,
        *,
        reads: bool,
    ) -> None:
        """`reads`: a reader, whose acknowledgements only make room for more."""
        super().__init__(socket, context, peer)
        self.parameters = parameters
        """Of the request."""
        self.lanes: list[ConsumerLane] = []
        """Consumed topics and partitions; filled before `run`."""
        self.dead_letters: DeadLetters | None = None
        """Takes messages that were sent too often; None without such a limit."""
        self.unacked: Unacked[ConsumerLane] = Unacked()
        """Messages that the client has not acknowledged; empty for a reader."""
        self.reads = reads
        """True for a reader."""
        self._window = 0 if parameters.pull else parameters.queue_size
        self._incoming = Incoming()
        self._waiting: list[Callable[[], None]] = []
        self._negative = NegativeAcks()
        self._timer_runs = False
        self._skipped = parameters.skipped_indexes

    def start(self) -> None:
        """Lets the lanes deliver."""
        if not self.parameters.pull:
            for lane in self.lanes:
                lane.flow(max(1, self.parameters.queue_size // len(self.lanes)))

    # From the lanes

    @property
    def takes_more(self) -> bool:
        """False while too much waits for the client."""
        full = self._incoming.full or self.unacked.full or len(self._negative) >= ENTRIES_MAX
        return not full and not self.ended

    def when_takes_more(self, wake: Callable[[], None]) -> None:
        """Calls `wake` once, when it takes more."""
        if wake not in self._waiting:
            self._waiting.append(wake)

    def enqueue(self, lane: ConsumerLane, entry: Entry, redeliveries: int, ack_set: Sequence[int]) -> None:
        """Adds an entry to the queue."""
        self._incoming.add(Queued(lane, entry, redeliveries, ack_set))

    def pump(self) -> None:
        """Sends messages while window and unsent texts allow."""
        while self._window > 0 and self.outgoing_bytes < OUTGOING_BYTES_MAX and not self.ended:
            opened = self._incoming.opened
            if opened is not None and opened.messages:
                self._send_message(opened, opened.messages.popleft())
            elif (queued := self._incoming.take()) is not None:
                self._open_next(queued)
            else:
                break
        if self._waiting and self.takes_more:
            # Replaced before the calls: a dispatcher that fills the queue again enters the new list.
            waiting, self._waiting = self._waiting, []
            for wake in waiting:
                wake()

    def written(self) -> None:
        """The client has taken texts."""
        self.pump()

    def _open_next(self, queued: Queued) -> None:
        lane, entry, key = queued.lane, queued.entry, queued.key
        limit = self.parameters.redeliveries_max
        if self.dead_letters is not None and limit is not None and queued.redeliveries > limit:
            self.dead_letters.add(lane, entry)
            return
        try:
            contents = contents_of(entry, queued.ack_set)
        except ProtocolError as error:
            # As Pulsar's clients: a message that cannot be read would be sent for ever.
            log.error("! %s could not read %d:%d of %s: %s", self.address, *key, lane.topic.name, error)
            lane.pass_over([key])
            return
        if contents.encrypted and self.parameters.crypto_failure != "CONSUME":
            log.warning("! %s: %d:%d of %s is encrypted", self.address, *key, lane.topic.name)
            lane.pass_over([key] if self.parameters.crypto_failure == "DISCARD" else [])
            return
        self._open(queued, contents)

    def _open(self, queued: Queued, contents: Contents) -> None:
        lane, key = queued.lane, queued.key
        messages = contents.messages
        parts: tuple[PositionKey, ...] = ()
        if contents.chunk is not None:
            uuid, number, count = contents.chunk
            if number < count - 1:
                lane.keep_part(uuid, number, key, messages[0].payload)
                lane.flow(1)
                return
            kept = lane.take_parts(uuid, count)
            if kept is None:
                log.warning("! %s: %d:%d of %s lacks its first parts", self.address, *key, lane.topic.name)
                lane.pass_over([])
                return
            parts = tuple(kept[0])
            payload = unpack_chunks(queued.entry, [*kept[1], messages[0].payload])
            messages = [messages[0]._replace(payload=payload)]
        if self._skipped:
            # Once, at the begin: the reader has read the first messages of this batch before.
            messages, self._skipped = [one for one in messages if one.place >= self._skipped], 0
        self._incoming.opened = Opened(queued, contents.batch_size, deque(messages))
        if not self.reads and lane.keeps_positions and messages:
            left = {message.place for message in messages}
            sent = SentOnLane(lane, left, contents.batch_size, self.context.wall_ms(), parts=parts)
            self.unacked.add(key, sent)
            self._negative.forget(key)
            if self.parameters.ack_timeout_ms:
                self._run_timer()

    def _send_message(self, opened: Opened, message: Message) -> None:
        lane, key = opened.queued.lane, opened.queued.key
        message_id = message_id_text(
            Position(*key),
            partition=lane.partition,
            batch_index=message.place,
            batch_size=opened.batch_size,
        )
        self._window -= 1
        sent = self.unacked.entries.get(key)
        if sent is not None:
            sent.sent += 1
        elif not self.parameters.pull:
            # Nothing tells later which lane the acknowledgement is of.
            lane.flow(1)
        if self.reads and not opened.messages:
            lane.read_up_to(key)
        self.send(message_json(message_id, message.payload, message.metadata, opened.queued.redeliveries))

    # From the client

    def handle_text(self, text: str) -> None:
        """Obeys a command; one that cannot be understood ends the session, as in Pulsar."""
        try:
            command = read_command(text)
        except BadCommand as error:
            if self.reads:
                # As in Pulsar, every text of a reader acknowledges one message.
                self._make_room(None, 1)
            else:
                self.end(BROKEN, str(error))
            return
        self._obey(command)
        self.pump()

    def _obey(self, command: ConsumerCommand) -> None:
        message_id = command.message_id
        if command.kind == "isEndOfTopic":
            self.send(end_of_topic_json(all(lane.ended for lane in self.lanes)))
        elif self.reads:
            self._make_room(None, 1)
        elif command.kind == "permit":
            if self.parameters.pull:
                self._window = min(self._window + command.permits, 1 << 31)
                for lane in self.lanes:
                    lane.flow(command.permits)
        elif command.kind == "unsubscribe":
            self.context.spawn(self._unsubscribe(), f"{self.address} unsubscribes")
        elif message_id is not None and command.kind == "ack":
            self._acknowledge(message_id)
        elif message_id is not None:
            self._acknowledge_negatively(message_id.position)

    def _make_room(self, lane: ConsumerLane | None, count: int) -> None:
        """Widens the window of a pushing session."""
        if not self.parameters.pull:
            self._window = min(self._window + count, self.parameters.queue_size)
            if lane is not None:
                lane.flow(count)
        self.pump()

    def _acknowledge(self, message_id: MessageId) -> None:
        key = message_id.position
        self._negative.forget(key)
        found = self.unacked.acknowledge(key, message_id.batch_index)
        if found is None:
            self._acknowledge_unknown(message_id)
            return
        sent, whole = found
        if whole:
            sent.lane.acknowledge([*sent.parts, key])
        else:
            sent.lane.acknowledge_part(key, sent.ack_set(), sent.batch_size)
        self._make_room(sent.lane, 1)

    def _acknowledge_unknown(self, message_id: MessageId) -> None:
        """Acknowledges a message that this session has not sent: a former one of the same client may have."""
        lane = lane_of(self.lanes, message_id)
        if lane is None:
            return
        if not lane.keeps_positions:
            self._make_room(None, 1)
        elif message_id.batch_index < 0:
            lane.acknowledge([message_id.position])
        elif 0 <= message_id.batch_index < message_id.batch_size <= 1 << 16:
            left = set(range(message_id.batch_size)) - {message_id.batch_index}
            batch = SentOnLane(lane, left, message_id.batch_size, 0)
            lane.acknowledge_part(message_id.position, batch.ack_set(), message_id.batch_size)

    async def _unsubscribe(self) -> None:
        for lane in self.lanes:
            try:
                if isinstance(lane.subscription, Subscription):
                    deletes = lane.subscription.topic.subscribing
                    await deletes.delete(lane.subscription, lane.consumer, force=False)
                else:
                    lane.leave()
            except BrokerError as error:
                self.end(BROKEN, str(error))
                return

    # Sending again

    def _acknowledge_negatively(self, key: PositionKey) -> None:
        sent = self.unacked.take(key)
        if sent is None:
            return
        self._incoming.close(key)
        self._negative.add(key, sent.lane, self.context.wall_ms() + self.parameters.negative_ack_delay_ms)
        self._run_timer()
        self._make_room(sent.lane, sent.sent)

    def _run_timer(self) -> None:
        if not self._timer_runs and not self.ended:
            self._timer_runs = True
            self.context.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer_runs = False
        if self.ended:
            return
        now_ms = self.context.wall_ms()
        due = self._negative.take_due(now_ms)
        if self.parameters.ack_timeout_ms:
            for key, sent in self.unacked.sent_before(now_ms - self.parameters.ack_timeout_ms):
                self.unacked.take(key)
                self._incoming.close(key)
                due.setdefault(sent.lane, []).append(key)
                self._make_room(sent.lane, sent.sent)
        for lane, keys in due.items():
            if lane.redelivers_single:
                lane.redeliver(keys)
            else:
                self._rewind(lane)
        if self._negative or (self.parameters.ack_timeout_ms and self.unacked.entries):
            self._run_timer()

    def _rewind(self, lane: ConsumerLane) -> None:
        """Sends everything again that is not acknowledged, as Exclusive and Failover subscriptions do."""
        dropped = self._incoming.drop(lane)
        self._negative.forget_lane(lane)
        lane.forget_parts()
        room = sum(sent.sent for sent in self.unacked.take_of(lane))
        lane.flow(dropped)
        lane.redeliver(None)
        self._make_room(lane, room)

    async def leave(self) -> None:
        """Leaves the topics; unacknowledged messages go to other consumers."""
        self._incoming = Incoming()
        if self.dead_letters is not None:
            await self.dead_letters.close()
        for lane in self.lanes:
            lane.leave()
            log.info("- %s consumer %s on %s", self.address, lane.consumer.name, lane.topic.name)
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()


def lane_of(lanes: Sequence[ConsumerLane], message_id: MessageId) -> ConsumerLane | None:
    """Returns the lane that a message id belongs to; None where nothing tells it."""
    if len(lanes) == 1:
        return lanes[0]
    of_partition = [lane for lane in lanes if lane.partition == message_id.partition]
    # Several topics may have a partition of this number.
    return of_partition[0] if len(of_partition) == 1 else None
