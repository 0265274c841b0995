"""Relays: a WebSocket whose topics other brokers own, over one WebSocket to the owner of each topic or partition.

The client's rights are held here; the owners see the role of this broker. Texts pass as they are. This broker chooses the
partition of a message, finds the owner of an acknowledgement by the message that came from there, and counts what a client
permits. Where an owner closes its WebSocket, the client's closes with the same code, and the client connects again.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from urllib.parse import quote

from aiohttp import ClientWebSocketResponse, WSMsgType, web

from broker.security.authorization.access import Access
from broker.websocket.context import WebSocketContext
from broker.websocket.errors import BROKEN, RESTART, BadCommand, Refused
from broker.websocket.json_forms import end_of_topic_json, read_command, read_send, refusal_json
from broker.websocket.opening import parts_of
from broker.websocket.parameters import ConsumerParameters, ProducerParameters, dead_letter_topic
from broker.websocket.producing import MessageRouter
from broker.websocket.rights import SessionClient
from broker.websocket.session import OUTGOING_BYTES_MAX, WebSocketSession
from foundation.model.topic_name import TopicName

if TYPE_CHECKING:
    from broker.cluster.ownership import ClusterOwnership
    from broker.service.topics.topic_ownership import Addresses

_UNSENT: Final = "texts that an owner has not taken"
_NOT_SENT_ON: Final = ("token", "topics", "topicsPattern")
"""Parameters that are for the asked broker alone."""


class OwnedPart(NamedTuple):
    """A topic or partition, and its owner."""

    name: TopicName
    """Its full name."""
    owner: Addresses
    """The broker that serves it."""


async def parts_elsewhere(
    session: RelaySession, names: Sequence[TopicName], access: Callable[[TopicName], Access]
) -> list[OwnedPart]:
    """Returns all topics and partitions with their owners; none where this broker owns them all.

    Raises Forbidden, TopicNotFound, ServiceNotReady and MetadataError.
    """
    ownership = session.context.registry.ownership
    found: list[OwnedPart] = []
    for name in names:
        # Before the topic is looked at: a client without the right must not create one.
        session.rights.require(access(name))
        parts = [part for _, part in await parts_of(session.context.partitioned, name)]
        for part, owner in (await ownership.located_all(parts)).items():
            session.rights.hold(access(part))
            found.append(OwnedPart(part, owner))
    return [] if all(part.owner == ownership.owner for part in found) else found


def query_of_legs(
    query: Mapping[str, str], parameters: ConsumerParameters, first: TopicName, subscription: str, count: int
) -> dict[str, str]:
    """Returns the parameters of each of `count` WebSockets to owners, for those of a client."""
    found = {**query, "receiverQueueSize": str(max(1, parameters.queue_size // count))}
    topic = dead_letter_topic(parameters, first, subscription)
    return found if topic is None else {**found, "deadLetterTopic": topic}


class Leg:
    """One WebSocket to an owner."""

    def __init__(self, session: RelaySession, socket: ClientWebSocketResponse, partition: int) -> None:
        self.partition = partition
        """-1 for a topic without partitions."""
        self._session, self._socket = session, socket
        self._texts: asyncio.Queue[str] = asyncio.Queue()
        self.bytes = 0
        """Characters that the owner has not taken."""
        self._tasks = [asyncio.create_task(one) for one in (self._read_on(), self._write_on())]

    def send(self, text: str) -> None:
        """Adds a text for the owner."""
        self.bytes += len(text)
        self._texts.put_nowait(text)

    async def close(self) -> None:
        """Closes the WebSocket, after which the owner leaves the topic."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._socket.close()

    async def _read_on(self) -> None:
        while True:
            await self._session.takes_more.wait()
            message = await self._socket.receive()
            if message.type is WSMsgType.TEXT:
                self._session.from_owner(self, message.data)
                continue
            if message.type is WSMsgType.CLOSE:
                self._session.end(int(message.data or RESTART), str(message.extra or ""))
            else:
                self._session.end(RESTART, "the owner of the topic is gone; connect again")
            return

    async def _write_on(self) -> None:
        while True:
            text = await self._texts.get()
            try:
                await self._socket.send_str(text)
            except ConnectionError:
                return  # The reading task ends the session.
            self.bytes -= len(text)
            if self.bytes < OUTGOING_BYTES_MAX // 2:
                self._session.read_again(_UNSENT)


def leg_of(legs: Sequence[Leg], partition: int) -> Leg | None:
    """Returns the leg that a message of this partition belongs to; None where several topics have such a partition."""
    found = legs if len(legs) == 1 else [leg for leg in legs if leg.partition == partition]
    return found[0] if len(found) == 1 else None


class RelaySession(WebSocketSession):
    """A client's WebSocket with legs to the owners of its topics."""

    def __init__(self, socket: web.WebSocketResponse, context: WebSocketContext, peer: SessionClient) -> None:
        super().__init__(socket, context, peer)
        self.takes_more = asyncio.Event()
        """Set while texts of owners are read."""
        self.takes_more.set()
        self.legs: list[Leg] = []
        """By topic and partition; filled before `run`."""

    async def open_legs(
        self, parts: Sequence[OwnedPart], path: str, end: str, query: Mapping[str, str]
    ) -> None:
        """Opens a WebSocket to the owner of each part. BrokerErrors refuse; nothing stays open then.

        `path`: `/ws/v2/consumer` or another kind; `end`: what follows the topic.
        """
        peers = cast("ClusterOwnership", self.context.registry.ownership).peers
        passed = {name: text for name, text in query.items() if name not in _NOT_SENT_ON}
        try:
            for part in parts:
                name = part.name
                local = quote(name.local, safe="")
                url = f"{path}/{name.domain}/{name.namespace}/{local}{end}"
                socket = await peers.web_socket(part.owner, url, passed)
                self.legs.append(Leg(self, socket, name.partition))
        except BaseException:
            await self.leave()
            raise

    def from_owner(self, leg: Leg, text: str) -> None:
        """Handles a text of an owner."""
        raise NotImplementedError

    def pass_on(self, leg: Leg, text: str) -> None:
        """Sends a text of the client to an owner."""
        leg.send(text)
        if leg.bytes >= OUTGOING_BYTES_MAX:
            self.stop_reading(_UNSENT)

    def send(self, text: str) -> None:
        """Adds a text for the client; owners are not read while too much waits."""
        super().send(text)
        if self.outgoing_bytes >= OUTGOING_BYTES_MAX:
            self.takes_more.clear()

    def written(self) -> None:
        """The client has taken texts."""
        self.takes_more.set()

    async def leave(self) -> None:
        """Closes the WebSockets to the owners."""
        await asyncio.gather(*(leg.close() for leg in self.legs))


class RelayedProducers(RelaySession):
    """Messages of a client for topics of other brokers."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        context: WebSocketContext,
        peer: SessionClient,
        parameters: ProducerParameters,
    ) -> None:
        super().__init__(socket, context, peer)
        self._router = MessageRouter(parameters)

    def handle_text(self, text: str) -> None:
        """Sends a message to the owner of its partition."""
        try:
            request = read_send(text, self.context.wall_ms())
        except Refused as error:
            self.send(refusal_json(error.number, str(error), error.context))
        else:
            self.pass_on(self.legs[self._router.choose(request.key, len(self.legs))], text)

    def from_owner(self, leg: Leg, text: str) -> None:
        """Passes an answer on."""
        self.send(text)


class RelayedConsumers(RelaySession):
    """Messages of topics of other brokers for a client."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        context: WebSocketContext,
        peer: SessionClient,
        parameters: ConsumerParameters,
        *,
        reads: bool,
    ) -> None:
        super().__init__(socket, context, peer)
        self._pulls, self._reads = parameters.pull, reads
        self._permitted = 0
        self._waiting: deque[tuple[Leg, str]] = deque()
        """Messages that came and are not permitted yet; each leg sends no more than was permitted in all."""
        self._came_from: dict[str, Leg] = {}
        """The leg of each message that the client has not answered, by its id."""
        self._of_reader: deque[Leg] = deque()
        """The legs of messages in their order: every text of a reader is the answer to the oldest."""
        self._ends: dict[Leg, bool] = {}
        """Answers to the question for the end of the topics, which is one question for the client."""

    def handle_text(self, text: str) -> None:
        """Sends a command to the owners that it concerns."""
        try:
            command = read_command(text)
        except BadCommand as error:
            if not self._reads:
                self.end(BROKEN, str(error))
                return
            command = None
        leg: Leg | None
        if command is not None and command.kind in ("isEndOfTopic", "unsubscribe"):
            for leg in self.legs:
                self.pass_on(leg, text)
        elif self._reads:
            if self._of_reader:
                self.pass_on(self._of_reader.popleft(), text)
        elif command is not None and command.kind == "permit":
            self._permitted += command.permits if self._pulls else 0
            for leg in self.legs:
                self.pass_on(leg, text)
            self._deliver()
        elif command is not None and command.message_id is not None:
            message_id = str(json.loads(text)["messageId"])
            if message_id in self._came_from:
                leg = self._came_from.pop(message_id)
            else:
                # Of a message that a former session of the client has had.
                leg = leg_of(self.legs, command.message_id.partition)
            if leg is not None:
                self.pass_on(leg, text)

    def from_owner(self, leg: Leg, text: str) -> None:
        """Passes a message on, or joins the answers about the end of the topics."""
        value = json.loads(text)
        if "endOfTopic" in value:
            self._ends[leg] = bool(value["endOfTopic"])
            if len(self._ends) == len(self.legs):
                self.send(end_of_topic_json(all(self._ends.values())))
                self._ends.clear()
            return
        if self._reads:
            self._of_reader.append(leg)
        else:
            self._came_from[str(value["messageId"])] = leg
        self._waiting.append((leg, text))
        self._deliver()

    def _deliver(self) -> None:
        while self._waiting and (self._permitted or not self._pulls):
            self._permitted -= self._pulls
            self.send(self._waiting.popleft()[1])
