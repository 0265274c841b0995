"""BookKeeperLedgerClient: one bookie over TCP, in BookKeeper's v2 wire. BookKeeper's name: PerChannelBookieClient.

The laws:

1. Requests are pipelined, and all that a turn of the loop asks for is one write.
2. The protocol matches adds and reads by (ledger, entry), batch reads by a request id. Plain and fencing reads of an
   entry share that key, so only one of them is out at a time: the answer to a plain read must never be taken for a
   durable fence.
3. A connection that drops fails every outstanding request with an I/O error, which may be tried again, and is made
   again with growing pauses. A request fails at once while there is no connection, and waits while one is being made.
4. A bookie that is silent for the timeout, though something is outstanding, counts as a dropped connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from bookkeeper.client.bookie_connection import BookieConnection, FrameCutter
from bookkeeper.client.bookie_question import DiskSpace, ask_disk_space
from bookkeeper.client.bookie_tls import connect_with_tls
from bookkeeper.client.ledger_client import AddDone, BatchReadDone, DeleteDone, EntryParts, ReadDone
from bookkeeper.client.request_times import RequestTimes
from bookkeeper.client.result_codes import UNREACHABLE
from foundation.loop.turn import Turn
from foundation.model.entry import Buffer
from foundation.tls.certificates import Certificates
from protocol.bookie_frame import (
    FLAG_FENCE,
    FLAG_HIGH_PRIORITY,
    FLAG_RECOVERY_ADD,
    LAST_ENTRY,
    RC_OK,
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
"""Of adds without an answer; a bookie that hangs must not fill the broker's memory."""
_BACKOFF_S_MIN = 0.1
_BACKOFF_S_MAX = 5.0
_RECOVERY_FLAGS = FLAG_RECOVERY_ADD | FLAG_HIGH_PRIORITY
_Key = tuple[int, int]
_Oldest = tuple[object, ...]


class _WaitingAdd:
    """A run of entries without all of their answers."""

    __slots__ = ("done", "first", "left", "rc", "size")

    def __init__(self, first: int, count: int, size: int, done: AddDone) -> None:
        self.first = first
        """The first entry."""
        self.left = count
        """Entries without an answer."""
        self.size = size
        """Bytes of all entries."""
        self.done = done
        """The completion of the run."""
        self.rc = RC_OK
        """The first result code that was not OK."""


class BookKeeperLedgerClient:
    """`BookieClient` over a TCP connection, which is made again until `close`."""

    def __init__(
        self,
        address: str,
        *,
        turn: Turn,
        frame_bytes_max: int,
        timeout_s: float = 30.0,
        outstanding_bytes_max: int = OUTSTANDING_BYTES_MAX,
        tls: Certificates | None = None,
        receive_sizes: tuple[int, int, int] | None = None,
    ) -> None:
        """Begins to connect to `host:port`, with TLS if `tls` is given. Belongs to the running loop.

        `frame_bytes_max` as the bookie's nettyMaxFrameSizeBytes. A silent bookie is given up after `timeout_s` to twice
        that (bookkeeperClientTimeoutInSeconds), and so is an attempt to connect after `timeout_s`. Adds beyond
        `outstanding_bytes_max` are answered "too many requests". `receive_sizes`: smallest, first and largest read of the
        connection in bytes; None leaves them to the event loop.
        """
        self._address = address
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._turn = turn
        self._frame_bytes_max = frame_bytes_max
        self._timeout_s = timeout_s
        self._outstanding_bytes_max = outstanding_bytes_max
        self._tls = tls
        self._receive_sizes = receive_sizes
        self._loop = asyncio.get_running_loop()
        self._connection: FrameCutter | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._failures = 0
        """Attempts to connect that failed since the last connection; at most 10 are counted."""
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False
        self._output: list[Buffer] = []
        """Frames of this turn, in parts."""
        self._adds: dict[_Key, _WaitingAdd] = {}
        """The adds of entries without an answer; those of a run share one."""
        self._more_adds: dict[_Key, deque[_WaitingAdd]] = {}
        """Further adds of an entry that is out already, in order. Beside `_adds`, because nearly all entries are added
        once and a queue for each would cost more than the add."""
        self._reads: dict[_Key, deque[tuple[bytes, ReadDone]]] = {}
        """Plain and fencing reads by (ledger, entry); the first of each queue is out."""
        self._batches: dict[int, BatchReadDone] = {}
        self._next_batch = 0
        self._add_bytes = 0
        self._oldest_seen: _Oldest = ()
        """For each kind of request, the oldest that was out at the last check."""
        self._times: RequestTimes | None = None
        """Measures requests, while somebody wants it."""
        self._timed: tuple[_Key | None, _Key | None, int] = (None, None, 0)
        """The newest add, read and batch read that were timed, or were out when the measurement began."""
        # One timer per bookie and not per request: a request is late between one and two intervals after it was sent.
        self._watch = self._loop.call_later(timeout_s, self._check_progress)
        self._connect()

    @property
    def reachable(self) -> bool:
        """True while there is a connection at this moment."""
        return self._connection is not None

    async def connected(self) -> None:
        """Waits for the attempt that is being made. Raises ConnectionError when it failed."""
        # Shielded: a caller that is cancelled must not end the attempt, which requests wait for.
        if self._connecting is not None:
            await asyncio.shield(self._connecting)
        if self._connection is None:
            raise ConnectionError(f"no connection to the bookie at {self._address}")

    async def disk_space(self) -> DiskSpace:
        """Asks the bookie for its disks, on a connection of its own.

        Raises OSError. There is no limit of time: a caller sets one around the call.
        """
        return await ask_disk_space(self._open)

    def measure(self, times: RequestTimes | None) -> None:
        """Begins or ends timing one add and one read of each turn."""
        self._times = times
        # Requests that are out were sent before now.
        self._timed = (next(reversed(self._adds), None), next(reversed(self._reads), None), self._next_batch)

    # Requests.

    def add(
        self,
        ledger_id: int,
        entry_ids: Sequence[int],
        entries: Sequence[EntryParts],
        *,
        master_key: bytes,
        recovery: bool,
        done: AddDone,
    ) -> None:
        """Sends a frame for each entry; an entry that is out already may be added again.

        Several answers to an entry are told apart by their order.
        """
        first = entry_ids[0]
        if self._unavailable:
            self._loop.call_soon(done, UNREACHABLE, first)
            return
        flags = _RECOVERY_FLAGS if recovery else 0
        frames: list[Buffer] = []
        size = 0
        for head, header, body in entries:
            entry_bytes = len(head) + len(header) + len(body)
            size += entry_bytes
            frames.append(add_request_prefix(entry_bytes, master_key, flags))
            frames += (head, header, body) if header else (head, body)
        # An answer and no exception: an ensemble writer takes it as any refusal and asks another bookie.
        if self._add_bytes + size > self._outstanding_bytes_max:
            self._loop.call_soon(done, RC_TOO_MANY_REQUESTS, first)
            return
        self._add_bytes += size
        waiting = _WaitingAdd(first, len(entry_ids), size, done)
        adds = self._adds
        for entry_id in entry_ids:
            key = (ledger_id, entry_id)
            if key in adds:
                self._more_adds.setdefault(key, deque()).append(waiting)
            else:
                adds[key] = waiting
        # The first frame of a turn asks for the write at its end.
        if not self._output:
            self._turn.write(self._write)
        self._output += frames

    def read(self, ledger_id: int, entry_id: int, done: ReadDone) -> None:
        """Waits for earlier reads of the same entry (law 2)."""
        self._read((ledger_id, entry_id), encode_read_request(ledger_id, entry_id), done)

    def batch_read(
        self, ledger_id: int, first: int, count_max: int, bytes_max: int, done: BatchReadDone
    ) -> None:
        """The answer has at most a frame of bytes."""
        if self._unavailable:
            self._loop.call_soon(done, UNREACHABLE, [])
            return
        self._next_batch += 1
        self._batches[self._next_batch] = done
        # A larger answer would end the connection, as its frame is above our own limit.
        bytes_max = min(bytes_max, self._frame_bytes_max)
        self._send(encode_batch_read_request(ledger_id, first, self._next_batch, count_max, bytes_max))

    def fence(self, ledger_id: int, master_key: bytes, done: ReadDone, entry_id: int = LAST_ENTRY) -> None:
        """Waits for earlier reads of the same entry (law 2)."""
        flags = FLAG_FENCE if entry_id == LAST_ENTRY else FLAG_FENCE | FLAG_HIGH_PRIORITY
        frame = encode_fence_request(ledger_id, master_key, entry_id, flags)
        self._read((ledger_id, entry_id), frame, done)

    def file_of(self, ledger_id: int, entry_id: int) -> str:
        """Returns "": the protocol does not tell the file; the log of the bookie names it."""
        return ""

    def delete(self, ledger_id: int, done: DeleteDone) -> None:
        """Answers only: the wire has no request for it. The bookie's garbage collection finds the ledger gone."""
        done(RC_OK, ledger_id)

    def _read(self, key: _Key, frame: bytes, done: ReadDone) -> None:
        if self._unavailable:
            self._loop.call_soon(done, UNREACHABLE, b"")
            return
        queue = self._reads.setdefault(key, deque())
        queue.append((frame, done))
        # Later reads of this entry are sent one by one, each with the answer to the one before (law 2).
        if len(queue) == 1:
            self._send(frame)

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
            if self._times is not None:
                self._time_newest(self._times)
            output, self._output = self._output, []
            self._connection.write(output[0] if len(output) == 1 else b"".join(output))

    def _time_newest(self, times: RequestTimes) -> None:
        """Times the newest add and the newest read of those that are sent now."""
        add, read, batch = self._timed
        newest_add, newest_read = next(reversed(self._adds), None), next(reversed(self._reads), None)
        if newest_add is not None and newest_add != add:
            waiting = self._adds[newest_add]
            waiting.done = times.timed_add(waiting.done)
        if newest_read is not None and newest_read != read:
            # The first of the queue is the one that is sent.
            frame, read_done = self._reads[newest_read][0]
            self._reads[newest_read][0] = (frame, times.timed_read(read_done))
        if self._next_batch != batch and self._next_batch in self._batches:
            self._batches[self._next_batch] = times.timed_batch(self._batches[self._next_batch])
        self._timed = (newest_add, newest_read, self._next_batch)

    # Answers: `FrameReceiver`.

    def received(self, packet: memoryview) -> None:
        """Passes an answer to its request."""
        response = decode_response(packet)
        if type(response) is AddResponse:
            self.added(response.rc, response.ledger_id, (response.entry_id,))
        elif type(response) is ReadResponse:
            self._read_answered(response)
        elif type(response) is BatchReadResponse:
            batch_done = self._batches.pop(response.request_id, None)
            if batch_done is None:
                raise FrameError(f"answer to batch read {response.request_id}, which was not asked")
            batch_done(response.rc, response.entries)

    def added(self, rc: int, ledger_id: int, entry_ids: Sequence[int]) -> None:
        """Passes each answer to the oldest add of its entry."""
        pop = self._adds.pop
        for entry_id in entry_ids:
            key = (ledger_id, entry_id)
            add = pop(key, None)
            if add is None:
                raise FrameError(f"answer to an add of {ledger_id}:{entry_id}, which was not asked")
            if self._more_adds and (more := self._more_adds.get(key)):
                self._adds[key] = more.popleft()
                if not more:
                    del self._more_adds[key]
            add.rc = add.rc or rc
            add.left -= 1
            if not add.left:
                self._add_bytes -= add.size
                add.done(add.rc, add.first)

    def connection_lost(self, connection: FrameCutter, error: Exception | None) -> None:
        """Fails outstanding requests, and connects again after a pause."""
        # A connection that `close` or a timed-out attempt has given up is no longer ours.
        if connection is self._connection:
            self._connection = None
            if not self._closed:
                log.warning("- bookie %s%s", self._address, f": {error}" if error else "")
            self._lost()

    def _read_answered(self, response: ReadResponse) -> None:
        key = (response.ledger_id, response.entry_id)
        reads = self._reads.get(key)
        if not reads:
            raise FrameError(f"answer to a read of {key[0]}:{key[1]}, which was not asked")
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
                connection = self._new_connection()
                await self._open(connection)
            if not connection.is_open:
                # The loop may report the loss before this task goes on. Nothing reports it again, so the client would
                # keep the dead connection and fail every request from then on.
                raise ConnectionResetError("the bookie closed the connection at once")
        except (OSError, ValueError, OverflowError) as error:  # the last two: a bad name, a bad port
            self._connecting = None
            # One line per break: a bookie that is down for a day would fill the log.
            if self._failures == 0:
                reason = str(error) or f"no answer for {self._timeout_s:g} s"
                log.warning("no connection to the bookie at %s: %s", self._address, reason)
            self._lost()
            return
        self._connecting = None
        self._failures = 0
        self._connection = connection
        log.info("+ bookie %s", self._address)
        self._write(0)

    def _new_connection(self) -> FrameCutter:
        if self._receive_sizes is None:
            return BookieConnection(self, self._frame_bytes_max)
        # A module that only a process with these sizes needs.
        from bookkeeper.client.sized_connection import SizedBookieConnection

        return SizedBookieConnection(self, self._frame_bytes_max, self._receive_sizes)

    async def _open(self, protocol: asyncio.BaseProtocol) -> asyncio.BaseTransport:
        """Makes a connection to the bookie."""
        if self._tls is None:
            return (await self._loop.create_connection(lambda: protocol, self._host, self._port))[0]
        return await connect_with_tls(protocol, self._host, self._port, self._tls.current())

    def _lost(self) -> None:
        if not self._closed:
            delay = min(_BACKOFF_S_MIN * 2**self._failures, _BACKOFF_S_MAX)
            self._failures = min(self._failures + 1, 10)  # The pause is at its limit long before.
            self._retry = self._loop.call_later(delay, self._connect)
        self._fail_all()

    def _fail_all(self) -> None:
        # First the tables are empty, then the completions are called: they may ask for something new.
        adds, self._adds = self._adds, {}
        more_adds, self._more_adds = self._more_adds, {}
        reads, self._reads = self._reads, {}
        batches, self._batches = self._batches, {}
        self._output.clear()
        self._add_bytes = 0
        calls: list[Callable[[], None]] = []
        # Once per run, in the order of asking.
        waiting = dict.fromkeys(add for key, add in adds.items() for add in (add, *more_adds.get(key, ())))
        calls += [partial(add.done, UNREACHABLE, add.first) for add in waiting]
        for queue in reads.values():
            calls += [partial(done, UNREACHABLE, b"") for _, done in queue]
        calls += [partial(done, UNREACHABLE, []) for done in batches.values()]
        if calls:
            log.warning("%d requests to the bookie failed with the connection", len(calls))
        for call in calls:
            call()

    def _check_progress(self) -> None:
        # Each kind is looked at alone: a bookie whose journal hangs may answer reads all the same.
        oldest = self._oldest()
        stuck = any(
            one is not None and one == before for one, before in zip(oldest, self._oldest_seen, strict=False)
        )
        if stuck and self._connection is not None:
            log.warning("bookie %s: no answer for %g s", self._address, self._timeout_s)
            self._connection.abort()
            oldest = ()  # The next connection begins with nothing outstanding.
        self._oldest_seen = oldest
        self._watch = self._loop.call_later(self._timeout_s, self._check_progress)

    def _oldest(self) -> _Oldest:
        """The oldest request of each kind: dicts keep the order of asking, and later requests of a key wait after."""
        return (
            next(iter(self._adds.items()), None),
            next(((key, requests[0]) for key, requests in self._reads.items()), None),
            next(iter(self._batches.items()), None),
        )

    async def close(self) -> None:
        """Answers outstanding requests with an I/O error, inside this call."""
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
