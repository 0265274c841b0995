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
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial

from bookkeeper.client.add_run import AddRun, RunDone
from bookkeeper.client.bookie_connection import BookieConnection
from bookkeeper.client.bookie_question import DiskSpace, ask_disk_space
from bookkeeper.client.bookie_tls import TlsOfBookies, connect_with_tls
from bookkeeper.client.ledger_client import AddDone, BatchReadDone, DeleteDone, EntryParts, ReadDone
from bookkeeper.client.request_times import RequestTimes
from bookkeeper.client.result_codes import UNREACHABLE
from foundation.loop.turn import Turn
from foundation.model.entry import Buffer
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
    encode_add_request,
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
_Add = tuple[AddDone, int]
"""An add without an answer: its completion, and its bytes."""
_Oldest = tuple[object, ...]


class _WaitingRun:
    """A run without all of its answers."""

    __slots__ = ("done", "rc", "size", "waiting")

    def __init__(self, entry_ids: Sequence[int], size: int, done: RunDone) -> None:
        self.waiting = set(entry_ids)
        """The entries without an answer."""
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
        host: str,
        port: int,
        *,
        turn: Turn,
        frame_bytes_max: int,
        timeout_s: float = 30.0,
        outstanding_bytes_max: int = OUTSTANDING_BYTES_MAX,
        tls: TlsOfBookies | None = None,
    ) -> None:
        """Begins to connect, with TLS if `tls` is given. Belongs to the running loop.

        `frame_bytes_max` as the bookie's nettyMaxFrameSizeBytes. A silent bookie is given up after `timeout_s` to twice
        that (bookkeeperClientTimeoutInSeconds), and so is an attempt to connect after `timeout_s`. Adds beyond
        `outstanding_bytes_max` are answered "too many requests".
        """
        self._host = host
        self._port = port
        self._turn = turn
        self._frame_bytes_max = frame_bytes_max
        self._timeout_s = timeout_s
        self._outstanding_bytes_max = outstanding_bytes_max
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._connection: BookieConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._failures = 0
        """Attempts to connect that failed since the last connection; at most 10 are counted."""
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False
        self._output: list[Buffer] = []
        """Frames of this turn, in parts."""
        self._adds: dict[_Key, _Add] = {}
        self._more_adds: dict[_Key, deque[_Add]] = {}
        """Further adds of an entry that is out already, in order. Beside `_adds`, because nearly all entries are added
        once and a queue for each would cost more than the add."""
        self.runs: dict[int, list[_WaitingRun]] = {}
        """Runs without all of their answers, by ledger, in the order of asking; an empty list is removed."""
        self._reads: dict[_Key, deque[tuple[bytes, ReadDone]]] = {}
        """Plain and fencing reads by (ledger, entry); the first of each queue is out."""
        self._batches: dict[int, BatchReadDone] = {}
        self._next_batch = 0
        self._add_bytes = 0
        self._oldest_seen: _Oldest = ()
        """For each kind of request, the oldest that was out at the last look."""
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
        """Wait for the attempt that is being made.

        Raises ConnectionError when it failed.
        """
        # Shielded: a caller that is cancelled must not end the attempt, which requests wait for.
        if self._connecting is not None:
            await asyncio.shield(self._connecting)
        if self._connection is None:
            raise ConnectionError(f"no connection to the bookie at {self._host}:{self._port}")

    async def disk_space(self) -> DiskSpace:
        """Ask the bookie for its disks, on a connection of its own.

        Raises OSError. There is no limit of time: set one around the call.
        """
        return await ask_disk_space(self._open)

    def measure(self, times: RequestTimes | None) -> None:
        """Begin or end to time one add and one read of each turn."""
        self._times = times
        # Requests that are out were sent before now.
        self._timed = (next(reversed(self._adds), None), next(reversed(self._reads), None), self._next_batch)

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
        """An entry that is out already may be added again.

        Several answers are told apart by their order.
        """
        head, header, body = parts
        size = len(head) + len(header) + len(body)
        if self._unavailable:
            self._loop.call_soon(done, UNREACHABLE, entry_id)
            return
        # An answer and no exception: an ensemble writer takes it as any refusal and asks another bookie.
        if self._add_bytes + size > self._outstanding_bytes_max:
            self._loop.call_soon(done, RC_TOO_MANY_REQUESTS, entry_id)
            return
        key = (ledger_id, entry_id)
        if key in self._adds:
            self._more_adds.setdefault(key, deque()).append((done, size))
        else:
            self._adds[key] = (done, size)
        self._add_bytes += size
        # The first frame of a turn asks for the write at its end.
        output = self._output
        if not output:
            self._turn.write(self._write)
        output.append(add_request_prefix(size, master_key, _RECOVERY_FLAGS if recovery else 0))
        output.append(head)
        if header:
            output.append(header)
        output.append(body)

    def add_run(self, run: AddRun) -> None:
        """Makes the frames of all entries in one step."""
        stored, size = run.stored, sum(map(len, run.stored))
        if self._unavailable:
            self._loop.call_soon(run.done, UNREACHABLE)
            return
        if self._add_bytes + size > self._outstanding_bytes_max:
            self._loop.call_soon(run.done, RC_TOO_MANY_REQUESTS)
            return
        self._add_bytes += size
        self.runs.setdefault(run.ledger_id, []).append(_WaitingRun(run.entry_ids, size, run.done))
        flags = _RECOVERY_FLAGS if run.recovery else 0
        # `join` puts the prefix between two entries, so an empty one in front puts it before the first.
        if len(set(map(len, stored))) == 1:
            frames = add_request_prefix(len(stored[0]), run.master_key, flags).join((b"", *stored))
        else:
            frames = b"".join([encode_add_request(entry, run.master_key, flags) for entry in stored])
        self._send(frames)

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
        """Empty: the protocol does not tell it; the log of the bookie has it."""
        return ""

    def delete(self, ledger_id: int, done: DeleteDone) -> None:
        """Answer only: the wire has no request for it.

        The bookie's garbage collection finds the ledger gone.
        """
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
            done, size = self._adds[newest_add]
            self._adds[newest_add] = (times.timed_add(done), size)
        if newest_read is not None and newest_read != read:
            # The first of the queue is the one that is sent.
            frame, read_done = self._reads[newest_read][0]
            self._reads[newest_read][0] = (frame, times.timed_read(read_done))
        if self._next_batch != batch and self._next_batch in self._batches:
            self._batches[self._next_batch] = times.timed_batch(self._batches[self._next_batch])
        self._timed = (newest_add, newest_read, self._next_batch)

    # Answers: `FrameReceiver`.

    def received(self, packet: memoryview) -> None:
        """Pass an answer to its request."""
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
        """Pass the answer to the oldest add of that entry."""
        key = (ledger_id, entry_id)
        add = self._adds.pop(key, None)
        if add is None:
            raise FrameError(f"answer to an add of {ledger_id}:{entry_id}, which was not asked")
        if self._more_adds and (more := self._more_adds.get(key)):
            self._adds[key] = more.popleft()
            if not more:
                del self._more_adds[key]
        done, size = add
        self._add_bytes -= size
        done(rc, entry_id)

    def run_added(self, rc: int, ledger_id: int, entry_ids: list[int]) -> None:
        """Pass answers to runs, and the others to single adds."""
        answered = set(entry_ids)
        # A second answer to an entry is another run's or a single add's; an add that was not asked for is an error.
        again = (
            [] if len(answered) == len(entry_ids) else [*(Counter(entry_ids) - Counter(answered)).elements()]
        )
        runs = self.runs.get(ledger_id, [])
        ended = []
        for run in runs:
            found = run.waiting & answered
            if found:
                answered -= found
                run.waiting -= found
                run.rc = run.rc or rc
                if not run.waiting:
                    ended.append(run)
        left = [run for run in runs if run.waiting]
        if left:
            self.runs[ledger_id] = left
        else:
            self.runs.pop(ledger_id, None)
        for run in ended:
            self._add_bytes -= run.size
            run.done(run.rc)
        for entry_id in entry_ids:
            if entry_id in answered:
                answered.remove(entry_id)
                self.added(rc, ledger_id, entry_id)
        if again:
            self.run_added(rc, ledger_id, again)

    def connection_lost(self, connection: BookieConnection, error: Exception | None) -> None:
        """Fail outstanding requests, and connect again after a pause."""
        # A connection that `close` or a timed-out attempt has given up is no longer ours.
        if connection is self._connection:
            self._connection = None
            if not self._closed:
                log.warning("- bookie %s:%d%s", self._host, self._port, f": {error}" if error else "")
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
                connection = BookieConnection(self, self._frame_bytes_max)
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
                log.warning("no connection to the bookie at %s:%d: %s", self._host, self._port, reason)
            self._lost()
            return
        self._connecting = None
        self._failures = 0
        self._connection = connection
        log.info("+ bookie %s:%d", self._host, self._port)
        self._write(0)

    async def _open(self, protocol: asyncio.Protocol) -> asyncio.BaseTransport:
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
        runs, self.runs = self.runs, {}
        reads, self._reads = self._reads, {}
        batches, self._batches = self._batches, {}
        self._output.clear()
        self._add_bytes = 0
        calls: list[Callable[[], None]] = []
        for key, add in adds.items():
            calls += [partial(done, UNREACHABLE, key[1]) for done, _ in (add, *more_adds.get(key, ()))]
        calls += [partial(run.done, UNREACHABLE) for each in runs.values() for run in each]
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
            log.warning("bookie %s:%d: no answer for %g s", self._host, self._port, self._timeout_s)
            self._connection.abort()
            oldest = ()  # The next connection begins with nothing outstanding.
        self._oldest_seen = oldest
        self._watch = self._loop.call_later(self._timeout_s, self._check_progress)

    def _oldest(self) -> _Oldest:
        """The oldest request of each kind: dicts keep the order of asking, and later requests of a key wait behind."""
        return (
            next(iter(self._adds.items()), None),
            next(((run, len(run.waiting)) for each in self.runs.values() for run in each), None),
            next(((key, requests[0]) for key, requests in self._reads.items()), None),
            next(iter(self._batches.items()), None),
        )

    async def close(self) -> None:
        """Outstanding requests are answered with an I/O error, inside this call."""
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
