"""Copies the entries of a fragment to the bookie that takes a lost one's place.

The laws:

1. Every copied entry was checked by its digest, so damage never spreads.
2. A copy counts when the bookie has answered each of its adds, which is after its journal's sync. Only then may the
   ledger's metadata name the bookie.
3. Adds carry the recovery flag: the bookie may know a fence of the ledger.

Entries go in batches, several at a time, and a batch that was read waits for its turn in the `CopyPace`. BookKeeper's names:
LedgerFragmentReplicator, rereplicationEntryBatchSize, replicationRateByBytes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from bookkeeper.client.digest import Digest
from bookkeeper.client.result_codes import OK, error_of
from bookkeeper.ensembles.bookies import Bookies
from bookkeeper.repair.fragments import Fragment
from bookkeeper.repair.pace import CopyPace
from bookkeeper.repair.replicas import good_count, read_entry
from bookkeeper.repair.stats import WorkerStats
from foundation.model.errors import PersistenceError
from foundation.units import NS_PER_SECOND

BATCH_BYTES_MAX: Final = 4 << 20
"""Bytes that a batch asks for at a time; with `BATCHES_MAX` it bounds the memory of a copy."""
BATCHES_MAX: Final = 8
"""Batches that are read and written at a time. One after the other would cost two round trips and a sync of the bookie's
journal for each."""


class CopyRefused(PersistenceError):
    """The bookie that was to get the entries did not take one; another bookie may."""


@dataclass(frozen=True, slots=True)
class Copying:
    """The means of every copy of one worker."""

    bookies: Bookies
    """Sources and destinations."""
    pace: CopyPace
    """Shared by all copies, so that the limit holds for the process."""
    batch_entries: int
    """Entries that are read at a time."""
    now_ns: Callable[[], int]
    """A monotonic clock."""
    stats: WorkerStats
    """Counts entries and bytes."""


async def copy_fragment(
    means: Copying,
    ledger_id: int,
    fragment: Fragment,
    digest: Digest,
    position: int,
    target: str,
    avoid: Collection[int],
) -> None:
    """Gives `target` all entries of the bookie at `position`.

    `avoid`: positions that are not asked for entries, because their bookies lack some.

    Raises CopyRefused when the target does not take an entry, PersistenceError for an entry that no bookie can give.
    """
    await _Copy(means, ledger_id, fragment, digest, target, frozenset({*avoid, position})).run(position)


class _Copy:
    """One copy, from one position to one bookie."""

    def __init__(
        self,
        means: Copying,
        ledger_id: int,
        fragment: Fragment,
        digest: Digest,
        target: str,
        avoid: frozenset[int],
    ) -> None:
        self._means = means
        self._ledger_id = ledger_id
        self._fragment = fragment
        self._digest = digest
        self._target = target
        self._add = means.bookies.client(target).add
        self._avoid = avoid

    async def run(self, position: int) -> None:
        """Copies the entries of `position`. Raises as `copy_fragment`."""
        entries = self._fragment.entries_at(position)
        moving: deque[asyncio.Task[None]] = deque()
        try:
            while wanted := list(islice(entries, self._means.batch_entries)):
                moving.append(asyncio.create_task(self._move(wanted), name=f"copy to {self._target}"))
                if len(moving) == BATCHES_MAX:
                    await moving.popleft()
            while moving:
                await moving.popleft()
        finally:
            for batch in moving:
                batch.cancel()
            await asyncio.gather(*moving, return_exceptions=True)

    async def _move(self, wanted: list[int]) -> None:
        """Copies a batch of entries, in as many requests as their bytes need."""
        whole = len(self._fragment.segment.members) == self._fragment.write_quorum
        while wanted:
            found = await self._read_run(wanted) if whole else await self._read_each(wanted)
            await self._wait(sum(map(len, found)))
            await self._write(wanted, found)
            wanted = wanted[len(found) :]

    # Reading

    async def _read_run(self, wanted: Sequence[int]) -> list[bytes]:
        """Returns consecutive entries from the first one on, from one bookie after the other until one has it."""
        first = wanted[0]
        for source in self._sources(first):
            stored = await self._batch(source, first, len(wanted))
            good = good_count(self._ledger_id, wanted, stored, self._digest)
            if good:
                return self._counted(stored[:good])
        raise self._lost(first)

    async def _batch(self, source: str, first: int, count: int) -> list[bytes]:
        answered: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()

        def done(rc: int, stored: list[bytes]) -> None:
            if not answered.done():  # The copy was cancelled.
                answered.set_result(stored if rc == OK else [])

        client = self._means.bookies.client(source)
        client.batch_read(self._ledger_id, first, count, BATCH_BYTES_MAX, done)
        return await answered

    async def _read_each(self, wanted: Sequence[int]) -> list[bytes]:
        """Returns all entries of a striped ledger, each from the bookies of its own write set."""
        return self._counted(list(await asyncio.gather(*map(self._read_one, wanted))))

    async def _read_one(self, entry_id: int) -> bytes:
        for source in self._sources(entry_id):
            stored = await read_entry(self._means.bookies, source, self._ledger_id, entry_id, self._digest)
            if stored is not None:
                return stored
        raise self._lost(entry_id)

    def _sources(self, entry_id: int) -> list[str]:
        members = self._fragment.segment.members
        positions = self._fragment.sources(entry_id)
        # The bookies that lack some entries come last: they may have this one.
        ordered = sorted(positions, key=self._avoid.__contains__)
        return [members[position] for position in ordered if members[position] != self._target]

    def _lost(self, entry_id: int) -> PersistenceError:
        self._means.stats.unreadable += 1
        members = ", ".join(self._fragment.segment.members)
        return PersistenceError(
            f"entry {self._ledger_id}:{entry_id} can be read from none of {members}; start a bookie that has it"
        )

    def _counted(self, stored: list[bytes]) -> list[bytes]:
        self._means.stats.entries_read += len(stored)
        self._means.stats.bytes_read += sum(map(len, stored))
        return stored

    # Writing

    def _write(self, entry_ids: Sequence[int], stored: Sequence[bytes]) -> asyncio.Future[None]:
        """Adds a batch; the future is done when the bookie has answered all of it."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._add(
            self._ledger_id,
            entry_ids[: len(stored)],
            [(entry, b"", b"") for entry in stored],
            master_key=self._digest.master_key,
            recovery=True,
            done=partial(self._written, written, len(stored), sum(map(len, stored))),
        )
        return written

    def _written(self, written: asyncio.Future[None], entries: int, size: int, rc: int, _first: int) -> None:
        if written.done():  # The copy was cancelled.
            return
        if rc != OK:
            what = f"copying ledger {self._ledger_id} to {self._target}"
            written.set_exception(CopyRefused(str(error_of(rc, what))))
            return
        self._means.stats.entries_written += entries
        self._means.stats.bytes_written += size
        written.set_result(None)

    async def _wait(self, size: int) -> None:
        wait_ns = self._means.pace.wait_ns(size, self._means.now_ns())
        if wait_ns > 0:
            await asyncio.sleep(wait_ns / NS_PER_SECOND)
