"""The registry of ledgers: known ones, deleted ones, and changed rows.

Every part of the bookie that judges a request asks the registry first. Only the loop's thread changes it; the garbage
collector's thread reads `by_id` and `deletions.hidden`.
"""

from __future__ import annotations

from collections.abc import Callable

from bookie_stub.disk.ledger_index import LedgerData
from bookie_stub.ledgers.deletions import LedgerDeletions
from bookie_stub.ledgers.ledger import Ledger
from protocol.bookie_frame import LAST_ENTRY


class LedgerRegistry:
    """All ledgers of a bookie, the deleted ones included."""

    def __init__(
        self, by_id: dict[int, Ledger], has_tombstone: Callable[[int], bool], *, lossy: bool = False
    ) -> None:
        """`by_id` has the ledgers that the start found.

        `has_tombstone(ledger id)` looks into the file of deleted ones."""
        self.by_id = by_id
        """The known ledgers. Adds and reads look into it directly. A method would cost them a call each."""
        self.deletions = LedgerDeletions()
        """Deleted and emptied ledgers that still have rows in the indexes."""
        self.lossy = lossy
        """True when unknown ledgers may have been lost as a whole (BP-46)."""
        self.changed: set[int] = set()
        """Ledgers whose row in the ledger index is out of date."""
        self._has_tombstone = has_tombstone

    def has_deleted(self, ledger_id: int) -> bool:
        """Returns True when the bookie had this ledger and deleted it. It never accepts the ledger again."""
        return self.deletions.has_deleted(ledger_id) or self._has_tombstone(ledger_id)

    def is_unknown(self, ledger_id: int, entry_id: int) -> bool:
        """Returns True when the entry may be lost, so that "absent" would be wrong.

        That holds for an unknown ledger of a lossy bookie, and for the last entry of a ledger in limbo. A single
        entry of a ledger in limbo is served when it is here.
        """
        ledger = self.by_id.get(ledger_id)
        if ledger is None:
            return self.lossy and not self.has_deleted(ledger_id)
        return ledger.limbo and entry_id == LAST_ENTRY

    def forget(self, ledger: Ledger) -> None:
        """Drops a deleted ledger's pending row and wakes its watchers."""
        self.changed.discard(ledger.ledger_id)
        ledger.wake_watchers()

    def journal_failed(self, writes_there: Callable[[int], bool]) -> None:
        """Has each ledger of the failed journal write its key again.

        A replay skips entries whose key record it does not find, so a key that was lost with the failed group must
        come before the next entry. `writes_there(ledger id)` tells the ledgers of that journal."""
        for ledger in self.by_id.values():
            if writes_there(ledger.ledger_id):
                ledger.key_journaled = False
                ledger.writable_key = None

    def take_changed(self) -> dict[int, LedgerData]:
        """Returns the changed rows, for the checkpoint that begins now. They no longer count as changed afterwards."""
        changed = {ledger_id: self.by_id[ledger_id].data() for ledger_id in self.changed}
        self.changed.clear()
        return changed
