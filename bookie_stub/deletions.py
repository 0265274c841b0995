"""Deleted ledgers on their way out of the indexes. Pure: the loop's thread changes it, others may look."""

from __future__ import annotations

from bookie_stub.posting import Answer


class Deletions:
    def __init__(self) -> None:
        self._new: set[int] = set()
        """Ledgers that the next checkpoint takes out of the indexes."""
        self.hidden: dict[int, int] = {}
        """Deleted ledgers whose rows the indexes may still have, with the checkpoint that takes them out."""
        self.waiting: list[Answer] = []
        """To be called once, when no deleted ledger is in the indexes any more."""
        self._checkpoint = 0

    def __bool__(self) -> bool:
        """Whether there is something for the next checkpoint."""
        return bool(self._new)

    def add(self, ledger_id: int) -> None:
        self._new.add(ledger_id)
        self.hidden[ledger_id] = self._checkpoint + 1

    def take(self) -> tuple[int, frozenset[int]]:
        """The number of the checkpoint that begins now, and what it has to take out."""
        deleted = frozenset(self._new)
        self._new.clear()
        self._checkpoint += 1
        return self._checkpoint, deleted

    def done(self, checkpoint: int) -> None:
        for ledger_id in [key for key, number in self.hidden.items() if number <= checkpoint]:
            del self.hidden[ledger_id]
        if not self.hidden:
            waiting, self.waiting = self.waiting, []
            for answer in waiting:
                answer()
