"""Frames pass a filtered connection unchanged and in order; faults act on whole frames."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from broker.faults.filtered_connection import FilteredConnection, Frames, _command
from broker.faults.held_clock import HeldClock
from broker.faults.script import FaultScript, ScriptedFault
from protocol.answers import close_producer, ping, success
from protocol.frame import command_frame, message_body
from protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata


class Inner(asyncio.BufferedProtocol):
    """A broker's connection that keeps the bytes it gets."""

    def __init__(self) -> None:
        self.got = b""
        self.transport: Any = None
        self._buffer = bytearray(7)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.got += bytes(self._buffer[:nbytes])


class Socket(asyncio.Transport):
    """The transport of the socket."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def abort(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        """Nothing is read here."""

    def resume_reading(self) -> None:
        """Nothing is read here."""


def stage(*faults: ScriptedFault) -> tuple[FilteredConnection, Inner, Socket, HeldClock]:
    script, held, inner, socket = FaultScript(), HeldClock(), Inner(), Socket()
    for fault in faults:
        script.add(fault)
    connection = FilteredConnection(inner, script, held, Counter())
    connection.connection_made(socket)
    return connection, inner, socket, held


def receive(connection: FilteredConnection, data: bytes) -> None:
    place = connection.get_buffer(-1)
    place[: len(data)] = data
    connection.buffer_updated(len(data))


def test_frames_pass_in_pieces_and_broken_ones_too() -> None:
    connection, inner, socket, _ = stage()
    broken = b"\0\0\0\x08\0\0\0\x04\xff\xff\xff\xff"
    data = ping() + broken + ping() + b"\0\0\0\x02ab" + ping()
    for byte in data:
        receive(connection, bytes([byte]))
    assert inner.got == data
    inner.transport.write(data[:9])
    inner.transport.write(data[9:])
    assert socket.sent == data


def test_frames_behind_a_drop_count_for_no_fault() -> None:
    fault = ScriptedFault("PING", "drop", times=2)
    connection, inner, socket, _ = stage(fault)
    receive(connection, ping() * 3)
    assert (inner.got, socket.closing, fault.seen, fault.fired) == (b"", True, 1, 1)


def test_frames_wait_while_the_connection_is_not_read() -> None:
    connection, inner, _, _ = stage()
    inner.transport.pause_reading()
    receive(connection, ping())
    assert inner.got == b""


async def test_delayed_answer_holds_back_those_behind_it() -> None:
    fault = ScriptedFault("SUCCESS", "delay", seconds=0.01)
    _, inner, socket, _ = stage(fault)
    inner.transport.write(success(1) + ping())
    assert socket.sent == b""
    async with asyncio.timeout(60):
        while len(socket.sent) < len(success(1) + ping()):  # noqa: ASYNC110 - nothing tells of a write
            await asyncio.sleep(0.001)
    assert socket.sent == success(1) + ping()


def test_dates_of_a_client_move_with_the_clock() -> None:
    connection, inner, _, held = stage()
    held.ahead_ns = 5_000 * 10**6
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=10, deliver_at_time=20)
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id = command.send.sequence_id = 1
    alone = command_frame(command)
    body = message_body(metadata, b"payload")
    frame = (len(alone) - 4 + len(body)).to_bytes(4, "big") + alone[4:] + body
    receive(connection, frame)
    metadata.publish_time, metadata.deliver_at_time = 5_010, 5_020
    assert inner.got.endswith(message_body(metadata, b"payload"))


def send(sequence_id: int, highest: int = 0, producer_id: int = 3) -> bytes:
    """A SEND without a payload; nothing here reads one."""
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id, command.send.sequence_id, command.send.num_messages = (
        producer_id,
        sequence_id,
        1,
    )
    if highest:
        command.send.highest_sequence_id = highest
    return command_frame(command)


def receipt(sequence_id: int) -> bytes:
    command = BaseCommand(type=BaseCommand.SEND_RECEIPT)
    command.send_receipt.producer_id, command.send_receipt.sequence_id = 3, sequence_id
    return command_frame(command)


def answered(socket: Socket) -> list[tuple[str, int]]:
    """Type and sequence id of the answers that the client got."""
    found = []
    for frame in Frames().cut(memoryview(socket.sent)):
        command = _command(frame)
        refused = command.type == BaseCommand.SEND_ERROR
        one = command.send_error if refused else command.send_receipt
        found.append(("refused" if refused else "stored", one.sequence_id))
    return found


def test_refusal_of_a_batch_names_its_last_message_and_comes_in_the_order_of_the_sends() -> None:
    fault = ScriptedFault(on="SEND", do="refuse", error="NotAllowedError", at=2, times=1)
    connection, inner, socket, _ = stage(fault)
    for frame in (send(0, 3), send(4, 7), send(8, 11)):
        receive(connection, frame)
    assert inner.got == send(0, 3) + send(8, 11)
    assert answered(socket) == []
    inner.transport.write(receipt(0))
    assert answered(socket) == [("stored", 0), ("refused", 7)]
    inner.transport.write(receipt(8))
    assert answered(socket) == [("stored", 0), ("refused", 7), ("stored", 8)]


def test_refusal_goes_at_once_where_nothing_is_unanswered_and_never_after_the_broker_closed_the_producer() -> (
    None
):
    fault = ScriptedFault(on="SEND", do="refuse", error="NotAllowedError", at=1, times=1)
    connection, _, socket, _ = stage(fault)
    receive(connection, send(5))
    assert answered(socket) == [("refused", 5)]
    again = ScriptedFault(on="SEND", do="refuse", error="NotAllowedError", at=2, times=1)
    connection, inner, socket, _ = stage(again)
    for frame in (send(0), send(1)):
        receive(connection, frame)
    inner.transport.write(close_producer(3))
    socket.sent = b""
    # The client opens the producer anew; an answer to its old SEND is for nobody.
    inner.transport.write(receipt(0))
    assert answered(socket) == [("stored", 0)]
