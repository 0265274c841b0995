"""Reader: one cursor, as the cache knows it: its name, its number within the log, and counts of its reads."""

from __future__ import annotations

from typing import Final

from entry_cache.cache_stats import NO_READS

LOOKS_ONLY: Final = "__peek"
"""Name of the reader of single entries, which belong to no cursor and fill no cache: looks, searches by time."""


class Reader:
    """Names the cursor that a read is for. Made by `EntryCache.reader`."""

    __slots__ = ("name", "number", "reads")

    def __init__(self, name: str, number: int) -> None:
        """`number` must be unique within the log's cache."""
        self.name = name
        """The cursor's name: that of its subscription."""
        self.number = number
        """From 1 within its log, for the life of the log's cache; events use 0 for "no reader"."""
        self.reads = NO_READS
        """Hits, misses and coalesced reads of this cursor; `EntryCache.counters` has them to be changed."""

    @property
    def who(self) -> tuple[str]:
        """The name in the form in which events hold names."""
        return (self.name,)
