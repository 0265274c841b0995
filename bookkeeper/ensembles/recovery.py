"""Recovery: finding the end of a ledger whose writer is gone, or is cut off and does not know it.

The law: every entry that was confirmed stays, and after recovery the ledger's end is the same for every reader. An entry
that was confirmed is on Qa bookies of its write set; all steps follow from that (`placement`).

1. The metadata says IN_RECOVERY, so the writer cannot change its ensemble any more (`RecoveringLedger.take_over`).
2. Every bookie of the last ensemble is fenced and asked for its last entry, until fewer than Qa bookies of any write set
   have not answered. The highest last add confirmed (LAC) in those entries was certainly confirmed.
3. Entry by entry from there on, the whole write set is asked. Each question fences too: a bookie that did not answer in
   step 2 might still take the entry, and so make it confirmed after it was found missing. One good copy is enough: the
   entry is written back until Qa bookies have it. An entry is absent, and the ledger ends before it, when so many fenced
   bookies say so that it cannot be on Qa of them. A bookie that is silent, fails or has damaged bytes proves nothing; with
   too many of those the recovery fails and may be tried again.
4. The metadata says CLOSED, with the end and the ensembles of the entries that were written back. Of several recoveries
   the first to store that decides, and the others take its end.

BookKeeper's names: LedgerRecoveryOp for the whole, ReadLastConfirmedOp for step 2, `asyncRecoveryAddEntry` for the write
back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial

from bookkeeper.client.digest import digest_of, entry_id_of, last_add_confirmed, ledger_length
from bookkeeper.client.result_codes import NEGATIVE, OK, error_of
from bookkeeper.ensembles.bookies import Bookies
from bookkeeper.ensembles.ensemble_writer import CallSoon, EnsembleWriter, Spawn
from bookkeeper.ensembles.own_ledger import RecoveringLedger
from bookkeeper.ensembles.placement import is_covered, proves_absence, write_set
from bookkeeper.ensembles.racks import BookieRacks
from foundation.model.errors import BrokerError, EntryDamaged, PersistenceError
from protocol.ledger_metadata import LedgerMetadata, LedgerSegment

READ_AHEAD_MAX = 100
"""Limit on the entries that are asked for at a time. It begins with one and doubles with each entry found: most ledgers
have nothing after the LAC, and questions after a ledger's end are in vain."""


async def recover(
    ledger: RecoveringLedger,
    bookies: Bookies,
    *,
    call_soon: CallSoon,
    spawn: Spawn,
    racks: BookieRacks | None = None,
    keeps_damaged: bool = False,
) -> LedgerMetadata:
    """Closes the ledger; returns its metadata.

    An entry that no bookie has whole refuses the recovery, or with `keeps_damaged` stays as it is: readers find it
    lost. Nothing after it is cut off, because its end counts from the entries that are there, damaged or whole.

    Raises PersistenceError when too few bookies answer, MetadataError when the end cannot be stored. Nothing is lost then,
    and the recovery may be tried again.
    """
    recovery = _Recovery(ledger, bookies, keeps_damaged=keeps_damaged)
    confirmed = await recovery.find_confirmed()
    writer = EnsembleWriter(
        ledger,
        bookies,
        call_soon=call_soon,
        spawn=spawn,
        first_entry_id=confirmed + 1,
        recovering=True,
        racks=racks,
    )
    last, length = await recovery.write_back(confirmed, writer)
    return await ledger.close(last, length)


class _Recovery:
    """Steps 2 and 3 for one ledger."""

    def __init__(self, ledger: RecoveringLedger, bookies: Bookies, *, keeps_damaged: bool) -> None:
        self._keeps_damaged = keeps_damaged
        self._metadata = metadata = ledger.metadata
        self._ledger_id = ledger.ledger_id
        self._bookies = bookies
        self._digest = digest_of(metadata.digest_type, metadata.password)
        self._quorums = metadata.write_quorum, metadata.ack_quorum

    async def find_confirmed(self) -> int:
        """Fences the last ensemble (step 2); returns the last confirmed entry.

        Every write set is fenced. The entry is the highest one that was surely confirmed.
        """
        segment = self._metadata.segments[-1]
        answered = [False] * len(segment.members)
        # A segment begins after the last confirmed entry, so everything in front of it is confirmed, also when the last
        # segment has no entry. Recovery never goes back in front of it: the entries that it writes back must be in the
        # last segment.
        confirmed = segment.first_entry_id - 1
        what = f"fencing ledger {self._ledger_id}"
        wait = _Wait(len(segment.members), what)

        def fenced(position: int, rc: int, stored: bytes) -> None:
            nonlocal confirmed
            if rc == OK:
                # Damaged bytes may have any LAC, and a LAC that is too high would confirm entries that never were.
                error = self._damage(segment.members[position], stored)
                if error is None:
                    # The highest of all: each bookie knows the LAC of the last entry that it got, which may be an older one.
                    confirmed = max(confirmed, last_add_confirmed(stored))
                elif not self._keeps_damaged:
                    wait.failed(error)
                    return
                # A bookie whose last entry is damaged is fenced all the same. Without its LAC more entries are read back.
            elif rc not in NEGATIVE:
                wait.failed(error_of(rc, f"{what} on {segment.members[position]}"))
                return
            # A bookie without any entry is fenced as well as one with entries: both have answered.
            answered[position] = True
            wait.negative(enough=is_covered(answered, *self._quorums))

        for position, address in enumerate(segment.members):
            client = self._bookies.client(address)
            client.fence(self._ledger_id, self._digest.master_key, partial(fenced, position))
        await wait.over
        return confirmed

    async def write_back(self, confirmed: int, writer: EnsembleWriter) -> tuple[int, int]:
        """Writes entries after `confirmed` back to Qa bookies (step 3).

        Returns the ledger's last entry and its length.
        """
        segment = self._metadata.segments[-1]
        reads: deque[_Wait] = deque()
        written: deque[asyncio.Future[int]] = deque()
        last, next_read, ahead = confirmed, confirmed + 1, 1
        stored: bytes | None = b""
        found = b""
        try:
            while stored is not None:
                # Several at once, or a ledger with a long unconfirmed end would cost a round trip per entry.
                while len(reads) < ahead:
                    reads.append(self._read(next_read, segment, fencing=True))
                    next_read += 1
                stored = await reads[0].over
                whole = not reads.popleft().damaged
                if stored is not None:
                    found = stored if whole else found
                    last += 1
                    # Entries are written back while the next ones are read, and awaited at the end.
                    ahead = min(2 * ahead, READ_AHEAD_MAX)
                    written.append(self._write(writer, last, stored))
        finally:
            # Questions after the end. An error in one of them must not be reported as never retrieved.
            for read in reads:
                read.over.cancel()
        for entry_id, outcome in enumerate(written, confirmed + 1):
            rc = await outcome
            if rc != OK:
                raise error_of(rc, f"writing back entry {self._ledger_id}:{entry_id}")
        # The last entry that was found has the ledger's length. Without one it is in the last confirmed entry.
        return last, ledger_length(found) if found else await self._length_at(last)

    def _write(self, writer: EnsembleWriter, entry_id: int, stored: bytes) -> asyncio.Future[int]:
        outcome: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def done(rc: int, _: int) -> None:
            if not outcome.done():
                outcome.set_result(rc)

        writer.add(
            self._ledger_id,
            (entry_id,),
            [(stored, b"", b"")],
            master_key=self._digest.master_key,
            recovery=True,
            done=done,
        )
        return outcome

    async def _length_at(self, entry_id: int) -> int:
        """Returns the payload bytes of the ledger up to and with a confirmed entry; 0 for entry -1."""
        if entry_id < 0:
            return 0
        segment, _ = self._metadata.segment_of(entry_id)
        stored = await self._read(entry_id, segment, fencing=False).over
        if stored is None:
            raise PersistenceError(f"entry {self._ledger_id}:{entry_id} was confirmed and is lost")
        return ledger_length(stored)

    def _read(self, entry_id: int, segment: LedgerSegment, *, fencing: bool) -> _Wait:
        """Asks the entry's whole write set. Returns the stored entry, None when it is certainly absent."""
        what = f"reading entry {self._ledger_id}:{entry_id}"
        positions = write_set(entry_id, len(segment.members), self._quorums[0])
        wait = _Wait(len(positions), what)
        negatives = 0

        def read(position: int, rc: int, stored: bytes) -> None:
            nonlocal negatives
            if rc in NEGATIVE:
                negatives += 1
                wait.negative(enough=proves_absence(negatives, *self._quorums))
            elif rc != OK:
                wait.failed(error_of(rc, what))
            elif (error := self._damage(segment.members[position], stored, entry_id)) is not None:
                # Only after the LAC: a confirmed entry is read for its length, which damaged bytes cannot tell.
                same = self._keeps_damaged and fencing and entry_id_of(stored) == entry_id
                wait.failed(error, stored if same else None)
            else:
                wait.found(stored)

        # Every bookie of the set, because each question fences. All at once: one after the other a silent bookie would cost
        # its timeout for every entry.
        for position in positions:
            client = self._bookies.client(segment.members[position])
            if fencing:
                client.fence(self._ledger_id, self._digest.master_key, partial(read, position), entry_id)
            else:
                client.read(self._ledger_id, entry_id, partial(read, position))
        return wait

    def _damage(self, address: str, stored: bytes, entry_id: int | None = None) -> BrokerError | None:
        """Returns the error in an entry that a bookie sent; None for a good one. Without an entry id any of the ledger
        will do.
        """
        entry_id = entry_id_of(stored) if entry_id is None else entry_id
        try:
            self._digest.check(self._ledger_id, entry_id, stored)
        except PersistenceError as error:
            file = self._bookies.client(address).file_of(self._ledger_id, entry_id)
            return EntryDamaged(f"{error}, {file or address}")
        return None


class _Wait:
    """Waits for one good answer, or for enough negative ones."""

    def __init__(self, bookies: int, what: str) -> None:
        """`bookies`: how many were asked; `what`: the question, for the error."""
        self.over: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        """The stored entry, None after enough negative answers, PersistenceError when neither came."""
        self.damaged = False
        """True when the result is an entry whose bytes are not as written."""
        self._damaged: bytes | None = None
        self._left = bookies
        self._what = what
        self._errors: list[BrokerError] = []

    def found(self, stored: bytes) -> None:
        """A bookie has the entry: that is enough."""
        self._left -= 1
        if not self.over.done():
            self.over.set_result(stored)

    def negative(self, *, enough: bool) -> None:
        """A bookie certainly does not have the entry. `enough`: with the others that proves its absence."""
        self._left -= 1
        if enough and not self.over.done():
            self.over.set_result(None)
        self._end_if_last()

    def failed(self, error: BrokerError, damaged: bytes | None = None) -> None:
        """A bookie gave an answer that proves nothing.

        `damaged`: the bytes that are the result when no bookie has better ones.
        """
        self._left -= 1
        self._damaged = damaged if self._damaged is None else self._damaged
        self._errors.append(error)
        self._end_if_last()

    def _end_if_last(self) -> None:
        if self._left == 0 and not self.over.done() and self._damaged is not None:
            self.damaged = True
            self.over.set_result(self._damaged)
        elif self._left == 0 and not self.over.done():
            why = "; ".join(map(str, self._errors))
            self.over.set_exception(PersistenceError(f"{self._what}: too few bookies can tell: {why}"))
