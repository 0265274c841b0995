"""CursorLog: what a cursor and its reads need of the log that they belong to.

It stands below the cursor, so that a log may make cursors while a cursor knows only this of its log.
`LogCursors` is the one class that satisfies it, by its shape: nothing here runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.entry_cache.entry_cache import EntryCache
from broker.entry_cache.policies.policy import CountReads
from broker.entry_cache.reader import Reader
from broker.errors import BrokerError
from broker.managed_ledger.ground import Ground
from broker.managed_ledger.inflight_reads_limiter import Permits
from broker.managed_ledger.ledger_list import LedgerList
from broker.managed_ledger.pending_reads import PendingReads
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.managed_ledger.stats import LogStats
from broker.model.position import Position


class ReportingCursor(Protocol):
    """What a log looks at in a cursor that reports to it: who it is, where it stands, whether it counts."""

    name: str
    reader: Reader
    active: bool

    @property
    def durable(self) -> bool: ...

    @property
    def read_position(self) -> Position: ...

    @property
    def mark_delete_position(self) -> Position: ...


class CursorLog(Protocol):
    """What these do is written at `LogCursors`. `cache`, `ground` and `is_terminated` also serve whoever holds
    the cursor and looks through it at the log."""

    ground: Ground
    settings: ManagedLedgerSettings
    ledgers: LedgerList
    cache: EntryCache
    reads: PendingReads
    stats: LogStats
    handed_over: CountReads
    """Call with entries that were read and go to no consumer: one read of each is done, for the cache."""
    last_confirmed: Position

    @property
    def is_terminated(self) -> bool: ...

    # What a cursor asks

    def seek_position(self, position: Position) -> Position: ...

    def estimated_bytes(self, ledger_id: int, entries: int) -> int: ...

    def readers_at_or_before(self, cursor: ReportingCursor) -> int: ...

    def at_end_of_turn(self, callback: Callable[[], None]) -> None: ...

    def with_permits(
        self, size_bytes: int, begin: Callable[[Permits], None], refuse: Callable[[BrokerError], None]
    ) -> None: ...

    def give_back(self, permits: Permits) -> None: ...

    # What a cursor reports

    def cursor_activated(self, cursor: ReportingCursor) -> None: ...

    def cursor_deactivated(self, cursor: ReportingCursor) -> None: ...

    def cursor_moved(self, cursor: ReportingCursor, *, by_hit: bool = False) -> None: ...

    def active_cursor_acknowledged(self, cursor: ReportingCursor) -> None: ...

    def cursor_closed(self, cursor: ReportingCursor) -> None: ...

    def trim(self, now_ms: int) -> list[int]: ...
