"""Ledgers whose entries are on their way out of the indexes. Pure: the loop's thread changes it, others may look."""

from __future__ import annotations

from typing import NamedTuple

from bookie_stub.base.posting import Answer


class Taken(NamedTuple):
    """What a checkpoint has to take out of the indexes."""

    checkpoint: int
    """Its number."""
    deleted: frozenset[int]
    emptied: frozenset[int]
    """Their entries only."""


class Deletions:
    def __init__(self) -> None:
        self._deleted: set[int] = set()
        """Ledgers that the next checkpoint takes out of the indexes."""
        self._emptied: set[int] = set()
        """Ledgers of which it takes the entries."""
        self._gone: set[int] = set()
        """Those of `hidden` that were deleted."""
        self.hidden: dict[int, int] = {}
        """Ledgers of which the indexes may still have rows that do not count any more, with the checkpoint that takes
        them out."""
        self.waiting: list[Answer] = []
        """To be called once, when nothing is hidden any more."""
        self._checkpoint = 0

    def __bool__(self) -> bool:
        """Whether there is something for the next checkpoint."""
        return bool(self._deleted or self._emptied)

    def delete(self, ledger_id: int) -> None:
        self._deleted.add(ledger_id)
        self._gone.add(ledger_id)
        self.hidden[ledger_id] = self._checkpoint + 1

    def empty(self, ledger_id: int) -> None:
        """Its entries go, it stays. What is added from now on counts."""
        self._emptied.add(ledger_id)
        self.hidden[ledger_id] = self._checkpoint + 1

    def has_deleted(self, ledger_id: int) -> bool:
        """Whether it was deleted, and the indexes may still have it."""
        return ledger_id in self._gone

    def take(self) -> Taken:
        """For the checkpoint that begins now."""
        self._checkpoint += 1
        taken = Taken(self._checkpoint, frozenset(self._deleted), frozenset(self._emptied))
        self._deleted.clear()
        self._emptied.clear()
        return taken

    def done(self, checkpoint: int) -> None:
        for ledger_id in [key for key, number in self.hidden.items() if number <= checkpoint]:
            del self.hidden[ledger_id]
            self._gone.discard(ledger_id)
        if not self.hidden:
            waiting, self.waiting = self.waiting, []
            for answer in waiting:
                answer()
