"""BookKeeper's v2 requests of one connection.

Each becomes a call of the bookie, and its completion an answer.

v2 has the operations add, read, batch read and auth. A v2 reader that wants the LAC reads the last entry (-1) and
takes the LAC from there; long polls, explicit LACs and lists of entries exist in v3 only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bookie_stub.base.record import KEY, LENGTH_BYTES
from bookie_stub.journal.entry_run import EntryRun
from bookie_stub.wire.large_adds import LARGE_BYTES
from bookie_stub.wire.peer import Peer
from protocol.add_runs import RUN_HEADERS, Received, cut_add_run, encode_add_answers
from protocol.bookie_frame import (
    AUTH_DISABLED,
    FLAG_FENCE,
    FLAG_HIGH_PRIORITY,
    FLAG_RECOVERY_ADD,
    RC_BAD_REQUEST,
    RC_BAD_VERSION,
    RC_IO_ERROR,
    RC_OK,
    RC_READ_ONLY,
    RC_UNKNOWN_LEDGER_STATE,
    VERSION,
    AddRequest,
    AuthRequest,
    BatchReadRequest,
    ReadRequest,
    ShortAddRequest,
    decode_request,
    encode_add_response,
    encode_auth_response,
    encode_batch_read_response,
    encode_read_response,
)


class V2Requests:
    """Decodes v2 packets, calls the bookie, encodes its answers."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._adds = peer.bookie.adds
        self._reads = peer.bookie.reads
        self._records = peer.bookie.records
        self._availability = peer.bookie.availability
        self.adds_are_large = False
        """True when the last run ended with a large add. The next add is probably large too."""

    def handle(self, packet: memoryview) -> None:
        """Handles one request. Raises FrameError when the packet is not v2."""
        request = decode_request(packet)
        if type(request) is AddRequest:
            self._add(request)
        elif type(request) is ReadRequest:
            self._read(request)
        elif type(request) is BatchReadRequest:
            self._batch_read(request)
        elif type(request) is ShortAddRequest:
            rc = RC_BAD_REQUEST if request.version <= VERSION else RC_BAD_VERSION
            self._peer.send(encode_add_response(request.version, rc, request.ledger_id, request.entry_id))
        else:
            assert isinstance(request, AuthRequest)
            self._peer.send(encode_auth_response(request.version, AUTH_DISABLED, b""))

    def handle_run(self, data: Received, start: int, stop: int, length_max: int) -> int:
        """Adds the run of adds that begins at `start`.

        Returns the offset of the frame after the run; `start` when no run begins there. A frame with more than
        `length_max` bytes after its length belongs to no run."""
        # One comparison of bytes: every frame that is no add costs no more than this.
        adds = data.startswith(RUN_HEADERS, start + LENGTH_BYTES)
        run = cut_add_run(data, start, stop, length_max) if adds else None
        if run is None:
            return start
        flags, ledger_id, master_key, entry_ids, ids, records, starts, end = run
        if flags and self._availability.read_only:
            return start  # `_add` knows the rule for each of them.
        size = len(records)
        self.adds_are_large = size - starts[-1] >= LARGE_BYTES
        self._peer.begin_adds(len(entry_ids), size)
        done = partial(self._run_added, ledger_id, ids, size)
        self._adds.add_run(EntryRun(ledger_id, entry_ids, records, starts, master_key, flags != 0, done))
        return end

    def _run_added(self, ledger_id: int, ids: bytes, size: int, rc: int, _first: int) -> None:
        # `ids` are the ledger's entry ids as the wire has them, 8 bytes each.
        self._peer.end_adds(len(ids) >> 3, size, encode_add_answers(rc, ledger_id, ids))

    def handle_large_add(self, master_key: bytes, record: memoryview) -> None:
        """Adds one entry whose record was received into the write cache's memory."""
        ledger_id, entry_id = KEY.unpack_from(record, LENGTH_BYTES)
        self._peer.begin_adds(1, len(record))
        done = partial(self._added, VERSION, ledger_id, len(record))
        self._adds.add(ledger_id, entry_id, record, master_key, False, done)

    def _add(self, request: AddRequest) -> None:
        version, flags, master_key, ledger_id, entry_id, record = request
        if version > VERSION:
            self._peer.send(encode_add_response(version, RC_BAD_VERSION, ledger_id, entry_id))
            return
        recovery = flags & FLAG_RECOVERY_ADD != 0
        # A recovery writes to a read-only bookie only when it asks for high priority, as in BookKeeper.
        if self._availability.read_only and not (recovery and flags & FLAG_HIGH_PRIORITY):
            self._peer.send(encode_add_response(version, RC_READ_ONLY, ledger_id, entry_id))
            return
        self._peer.begin_adds(1, len(record))
        done = partial(self._added, version, ledger_id, len(record))
        self._adds.add(ledger_id, entry_id, record, master_key, recovery, done)

    def _added(self, version: int, ledger_id: int, size: int, rc: int, entry_id: int) -> None:
        self._peer.end_adds(1, size, encode_add_response(version, rc, ledger_id, entry_id))

    def _read(self, request: ReadRequest) -> None:
        version, flags, ledger_id, entry_id, master_key = request
        if version > VERSION:
            self._peer.send(encode_read_response(version, RC_BAD_VERSION, ledger_id, entry_id))
            return
        self._peer.begin_read()
        done = partial(self._read_done, version, ledger_id, entry_id)
        if flags & FLAG_FENCE:
            read = partial(self._reads.read, ledger_id, entry_id, done)
            self._fence_first(ledger_id, master_key, read, lambda rc: done(rc, b""))
        else:
            self._reads.read(ledger_id, entry_id, done)

    def _read_done(self, version: int, ledger_id: int, entry_id: int, rc: int, entry: bytes) -> None:
        self._peer.end_read(encode_read_response(version, _v2_code(rc), ledger_id, entry_id, entry))

    def _batch_read(self, request: BatchReadRequest) -> None:
        version, flags, ledger_id, first, request_id, count_max, bytes_max, master_key = request
        if version > VERSION:
            rc = RC_BAD_VERSION
            self._peer.send(encode_batch_read_response(version, rc, ledger_id, first, request_id))
            return
        self._peer.begin_read()
        done = partial(self._batch_read_done, version, ledger_id, first, request_id)
        read = partial(self._reads.batch_read, ledger_id, first, count_max, bytes_max, done)
        if flags & FLAG_FENCE:
            self._fence_first(ledger_id, master_key, read, lambda rc: done(rc, []))
        else:
            read()

    def _batch_read_done(
        self, version: int, ledger_id: int, first: int, request_id: int, rc: int, entries: list[bytes]
    ) -> None:
        answer = encode_batch_read_response(version, _v2_code(rc), ledger_id, first, request_id, entries)
        self._peer.end_read(answer)

    def _fence_first(
        self, ledger_id: int, master_key: bytes, read: Callable[[], None], refuse: Callable[[int], None]
    ) -> None:
        def fenced(rc: int, _ledger_id: int) -> None:
            if rc == RC_OK:
                read()
            else:
                refuse(rc)

        # The read starts after the fence's sync, also where it will find nothing. BookKeeper answers such a read
        # without waiting, and a recovery counts that answer as a fence.
        self._records.fence(ledger_id, master_key, fenced)


def _v2_code(rc: int) -> int:
    """Translates "unknown" (107). BookKeeper's v2 client does not know it and would wait for its time limit."""
    return RC_IO_ERROR if rc == RC_UNKNOWN_LEDGER_STATE else rc
