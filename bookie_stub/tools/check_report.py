"""CheckReport: the result of `magnetar bookie check`, filled while it runs."""

from __future__ import annotations


class CheckReport:
    """Counts of entries, and lines about damage."""

    def __init__(self) -> None:
        self.entries = 0
        """Entries that the location index names, readable or not."""
        self.verified = 0
        """Entries whose digest fits."""
        self.unverifiable = 0
        """Entries of ledgers with a MAC or without a digest, which only their clients can verify."""
        self.damaged: list[str] = []
        """One line per damaged entry or file, with the file and the offset. Any line makes the exit code 1."""
        self.notes: list[str] = []
        """One line per thing that is no damage, such as bytes that a crash has torn."""
