"""CursorLog: what a cursor and its reads need of the log that they belong to.

It stands below the cursor, so that a log may make cursors while a cursor knows only this of its log.
`LogCursors` is the one class that satisfies it, by its shape: nothing here runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.entry_cache.entry_cache import EntryCache
from broker.entry_cache.entry_cache_manager import MarkRead
from broker.managed_ledger.cache_readers import CacheReaders, ReadingCursor
from broker.managed_ledger.ground import Ground
from broker.managed_ledger.ledger_list import LedgerList
from broker.managed_ledger.range_reads import RangeReads
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.managed_ledger.stats import LogStats
from broker.model.position import Position


class CursorLog(Protocol):
    """What these do is written at `LogCursors`. `cache`, `ground` and `is_terminated` also serve whoever holds
    the cursor and looks through it at the log."""

    ground: Ground
    settings: ManagedLedgerSettings
    ledgers: LedgerList
    cache: EntryCache
    reads: RangeReads
    readers: CacheReaders
    stats: LogStats
    handed_over: MarkRead
    """Call with entries that were read and go to no consumer: one read of each is done, for the cache."""
    last_confirmed: Position

    @property
    def is_terminated(self) -> bool: ...

    # What a cursor asks

    def seek_position(self, position: Position) -> Position: ...

    def estimated_bytes(self, ledger_id: int, entries: int) -> int: ...

    def at_end_of_turn(self, callback: Callable[[], None]) -> None: ...

    # What a cursor reports

    def forget_cursor(self, cursor: ReadingCursor) -> None: ...

    def trim(self, now_ms: int) -> list[int]: ...
