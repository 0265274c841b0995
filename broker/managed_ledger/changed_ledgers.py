"""ChangedLedgers: the managed ledgers whose numbers have changed since somebody last looked.

Sums over topics read these again and no others (`broker/numbers/namespace_sums.py`). Nothing is noted while nobody sums.
"""

from __future__ import annotations


class ChangedLedgers:
    """Names of managed ledgers, noted from the first `take` on."""

    __slots__ = ("names",)

    def __init__(self) -> None:
        self.names: set[str] | None = None
        """None while nobody looks: `LedgerContext.note_change` runs several times per message."""

    def note(self, name: str) -> None:
        """Notes a managed ledger that was opened or closed, or a topic without one that was."""
        if self.names is not None:
            self.names.add(name)

    def take(self) -> set[str]:
        """Returns the names that were noted since the last call."""
        names = self.names
        self.names = set()
        return names or set()
