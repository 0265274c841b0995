"""BookieReport: the numbers of a bookie that an administrator looks at first, for a broker that embeds it."""

from __future__ import annotations

from foundation.value import Value


class DirectoryReport(Value):
    """One ledger directory."""

    path: str
    """The directory as configured."""
    used_bytes: int
    """Bytes of its disk in use."""
    free_bytes: int
    """Free bytes of its disk."""
    writable: bool
    """False while the disk is too full for plain adds."""


class ReadCacheReport(Value):
    """The read cache since the start, in entries."""

    hits: int
    """Served from it."""
    misses: int
    """Entries that a load was started for."""
    evicted_unserved: int
    """Read ahead and evicted before a reader came."""


class BookieReport(Value):
    """A bookie at one moment."""

    read_only: bool
    """True while it refuses plain adds."""
    directories: tuple[DirectoryReport, ...]
    """In the order of their configuration."""
    read_cache: ReadCacheReport
    """The read cache."""
