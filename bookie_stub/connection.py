"""One connection of a client that speaks BookKeeper's v2 wire: frames in, answers out, one write per turn.

What is not the language closes the connection with one log line and harms no other. A connection stops
reading while what it has asked for is more than it may have outstanding, or while it does not take its
answers, so a peer costs a bounded amount of memory. Answers may come in another order than the requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol, cast

from bookie_stub.bookie import Bookie
from protocol.bookie_frame import (
    FLAG_FENCE,
    FLAG_HIGH_PRIORITY,
    FLAG_RECOVERY_ADD,
    LENGTH,
    LENGTH_BYTES,
    RC_BAD_REQUEST,
    RC_BAD_VERSION,
    RC_OK,
    RC_READ_ONLY,
    VERSION,
    AddRequest,
    AuthRequest,
    BatchReadRequest,
    FrameError,
    ReadRequest,
    ShortAddRequest,
    decode_request,
    encode_add_response,
    encode_auth_response,
    encode_batch_read_response,
    encode_read_response,
)

log = logging.getLogger(__name__)

AUTH_DISABLED = "AuthDisabledPlugin"
READ_COST_BYTES = 256 << 10
"""What a read counts for until it is answered: its size is not known before."""


class ServerSide(Protocol):
    """What a connection needs of the server."""

    bookie: Bookie
    frame_bytes_max: int
    outstanding_bytes_max: int
    adds_in_progress: int
    reads_in_progress: int
    blocked: int

    def has_answers(self, connection: BookieConnection) -> None:
        """Call the connection's `write_answers` at the end of the turn."""
        ...

    def opened(self, connection: BookieConnection) -> None: ...

    def closed(self, connection: BookieConnection) -> None: ...


class BookieConnection(asyncio.Protocol):
    def __init__(self, server: ServerSide) -> None:
        self._server = server
        self._bookie = server.bookie
        self._transport: asyncio.Transport | None = None
        self._peer = "?"
        self._chunks: list[bytes] = []
        """Received and not yet cut into frames."""
        self._waiting_bytes = 0
        self._wanted_bytes = LENGTH_BYTES
        """How many of them make the next frame complete, as far as is known."""
        self._outstanding_bytes = 0
        self._reading_paused = False
        self._writing_paused = False
        self._answers: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports have other bases
        peer = transport.get_extra_info("peername")
        self._peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        self._server.opened(self)
        log.debug("+ %s", self._peer)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._chunks.clear()
        self._waiting_bytes = 0
        if self._reading_paused:
            self._server.blocked -= 1
            self._reading_paused = False
        self._server.closed(self)
        log.debug("- %s%s", self._peer, f": {error}" if error else "")

    def close(self) -> None:
        """After the answers that are waiting to be written."""
        if self._transport is not None:
            self.write_answers()
            self._transport.close()

    # Requests.

    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= self._wanted_bytes:
            self._cut_frames()

    def _cut_frames(self) -> None:
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        view = memoryview(data)
        offset = 0
        self._wanted_bytes = LENGTH_BYTES
        try:
            while not self._blocked and offset + LENGTH_BYTES <= len(data):
                end = offset + LENGTH_BYTES + self._frame_length(data, offset)
                if end > len(data):
                    self._wanted_bytes = end - offset
                    break
                self._request(view[offset + LENGTH_BYTES : end])
                offset = end
        except FrameError as error:
            log.warning("! %s: %s; connection closed", self._peer, error)
            self._abort()
            return
        self._chunks = [data[offset:]] if offset < len(data) else []
        self._waiting_bytes = len(data) - offset
        self._pace()

    def _frame_length(self, data: bytes, offset: int) -> int:
        length: int = LENGTH.unpack_from(data, offset)[0]
        if not 0 <= length <= self._server.frame_bytes_max - LENGTH_BYTES:
            raise FrameError(
                f"frame of {length} bytes, allowed are {self._server.frame_bytes_max - LENGTH_BYTES}"
            )
        return length

    def _request(self, packet: memoryview) -> None:
        request = decode_request(packet)
        if type(request) is AddRequest:
            self._add(request)
        elif type(request) is ReadRequest:
            self._read(request)
        elif type(request) is BatchReadRequest:
            self._batch_read(request)
        elif type(request) is ShortAddRequest:
            rc = RC_BAD_REQUEST if request.version <= VERSION else RC_BAD_VERSION
            self._send(encode_add_response(request.version, rc, request.ledger_id, request.entry_id))
        else:
            assert isinstance(request, AuthRequest)
            self._send(encode_auth_response(request.version, AUTH_DISABLED, b""))

    def _add(self, request: AddRequest) -> None:
        version, flags, master_key, ledger_id, entry_id, record = request
        if version > VERSION:
            self._send(encode_add_response(version, RC_BAD_VERSION, ledger_id, entry_id))
            return
        recovery = flags & FLAG_RECOVERY_ADD != 0
        if self._bookie.read_only and not (recovery and flags & FLAG_HIGH_PRIORITY):
            self._send(encode_add_response(version, RC_READ_ONLY, ledger_id, entry_id))
            return
        self._outstanding_bytes += len(record)
        self._server.adds_in_progress += 1
        done = partial(self._added, version, ledger_id, len(record))
        self._bookie.add(ledger_id, entry_id, record, master_key, recovery, done)

    def _added(self, version: int, ledger_id: int, size: int, rc: int, entry_id: int) -> None:
        self._server.adds_in_progress -= 1
        self._outstanding_bytes -= size
        self._send(encode_add_response(version, rc, ledger_id, entry_id))

    def _read(self, request: ReadRequest) -> None:
        version, flags, ledger_id, entry_id, master_key = request
        if version > VERSION:
            self._send(encode_read_response(version, RC_BAD_VERSION, ledger_id, entry_id))
            return
        self._begin_read()
        done = partial(self._read_done, version, ledger_id, entry_id)
        if flags & FLAG_FENCE:
            read = partial(self._bookie.read, ledger_id, entry_id, done)
            self._fence_first(ledger_id, master_key, read, lambda rc: done(rc, b""))
        else:
            self._bookie.read(ledger_id, entry_id, done)

    def _read_done(self, version: int, ledger_id: int, entry_id: int, rc: int, entry: bytes) -> None:
        self._end_read()
        self._send(encode_read_response(version, rc, ledger_id, entry_id, entry))

    def _batch_read(self, request: BatchReadRequest) -> None:
        version, flags, ledger_id, first, request_id, count_max, bytes_max, master_key = request
        if version > VERSION:
            rc = RC_BAD_VERSION
            self._send(encode_batch_read_response(version, rc, ledger_id, first, request_id))
            return
        self._begin_read()
        done = partial(self._batch_read_done, version, ledger_id, first, request_id)
        read = partial(self._bookie.batch_read, ledger_id, first, count_max, bytes_max, done)
        if flags & FLAG_FENCE:
            self._fence_first(ledger_id, master_key, read, lambda rc: done(rc, []))
        else:
            read()

    def _batch_read_done(
        self, version: int, ledger_id: int, first: int, request_id: int, rc: int, entries: list[bytes]
    ) -> None:
        self._end_read()
        self._send(encode_batch_read_response(version, rc, ledger_id, first, request_id, entries))

    def _fence_first(
        self, ledger_id: int, master_key: bytes, read: Callable[[], None], refuse: Callable[[int], None]
    ) -> None:
        def fenced(rc: int, _ledger_id: int) -> None:
            if rc == RC_OK:
                read()
            else:
                refuse(rc)

        self._bookie.fence_ledger(ledger_id, master_key, fenced)

    def _begin_read(self) -> None:
        self._server.reads_in_progress += 1
        self._outstanding_bytes += READ_COST_BYTES

    def _end_read(self) -> None:
        self._server.reads_in_progress -= 1
        self._outstanding_bytes -= READ_COST_BYTES

    # Answers.

    def _send(self, frame: bytes) -> None:
        if self._transport is not None:
            if not self._answers:
                self._server.has_answers(self)
            self._answers.append(frame)

    def write_answers(self) -> None:
        answers, self._answers = self._answers, []
        if self._transport is not None and answers:
            self._transport.write(answers[0] if len(answers) == 1 else b"".join(answers))
        if self._reading_paused and not self._blocked:
            self._cut_frames()

    # Pace.

    @property
    def _blocked(self) -> bool:
        return self._writing_paused or self._outstanding_bytes > self._server.outstanding_bytes_max

    def _pace(self) -> None:
        """Read from the socket only while there is room for more requests."""
        if self._transport is None or self._transport.is_closing() or self._blocked == self._reading_paused:
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
            self._cut_frames()

    def _abort(self) -> None:
        self._chunks.clear()
        self._waiting_bytes = 0
        self._wanted_bytes = LENGTH_BYTES
        if self._transport is not None:
            self.write_answers()
            self._transport.close()
