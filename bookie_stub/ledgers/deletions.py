"""The deletions that the indexes do not show yet.

`Removals` notes a deletion here, the next checkpoint takes the rows out of the indexes, and reads ignore these rows
until then. Pure: no I/O, no clock. Only the loop's thread changes it; other threads may read `hidden`.
"""

from __future__ import annotations

from typing import NamedTuple

from bookie_stub.base.posting import BoundCompletion


class CheckpointDeletions(NamedTuple):
    """The rows that one checkpoint removes from the indexes."""

    checkpoint: int
    """The checkpoint's number, which `LedgerDeletions.checkpoint_done` takes."""
    deleted: frozenset[int]
    """Ledgers that lose all their rows and get a tombstone."""
    emptied: frozenset[int]
    """Ledgers that lose their entries and keep their ledger index row."""


class LedgerDeletions:
    """Deleted and emptied ledgers until a checkpoint has changed the indexes."""

    def __init__(self) -> None:
        self._deleted: set[int] = set()
        self._emptied: set[int] = set()
        self._deleted_and_hidden: set[int] = set()
        self.hidden: dict[int, int] = {}
        """Ledgers whose rows in the location index no longer count.

        The value is the number of the checkpoint that removes these rows."""
        self.waiting: list[BoundCompletion] = []
        """Completions to call once, when `hidden` is empty."""
        self._checkpoint = 0

    def __bool__(self) -> bool:
        """Returns True when the next checkpoint has rows to remove."""
        return bool(self._deleted or self._emptied)

    def delete(self, ledger_id: int) -> None:
        """Notes that the ledger is gone for good."""
        self._deleted.add(ledger_id)
        self._deleted_and_hidden.add(ledger_id)
        self.hidden[ledger_id] = self._checkpoint + 1

    def empty(self, ledger_id: int) -> None:
        """Notes that the ledger lost its entries. Entries that are added from now on count."""
        self._emptied.add(ledger_id)
        self.hidden[ledger_id] = self._checkpoint + 1

    def has_deleted(self, ledger_id: int) -> bool:
        """Returns True while a deleted ledger may still have rows in the indexes. Later its tombstone answers."""
        return ledger_id in self._deleted_and_hidden

    def begin_checkpoint(self) -> CheckpointDeletions:
        """Returns what the checkpoint that begins now has to remove."""
        self._checkpoint += 1
        taken = CheckpointDeletions(self._checkpoint, frozenset(self._deleted), frozenset(self._emptied))
        # A deletion that comes while this checkpoint runs belongs to the next one.
        self._deleted.clear()
        self._emptied.clear()
        return taken

    def checkpoint_done(self, checkpoint: int) -> None:
        """Ends the hiding of rows that this checkpoint has removed.

        Calls `waiting` when nothing is hidden any more. A ledger that was deleted during the checkpoint stays hidden:
        it has a higher number.
        """
        for ledger_id in [key for key, number in self.hidden.items() if number <= checkpoint]:
            del self.hidden[ledger_id]
            self._deleted_and_hidden.discard(ledger_id)
        if not self.hidden:
            waiting, self.waiting = self.waiting, []
            for answer in waiting:
                answer()
