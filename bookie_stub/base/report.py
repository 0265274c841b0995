"""BookieReport: the numbers of a bookie that an administrator looks at first, for a broker that embeds it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DirectoryReport:
    """One ledger directory."""

    path: str
    """The directory as configured."""
    used_bytes: int
    """Bytes of its disk in use."""
    free_bytes: int
    """Free bytes of its disk."""
    writable: bool
    """False while the disk is too full for plain adds."""


@dataclass(frozen=True, slots=True)
class ReadCacheReport:
    """The read cache since the start, in entries."""

    hits: int
    """Served from it."""
    misses: int
    """Entries that a load was started for."""
    evicted_unserved: int
    """Read ahead and evicted before a reader came."""


@dataclass(frozen=True, slots=True)
class BookieReport:
    """A bookie at one moment."""

    read_only: bool
    """True while it refuses plain adds."""
    directories: tuple[DirectoryReport, ...]
    """In the order of their configuration."""
    read_cache: ReadCacheReport
    """The read cache."""
