"""Consumers that lose acknowledgements and live on: two of a Shared subscription and two of a Key_Shared one.

They ask for receipts. Every tenth acknowledgement is lost, which means that nothing is sent. When the entry comes again on
the same connection, this is its copy:

    entry 3 of 30     the consumer that has the first copy acknowledges it now, late
    entry 13 of 30    the consumer that has the copy acknowledges it
    entry 23 of 30    it is lost once more; in the end it is acknowledged like 13
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from protocol.pulsar_api_pb2 import CommandAckResponse, CommandMessage
from tests.crash.records import Position
from tests.support.raw_client import RawConnection

KINDS: Final = ("Shared", "Key_Shared")
"""Types of the subscriptions, and their names."""
CONSUMERS: Final = 2
"""Of each subscription."""
PERMITS: Final = 1000
LATE: Final = 3
FOR_EVER: Final = 23
LOST: Final = (LATE, 13, FOR_EVER)
OF: Final = 30
TIMEOUT_S: Final = 300.0


class Acknowledgement(NamedTuple):
    """An acknowledgement that was sent."""

    kind: str
    position: Position
    is_late: bool
    """Of a first copy, after another copy had come."""


class LosingConsumers:
    """All consumers of a topic, and what became of their entries."""

    def __init__(self, topic: str) -> None:
        """Connects to nothing yet."""
        self._topic = topic
        self.tried: dict[str, set[Position]] = {kind: set() for kind in KINDS}
        """By subscription, entries whose acknowledgement was sent."""
        self.answered: dict[str, set[Position]] = {kind: set() for kind in KINDS}
        """Of these, entries with a receipt."""
        self.late = 0
        """Answered acknowledgements of a first copy after another copy had come."""
        self.copies = 0
        """Deliveries of an entry after the first one on the same connection."""
        self._first: dict[tuple[str, Position], int] = {}
        self._sent: dict[int, Acknowledgement] = {}
        self._request = 10
        self._last: Mapping[str, Position] | None = None

    async def live(
        self, url: str, ended: Callable[[], bool], last: Mapping[str, Position] | None = None
    ) -> None:
        """Receives and acknowledges on a new connection until `ended`, which is asked after each frame.

        `last` has the last entry of each subscription, and is given when every entry has to be acknowledged in the end:
        that one's acknowledgement is not lost, since an entry comes again only before an acknowledged one. Raises
        RuntimeError when the end does not come.
        """
        self._last = last
        self._first.clear()
        self._sent.clear()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._live(url, ended)
        except TimeoutError as error:
            raise RuntimeError(f"{self.copies} copies came, {self.late} late ones were answered") from error

    async def _live(self, url: str, ended: Callable[[], bool]) -> None:
        connection = await RawConnection.open(url)
        used = [0] * (CONSUMERS * len(KINDS))
        try:
            await connection.connect()
            connection.send("LOOKUP", topic=self._topic, request_id=1)
            await connection.receive("LOOKUP_RESPONSE", timeout_s=TIMEOUT_S)
            for consumer, _ in enumerate(used):
                kind = _kind(consumer)
                connection.send(
                    "SUBSCRIBE",
                    topic=self._topic,
                    subscription=kind,
                    subType=kind,
                    consumer_id=consumer,
                    request_id=2,
                    initialPosition="Earliest",
                )
                await connection.receive("SUCCESS", timeout_s=TIMEOUT_S)
            for consumer, _ in enumerate(used):
                connection.send("FLOW", consumer_id=consumer, messagePermits=PERMITS)
            while not ended():
                frame = await connection.receive("MESSAGE", "ACK_RESPONSE", timeout_s=TIMEOUT_S)
                if frame.type_name == "ACK_RESPONSE":
                    self._confirm(frame.command.ackResponse)
                    continue
                consumer = frame.command.message.consumer_id
                self._take(connection, frame.command.message)
                used[consumer] += 1
                if used[consumer] == PERMITS // 2:
                    connection.send("FLOW", consumer_id=consumer, messagePermits=used[consumer])
                    used[consumer] = 0
        finally:
            await connection.close()

    def _take(self, connection: RawConnection, message: CommandMessage) -> None:
        """Acknowledges a delivery, or loses the acknowledgement."""
        kind, consumer = _kind(message.consumer_id), message.consumer_id
        position = Position(message.message_id.ledgerId, message.message_id.entryId)
        turn, is_late = position.entry % OF, False
        if (kind, position) not in self._first:
            self._first[kind, position] = consumer
            if turn in LOST and (self._last is None or position != self._last[kind]):
                return
        else:
            self.copies += 1
            if turn == FOR_EVER and self._last is None:
                return
            is_late = turn == LATE
            if is_late:
                consumer = self._first[kind, position]
        self._request += 1
        self._sent[self._request] = Acknowledgement(kind, position, is_late)
        self.tried[kind].add(position)
        connection.send(
            "ACK",
            consumer_id=consumer,
            ack_type="Individual",
            message_id=[{"ledgerId": position.ledger, "entryId": position.entry}],
            request_id=self._request,
        )

    def _confirm(self, answer: CommandAckResponse) -> None:
        sent = self._sent.pop(answer.request_id)
        if not answer.HasField("error"):
            self.answered[sent.kind].add(sent.position)
            self.late += sent.is_late


def _kind(consumer: int) -> str:
    return KINDS[consumer // CONSUMERS]
