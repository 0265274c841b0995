"""The last add confirmed (LAC) of each ledger, and its watchers.

A writer puts into each entry the LAC that it knew, and may also send it alone (explicit LAC). The higher of both is
the ledger's LAC. Adds count nothing: `find` reads the LAC out of the last entry when a client asks. Only a ledger
with watchers sends its adds through the checked path, which calls `added`.

Invariant: a watcher runs inside the add or the fence that wakes it, so it may only note that it was woken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from bookie_stub.base.record import KEY, LENGTH_BYTES, lac_of
from bookie_stub.disk.write_cache import WriteCaches
from bookie_stub.ledgers.ledger import NOT_COUNTED, Ledger
from bookie_stub.ledgers.reads import LedgerReads
from bookie_stub.ledgers.registry import LedgerRegistry
from protocol.bookie_frame import LAST_ENTRY, RC_NO_ENTRY, RC_NO_LEDGER, RC_OK, RC_UNKNOWN_LEDGER_STATE

LacDone = Callable[[int, int], None]
"""Completion of `find`: (rc, LAC)."""
BodiesDone = Callable[[int, bytes, bytes], None]
"""Completion of `read_bodies`: (rc, body of the explicit LAC, last entry). A missing one is empty."""


class LastConfirmed:
    """Finds the LAC of a ledger and wakes its watchers."""

    def __init__(self, ledgers: LedgerRegistry, caches: WriteCaches, reads: LedgerReads) -> None:
        self._registry = ledgers
        self._ledgers = ledgers.by_id
        self._caches = caches
        self._reads = reads

    def find(self, ledger_id: int, done: LacDone) -> None:
        """Calls `done(rc, LAC)`, inside the call when no disk read is needed.

        The LAC is -1 for a ledger without entries and without explicit LAC. rc is 1 for an unknown ledger, 107 when
        its last entry may be lost, 101 when the last entry cannot be read."""
        ledger = self._ledgers.get(ledger_id)
        if self._registry.is_unknown(ledger_id, LAST_ENTRY):
            done(RC_UNKNOWN_LEDGER_STATE, -1)
        elif ledger is None:
            done(RC_NO_LEDGER, -1)
        elif self._is_up_to_date(ledger):
            done(RC_OK, ledger.lac)
        else:
            self._reads.read(ledger_id, LAST_ENTRY, partial(self._last_read, ledger, done))

    def _is_up_to_date(self, ledger: Ledger) -> bool:
        """Takes the LAC from the last entry if that is in memory. False when it must be read."""
        if ledger.lac_entry == ledger.last and ledger.last_known:
            return True
        if not ledger.last_known:
            return False
        if ledger.last >= 0:
            record = self._caches.get(ledger.ledger_id, ledger.last)
            if record is None:
                return False
            ledger.lac = max(ledger.lac, lac_of(record, LENGTH_BYTES))
        ledger.lac_entry = ledger.last
        return True

    def _last_read(self, ledger: Ledger, done: LacDone, rc: int, entry: bytes) -> None:
        if rc == RC_OK:
            ledger.lac = max(ledger.lac, lac_of(entry))
            ledger.lac_entry = KEY.unpack_from(entry)[1]
            self.find(ledger.ledger_id, done)  # Again: entries that were added meanwhile are in memory.
        elif self._ledgers.get(ledger.ledger_id) is not ledger:
            # Deleted while it was read. A watch of it would never end, so the caller must not start one.
            done(RC_NO_LEDGER, -1)
        elif rc == RC_NO_ENTRY:
            # From now on the LAC counts as taken from "no entry", so that `added` follows the first one.
            ledger.lac_entry = max(ledger.lac_entry, -1)
            done(RC_OK, ledger.lac)
        else:
            done(rc, -1)

    def read_bodies(self, ledger_id: int, done: BodiesDone) -> None:
        """Calls `done` with the explicit LAC's body and the last entry.

        A reader takes the LAC from them and checks its digest. rc is 2 when the ledger has neither.
        """
        ledger = self._ledgers.get(ledger_id)
        explicit = b"" if ledger is None else ledger.explicit_lac or b""

        def last_read(rc: int, entry: bytes) -> None:
            # BookKeeper 4.17.3 answers EIO together with the body. The body is all that a reader of the LAC needs.
            if rc == RC_NO_ENTRY and explicit:
                rc = RC_OK
            done(rc, explicit, entry)

        self._reads.read(ledger_id, LAST_ENTRY, last_read)

    def added(self, ledger: Ledger, records: bytes, starts: Sequence[int]) -> None:
        """Raises the LAC to the highest one in these records.

        Watchers wake once for the whole run. Called for adds on the checked path only; every add of a watched ledger
        takes that path.
        """
        # Without an earlier `find` no watch exists, and the LAC is read from the last entry when it is asked for.
        if ledger.lac_entry != NOT_COUNTED:
            lac = max([lac_of(records, start + LENGTH_BYTES) for start in starts])
            if lac > ledger.lac:
                ledger.raise_lac(lac)

    def watch(self, ledger_id: int, beyond: int, woken: Callable[[], None]) -> Callable[[], object]:
        """Calls `woken` once, when the LAC passes `beyond`.

        A fence and a deletion call it too.

        Returns the call that ends the watch early. To be used right after `find` has told the LAC: in between, an add
        could raise it unnoticed. Raises KeyError for an unknown ledger."""
        ledger = self._ledgers[ledger_id]
        ledger.watchers[woken] = beyond
        # Sends the ledger's adds through the checked path, the only one that looks at their LAC.
        ledger.writable_key = None
        return lambda: ledger.watchers.pop(woken, None)
