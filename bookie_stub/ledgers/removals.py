"""Removals: deletes ledgers, and empties those that other bookies have.

A deleted ledger never comes back. An emptied ledger still belongs to the cluster: it keeps its key and its fence, so
that a late writer is refused, and it accepts the entries that a recovery or a re-replication adds to it again.

Called in the loop's thread: by the broker that embeds the bookie, and by the garbage collector through `post`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from bookie_stub.base.posting import BoundCompletion
from bookie_stub.base.record import delete_record
from bookie_stub.journal.journal import Done, nothing
from bookie_stub.ledgers.ledger import Ledger
from bookie_stub.ledgers.ledger_records import LedgerRecords
from bookie_stub.ledgers.state import BookieState
from protocol.bookie_frame import RC_IO_ERROR


class Removals:
    """Deletes and empties ledgers. They leave memory and journal at once, and the indexes with the next checkpoint."""

    def __init__(
        self, state: BookieState, records: LedgerRecords, start_checkpoint: Callable[[], None]
    ) -> None:
        self._registry = state.ledgers
        self._ledgers = state.ledgers.by_id
        self._deletions = state.ledgers.deletions
        self._caches = state.write_caches
        self._journal_of = state.journals.of
        self._stats = state.stats
        self._records = records
        self._start_checkpoint = start_checkpoint
        self._closed = False

    def delete(self, ledger_id: int, done: Done = nothing) -> None:
        """Deletes a ledger; it accepts no add any more.

        Posts `done(rc, ledger id)` when the deletion is durable, with the journal's next group; disk space is freed after
        the next checkpoint. An unknown ledger is noted as deleted too: its first add may be among the held ones. One that
        was deleted before gets a second record in the journal, because the first one may have failed.
        """
        if self._closed or ledger_id < 0:
            done(RC_IO_ERROR, ledger_id)
            return
        if self._registry.has_deleted(ledger_id):
            if done is not nothing:
                self._journal_of(ledger_id).append(delete_record(ledger_id), done, ledger_id)
            return
        ledger = self._ledgers.pop(ledger_id, None)
        if ledger is not None:
            self._stats.deleted_ledgers += 1
            self._caches.forget(ledger_id)
            self._registry.forget(ledger)
        self._deletions.delete(ledger_id)
        self._journal_of(ledger_id).append(delete_record(ledger_id), done, ledger_id)

    def delete_all(self, ledger_ids: Sequence[int], done: BoundCompletion) -> None:
        """Deletes ledgers; calls `done` once the indexes have none of them.

        `done` is never called when the bookie is closed before."""
        for ledger_id in ledger_ids:
            self.delete(ledger_id)
        self._call_when_removed(done)

    def empty_all(self, ledger_ids: Sequence[int], done: BoundCompletion) -> None:
        """Gives up the entries of closed ledgers.

        Calls `done` once the indexes have none of them.

        A ledger keeps its entries when some were just added, when its key is unknown, or when its fence cannot be
        written; `done` is called all the same."""
        chosen = [
            ledger for ledger in map(self._ledgers.get, ledger_ids) if ledger and self._may_empty(ledger)
        ]
        # Fenced first: without its entries and without a fence the ledger would accept a late writer's adds.
        unfenced = [ledger for ledger in chosen if not ledger.fence_durable]
        waiting = set(unfenced)
        proceed = partial(self._empty_fenced, chosen, done)

        def fenced(ledger: Ledger, _rc: int, _ledger_id: int) -> None:
            waiting.discard(ledger)
            if not waiting:
                proceed()

        for ledger in unfenced:
            self._records.fence(ledger.ledger_id, ledger.master_key, partial(fenced, ledger))
        if not unfenced:
            proceed()

    def _may_empty(self, ledger: Ledger) -> bool:
        just_added = any(self._caches.entries_of(ledger.ledger_id))
        return not just_added and (ledger.fence_durable or not ledger.key_open)

    def _empty_fenced(self, ledgers: Sequence[Ledger], done: BoundCompletion) -> None:
        for ledger in ledgers:
            # Adds and deletions may have happened while the fences were written.
            still_here = self._ledgers.get(ledger.ledger_id) is ledger
            if self._closed or not still_here or not ledger.fence_durable or not self._may_empty(ledger):
                continue
            self._stats.deleted_ledgers += 1
            # Without a journal record, unlike a deletion: a replay may bring the entries back, and the next check gives
            # them up once more.
            self._deletions.empty(ledger.ledger_id)
            self._ledgers[ledger.ledger_id] = ledger.emptied()
        self._call_when_removed(done)

    def _call_when_removed(self, done: BoundCompletion) -> None:
        if self._deletions.hidden:
            self._deletions.waiting.append(done)
            self._start_checkpoint()
        else:
            done()

    def close(self) -> None:
        """Ignores every later deletion."""
        self._closed = True
