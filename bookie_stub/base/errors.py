"""The exceptions of the bookie.

A refused request is a result code and no exception.

BookieError
├── BookieStorageError    a disk operation failed; a retry may help once its cause is gone
├── CorruptJournal        acknowledged bytes inside a journal are damaged, so the bookie must not start
├── CorruptEntry          an entry log differs from its index; answered as I/O error, never as "no entry"
│   └── MissingLog        the entry log does not exist: a compaction just removed it, or it was lost
├── RegistrationError     the cluster's metadata store is unreachable or refuses this bookie
└── BookieInUse, ForeignDirectory   the data directory belongs to another process or another bookie
"""

from __future__ import annotations


class BookieError(Exception):
    """Base of all errors that the bookie raises on purpose."""


class BookieStorageError(BookieError):
    """A file cannot be read or written as needed. Its text names the file and the remedy."""


class CorruptJournal(BookieError):
    """A journal lacks acknowledged bytes; its text names file, offset and remedy."""


class CorruptEntry(BookieError):
    """An entry log holds other bytes than the location index says."""


class MissingLog(CorruptEntry):
    """An entry log that the index names does not exist.

    A load tries again, because a compaction may have moved the entry between index and log."""


class RegistrationError(BookieError):
    """The metadata store cannot serve this bookie.

    It is unreachable, has an unknown layout, or another process holds this bookie's id."""


class BookieInUse(BookieError):
    """Another process has the data directory open."""


class ForeignDirectory(BookieError):
    """The data directory belongs to another bookie, cluster, or order of directories."""
