"""What a look at a bookie's files has found."""

from __future__ import annotations


class CheckReport:
    def __init__(self) -> None:
        self.entries = 0
        """That the location index names."""
        self.verified = 0
        """Entries whose digest fits."""
        self.unverifiable = 0
        self.damaged: list[str] = []
        """Entries and files that are not what they should be, a line for each, with the file and the offset."""
        self.notes: list[str] = []
        """What is no damage, but worth a look."""
