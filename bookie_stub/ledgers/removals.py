"""Ledgers that go: deleted for good, or emptied because other bookies have their entries.

A deleted ledger never comes back. An emptied one is still in the cluster: it stays here with its key and its fence, so
that a writer from before its end is refused, and takes what a recovery or a re-replication adds to it again. Calls come
from the loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from bookie_stub.base.metrics import BookieStats
from bookie_stub.base.posting import Answer
from bookie_stub.base.record import delete_record
from bookie_stub.disk.write_cache import WriteCaches
from bookie_stub.journal.journal import nothing
from bookie_stub.journal.journals import Journals
from bookie_stub.ledgers.deletions import Deletions
from bookie_stub.ledgers.ledger import Ledger
from bookie_stub.ledgers.ledger_records import LedgerRecords


class Removals:
    def __init__(
        self,
        ledgers: dict[int, Ledger],
        cache: WriteCaches,
        deletions: Deletions,
        records: LedgerRecords,
        journals: Journals,
        has_deleted: Callable[[int], bool],
        checkpoint: Callable[[], None],
        stats: BookieStats,
    ) -> None:
        self._ledgers = ledgers
        self._cache = cache
        self._deletions = deletions
        self._records = records
        self._journal_of = journals.of
        self._has_deleted = has_deleted
        self._checkpoint = checkpoint
        self._stats = stats
        self._closed = False

    def delete(self, ledger_id: int) -> None:
        """Forget a ledger and never take it again. Durable with the journal's next group; space comes back with the
        next checkpoint. One that is not here may have its first add held, so that it was deleted is noted all the same.
        """
        if self._closed or ledger_id < 0 or self._has_deleted(ledger_id):
            return
        ledger = self._ledgers.pop(ledger_id, None)
        if ledger is not None:
            self._stats.deleted_ledgers += 1
            self._cache.forget(ledger_id)
            self._records.forget(ledger)
        self._deletions.delete(ledger_id)
        self._journal_of(ledger_id).append(delete_record(ledger_id), nothing, 0)

    def delete_all(self, ledger_ids: Sequence[int], done: Answer) -> None:
        """`done` in the loop, when none of them is in the indexes any more; never, when the bookie is closed before."""
        for ledger_id in ledger_ids:
            self.delete(ledger_id)
        self._when_taken_out(done)

    def empty_all(self, ledger_ids: Sequence[int], done: Answer) -> None:
        """Give up the entries of ledgers that ended long ago. `done` as for `delete_all`, also when some have stayed:
        those that entries were just added to, whose key nobody knows, or whose fence could not be written."""
        chosen = [ledger for ledger in map(self._ledgers.get, ledger_ids) if ledger and self._may_go(ledger)]
        unfenced = [ledger for ledger in chosen if not ledger.fence_durable]
        waiting = set(unfenced)
        goes_on = partial(self._empty_fenced, chosen, done)

        def fenced(ledger: Ledger, _rc: int, _ledger_id: int) -> None:
            waiting.discard(ledger)
            if not waiting:
                goes_on()

        for ledger in unfenced:
            self._records.fence(ledger.ledger_id, ledger.master_key, partial(fenced, ledger))
        if not unfenced:
            goes_on()

    def _may_go(self, ledger: Ledger) -> bool:
        just_added = any(self._cache.entries_of(ledger.ledger_id))
        return not just_added and (ledger.fence_durable or not ledger.key_open)

    def _empty_fenced(self, ledgers: Sequence[Ledger], done: Answer) -> None:
        for ledger in ledgers:
            still_here = self._ledgers.get(ledger.ledger_id) is ledger
            if self._closed or not still_here or not ledger.fence_durable or not self._may_go(ledger):
                continue
            self._stats.deleted_ledgers += 1
            self._deletions.empty(ledger.ledger_id)
            self._ledgers[ledger.ledger_id] = ledger.emptied()
        self._when_taken_out(done)

    def _when_taken_out(self, done: Answer) -> None:
        if self._deletions.hidden:
            self._deletions.waiting.append(done)
            self._checkpoint()
        else:
            done()

    def close(self) -> None:
        """Nothing goes from now on."""
        self._closed = True
