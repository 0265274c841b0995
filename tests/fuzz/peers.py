"""Connections for attacks, good ones and bad ones, and the outcomes of bad ones.

Law of the place: nothing here judges the broker, except that a peer that behaves must be served.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Final

from protocol.pulsar_api_pb2 import MessageIdData
from tests.fuzz import corpus
from tests.support.raw_client import PeerClosedError, RawConnection, build_command, simple_frame

CLOSED: Final = "closed"
ANSWERED: Final = "answered"
WAITING: Final = "waiting"
"""The broker waits for more: the bytes could still become a frame, or were a command that has no answer."""

Outcomes = Counter[str]

_SETTLE_S: Final = 0.25
SIDE_BY_SIDE: Final = 25


@dataclass(frozen=True, slots=True)
class Target:
    """`scale` 1 is a test's amount of work."""

    pulsar: str
    rng: Random
    scale: int

    def topic(self) -> str:
        return f"persistent://public/default/fuzz-{self.rng.getrandbits(48):x}"


def send_for(pulsar: str, batch: bytes, seconds: float) -> int:
    """Frames sent. Runs in a thread: the socket blocks whenever the broker reads no more."""
    host, port = address(pulsar)
    sent, end = 0, time.monotonic() + seconds
    with socket.create_connection((host, port)) as flooding:
        flooding.sendall(simple_frame(build_command("CONNECT", {"client_version": "f"})))
        while time.monotonic() < end:
            flooding.sendall(batch)
            sent += 20_000
    return sent


async def each(
    target: Target, blobs: list[bytes], *, handshake: bool = True, side_by_side: int = SIDE_BY_SIDE
) -> Outcomes:
    """Sends each blob on a connection of its own; returns the outcomes."""
    places = asyncio.Semaphore(side_by_side)

    async def one(blob: bytes) -> str:
        async with places:
            connection = await RawConnection.open(target.pulsar)
            try:
                if handshake:
                    await connection.connect()
                connection.send_bytes(blob)
                return await settled(connection)
            finally:
                await connection.close()

    return Counter(await asyncio.gather(*(one(blob) for blob in blobs)))


async def settled(connection: RawConnection) -> str:
    """Returns the outcome: the broker closed the connection, answered, or stayed silent for a while."""
    answered = False
    while True:
        try:
            if await connection.quiet(_SETTLE_S) is None:
                return ANSWERED if answered else WAITING
            answered = True
        except PeerClosedError:
            return CLOSED


async def connected(target: Target) -> RawConnection:
    connection = await RawConnection.open(target.pulsar)
    try:
        await connection.connect()
    except BaseException:
        await connection.close()
        raise
    return connection


async def producing(target: Target) -> tuple[RawConnection, str]:
    connection, topic = await connected(target), target.topic()
    await open_producer(connection, topic)
    return connection, topic


async def open_producer(connection: RawConnection, topic: str, name: str = "p") -> None:
    connection.send("LOOKUP", topic=topic, request_id=1)
    await connection.receive("LOOKUP_RESPONSE")
    connection.send("PRODUCER", topic=topic, producer_id=1, request_id=2, producer_name=name)
    await connection.receive("PRODUCER_SUCCESS")


async def produce_and_consume(target: Target, topic: str) -> None:
    """One message through `topic` on a connection that behaves."""
    connection = await connected(target)
    try:
        await open_producer(connection, topic, name="good")
        connection.send(
            "SUBSCRIBE", topic=topic, subscription="good", subType="Exclusive", consumer_id=1, request_id=3
        )
        await connection.receive("SUCCESS")
        connection.send("FLOW", consumer_id=1, messagePermits=10)
        command = build_command("SEND", {"producer_id": 1, "sequence_id": 0})
        connection.send_bytes(corpus.message_frame(command, target.rng))
        got = {(await connection.receive("SEND_RECEIPT", "MESSAGE")).type_name for _ in range(2)}
        assert got == {"SEND_RECEIPT", "MESSAGE"}
    finally:
        await connection.close()


async def consume_what_follows(target: Target, topic: str, sub_type: str) -> None:
    """A subscription from the start of `topic` gets the good message that is sent now, whatever stands before."""
    connection = await connected(target)
    try:
        await open_producer(connection, topic, name="good")
        connection.send(
            "SUBSCRIBE",
            topic=topic,
            subscription=sub_type,
            subType=sub_type,
            consumer_id=1,
            request_id=3,
            initialPosition="Earliest",
        )
        await connection.receive("SUCCESS")
        connection.send("FLOW", consumer_id=1, messagePermits=2**32 - 1)
        command = build_command("SEND", {"producer_id": 1, "sequence_id": 0})
        connection.send_bytes(corpus.message_frame(command, target.rng))
        receipt, sent, got = False, (0, 0), set[tuple[int, int]]()
        while not receipt or sent not in got:
            frame = await connection.receive("SEND_RECEIPT", "MESSAGE")
            if frame.type_name == "MESSAGE":
                got.add(_position(frame.command.message.message_id))
            else:
                receipt, sent = True, _position(frame.command.send_receipt.message_id)
    finally:
        await connection.close()


def _position(message_id: MessageIdData) -> tuple[int, int]:
    return message_id.ledgerId, message_id.entryId


async def bare_connection(target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection after its handshake that is not read; its receive buffer is small."""
    host, port = address(target.pulsar)
    reader, writer = await asyncio.open_connection(host, port, limit=4096)
    writer.write(simple_frame(build_command("CONNECT", {"client_version": "f", "protocol_version": 19})))
    await writer.drain()
    return reader, writer


def address(pulsar: str) -> tuple[str, int]:
    host, _, port = pulsar.removeprefix("pulsar://").rpartition(":")
    return host.strip("[]"), int(port)
