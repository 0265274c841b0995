"""LostEntries: the entries of a managed ledger that storage does not return any more.

An entry is lost when every bookie that may have it has answered, and none has the bytes that were written: damaged, or
absent. Silence, time-outs and refusals prove nothing, so they leave an entry where it is.

A read of several entries fails as a whole (`broker/managed_ledger/entry_read.py`), so one lost entry would withhold the
good ones of its range. Reads therefore end before a lost entry, and ask for it alone. Its readers stop there, or skip it
with `autoSkipNonRecoverableData`.
"""

from __future__ import annotations

import logging
from typing import Final

from foundation.model.errors import LOST_ENTRY, BrokerError
from foundation.model.range_set import EntryRange, RangeSet

log = logging.getLogger("magnetar")

ATTEMPTS_BEFORE_SKIP: Final = 3
"""Failed reads after which an entry may be skipped: a disk that answers with an error once may have it again."""


class LostEntries:
    """Positions that could not be read, each logged once. One per open managed ledger."""

    __slots__ = ("_attempts", "_name", "positions")

    def __init__(self, name: str) -> None:
        """`name`: of the managed ledger, for log lines."""
        self.positions = RangeSet()
        """Every lost entry that a read has met; empty in a healthy managed ledger."""
        self._name = name
        self._attempts: dict[tuple[int, int], int] = {}

    def read_failed(self, ledger_id: int, entry_id: int, error: BrokerError) -> None:
        """Notes the first entry that a storage read could not bring, if the error proves its loss."""
        if not isinstance(error, LOST_ENTRY):
            return
        self._attempts[ledger_id, entry_id] = self._attempts.get((ledger_id, entry_id), 0) + 1
        if self.positions.add(ledger_id, entry_id):
            log.error(
                "! entry %d:%d of %s is lost: %s; its readers stop there. Bring its file back, or set"
                " autoSkipNonRecoverableData=true to skip lost entries",
                *(ledger_id, entry_id, self._name, error),
            )

    def read_succeeded(self, wanted: EntryRange) -> None:
        """Forgets the entries of a range that was read: their file is back."""
        ledger_id, first, last = wanted
        while (entry_id := self.positions.first_present(ledger_id, first, last)) <= last:
            self.positions.discard(ledger_id, entry_id)
            del self._attempts[ledger_id, entry_id]

    def before(self, ledger_id: int, first: int, last: int) -> int:
        """Returns the last entry that one read may ask for: the one before a lost entry, or a lost one alone."""
        entry_id = self.positions.first_present(ledger_id, first, last)
        return last if entry_id > last else max(first, entry_id - 1)

    def may_be_skipped(self, position: tuple[int, int]) -> bool:
        """Returns True when enough reads of the entry have failed."""
        return self._attempts.get(position, 0) >= ATTEMPTS_BEFORE_SKIP


NONE_LOST: Final = LostEntries("")
"""Of every managed ledger without a lost entry, which is nearly every one. Nothing is ever added."""
