"""The ledger client over TCP to one bookie, BookKeeper's v2 wire: pipelined, one write per turn.

A connection that drops fails everything outstanding with an I/O error (retriable) and is made again with
backoff; what is asked while there is none fails at once, what is asked while one is being made waits for
it. Answers are matched as the protocol allows: adds and reads by (ledger, entry), batch reads by request id.
Plain and fencing reads of an entry share that key, so only one of them is out at a time: the answer
to a plain read must never be taken for a durable fence.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import cast

from broker.ledger_client.ledger_client import AddDone, BatchReadDone, EntryParts, ReadDone
from broker.loop.turn import Turn
from broker.model.entry import Buffer
from protocol.bookie_frame import (
    BATCH_OVERHEAD_BYTES,
    FLAG_FENCE,
    FLAG_HIGH_PRIORITY,
    FLAG_RECOVERY_ADD,
    LAST_ENTRY,
    LENGTH_BYTES,
    OP_ADD,
    RC_IO_ERROR,
    RC_TOO_MANY_REQUESTS,
    AddResponse,
    BatchReadResponse,
    FrameError,
    ReadResponse,
    add_request_prefix,
    decode_response,
    encode_batch_read_request,
    encode_fence_request,
    encode_read_request,
)

log = logging.getLogger(__name__)

OUTSTANDING_BYTES_MAX = 128 << 20
BACKOFF_S_MIN = 0.1
BACKOFF_S_MAX = 5.0
_ADD_FRAME = struct.Struct(">iBBHiqq")
_RECOVERY_FLAGS = FLAG_RECOVERY_ADD | FLAG_HIGH_PRIORITY
Key = tuple[int, int]
Oldest = tuple[object, ...]


class BookKeeperLedgerClient:
    def __init__(
        self,
        host: str,
        port: int,
        *,
        turn: Turn,
        frame_bytes_max: int,
        timeout_s: float = 30.0,
        outstanding_bytes_max: int = OUTSTANDING_BYTES_MAX,
    ) -> None:
        """`frame_bytes_max` as the bookie's nettyMaxFrameSizeBytes; `timeout_s` without an
        answer to a request, or to the wish for a connection, counts as a dropped connection, within twice that time
        (bookkeeperClientTimeoutInSeconds).
        Adds beyond `outstanding_bytes_max` are answered "too many requests".
        """
        self._host = host
        self._port = port
        self._turn = turn
        self._frame_bytes_max = frame_bytes_max
        self._timeout_s = timeout_s
        self._outstanding_bytes_max = outstanding_bytes_max
        self._loop = asyncio.get_running_loop()
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._failures = 0
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False
        self._output: list[Buffer] = []
        self._adds: dict[Key, AddDone] = {}
        self._more_adds: dict[Key, deque[AddDone]] = {}
        """Further adds of an entry that is out already, in order."""
        self._reads: dict[Key, deque[tuple[bytes, ReadDone]]] = {}
        """Plain and fencing reads by (ledger, entry); the first one is out."""
        self._batches: dict[int, BatchReadDone] = {}
        self._next_batch = 0
        self._add_bytes = 0
        self._add_sizes: dict[Key, int] = {}
        self._oldest_seen: Oldest = ()
        """Of each kind of request, the oldest that was out when it was last looked."""
        self._watch = self._loop.call_later(timeout_s, self._check_progress)
        self._connect()

    async def connected(self) -> None:
        """Wait for the attempt that is being made. Raises ConnectionError when it failed."""
        if self._connecting is not None:
            await asyncio.shield(self._connecting)
        if self._connection is None:
            raise ConnectionError(f"no connection to the bookie at {self._host}:{self._port}")

    # Requests.

    def add(
        self,
        ledger_id: int,
        entry_id: int,
        parts: EntryParts,
        *,
        master_key: bytes,
        recovery: bool,
        done: AddDone,
    ) -> None:
        head, header, body = parts
        size = len(head) + len(header) + len(body)
        if self._unavailable:
            self._loop.call_soon(done, RC_IO_ERROR, entry_id)
            return
        if self._add_bytes + size > self._outstanding_bytes_max:
            self._loop.call_soon(done, RC_TOO_MANY_REQUESTS, entry_id)
            return
        key = (ledger_id, entry_id)
        if key in self._adds:
            self._more_adds.setdefault(key, deque()).append(done)
        else:
            self._adds[key] = done
        self._add_bytes += size
        self._add_sizes[key] = self._add_sizes.get(key, 0) + size
        output = self._output
        if not output:
            self._turn.write(self._write)
        output.append(add_request_prefix(size, master_key, _RECOVERY_FLAGS if recovery else 0))
        output.append(head)
        if header:
            output.append(header)
        output.append(body)

    def read(self, ledger_id: int, entry_id: int, done: ReadDone) -> None:
        self._read((ledger_id, entry_id), encode_read_request(ledger_id, entry_id), done)

    def batch_read(
        self, ledger_id: int, first: int, count_max: int, bytes_max: int, done: BatchReadDone
    ) -> None:
        if self._unavailable:
            self._loop.call_soon(done, RC_IO_ERROR, [])
            return
        self._next_batch += 1
        self._batches[self._next_batch] = done
        bytes_max = min(bytes_max, self._frame_bytes_max)
        self._send(encode_batch_read_request(ledger_id, first, self._next_batch, count_max, bytes_max))

    def fence(self, ledger_id: int, master_key: bytes, done: ReadDone, entry_id: int = LAST_ENTRY) -> None:
        flags = FLAG_FENCE if entry_id == LAST_ENTRY else FLAG_FENCE | FLAG_HIGH_PRIORITY
        frame = encode_fence_request(ledger_id, master_key, entry_id, flags)
        self._read((ledger_id, entry_id), frame, done)

    def delete(self, ledger_id: int) -> None:
        """Nothing: the wire has no request for it, and a bookie of its own keeps the files for now."""

    def _read(self, key: Key, frame: bytes, done: ReadDone) -> None:
        if self._unavailable:
            self._loop.call_soon(done, RC_IO_ERROR, b"")
            return
        queue = self._reads.setdefault(key, deque())
        queue.append((frame, done))
        if len(queue) == 1:
            self._send(frame)

    @property
    def reachable(self) -> bool:
        """Whether there is a connection at this moment."""
        return self._connection is not None

    @property
    def _unavailable(self) -> bool:
        return self._connection is None and self._connecting is None

    def _send(self, frame: bytes) -> None:
        if not self._output:
            self._turn.write(self._write)
        self._output.append(frame)

    def _write(self, _now_ns: int) -> None:
        # While a connection is being made the output waits; `_connect_once` writes it.
        if self._connection is not None and self._output:
            output, self._output = self._output, []
            self._connection.write(b"".join(output))

    # Answers.

    def received(self, packet: memoryview) -> None:
        """One packet. Raises FrameError for what was not asked for."""
        response = decode_response(packet)
        if type(response) is AddResponse:
            self.added(response.rc, response.ledger_id, response.entry_id)
        elif type(response) is ReadResponse:
            self._read_answered(response)
        elif type(response) is BatchReadResponse:
            batch_done = self._batches.pop(response.request_id, None)
            if batch_done is None:
                raise FrameError(f"answer to batch read {response.request_id}, which was not asked")
            batch_done(response.rc, response.entries)

    def added(self, rc: int, ledger_id: int, entry_id: int) -> None:
        key = (ledger_id, entry_id)
        done = self._adds.pop(key, None)
        if done is None:
            raise FrameError(f"answer to an add of {ledger_id}:{entry_id}, which was not asked")
        more = self._more_adds.get(key)
        if more:
            self._adds[key] = more.popleft()
        else:
            self._add_bytes -= self._add_sizes.pop(key)
            self._more_adds.pop(key, None)
        done(rc, entry_id)

    def _read_answered(self, response: ReadResponse) -> None:
        key = (response.ledger_id, response.entry_id)
        reads = self._reads.get(key)
        if not reads:
            raise FrameError(f"entry {key[0]}:{key[1]}, which was not asked")
        _, done = reads.popleft()
        if reads:
            self._send(reads[0][0])
        else:
            del self._reads[key]
        done(response.rc, response.entry)

    # The connection.

    def _connect(self) -> None:
        self._retry = None
        if not self._closed:
            self._connecting = self._loop.create_task(self._connect_once())

    async def _connect_once(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                _, connection = await self._loop.create_connection(
                    partial(_Connection, self, self._frame_bytes_max), self._host, self._port
                )
        except (OSError, ValueError, OverflowError) as error:  # the last two: no name, no port
            self._connecting = None
            if self._failures == 0:
                reason = str(error) or f"no answer for {self._timeout_s:g} s"
                log.warning("no connection to the bookie at %s:%d: %s", self._host, self._port, reason)
            self._lost()
            return
        self._connecting = None
        self._failures = 0
        self._connection = connection
        log.info("+ bookie %s:%d", self._host, self._port)
        self._write(0)

    def connection_lost(self, connection: _Connection, error: Exception | None) -> None:
        if connection is self._connection:
            self._connection = None
            if not self._closed:
                log.warning("- bookie %s:%d%s", self._host, self._port, f": {error}" if error else "")
            self._lost()

    def _lost(self) -> None:
        if not self._closed:
            delay = min(BACKOFF_S_MIN * 2**self._failures, BACKOFF_S_MAX)
            self._failures = min(self._failures + 1, 10)
            self._retry = self._loop.call_later(delay, self._connect)
        self._fail_all()

    def _fail_all(self) -> None:
        adds, self._adds = self._adds, {}
        more_adds, self._more_adds = self._more_adds, {}
        reads, self._reads = self._reads, {}
        batches, self._batches = self._batches, {}
        self._output.clear()
        self._add_sizes.clear()
        self._add_bytes = 0
        calls: list[Callable[[], None]] = []
        for key, add_done in adds.items():
            calls += [partial(done, RC_IO_ERROR, key[1]) for done in (add_done, *more_adds.get(key, ()))]
        for queue in reads.values():
            calls += [partial(done, RC_IO_ERROR, b"") for _, done in queue]
        calls += [partial(done, RC_IO_ERROR, []) for done in batches.values()]
        if calls:
            log.warning("%d requests to the bookie failed with the connection", len(calls))
        for call in calls:
            call()

    def _check_progress(self) -> None:
        # Looked at kind by kind: a bookie whose journal hangs may answer reads all the same.
        oldest = self._oldest()
        stuck = any(
            one is not None and one == before for one, before in zip(oldest, self._oldest_seen, strict=False)
        )
        if stuck and self._connection is not None:
            log.warning("bookie %s:%d: no answer for %g s", self._host, self._port, self._timeout_s)
            self._connection.abort()
            oldest = ()
        self._oldest_seen = oldest
        self._watch = self._loop.call_later(self._timeout_s, self._check_progress)

    def _oldest(self) -> Oldest:
        """Each dict is in the order of asking; further requests of one key wait for its first."""
        return (
            next(iter(self._adds.items()), None),
            next(((key, requests[0]) for key, requests in self._reads.items()), None),
            next(iter(self._batches.items()), None),
        )

    async def close(self) -> None:
        """Outstanding requests are answered with an I/O error."""
        self._closed = True
        self._watch.cancel()
        if self._retry is not None:
            self._retry.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._connecting
            self._connecting = None
        if self._connection is not None:
            self._connection.abort()
            self._connection = None
        self._fail_all()


class _Connection(asyncio.Protocol):
    """Frames of one connection; what they mean is the client's business."""

    def __init__(self, client: BookKeeperLedgerClient, frame_bytes_max: int) -> None:
        self._client = client
        self._length_max = frame_bytes_max + BATCH_OVERHEAD_BYTES
        self._transport: asyncio.Transport | None = None
        self._chunks: list[bytes] = []
        self._waiting_bytes = 0
        self._wanted_bytes = LENGTH_BYTES

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports have other bases

    def connection_lost(self, error: Exception | None) -> None:
        self._client.connection_lost(self, error)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes < self._wanted_bytes:
            return
        if len(self._chunks) > 1:
            data = b"".join(self._chunks)
        try:
            offset = self._cut_frames(data)
        except FrameError as error:
            log.error("the bookie sent what is no answer: %s; connection dropped", error)
            self._chunks.clear()
            self.abort()
            return
        self._chunks = [data[offset:]] if offset < len(data) else []
        self._waiting_bytes = len(data) - offset

    def _cut_frames(self, data: bytes) -> int:
        view = memoryview(data)
        client = self._client
        end = len(data)
        offset = 0
        self._wanted_bytes = LENGTH_BYTES
        while offset + LENGTH_BYTES <= end:
            if offset + _ADD_FRAME.size <= end:
                length, _, opcode, _, rc, ledger_id, entry_id = _ADD_FRAME.unpack_from(data, offset)
                if opcode == OP_ADD and length == _ADD_FRAME.size - LENGTH_BYTES:
                    client.added(rc, ledger_id, entry_id)
                    offset += _ADD_FRAME.size
                    continue
            length = int.from_bytes(view[offset : offset + LENGTH_BYTES], "big", signed=True)
            if not LENGTH_BYTES <= length <= self._length_max:
                raise FrameError(f"frame of {length} bytes")
            stop = offset + LENGTH_BYTES + length
            if stop > end:
                self._wanted_bytes = stop - offset
                break
            client.received(view[offset + LENGTH_BYTES : stop])
            offset = stop
        return offset
