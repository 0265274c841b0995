"""Recovery: finding out where a ledger ends whose writer is gone, or may not know that it is.

1. The metadata says IN_RECOVERY, so the writer cannot change its ensemble any more.
2. Every bookie of the last ensemble is fenced and asked for its last entry, until fewer than Qa bookies of any write
   set have not answered. The highest last add confirmed in those entries was surely acknowledged.
3. Entry by entry from there on: the whole write set is asked, and each question fences too, because a bookie that was
   not heard of in step 2 might still take the entry and so make it acknowledged after it was found missing. One good
   copy is enough: the entry is written back until Qa bookies have it. An entry is absent, and the ledger ends
   before it, when so many fenced bookies say so that it cannot be on Qa of them. A bookie that does not know, does not
   answer or has damaged bytes proves nothing; with too many of those the recovery fails and may be tried again.
4. The metadata says CLOSED, with the end and the ensembles of what was written back. Of several recoveries the first
   one to write that decides; the others take its word.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial

from broker.ledger_client.bookies import Bookies
from broker.ledger_client.digest import digest_of, entry_id_of, last_add_confirmed, ledger_length
from broker.ledger_client.ensemble_writer import CallSoon, EnsembleWriter, Spawn
from broker.ledger_client.own_ledger import RecoveringLedger
from broker.ledger_client.placement import is_covered, proves_absence, write_set
from broker.ledger_client.result_codes import NEGATIVE, OK, error_of
from broker.model.errors import BrokerError, PersistenceError
from protocol.ledger_metadata import LedgerMetadata, Segment

READ_AHEAD_MAX = 100
"""Entries that are asked for before the first of them is known: one at first, twice as many with each that is found,
because those behind the ledger's end are asked in vain."""


async def recover(
    ledger: RecoveringLedger, bookies: Bookies, *, call_soon: CallSoon, spawn: Spawn
) -> LedgerMetadata:
    """Close the ledger; answers its metadata. Raises PersistenceError when too few bookies can answer, MetadataError
    when the end cannot be stored; then nothing is lost and the recovery may be tried again."""
    recovery = _Recovery(ledger, bookies)
    confirmed = await recovery.find_confirmed()
    writer = EnsembleWriter(
        ledger, bookies, call_soon=call_soon, spawn=spawn, first_entry_id=confirmed + 1, recovering=True
    )
    last, length = await recovery.write_back(confirmed, writer)
    return await ledger.close(last, length)


class _Recovery:
    def __init__(self, ledger: RecoveringLedger, bookies: Bookies) -> None:
        self._metadata = metadata = ledger.metadata
        self._ledger_id = ledger.ledger_id
        self._bookies = bookies
        self._digest = digest_of(metadata.digest_type, metadata.password)
        self._quorums = metadata.write_quorum, metadata.ack_quorum

    async def find_confirmed(self) -> int:
        """The highest entry that is known to be acknowledged; every write set of the last ensemble is fenced."""
        segment = self._metadata.segments[-1]
        answered = [False] * len(segment.members)
        # Where the last segment has nothing that counts, it began behind entries that are confirmed. Recovery
        # never goes back in front of it: what it writes back belongs to the last segment.
        confirmed = segment.first_entry_id - 1
        what = f"fencing ledger {self._ledger_id}"
        wait = _Wait(len(segment.members), what)

        def fenced(position: int, rc: int, stored: bytes) -> None:
            nonlocal confirmed
            if rc == OK:
                error = self._damage(stored)
                if error is not None:
                    wait.failed(error)
                    return
                confirmed = max(confirmed, last_add_confirmed(stored))
            elif rc not in NEGATIVE:
                wait.failed(error_of(rc, f"{what} on {segment.members[position]}"))
                return
            answered[position] = True
            wait.negative(enough=is_covered(answered, *self._quorums))

        for position, address in enumerate(segment.members):
            client = self._bookies.client(address)
            client.fence(self._ledger_id, self._digest.master_key, partial(fenced, position))
        await wait.over
        return confirmed

    async def write_back(self, confirmed: int, writer: EnsembleWriter) -> tuple[int, int]:
        """(last entry, length): what stands behind `confirmed` is on Qa bookies when this returns."""
        segment = self._metadata.segments[-1]
        reads: deque[_Wait] = deque()
        written: deque[asyncio.Future[int]] = deque()
        last, next_read, ahead = confirmed, confirmed + 1, 1
        stored: bytes | None = b""
        found = b""
        try:
            while stored is not None:
                while len(reads) < ahead:
                    reads.append(self._read(next_read, segment, fencing=True))
                    next_read += 1
                stored = await reads[0].over
                reads.popleft()
                if stored is not None:
                    found = stored
                    last += 1
                    ahead = min(2 * ahead, READ_AHEAD_MAX)
                    written.append(self._write(writer, last, stored))
        finally:
            for read in reads:
                read.over.cancel()
        for entry_id, outcome in enumerate(written, confirmed + 1):
            rc = await outcome
            if rc != OK:
                raise error_of(rc, f"writing back entry {self._ledger_id}:{entry_id}")
        return last, ledger_length(found) if found else await self._length_at(last)

    def _write(self, writer: EnsembleWriter, entry_id: int, stored: bytes) -> asyncio.Future[int]:
        outcome: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def done(rc: int, _: int) -> None:
            if not outcome.done():
                outcome.set_result(rc)

        writer.add(
            self._ledger_id,
            entry_id,
            (stored, b"", b""),
            master_key=self._digest.master_key,
            recovery=True,
            done=done,
        )
        return outcome

    async def _length_at(self, entry_id: int) -> int:
        """Payload bytes up to and including a confirmed entry; 0 for entry -1."""
        if entry_id < 0:
            return 0
        segment, _ = self._metadata.segment_of(entry_id)
        stored = await self._read(entry_id, segment, fencing=False).over
        if stored is None:
            raise PersistenceError(f"entry {self._ledger_id}:{entry_id} was confirmed and is lost")
        return ledger_length(stored)

    def _read(self, entry_id: int, segment: Segment, *, fencing: bool) -> _Wait:
        """The entry as stored, None when it is absent for certain."""
        what = f"reading entry {self._ledger_id}:{entry_id}"
        positions = write_set(entry_id, len(segment.members), self._quorums[0])
        wait = _Wait(len(positions), what)
        negatives = 0

        def read(rc: int, stored: bytes) -> None:
            nonlocal negatives
            if rc in NEGATIVE:
                negatives += 1
                wait.negative(enough=proves_absence(negatives, *self._quorums))
            elif rc != OK:
                wait.failed(error_of(rc, what))
            elif (error := self._damage(stored, entry_id)) is not None:
                wait.failed(error)
            else:
                wait.found(stored)

        for position in positions:
            client = self._bookies.client(segment.members[position])
            if fencing:
                client.fence(self._ledger_id, self._digest.master_key, read, entry_id)
            else:
                client.read(self._ledger_id, entry_id, read)
        return wait

    def _damage(self, stored: bytes, entry_id: int | None = None) -> BrokerError | None:
        try:
            self._digest.check(self._ledger_id, entry_id_of(stored) if entry_id is None else entry_id, stored)
        except PersistenceError as error:
            return error
        return None


class _Wait:
    """For one good answer, or for enough negative ones, of several bookies."""

    def __init__(self, bookies: int, what: str) -> None:
        self.over: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._left = bookies
        self._what = what
        self._errors: list[BrokerError] = []

    def found(self, stored: bytes) -> None:
        self._left -= 1
        if not self.over.done():
            self.over.set_result(stored)

    def negative(self, *, enough: bool) -> None:
        self._left -= 1
        if enough and not self.over.done():
            self.over.set_result(None)
        self._end_if_last()

    def failed(self, error: BrokerError) -> None:
        """An answer that proves nothing."""
        self._left -= 1
        self._errors.append(error)
        self._end_if_last()

    def _end_if_last(self) -> None:
        if self._left == 0 and not self.over.done():
            why = "; ".join(map(str, self._errors))
            self.over.set_exception(PersistenceError(f"{self._what}: too few bookies can tell: {why}"))
