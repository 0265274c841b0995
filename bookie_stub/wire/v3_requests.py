"""BookKeeper's v3 requests of one connection.

Each becomes a call of the bookie, and its completion an answer.

An operation that v3 defines and this bookie does not serve (TLS without its configuration; the batch read, which v3
only declares) is answered "bad request", and the connection stays open. An add with DEFERRED_SYNC may be answered
before its sync; it is synced first all the same.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from bookie_stub.base.record import ENTRY_BYTES_MIN, KEY, explicit_lac_of, frame
from bookie_stub.journal.entry_run import EntryRun
from bookie_stub.journal.journal import Done
from bookie_stub.wire.long_poll import LongPoll
from bookie_stub.wire.peer import Peer
from protocol.add_runs import Received
from protocol.add_runs_v3 import begins_run_v3, cut_add_run_v3, encode_add_answers_v3
from protocol.bookie_frame import (
    RC_BAD_REQUEST,
    RC_BAD_VERSION,
    RC_NO_ENTRY,
    RC_NO_LEDGER,
    RC_OK,
    RC_READ_ONLY,
    RC_TOO_MANY_REQUESTS,
)
from protocol.bookie_frame_v3 import (
    answer_to,
    encode_add_answer,
    encode_entry_answer,
    encode_message,
    parse_request,
)
from protocol.bookkeeper_api_pb2 import (
    ADD_ENTRY,
    AUTH,
    FORCE_LEDGER,
    GET_BOOKIE_INFO,
    GET_LIST_OF_ENTRIES_OF_LEDGER,
    READ_ENTRY,
    READ_LAC,
    START_TLS,
    VERSION_THREE,
    WRITE_LAC,
    GetBookieInfoRequest,
    ReadRequest,
    Request,
)

LONG_POLLS_MAX: Final = 10_000
"""Long polls that may wait on one connection. The next one is answered "too many requests"."""


def asks_for_tls(packet: memoryview) -> bool:
    """Tells whether a packet is the v3 request START_TLS."""
    request = parse_request(packet)
    return request is not None and request.header.operation == START_TLS


class V3Requests:
    """Parses v3 packets, calls the bookie, encodes its answers."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._adds = peer.bookie.adds
        self._reads = peer.bookie.reads
        self._records = peer.bookie.records
        self._bookie = peer.bookie
        self._polls: set[LongPoll] = set()
        self._handlers = {
            ADD_ENTRY: self._add,
            READ_ENTRY: self._read,
            WRITE_LAC: self._write_lac,
            READ_LAC: self._read_lac,
            FORCE_LEDGER: self._force,
            GET_BOOKIE_INFO: self._info,
            GET_LIST_OF_ENTRIES_OF_LEDGER: self._list_entries,
            AUTH: self._auth,
            START_TLS: self._start_tls,
        }

    def handle(self, packet: memoryview) -> bool:
        """Handles one request; returns False when the packet is not v3."""
        request = parse_request(packet)
        if request is None:
            return False
        handler = self._handlers.get(request.header.operation)
        if request.header.version != VERSION_THREE:
            self._answer(request, RC_BAD_VERSION)
        # Without a sub-response, as BookKeeper answers an operation that it knows and does not serve.
        elif handler is None:
            self._answer(request, RC_BAD_REQUEST)
        else:
            handler(request)
        return True

    def handle_run(self, data: Received, start: int, stop: int, length_max: int) -> int:
        """Adds the run of plain adds that begins at `start`.

        Returns the offset of the frame after the run; `start` when no run begins there. A frame with more than
        `length_max` bytes after its length belongs to no run."""
        several = begins_run_v3(data, start, stop)
        run = cut_add_run_v3(data, start, stop, length_max) if several else None
        if run is None:
            return start
        ledger_id, master_key, entry_ids, txns, entries, records, starts, end = run
        count, size = len(entry_ids), len(records)
        self._peer.begin_adds(count, size)
        done = partial(self._run_added, ledger_id, txns, entries, count, size)
        self._adds.add_run(EntryRun(ledger_id, entry_ids, records, starts, master_key, False, done))
        return end

    def _run_added(
        self, ledger_id: int, txns: bytes, entries: bytes, count: int, size: int, rc: int, _first: int
    ) -> None:
        self._peer.end_adds(count, size, encode_add_answers_v3(rc, ledger_id, txns, entries, count))

    def close(self) -> None:
        """Cancels the long polls: the connection is closed."""
        for poll in self._polls:
            poll.cancel()
        self._polls.clear()

    def _answer(self, request: Request, rc: int) -> None:
        self._peer.send(encode_message(answer_to(request, rc)))

    def _end_read(self, request: Request, rc: int) -> None:
        self._peer.end_read(encode_message(answer_to(request, rc)))

    # Entries.

    def _add(self, request: Request) -> None:
        add = request.addRequest
        ledger_id, entry_id, body = add.ledgerId, add.entryId, add.body
        # RECOVERY_ADD is the only flag that an add can have.
        recovery = add.HasField("flag")
        if self._bookie.availability.read_only and not (recovery and request.header.priority > 0):
            self._answer(request, RC_READ_ONLY)
        elif len(body) < ENTRY_BYTES_MIN or KEY.unpack_from(body) != (ledger_id, entry_id):
            # BookKeeper stores such an entry under the ids inside it and confirms the other ones, so no reader finds it.
            self._answer(request, RC_BAD_REQUEST)
        else:
            self._peer.begin_adds(1, len(body))
            done = partial(self._added, request.header.txnId, ledger_id, len(body))
            self._adds.add(ledger_id, entry_id, frame(body), add.masterKey, recovery, done)

    def _added(self, txn_id: int, ledger_id: int, size: int, rc: int, entry_id: int) -> None:
        self._peer.end_adds(1, size, encode_add_answer(txn_id, rc, ledger_id, entry_id))

    def _read(self, request: Request) -> None:
        read = request.readRequest
        if read.HasField("flag") and read.flag == ReadRequest.FENCE_LEDGER:
            self._peer.begin_read()
            fenced = partial(self._fenced, request)
            self._records.fence(read.ledgerId, read.masterKey, fenced)
        elif read.HasField("previousLAC"):
            self._long_poll(request)
        else:
            self._peer.begin_read()
            self._reads.read(read.ledgerId, read.entryId, partial(self._read_done, request))

    def _fenced(self, request: Request, rc: int, _ledger_id: int) -> None:
        read = request.readRequest
        if rc == RC_OK:
            self._reads.read(read.ledgerId, read.entryId, partial(self._fenced_read_done, request))
        else:
            self._end_read(request, rc)

    def _fenced_read_done(self, request: Request, rc: int, entry: bytes) -> None:
        if rc == RC_OK:
            # Without the LAC: BookKeeper puts maxLAC into answers to plain reads only.
            self._end_with_entry(request, entry, None)
        else:
            self._end_read(request, rc)

    def _read_done(self, request: Request, rc: int, entry: bytes) -> None:
        if rc == RC_OK:
            done = partial(self._read_with_lac, request, entry)
            self._bookie.last_confirmed.find(request.readRequest.ledgerId, done)
        else:
            self._end_read(request, rc)

    def _read_with_lac(self, request: Request, entry: bytes, rc: int, lac: int) -> None:
        """Answers with the entry, without a LAC that was not found."""
        self._end_with_entry(request, entry, lac if rc == RC_OK else None)

    def _end_with_entry(self, request: Request, entry: bytes, lac: int | None) -> None:
        read = request.readRequest
        answer = encode_entry_answer(request.header.txnId, read.ledgerId, read.entryId, entry, lac)
        self._peer.end_read(answer)

    def _long_poll(self, request: Request) -> None:
        if len(self._polls) >= LONG_POLLS_MAX:
            self._answer(request, RC_TOO_MANY_REQUESTS)
            return
        poll = LongPoll(request, self._peer, self._polls.discard)
        self._polls.add(poll)
        poll.start()

    def _list_entries(self, request: Request) -> None:
        def listed(rc: int, runs: bytes) -> None:
            answer = answer_to(request, rc)
            if rc == RC_OK:
                answer.getListOfEntriesOfLedgerResponse.availabilityOfEntriesOfLedger = runs
            self._peer.end_read(encode_message(answer))

        self._peer.begin_read()
        self._bookie.lists.find(request.getListOfEntriesOfLedgerRequest.ledgerId, listed)

    # Last add confirmed, and syncs.

    def _write_lac(self, request: Request) -> None:
        write = request.writeLacRequest
        if explicit_lac_of(write.body) != write.lac:
            self._answer(request, RC_BAD_REQUEST)
        else:
            done = self._begin_record(request, len(write.body))
            self._records.write_lac(write.ledgerId, write.masterKey, write.body, done)

    def _read_lac(self, request: Request) -> None:
        def done(rc: int, explicit: bytes, last_entry: bytes) -> None:
            # BookKeeper answers READ_LAC of an unknown ledger "no entry", and a read of it "no ledger".
            answer = answer_to(request, RC_NO_ENTRY if rc == RC_NO_LEDGER else rc)
            if explicit:
                answer.readLacResponse.lacBody = explicit
            if last_entry:
                answer.readLacResponse.lastEntryBody = last_entry
            self._peer.end_read(encode_message(answer))

        self._peer.begin_read()
        self._bookie.last_confirmed.read_bodies(request.readLacRequest.ledgerId, done)

    def _force(self, request: Request) -> None:
        done = self._begin_record(request, 0)
        self._records.force(request.forceLedgerRequest.ledgerId, done)

    def _begin_record(self, request: Request, size: int) -> Done:
        """Charges a request that waits for the disk like an add. Returns its completion."""
        self._peer.begin_adds(1, size)
        return lambda rc, _ledger_id: self._peer.end_adds(1, size, encode_message(answer_to(request, rc)))

    # The bookie itself.

    def _info(self, request: Request) -> None:
        answer = answer_to(request, RC_OK)
        requested = request.getBookieInfoRequest.requested
        total, free = self._bookie.disk_space()
        if requested & GetBookieInfoRequest.TOTAL_DISK_CAPACITY:
            answer.getBookieInfoResponse.totalDiskCapacity = total
        if requested & GetBookieInfoRequest.FREE_DISK_SPACE:
            answer.getBookieInfoResponse.freeDiskSpace = free
        self._peer.send(encode_message(answer))

    def _auth(self, request: Request) -> None:
        self._answer(request, RC_OK)

    def _start_tls(self, request: Request) -> None:
        if self._peer.offers_tls:
            self._peer.start_tls(encode_message(answer_to(request, RC_OK)))
        else:
            self._answer(request, RC_BAD_REQUEST)
