"""What can go wrong in the bookie besides a request that is refused with a result code.

BookieError
├── BookieStorageError    a disk operation failed; trying again may help once its cause is gone
├── CorruptJournal        acknowledged bytes are damaged in the middle of a journal: the bookie must not start
├── CorruptEntry          an entry log does not hold what the index says; answered as I/O error, never "no entry"
│   └── MissingLog        there is no such log: removed a moment ago by a compaction, or lost
├── RegistrationError     the cluster's metadata store cannot be reached, or has no place for this bookie
└── BookieInUse, ForeignDirectory   the data directory is not ours to open
"""

from __future__ import annotations


class BookieError(Exception):
    pass


class BookieStorageError(BookieError):
    pass


class CorruptJournal(BookieError):
    pass


class CorruptEntry(BookieError):
    pass


class MissingLog(CorruptEntry):
    pass


class RegistrationError(BookieError):
    pass


class BookieInUse(BookieError):
    pass


class ForeignDirectory(BookieError):
    pass
