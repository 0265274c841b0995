"""Adds: checks them and queues them for the journal, or holds them.

Adds come in *runs*: consecutive adds of one ledger that came together, with one key and one answer. A single add is a
run of one. The loop handles nothing between two entries of a run, so one check holds for all of them.

Two invariants:

* An entry enters the write cache before its journal's queue. A checkpoint takes the journals' marks before it swaps
  the write caches, so every entry before the marks is in the flushing cache or in a log, and never lost between both.
* Checks may be skipped only while `Ledger.writable_key` is the key presented. Everything that could change the
  outcome of a check (fence, watcher, journal failure) clears that field first.

Called by the `wire` room and the embedded broker, in the loop's thread. Completions never run inside the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from bookie_stub.base.record import ENTRY_BYTES_MIN, LENGTH_BYTES, Record
from bookie_stub.journal.entry_run import EntryRun
from bookie_stub.journal.journal import Done
from bookie_stub.ledgers.availability import Availability
from bookie_stub.ledgers.held_adds import HeldAdds
from bookie_stub.ledgers.last_confirmed import LastConfirmed
from bookie_stub.ledgers.ledger import Ledger
from bookie_stub.ledgers.ledger_records import LedgerRecords
from bookie_stub.ledgers.state import BookieState
from protocol.bookie_frame import (
    RC_BAD_REQUEST,
    RC_IO_ERROR,
    RC_OK,
    RC_READ_ONLY,
    RC_TOO_MANY_REQUESTS,
)

_RELEASE_SLICE = 500
"""Held adds that are stored in one callback of the loop. About a millisecond."""


class Adds:
    """Accepts, holds and refuses adds. The two public calls are the bookie's hot path."""

    def __init__(
        self,
        state: BookieState,
        records: LedgerRecords,
        last_confirmed: LastConfirmed,
        availability: Availability,
        *,
        held_s_max: float,
        start_checkpoint: Callable[[], None],
    ) -> None:
        """`start_checkpoint` frees space in the write cache. Its end is told by `resume`."""
        self._ledgers = state.ledgers.by_id
        self._caches = state.write_caches
        self._read_cache = state.read_cache
        self._journals = state.journals.all
        self._journal_count = len(state.journals.all)
        self._answers = state.answers
        self._stats = state.stats
        self._records = records
        self._last_confirmed = last_confirmed
        self._availability = availability
        self._start_checkpoint = start_checkpoint
        self._held = HeldAdds(held_s_max, state.answers.post, self._expired)
        self._closed = False
        self._always_check = availability.refuses_some
        """True while no add may skip the checks. Some are refused, some are held, or the bookie is closed."""

    # The fast path: the ledger is known, its key was verified, and nothing is refused or held.

    def add(
        self,
        ledger_id: int,
        entry_id: int,
        record: Record,
        master_key: bytes,
        recovery: bool,
        done: Done,
    ) -> None:
        """Stores one entry and calls `done(rc, entry id)` once it is durable.

        `record` is the entry with its int32 length in front; both ids must be those inside the entry. The first add
        or fence of a ledger sets its master key. `recovery` adds are accepted by a fenced ledger and a read-only
        bookie.
        """
        ledger = self._ledgers.get(ledger_id)
        if ledger is None or ledger.writable_key != master_key or entry_id < 0 or self._always_check:
            # A large add's record is a view of the arena's memory; a run has bytes.
            run = EntryRun(ledger_id, (entry_id,), bytes(record), (0,), master_key, recovery, done)
            self._hold_or_check(run)
            return
        active = self._caches.active
        # First the write cache, then the journal's queue. In the other order a checkpoint could move the marks past an
        # entry that none of its write caches has.
        active.put(ledger_id, entry_id, record)
        if entry_id > ledger.last:
            ledger.last = entry_id
        else:
            # The entry may have been read before: the read cache must not serve its old version.
            self._read_cache.discard(ledger.serial, entry_id)
        # As `Journals.of`, written out: this runs once per message.
        self._journals[ledger_id % self._journal_count].append(record, done, entry_id)
        if active.size >= self._caches.active_bytes_max:
            self._active_cache_full()

    def add_run(self, run: EntryRun) -> None:
        """Stores the entries of a run. They become durable together and get one answer."""
        ledger = self._ledgers.get(run.ledger_id)
        if ledger is None or ledger.writable_key != run.master_key or self._always_check:
            self._hold_or_check(run)
        else:
            self._store(run, ledger)

    def _store(self, run: EntryRun, ledger: Ledger) -> None:
        ledger_id, entry_ids, records, starts, _, _, done = run
        # The journal gets the cache's own copy of the records, so the received bytes are freed at once.
        kept = self._caches.put_run(ledger_id, entry_ids, records, starts)
        # Nearly every run has consecutive ids; their lowest and highest one need no pass over all.
        in_order = type(entry_ids) is range
        lowest, highest = (entry_ids[0], entry_ids[-1]) if in_order else (min(entry_ids), max(entry_ids))
        if lowest <= ledger.last:
            self._discard_old_versions(ledger, entry_ids)
        ledger.last = max(ledger.last, highest)
        journal = self._journals[ledger_id % self._journal_count]
        journal.append_run(kept, len(entry_ids), done, entry_ids[0])
        if self._caches.active_full:
            self._active_cache_full()

    def _discard_old_versions(self, ledger: Ledger, entry_ids: Sequence[int]) -> None:
        last = ledger.last
        for entry_id in entry_ids:
            if entry_id <= last:
                self._read_cache.discard(ledger.serial, entry_id)
            last = max(last, entry_id)

    # The checked path.

    def _hold_or_check(self, run: EntryRun) -> None:
        # An add after held ones is held as well, or it would overtake an earlier add of its ledger.
        if (self._held or self._caches.full) and not self._closed:
            self._stats.adds_held += len(run.entry_ids)
            self._held.hold(run)
        else:
            self._check(run)

    def _check(self, run: EntryRun) -> None:
        rc, ledger = self._judge(run)
        if ledger is None:
            self._refuse(run, rc)
            return
        # The key's record precedes the entry's: a replay skips entries of a ledger whose key it does not know.
        self._records.journal_key(ledger)
        self._store(run, ledger)
        self._last_confirmed.added(ledger, run.records, run.starts)
        # A watched ledger keeps sending its adds here, because only this path looks for a higher LAC.
        if not ledger.fenced and not ledger.watchers:
            ledger.writable_key = ledger.master_key

    def _judge(self, run: EntryRun) -> tuple[int, Ledger | None]:
        """Returns (0, ledger), or (result code of the refusal, None)."""
        if self._closed:
            return RC_IO_ERROR, None
        # Before `for_add`, which creates the ledger: a refused add must not leave a ledger.
        availability = self._availability
        if availability.refuses_some and not run.recovery and availability.refuses(run.ledger_id):
            return RC_READ_ONLY, None
        too_short = len(run.records) < LENGTH_BYTES + ENTRY_BYTES_MIN
        # BookKeeper acknowledges a negative entry id, and its replay takes the record for a special one and drops it.
        # Below 24 bytes BookKeeper refuses too: ledger, entry and LAC are what a bookie reads.
        if run.ledger_id < 0 or run.entry_ids[0] < 0 or too_short:
            return RC_BAD_REQUEST, None
        ledger = self._records.for_add(run.ledger_id, run.entry_ids[0], run.master_key, run.recovery)
        return (ledger, None) if isinstance(ledger, int) else (RC_OK, ledger)

    def _refuse(self, run: EntryRun, rc: int) -> None:
        self._stats.adds_refused += len(run.entry_ids)
        self._answers.add(partial(run.done, rc, run.entry_ids[0]))

    # Free space in the write cache.

    def _active_cache_full(self) -> None:
        if self._caches.flushing is None:
            self._start_checkpoint()
        else:
            # From here on every add is held until the running checkpoint ends, which calls `resume`.
            self._always_check = True

    def resume(self) -> None:
        """Stores the held adds after a flush has freed space.

        Every held add is checked again: a fence may have come in between. The work is done in slices, so that
        thousands of held adds do not block the loop."""
        released = 0
        while self._held:
            if self._caches.full:
                return
            if released >= _RELEASE_SLICE:
                self._answers.post(self.resume)
                return
            run = self._held.next()
            released += len(run.entry_ids)
            self._check(run)
        # Only with an empty queue: an add that skipped the checks before would overtake the held ones.
        self._always_check = self._availability.refuses_some or self._closed

    def _expired(self, run: EntryRun) -> None:
        self._stats.adds_rejected += len(run.entry_ids)
        self._refuse(run, RC_TOO_MANY_REQUESTS)

    # Changes of the whole bookie.

    def availability_changed(self) -> None:
        """Applies a change of `Availability` from the next add on."""
        self._always_check = self._availability.refuses_some or self._closed or bool(self._held)

    def close(self) -> None:
        """Answers held and later adds with an I/O error (101)."""
        self._closed = self._always_check = True
        while self._held:
            run = self._held.next()
            self._answers.add(partial(run.done, RC_IO_ERROR, run.entry_ids[0]))
