"""Adds: judged by the run, put into the write cache, queued for the journal, or held while there is no room.

A run is some entries of one ledger that came together, with one key and one answer; a single add is a run of one.
Nothing happens between the entries of a run, so what is judged for one of them holds for all. The short way is for
runs of a ledger that another add has been let into, whose key nothing can be said against since then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from bookie_stub.base.metrics import BookieStats
from bookie_stub.base.posting import Answer, Post
from bookie_stub.base.record import ENTRY_BYTES_MIN, LENGTH_BYTES, Record
from bookie_stub.disk.write_cache import WriteCaches
from bookie_stub.journal.entry_run import EntryRun
from bookie_stub.journal.journal import Done
from bookie_stub.journal.journals import Journals
from bookie_stub.ledgers.held_adds import HeldAdds
from bookie_stub.ledgers.last_confirmed import LastConfirmed
from bookie_stub.ledgers.ledger import Ledger
from bookie_stub.ledgers.ledger_records import LedgerRecords
from bookie_stub.ledgers.reads import Reads
from protocol.bookie_frame import (
    RC_BAD_REQUEST,
    RC_IO_ERROR,
    RC_OK,
    RC_READ_ONLY,
    RC_TOO_MANY_REQUESTS,
)

_RELEASE_SLICE = 500
"""Held adds that are taken on in one go of the loop: about a millisecond."""


class Ground(NamedTuple):
    """What adds need of the bookie's other parts."""

    ledgers: dict[int, Ledger]
    cache: WriteCaches
    journals: Journals
    records: LedgerRecords
    reads: Reads
    last_confirmed: LastConfirmed
    stats: BookieStats
    answer: Callable[[Answer], None]
    post: Post


class Adds:
    def __init__(self, ground: Ground, held_s_max: float, checkpoint: Callable[[], None]) -> None:
        """`checkpoint` makes room in the write cache, and calls `room` when it has."""
        self._ledgers = ground.ledgers
        self._cache = ground.cache
        self._journal_of = ground.journals.of
        self._records = ground.records
        self._reads = ground.reads
        self._last_confirmed = ground.last_confirmed
        self._stats = ground.stats
        self._answer = ground.answer
        self._post = ground.post
        self._checkpoint = checkpoint
        self._held = HeldAdds(held_s_max, ground.post, self._too_late)
        self._refuses: Callable[[int], bool] | None = None
        self._closed = False
        self._long_way = False
        """Nothing is to take the short way: adds are refused, closed, or both halves of the cache full."""

    # The short way.

    def add(
        self,
        ledger_id: int,
        entry_id: int,
        record: Record,
        master_key: bytes,
        recovery: bool,
        done: Done,
    ) -> None:
        """Store an entry; `record` is the entry with its int32 length in front. `done(rc, entry id)`.

        The ids must be those inside the entry. The first add or fence of a ledger sets its master key.
        """
        ledger = self._ledgers.get(ledger_id)
        if ledger is None or ledger.writable_key != master_key or entry_id < 0 or self._long_way:
            run = EntryRun(ledger_id, (entry_id,), bytes(record), (0,), master_key, recovery, done)
            self._take_the_long_way(run)
            return
        active = self._cache.active
        active.put(ledger_id, entry_id, record)
        if entry_id > ledger.last:
            ledger.last = entry_id
        else:
            self._reads.rewritten(ledger, entry_id)
        self._journal_of(ledger_id).append(record, done, entry_id)
        if active.size >= self._cache.active_bytes_max:
            self._active_cache_full()

    def add_run(self, run: EntryRun) -> None:
        """Store the entries of a run; they are durable together and answered together."""
        ledger = self._ledgers.get(run.ledger_id)
        if ledger is None or ledger.writable_key != run.master_key or self._long_way:
            self._take_the_long_way(run)
        else:
            self._store(run, ledger)

    def _store(self, run: EntryRun, ledger: Ledger) -> None:
        ledger_id, entry_ids, records, starts, _, _, done = run
        kept = self._cache.put_run(ledger_id, entry_ids, records, starts)
        in_order = type(entry_ids) is range
        lowest, highest = (entry_ids[0], entry_ids[-1]) if in_order else (min(entry_ids), max(entry_ids))
        if lowest <= ledger.last:
            self._written_again(ledger, entry_ids)
        ledger.last = max(ledger.last, highest)
        self._journal_of(ledger_id).append_run(kept, len(entry_ids), done, entry_ids[0])
        if self._cache.active_full:
            self._active_cache_full()

    def _written_again(self, ledger: Ledger, entry_ids: Sequence[int]) -> None:
        last = ledger.last
        for entry_id in entry_ids:
            if entry_id <= last:
                self._reads.rewritten(ledger, entry_id)
            last = max(last, entry_id)

    # The long way.

    def _take_the_long_way(self, run: EntryRun) -> None:
        if (self._held or self._cache.full) and not self._closed:
            self._stats.adds_held += len(run.entry_ids)
            self._held.hold(run)
        else:
            self._admit(run)

    def _admit(self, run: EntryRun) -> None:
        rc, ledger = self._judge(run)
        if ledger is None:
            self._refuse(run, rc)
            return
        self._records.journal_key(ledger)
        self._store(run, ledger)
        self._last_confirmed.added(ledger, run.records, run.starts)
        if not ledger.fenced and not ledger.watchers:
            ledger.writable_key = ledger.master_key

    def _judge(self, run: EntryRun) -> tuple[int, Ledger | None]:
        """(rc, None), or the ledger to add to."""
        if self._closed:
            return RC_IO_ERROR, None
        if self._refuses is not None and not run.recovery and self._refuses(run.ledger_id):
            return RC_READ_ONLY, None
        too_short = len(run.records) < LENGTH_BYTES + ENTRY_BYTES_MIN
        if run.ledger_id < 0 or run.entry_ids[0] < 0 or too_short:
            return RC_BAD_REQUEST, None
        ledger = self._records.for_add(run.ledger_id, run.entry_ids[0], run.master_key, run.recovery)
        return (ledger, None) if isinstance(ledger, int) else (RC_OK, ledger)

    def _refuse(self, run: EntryRun, rc: int) -> None:
        self._stats.adds_refused += len(run.entry_ids)
        self._answer(partial(run.done, rc, run.entry_ids[0]))

    # Room.

    def _active_cache_full(self) -> None:
        if self._cache.flushing is None:
            self._checkpoint()
        else:
            self._long_way = True

    def room(self) -> None:
        """A flush has ended. The held adds are judged anew, a fence may have come in between."""
        released = 0
        while self._held:
            if self._cache.full:
                return
            if released >= _RELEASE_SLICE:
                self._post(self.room)
                return
            run = self._held.next()
            released += len(run.entry_ids)
            self._admit(run)
        self._long_way = self._refuses is not None or self._closed

    def _too_late(self, run: EntryRun) -> None:
        self._stats.adds_rejected += len(run.entry_ids)
        self._refuse(run, RC_TOO_MANY_REQUESTS)

    # What the bookie says.

    def refuse(self, which: Callable[[int], bool] | None) -> None:
        """From now on, plain adds to ledgers of which `which` says so; the adds of a recovery are taken all the same."""
        self._refuses = which
        self._long_way = which is not None or self._closed or bool(self._held)

    def close(self) -> None:
        """Refuse what is held and whatever comes from now on."""
        self._closed = self._long_way = True
        while self._held:
            run = self._held.next()
            self._answer(partial(run.done, RC_IO_ERROR, run.entry_ids[0]))
