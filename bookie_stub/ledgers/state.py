"""The state that the parts of one bookie share."""

from __future__ import annotations

from bookie_stub.base.metrics import BookieStats
from bookie_stub.base.posting import Answers
from bookie_stub.disk.ledger_storage import Storages
from bookie_stub.disk.read_cache import ReadCache
from bookie_stub.disk.read_cache_watch import ReadCacheWatch
from bookie_stub.disk.read_pool import ReadPool
from bookie_stub.disk.write_cache import WriteCaches
from bookie_stub.journal.journals import Journals
from bookie_stub.ledgers.registry import LedgerRegistry
from foundation.value import Value


class BookieState(Value, kw_only=True):
    """Ledgers, caches, journals, files and counters. Only lower rooms, so that every part may be given it."""

    ledgers: LedgerRegistry
    """Which ledgers there are, and which were deleted."""
    write_caches: WriteCaches
    """Entries that no entry log has yet."""
    read_cache: ReadCache
    """Entries that were loaded from entry logs."""
    read_cache_watch: ReadCacheWatch
    """Tells when the read cache thrashes."""
    read_pool: ReadPool
    """Threads for work that reads the disk."""
    journals: Journals
    """One or more; each ledger writes to one of them."""
    storages: Storages
    """Entry logs and indexes of each ledger directory."""
    answers: Answers
    """Delivers completions after the call that asked has returned."""
    stats: BookieStats
    """All counters."""
