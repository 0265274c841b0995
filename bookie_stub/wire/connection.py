"""One connection to the bookie: frames in, answers out, one write per turn; the language is found out by itself.

A connection begins with BookKeeper's v3 and goes over to v2 for good with the first packet that is not v3. What is
neither closes the connection with one log line and harms no other. A connection stops reading while what it has asked
for is more than it may have outstanding, or while it does not take its answers, so a peer costs a bounded amount of
memory. Answers may come in another order than the requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

from bookie_stub.compose.bookie import Bookie
from bookie_stub.wire.large_adds import LargeAdds
from bookie_stub.wire.v2_requests import V2Requests
from bookie_stub.wire.v3_requests import V3Requests
from protocol.add_runs import Received
from protocol.bookie_frame import LENGTH, LENGTH_BYTES, FrameError

if TYPE_CHECKING:
    from ssl import SSLContext

log = logging.getLogger(__name__)

READ_COST_BYTES = 256 << 10
"""What a read counts for until it is answered, at least: its size is not known before."""
ADD_COST_BYTES = 150
"""What an add counts for besides its bytes: measured, what the objects take that its record, id and answer are kept in."""


FRONT_BYTES = 64 << 10
"""What of a frame may wait in front of what is received next."""
RECEIVED_BYTES = 256 << 10
"""Received at most in one go."""


class Scratch:
    """Where all connections of a server receive, one after the other; nothing stays in it between two calls."""

    __slots__ = ("buffer", "room", "view")

    def __init__(self) -> None:
        self.buffer = bytearray(FRONT_BYTES + RECEIVED_BYTES)
        self.view = memoryview(self.buffer)
        self.room = self.view[FRONT_BYTES:]


class ServerSide(Protocol):
    """What a connection needs of the server."""

    bookie: Bookie
    scratch: Scratch
    frame_bytes_max: int
    outstanding_bytes_max: int
    blocked: int
    tls: SSLContext | None

    def has_answers(self, connection: BookieConnection) -> None:
        """Call the connection's `write_answers` at the end of the turn."""
        ...

    def opened(self, connection: BookieConnection) -> None: ...

    def closed(self, connection: BookieConnection) -> None: ...


class BookieConnection(asyncio.BufferedProtocol):
    def __init__(self, server: ServerSide) -> None:
        self._server = server
        self.bookie = server.bookie
        self._transport: asyncio.Transport | None = None
        self._address = "?"
        self._scratch = server.scratch
        self._chunks: list[bytes] = []
        """Received and not yet cut into frames."""
        self._waiting_bytes = 0
        self._wanted_bytes = LENGTH_BYTES
        """How many of them make the next frame complete, as far as is known."""
        self._length_max = server.frame_bytes_max - LENGTH_BYTES
        self._v3 = V3Requests(self)
        self._v2: V2Requests | None = None
        self._large: LargeAdds | None = None
        self._take: Callable[[memoryview], None] = self._take_either
        self.adds = 0
        """Adds and reads that are not yet answered."""
        self.reads = 0
        self._adding_bytes = 0
        self._read_cost = server.frame_bytes_max
        """The largest answer of late; before the first one, the worst is assumed."""
        self._postponed: deque[Callable[[], None]] = deque()
        self._reading_paused = False
        self._writing_paused = False
        self._answers: list[bytes] = []
        self._handshake: asyncio.Task[None] | None = None
        """On the way to TLS, or there; what is to be sent waits for it."""
        self._handshaking = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports have other bases
        peer = transport.get_extra_info("peername")
        self._address = f"{peer[0]}:{peer[1]}" if peer else "?"
        self._server.opened(self)
        log.debug("+ %s", self._address)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._handshaking and self._handshake is not None:
            self._handshake.cancel()
        self._v3.close()
        self._postponed.clear()
        self._forget_received()
        if self._reading_paused:
            self._server.blocked -= 1
            self._reading_paused = False
        self._server.closed(self)
        log.debug("- %s%s", self._address, f": {error}" if error else "")

    def close(self) -> None:
        """After the answers that are waiting to be written."""
        if self._transport is not None:
            self.write_answers()
            self._transport.close()

    # Frames.

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None and self._large.active:
            return self._large.room()
        return self._scratch.room

    def buffer_updated(self, nbytes: int) -> None:
        if self._large is not None and self._large.active:
            others = self._large.received(nbytes)
            if others is None:
                self._pace()
            else:
                self._keep(others)
        elif not self._chunks:
            self._go_on(self._scratch.buffer, FRONT_BYTES, FRONT_BYTES + nbytes)
        elif self._waiting_bytes <= FRONT_BYTES and not self._blocked:
            start = FRONT_BYTES - self._waiting_bytes
            self._scratch.buffer[start:FRONT_BYTES] = b"".join(self._chunks)
            self._go_on(self._scratch.buffer, start, FRONT_BYTES + nbytes)
        else:
            self._keep(bytes(self._scratch.room[:nbytes]))

    def _keep(self, data: bytes) -> None:
        self._chunks.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= self._wanted_bytes:
            self._go_on_with_waiting()

    def _go_on_with_waiting(self) -> None:
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._go_on(data, 0, len(data))

    def _go_on(self, data: Received, start: int, stop: int) -> None:
        """What was postponed, then the frames that have come, as far as there is room."""
        while self._postponed and not self._blocked:
            self._postponed.popleft()()
        try:
            self._cut_frames(data, start, stop)
        except FrameError as error:
            log.warning("! %s: %s; connection closed", self._address, error)
            self._forget_received()
            self.close()
            return
        self._pace()

    def _cut_frames(self, data: Received, offset: int, stop: int) -> None:
        view = memoryview(data)
        self._wanted_bytes = LENGTH_BYTES
        large = False
        requests: V2Requests | V3Requests = self._v2 or self._v3
        while not self._blocked and offset + LENGTH_BYTES <= stop:
            end = requests.take_adds(data, offset, stop, self._length_max)
            if end > offset:
                offset = end
                large = self._v2 is not None and self._v2.adds_are_large
                continue
            end = offset + LENGTH_BYTES + self._frame_length(data, offset)
            if end > stop:
                self._wanted_bytes = end - offset
                break
            self._take(view[offset + LENGTH_BYTES : end])
            requests = self._v2 or self._v3
            offset = end
            large = False
            if self._handshaking and offset < stop:
                raise FrameError("bytes in the clear behind the request for TLS")
        rest = bytes(view[offset:stop])
        if large and self._large is not None and not self._blocked and self._large.begin(rest):
            rest = b""
            self._wanted_bytes = LENGTH_BYTES
        self._chunks = [rest] if rest else []
        self._waiting_bytes = len(rest)

    def _frame_length(self, data: Received, offset: int) -> int:
        length: int = LENGTH.unpack_from(data, offset)[0]
        if not 0 <= length <= self._length_max:
            raise FrameError(f"frame of {length} bytes, allowed are {self._length_max}")
        return length

    def _take_either(self, packet: memoryview) -> None:
        if not self._v3.take(packet):
            self._v2 = V2Requests(self)
            self._large = LargeAdds(
                self._length_max, self.bookie.write_cache.arena.allocate, self._v2.take_large_add
            )
            self._take = self._v2.take
            self._take(packet)

    def _forget_received(self) -> None:
        self._chunks.clear()
        self._waiting_bytes = 0
        self._wanted_bytes = LENGTH_BYTES
        if self._large is not None:
            self._large.end()

    # What the requests say of themselves.

    def begin_adds(self, count: int, size: int) -> None:
        self.adds += count
        self._adding_bytes += size + count * ADD_COST_BYTES

    def end_adds(self, count: int, size: int, answers: bytes) -> None:
        self.adds -= count
        self._adding_bytes -= size + count * ADD_COST_BYTES
        self.send(answers)

    def begin_read(self) -> None:
        self.reads += 1

    def end_read(self, answer: bytes) -> None:
        self.reads -= 1
        self._read_cost = max(len(answer), self._read_cost - (self._read_cost >> 3), READ_COST_BYTES)
        self.send(answer)

    def send(self, frame: bytes) -> None:
        if self._transport is not None:
            if not self._answers:
                self._server.has_answers(self)
            self._answers.append(frame)

    def when_room(self, work: Callable[[], None]) -> None:
        """For requests that have waited: now, or when this connection may ask for more again."""
        if self._transport is None:
            return
        if self._blocked or self._postponed:
            self._postponed.append(work)
        else:
            work()
        self._pace()

    # TLS.

    @property
    def offers_tls(self) -> bool:
        return self._server.tls is not None and self._handshake is None

    def go_over_to_tls(self, answer: bytes) -> None:
        self.send(answer)
        self.write_answers()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()  # what comes now is for TLS to read
            self._handshaking = True
            self._handshake = asyncio.get_running_loop().create_task(self._shake_hands(self._transport))

    async def _shake_hands(self, plain: asyncio.Transport) -> None:
        assert self._server.tls is not None
        loop = asyncio.get_running_loop()
        try:
            secured = await loop.start_tls(plain, self, self._server.tls, server_side=True)
        except OSError as error:  # of TLS or of the socket
            log.warning("! %s: no TLS: %s; connection closed", self._address, error)
            plain.abort()
            self._handshaking = False
            if self._transport is not None:  # whoever shakes hands is not told of the end
                self.connection_lost(None)
            return
        self._transport = secured
        self._handshaking = False
        if self._answers:
            self._server.has_answers(self)
        self._pace()

    # Answers and pace.

    def write_answers(self) -> None:
        if self._handshaking:
            return
        answers, self._answers = self._answers, []
        if self._transport is not None and answers:
            self._transport.write(answers[0] if len(answers) == 1 else b"".join(answers))
        if self._reading_paused and not self._blocked:
            self._go_on_with_waiting()

    @property
    def _blocked(self) -> bool:
        return (
            self._writing_paused
            or self._adding_bytes + self.reads * self._read_cost > self._server.outstanding_bytes_max
        )

    def _pace(self) -> None:
        """Read from the socket only while there is room for more requests."""
        if self._transport is None or self._transport.is_closing() or self._handshaking:
            return
        if self._blocked == self._reading_paused:
            return
        self._reading_paused = self._blocked
        self._server.blocked += 1 if self._reading_paused else -1
        if self._reading_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._pace()

    def resume_writing(self) -> None:
        self._writing_paused = False
        if not self._blocked:
            self._go_on_with_waiting()
