"""Lists a ledger's entry ids, for BookKeeper's tools that compare bookies.

The request is v3's GET_LIST_OF_ENTRIES_OF_LEDGER.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import merge

from bookie_stub.base.posting import BoundCompletion
from bookie_stub.ledgers.state import BookieState
from protocol.bookie_frame import LAST_ENTRY, RC_IO_ERROR, RC_NO_LEDGER, RC_OK, RC_UNKNOWN_LEDGER_STATE
from protocol.entry_runs import encode_entry_runs

ListDone = Callable[[int, bytes], None]
"""Completion: (rc, the list as `protocol.entry_runs` encodes it)."""


class EntryLists:
    """Merges the ids of write caches and location index."""

    def __init__(self, state: BookieState) -> None:
        self._state = state

    def find(self, ledger_id: int, done: ListDone) -> None:
        """Calls `done(rc, list)` with the ids of all entries of a ledger.

        rc: 0; 1 for an unknown ledger; 107 when entries may be lost, since the list could not be complete; 101."""
        state = self._state
        ledger = state.ledgers.by_id.get(ledger_id)
        if ledger is None or ledger.limbo:
            unknown = state.ledgers.is_unknown(ledger_id, LAST_ENTRY)
            state.answers.add(partial(done, RC_UNKNOWN_LEDGER_STATE if unknown else RC_NO_LEDGER, b""))
            return
        # The caches belong to the loop's thread, so their ids are copied here and the index is read in the other one.
        cached = sorted(
            {entry_id for cache in state.write_caches.entries_of(ledger_id) for entry_id in cache.ids()}
        )
        stored = ledger_id not in state.ledgers.deletions.hidden
        work = partial(self._merge_with_index, ledger_id, cached, stored, done)
        state.read_pool.submit(work, partial(done, RC_IO_ERROR, b""))

    def _merge_with_index(
        self, ledger_id: int, cached: list[int], stored: bool, done: ListDone
    ) -> BoundCompletion:
        """Runs in a reader's thread."""
        locations = self._state.storages.of(ledger_id).locations
        in_logs = locations.entry_ids(ledger_id) if stored else iter(())
        return partial(done, RC_OK, encode_entry_runs(merge(cached, in_logs)))
