"""FilteredConnection: stands between a client's socket and the broker's connection, and applies faults to whole frames.

    socket -> FilteredConnection -> frames -> fault? -> Gate -> ServerCnx
    socket <- Gate <- fault? <- frames <- FilteredTransport <- ServerCnx

Order is kept in each direction: a delayed frame holds back all that follow it, as TCP does. Dates that a client sends
(publish time, delivery time, time of a seek) are of its machine's clock; they are moved by as much as the broker's
clock is ahead, so that a message that is to be delivered in an hour is due in an hour.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Final, cast

from google.protobuf.message import DecodeError

from broker.faults.answers_in_order import AnswersInOrder
from broker.faults.held_clock import HeldClock
from broker.faults.refusals import refusal_of
from broker.faults.script import DELAY, DROP, REFUSE, UNLOAD, FaultScript, ScriptedFault
from foundation.units import NS_PER_MS
from protocol.frame import SIZES, assemble_body, command_frame, has_checksum, metadata_span
from protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata, ServerError

READ_BYTES: Final = 64 * 1024
_SIZE_BYTES: Final = 4


class Frames:
    """Cuts a stream into frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def cut(self, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """Takes bytes and returns the frames that are complete now, each with its length in front."""
        self._bytes += data
        start = 0
        while len(self._bytes) - start >= _SIZE_BYTES:
            end = start + _SIZE_BYTES + int.from_bytes(self._bytes[start : start + _SIZE_BYTES], "big")
            if end > len(self._bytes):
                break
            yield bytes(self._bytes[start:end])
            start = end
        del self._bytes[:start]


class Gate:
    """Passes frames on in order; a delayed one holds those after it."""

    def __init__(self, passes: Callable[[bytes], None]) -> None:
        self._passes = passes
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.stopped = False
        """True while the receiver takes nothing."""

    def put(self, frame: bytes, delay_s: float = 0.0) -> None:
        """Passes the frame on, at once where it may."""
        if not delay_s and not self._waiting and not self.stopped:
            self._passes(frame)
            return
        self._waiting.append((delay_s, frame))
        if self._timer is None:
            self.flow()

    def flow(self) -> None:
        """Passes on what waits, up to a frame that is to be delayed."""
        self._timer = None
        while self._waiting and not self.stopped:
            delay_s, frame = self._waiting[0]
            if delay_s:
                # The delay begins when the frame is the first one.
                self._waiting[0] = (0.0, frame)
                self._timer = asyncio.get_running_loop().call_later(delay_s, self.flow)
                return
            self._waiting.popleft()
            self._passes(frame)

    def resume(self) -> None:
        """The receiver takes frames again."""
        self.stopped = False
        if self._timer is None:
            self.flow()

    def close(self) -> None:
        """Forgets what waits."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()


class FilteredTransport(asyncio.Transport):
    """The transport that the broker's connection sees; everything but the bytes goes to the socket's own."""

    def __init__(self, transport: asyncio.Transport, written: Callable[[bytes], None], gate: Gate) -> None:
        """`written` gets the bytes that are to be sent; `gate` stops while the connection is not read."""
        super().__init__()
        self._transport = transport
        self._written = written
        self._gate = gate

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sends bytes."""
        self._written(bytes(data))

    def pause_reading(self) -> None:
        """Stops the frames too that have arrived."""
        self._gate.stopped = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Goes on with the frames that wait, then reads."""
        self._transport.resume_reading()
        # Later: the caller is in the middle of its own state.
        asyncio.get_running_loop().call_soon(self._gate.resume)

    def close(self) -> None:
        """Closes the socket."""
        self._transport.close()

    def abort(self) -> None:
        """Closes the socket and drops what is not sent."""
        self._transport.abort()

    def is_closing(self) -> bool:
        """Returns True once the socket closes."""
        return self._transport.is_closing()

    def is_reading(self) -> bool:
        """Returns True while the socket is read."""
        return self._transport.is_reading()

    def get_extra_info(self, name: str, default: object = None) -> object:
        """Returns a fact about the socket."""
        return self._transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        """Returns the bytes that are not sent yet."""
        return self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Sets the marks at which the connection is told to pause."""
        self._transport.set_write_buffer_limits(high, low)


class FilteredConnection(asyncio.BufferedProtocol):
    """One client's connection with faults in both directions."""

    def __init__(
        self,
        inner: asyncio.BufferedProtocol,
        script: FaultScript,
        held: HeldClock,
        refusals: Counter[str],
    ) -> None:
        """`inner` is the broker's connection; `refusals` counts the errors that clients are sent."""
        self._inner = inner
        self._script = script
        self._held = held
        self._refusals = refusals
        self._buffer = bytearray(READ_BYTES)
        self._received, self._sent = Frames(), Frames()
        self._answers = AnswersInOrder()
        self._in, self._out = Gate(self._to_broker), Gate(self._to_client)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Gives the broker's connection a transport with faults."""
        self._transport = cast("asyncio.Transport", transport)
        self._inner.connection_made(FilteredTransport(self._transport, self._written, self._in))

    def connection_lost(self, error: Exception | None) -> None:
        """Ends both directions."""
        self._in.close()
        self._out.close()
        self._inner.connection_lost(error)

    def pause_writing(self) -> None:
        """Passes the call on."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Passes the call on."""
        self._inner.resume_writing()

    def eof_received(self) -> bool | None:
        """Passes the call on."""
        return self._inner.eof_received()

    def get_buffer(self, sizehint: int) -> bytearray:
        """Returns the place for the next read."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Cuts frames and passes them on, as far as no fault changes them."""
        for frame in self._received.cut(memoryview(self._buffer)[:nbytes]):
            if self._transport is None or self._transport.is_closing():
                # Frames after a drop never arrived, so they count for no fault.
                return
            command = _command(frame)
            fault = self._script.happens(_name(command))
            if fault is not None and fault.do == REFUSE:
                refusal = refusal_of(command, fault.error)
                if command.type != BaseCommand.SEND or self._answers.may_refuse(
                    command.send.producer_id, refusal
                ):
                    self._send(refusal, _command(refusal))
            else:
                self._answers.passes(command)
                self._apply(fault, _moved(frame, command, self._held.ahead_ns // NS_PER_MS), self._in)

    def _written(self, data: bytes) -> None:
        for frame in self._sent.cut(data):
            command = _command(frame)
            self._send(frame, command)
            for refusal in self._answers.answered(command):
                self._send(refusal, _command(refusal))

    def _send(self, frame: bytes, command: BaseCommand) -> None:
        if error := _error_of(command):
            self._refusals[error] += 1
        self._apply(self._script.happens(_name(command)), frame, self._out)

    def _apply(self, fault: ScriptedFault | None, frame: bytes, gate: Gate) -> None:
        if fault is None or fault.do == UNLOAD:
            gate.put(frame)
        elif fault.do == DELAY:
            gate.put(frame, fault.seconds)
        elif fault.do == DROP and self._transport is not None:
            # Aborted: a close would send what is still to be written, and the client would not be cut off here.
            self._transport.abort()

    def _to_broker(self, frame: bytes) -> None:
        view = memoryview(frame)
        while view and self._transport is not None and not self._transport.is_closing():
            place = memoryview(self._inner.get_buffer(-1))
            count = min(len(place), len(view))
            place[:count] = view[:count]
            del place
            self._inner.buffer_updated(count)
            view = view[count:]

    def _to_client(self, frame: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame)


def _command(frame: bytes) -> BaseCommand:
    """Returns the command of a frame; an empty one where there is none, which the broker itself refuses."""
    if len(frame) < SIZES.size:
        return BaseCommand()
    _, size = SIZES.unpack_from(frame)
    command = BaseCommand()
    try:
        command.ParseFromString(frame[SIZES.size : SIZES.size + size])
    except DecodeError:
        return BaseCommand()
    return command


def _name(command: BaseCommand) -> str:
    return BaseCommand.Type.Name(command.type) if command.HasField("type") else ""


def _error_of(command: BaseCommand) -> str:
    """Returns the name of the error that refuses a producer, a consumer, a message, a lookup or a schema; "" for none."""
    if command.type == BaseCommand.ERROR:
        return ServerError.Name(command.error.error)
    if command.type == BaseCommand.SEND_ERROR:
        return ServerError.Name(command.send_error.error)
    if command.type == BaseCommand.LOOKUP_RESPONSE and command.lookupTopicResponse.HasField("error"):
        return ServerError.Name(command.lookupTopicResponse.error)
    schema = command.getOrCreateSchemaResponse
    return ServerError.Name(schema.error_code) if schema.HasField("error_code") else ""


def _moved(frame: bytes, command: BaseCommand, by_ms: int) -> bytes:
    """Returns the frame with the client's dates moved."""
    if not by_ms:
        return frame
    if command.type == BaseCommand.SEEK and command.seek.HasField("message_publish_time"):
        command.seek.message_publish_time += by_ms
        return command_frame(command)
    if command.type != BaseCommand.SEND:
        return frame
    begin = SIZES.size + SIZES.unpack_from(frame)[1]
    body = frame[begin:]
    try:
        start, end = metadata_span(body)
        metadata = MessageMetadata.FromString(body[start:end])
    except (ValueError, DecodeError):
        return frame  # The broker refuses it.
    metadata.publish_time += by_ms
    if metadata.deliver_at_time:
        metadata.deliver_at_time += by_ms
    moved = assemble_body(metadata.SerializeToString(), body[end:], checksum=has_checksum(body))
    return (
        SIZES.pack(begin - _SIZE_BYTES + len(moved), begin - SIZES.size) + frame[SIZES.size : begin] + moved
    )
