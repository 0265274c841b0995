"""One connection to the bookie: frames in, answers out.

It cuts frames, passes them to the requests of v2 or v3, and writes the answers once per turn.

* A connection begins with BookKeeper's v3 and switches to v2 for good with the first packet that is not v3. Bytes
  that are neither close the connection with one log line; other connections are not affected.
* Invariant: a peer costs a bounded amount of memory. The connection stops reading while its outstanding requests
  exceed `outstanding_bytes_max`, or while the peer does not read its answers.
* Answers may come in another order than their requests.

`BookieServer` makes the connections; asyncio calls `get_buffer` and `buffer_updated` for each arrival of bytes.
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
from bookie_stub.wire.v3_requests import V3Requests, asks_for_tls
from protocol.add_runs import Received
from protocol.bookie_frame import LENGTH, LENGTH_BYTES, FrameError
from protocol.receive_memory import ReceiveMemory

if TYPE_CHECKING:
    from ssl import SSLContext

log = logging.getLogger(__name__)

READ_COST_BYTES = 256 << 10
"""Smallest charge of a read until it is answered. The size of its answer is unknown before."""
ADD_COST_BYTES = 150
"""Charge of an add on top of its bytes. The measured size of the objects that hold its record, id and answer."""


FRONT_BYTES = 64 << 10
"""Most bytes of an incomplete frame that wait in `Scratch`."""
RECEIVED_BYTES = 256 << 10
"""Most bytes received in one call."""


class Scratch:
    """The memory into which all connections of a server receive.

    It is empty between two calls. One for all keeps an idle connection small, and no buffer is allocated per
    arrival."""

    def __init__(self, received_bytes: int = RECEIVED_BYTES) -> None:
        self.buffer = bytearray(FRONT_BYTES + received_bytes)
        """The memory itself; new bytes begin at FRONT_BYTES.

        The rest of an incomplete frame is put in front of them, so both form one piece."""
        self.view = memoryview(self.buffer)
        """All of `buffer`."""
        self.free = self.view[FRONT_BYTES:]
        """The part that the socket writes into."""


class ServerSide(Protocol):
    """The server as its connections see it; implemented by `BookieServer`."""

    bookie: Bookie
    """Serves the requests."""
    scratch: Scratch
    """Shared by all connections."""
    frame_bytes_max: int
    """Longest accepted frame, its length field included (`nettyMaxFrameSizeBytes`)."""
    outstanding_bytes_max: int
    """Sum of charges above which a connection stops reading."""
    unfinished: ReceiveMemory
    """Accounts for long frames that are not complete, of all connections together."""
    blocked: int
    """Number of connections that have stopped reading."""
    tls: SSLContext | None
    """For clients that ask for TLS; None: TLS is refused."""
    clear_text: bool
    """Requests are served before TLS is asked for."""

    def has_answers(self, connection: ServedConnection) -> None:
        """Calls the connection's `write_answers` at the end of the turn."""
        ...

    def opened(self, connection: ServedConnection) -> None:
        """Adds the connection to the server's set."""
        ...

    def closed(self, connection: ServedConnection) -> None:
        """Removes the connection from the server's set."""
        ...


class ServedConnection(asyncio.BufferedProtocol):
    """asyncio's side of one client; implements `Peer` for the requests."""

    def __init__(self, server: ServerSide) -> None:
        self._server = server
        self.bookie = server.bookie
        """Serves the requests."""
        self.accepted = True
        """Always True: a bookie has no handshake."""
        self.produces = True
        """Always True: each connection may add entries."""
        self._transport: asyncio.Transport | None = None
        self._address = "?"
        self._scratch = server.scratch
        self._chunks: list[bytes] = []
        """Received bytes that are not yet cut into frames."""
        self._waiting_bytes = 0
        self._wanted_bytes = LENGTH_BYTES
        """Number of waiting bytes that complete the next frame. It is 4 while the frame's length is unknown."""
        # The limit counts the length field too: with 5 MiB, BookKeeper accepts 5,242,876 in it and not one more.
        self._length_max = server.frame_bytes_max - LENGTH_BYTES
        self._counted_bytes = 0
        """Bytes of a long incomplete frame that the server has been told of."""
        self._v3 = V3Requests(self)
        self._v2: V2Requests | None = None
        self._large: LargeAdds | None = None
        self._clear_text = server.clear_text
        """False until the connection has asked for TLS, where clients need a certificate."""
        self._handle: Callable[[memoryview], None] = self._handle_first
        self.adds = 0
        """Adds that are not yet answered."""
        self.reads = 0
        """Reads that are not yet answered."""
        self._adding_bytes = 0
        self._read_cost = server.frame_bytes_max
        """Charge of a read: the largest recent answer. Before the first answer the largest possible one."""
        self._postponed: deque[Callable[[], None]] = deque()
        self._reading_paused = False
        self._writing_paused = False
        self._answers: list[bytes] = []
        self._handshake: asyncio.Task[None] | None = None
        """The task of the TLS handshake; set also after it has ended."""
        self._handshaking = False
        """True during the handshake: answers wait, and nothing is read."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio when the connection is accepted."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports have other bases.
        peer = transport.get_extra_info("peername")
        self._address = f"{peer[0]}:{peer[1]}" if peer else "?"
        self._server.opened(self)
        log.debug("+ %s", self._address)

    def connection_lost(self, error: Exception | None) -> None:
        """Called by asyncio at the end. Completions that come later find no transport and are dropped."""
        self._transport = None
        if self._handshaking and self._handshake is not None:
            self._handshake.cancel()
        self._v3.close()
        self._postponed.clear()
        self._forget_received()
        # A connection that ends while it is paused would stay in the count of blocked ones.
        if self._reading_paused:
            self._server.blocked -= 1
            self._reading_paused = False
        self._server.closed(self)
        log.debug("- %s%s", self._address, f": {error}" if error else "")

    def close(self) -> None:
        """Writes the waiting answers, then closes the connection."""
        if self._transport is not None:
            self.write_answers()
            self._transport.close()

    # Frames.

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by asyncio before it receives. Returns the memory for the next bytes."""
        if self._large is not None and self._large.active:
            return self._large.free()
        return self._scratch.free

    def buffer_updated(self, nbytes: int) -> None:
        """Called by asyncio when `nbytes` were received: handles all complete frames."""
        if self._large is not None and self._large.active:
            others = self._large.received(nbytes)
            if others is None:
                self._account()
                self._pace()
            else:
                self._keep(others)
        elif not self._chunks:
            # The usual case: frames are cut where they were received, without a copy.
            self._go_on(self._scratch.buffer, FRONT_BYTES, FRONT_BYTES + nbytes)
        elif self._waiting_bytes <= FRONT_BYTES and not self._blocked:
            # The rest of an incomplete frame is short: copy it in front of the new bytes and cut both as one piece.
            start = FRONT_BYTES - self._waiting_bytes
            self._scratch.buffer[start:FRONT_BYTES] = b"".join(self._chunks)
            self._go_on(self._scratch.buffer, start, FRONT_BYTES + nbytes)
        else:
            # The connection is blocked, or a long frame is incomplete: collect, as the scratch is for all.
            self._keep(bytes(self._scratch.free[:nbytes]))

    def _keep(self, data: bytes) -> None:
        self._chunks.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= self._wanted_bytes:
            self._go_on_with_waiting()
        else:
            self._account()

    def _go_on_with_waiting(self) -> None:
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._go_on(data, 0, len(data))

    def _go_on(self, data: Received, start: int, stop: int) -> None:
        """Runs postponed work and handles frames until the connection is blocked."""
        # Older than the frames: their requests have waited in the bookie.
        while self._postponed and not self._blocked:
            self._postponed.popleft()()
        try:
            self._cut_frames(data, start, stop)
            self._account()
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
            # Most frames are adds of a run. A run that does not begin here returns the same offset.
            end = requests.handle_run(data, offset, stop, self._length_max) if self._clear_text else offset
            if end > offset:
                offset = end
                large = self._v2 is not None and self._v2.adds_are_large
                continue
            end = offset + LENGTH_BYTES + self._frame_length(data, offset)
            if end > stop:
                self._wanted_bytes = end - offset
                break
            # A view of the shared scratch, which the next arrival overwrites: decoding copies what it keeps.
            self._handle(view[offset + LENGTH_BYTES : end])
            # The first packet that is not v3 has switched the connection.
            requests = self._v2 or self._v3
            offset = end
            large = False
            if self._handshaking and offset < stop:
                # Anyone on the way could have put such bytes there and would speak in the client's name.
                raise FrameError("bytes in clear text after the request for TLS")
        # Copied: the next arrival, on any connection, overwrites the shared scratch.
        rest = bytes(view[offset:stop])
        if large and self._large is not None and not self._blocked and self._large.begin(rest):
            rest = b""
            self._wanted_bytes = LENGTH_BYTES
        self._chunks = [rest] if rest else []
        self._waiting_bytes = len(rest)

    def _frame_length(self, data: Received, offset: int) -> int:
        length: int = LENGTH.unpack_from(data, offset)[0]
        if not 0 <= length <= self._length_max:
            raise FrameError(f"frame of {length} bytes, at most {self._length_max} are allowed")
        return length

    def _handle_first(self, packet: memoryview) -> None:
        """Handles packets until one is not v3. That packet and all later ones are v2."""
        if not self._clear_text:
            if not asks_for_tls(packet):
                # A certificate that clients may leave out by not asking for TLS would protect nothing.
                raise FrameError(
                    "a request in clear text, and tlsClientAuthentication=true needs a certificate"
                )
            self._clear_text = True
        if not self._v3.handle(packet):
            self._v2 = V2Requests(self)
            arena = self.bookie.state.write_caches.arena
            self._large = LargeAdds(self._length_max, arena.allocate, self._v2.handle_large_add)
            self._handle = self._v2.handle
            self._handle(packet)

    def _forget_received(self) -> None:
        self._chunks.clear()
        self._waiting_bytes = 0
        self._wanted_bytes = LENGTH_BYTES
        if self._large is not None:
            self._large.end()
        self._account()

    def _account(self) -> None:
        """Tells the server how much memory a long incomplete frame takes."""
        held = self._waiting_bytes + (self._large.incomplete_bytes if self._large is not None else 0)
        # Most arrivals end with the beginning of a short frame, which is not worth the account.
        if held <= FRONT_BYTES:
            held = 0
        if held == self._counted_bytes:
            return
        unfinished, more = self._server.unfinished, held - self._counted_bytes
        self._counted_bytes = held
        if more > 0:
            unfinished.take(self, more)
        else:
            # A frame was completed: the rest, if any, belongs to a younger one.
            unfinished.give_back(self, held - more)
            if held:
                unfinished.take(self, held)

    def release(self) -> bool:
        """Returns False: every counted byte is needed."""
        return False

    def give_up(self) -> bool:
        """Ends the connection and releases its memory. Returns False while the bookie itself does not read it."""
        if self._reading_paused or self._transport is None:
            return False
        log.warning(
            "! %s: %d bytes of an incomplete frame, and other connections need the memory; connection closed",
            self._address,
            self._counted_bytes,
        )
        self._forget_received()
        self.close()
        return True

    # `Peer`, for the requests.

    def begin_adds(self, count: int, size: int) -> None:
        """Charges `count` adds of `size` bytes together to the connection until `end_adds`."""
        self.adds += count
        self._adding_bytes += size + count * ADD_COST_BYTES

    def end_adds(self, count: int, size: int, answers: bytes) -> None:
        """Takes the charge off and sends the answers to these adds."""
        self.adds -= count
        self._adding_bytes -= size + count * ADD_COST_BYTES
        self.send(answers)

    def begin_read(self) -> None:
        """Charges one read to the connection until `end_read`."""
        self.reads += 1

    def end_read(self, answer: bytes) -> None:
        """Sends the answer to a read. The charge of a read follows the answers: up at once, down by an eighth per answer.

        Up at once, down by an eighth per answer."""
        self.reads -= 1
        # Down slowly: one small answer between large ones must not make the next large ones cheap.
        self._read_cost = max(len(answer), self._read_cost - (self._read_cost >> 3), READ_COST_BYTES)
        self.send(answer)

    def send(self, frame: bytes) -> None:
        """Queues an answer for the write at the end of the turn. Drops it when the connection is closed."""
        if self._transport is not None:
            if not self._answers:
                self._server.has_answers(self)
            self._answers.append(frame)

    def when_unblocked(self, work: Callable[[], None]) -> None:
        """Runs `work` as soon as the connection may have another request."""
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
        """True while the connection may start TLS."""
        return self._server.tls is not None and self._handshake is None

    def start_tls(self, answer: bytes) -> None:
        """Sends the last answer in clear text, then begins the TLS handshake."""
        self.send(answer)
        self.write_answers()
        if self._transport is not None and not self._transport.is_closing():
            # Written already, above: at the end of the turn the transport would belong to the handshake, and the
            # client waits for this answer before it begins one.
            self._transport.pause_reading()  # The next bytes belong to the handshake.
            self._handshaking = True
            handshake = self._do_handshake(self._transport)
            self._handshake = asyncio.get_running_loop().create_task(handshake)

    async def _do_handshake(self, plain: asyncio.Transport) -> None:
        assert self._server.tls is not None
        loop = asyncio.get_running_loop()
        try:
            secured = await loop.start_tls(plain, self, self._server.tls, server_side=True)
        except OSError as error:  # ssl.SSLError is one too.
            log.warning("! %s: the TLS handshake failed: %s; connection closed", self._address, error)
            # Not `close`: it would write waiting answers in clear text to a client that expects TLS.
            plain.abort()
            self._handshaking = False
            if self._transport is not None:  # asyncio does not call it for a protocol in a handshake.
                self.connection_lost(None)
            return
        self._transport = secured
        self._handshaking = False
        if self._answers:
            self._server.has_answers(self)
        self._pace()

    # Answers and pace.

    def write_answers(self) -> None:
        """Writes all queued answers in one call. Called by the server at the end of the turn."""
        if self._handshaking:
            # The plain transport belongs to TLS now; the answers are written when the handshake has ended.
            return
        answers, self._answers = self._answers, []
        if self._transport is not None and answers:
            self._transport.write(answers[0] if len(answers) == 1 else b"".join(answers))
        if self._reading_paused and not self._blocked:
            # These answers have freed charges, so frames that came before the pause can be handled.
            self._go_on_with_waiting()

    @property
    def _blocked(self) -> bool:
        return (
            self._writing_paused
            or self._adding_bytes + self.reads * self._read_cost > self._server.outstanding_bytes_max
        )

    def _pace(self) -> None:
        """Stops or resumes reading when the connection became blocked or unblocked."""
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
        """Stops reading requests. Called by asyncio when the peer does not read its answers."""
        self._writing_paused = True
        self._pace()

    def resume_writing(self) -> None:
        """Handles the requests that waited. Called by asyncio when the peer has read its answers."""
        self._writing_paused = False
        if not self._blocked:
            self._go_on_with_waiting()
