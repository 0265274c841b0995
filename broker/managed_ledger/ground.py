"""What a log stands on (Ground) and what it calls: the stamp of its entries and its listener."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from broker.entry_cache.entry_cache_manager import EntryCacheManager
from broker.ledger_client.ledger_ids import LedgerIdSource
from broker.ledger_client.ledgers import Ledgers
from broker.loop.turn import Turn
from broker.managed_ledger.inflight_reads_limiter import InflightReadsLimiter
from broker.managed_ledger.read_deadlines import ReadDeadlines
from broker.managed_ledger.snapshot_writer import DirtyCursors
from broker.metadata.metadata_store import MetadataStore
from broker.model.entry import Entry
from broker.model.errors import BrokerError


class EntryStamp(Protocol):
    """Makes the broker entry metadata of one log's entries (PIP-70) and counts its messages."""

    index: int
    """Of the last message stamped, -1 = none; set when the log is opened."""

    def stamp(self, messages: int) -> bytes: ...

    def rollback(self, messages: int) -> None: ...


class LedgerListener(Protocol):
    """Who is told of the outcome of adds, in the order in which they were asked for."""

    def entries_added(self, entries: list[Entry], contexts: list[object], now_ns: int) -> None:
        """A run was confirmed: it is durable, readable and, if wanted, in the cache."""
        ...

    def add_failed(self, contexts: list[object], error: BrokerError) -> None: ...


@dataclass(frozen=True)
class Ground:
    """What all logs of a broker share."""

    metadata: MetadataStore
    ledgers: Ledgers
    ids: LedgerIdSource
    caches: EntryCacheManager
    turn: Turn
    now_ns: Callable[[], int]
    wall_ms: Callable[[], int]
    dirty_cursors: DirtyCursors = field(default_factory=DirtyCursors)
    reads_limiter: InflightReadsLimiter = field(default_factory=lambda: InflightReadsLimiter(0, 0, 0))
    """`managedLedgerMaxReadsInFlightSizeInMB`; 0 = no limit. Permits cover what was asked for until it is handed
    over; what a cursor takes from the cache goes out in the same turn and needs none."""
    read_deadlines: ReadDeadlines = field(default_factory=ReadDeadlines)

    def tick(self, now_ns: int) -> None:
        """To be called a few times a second: cursors whose snapshot is due, reads that have waited too long or
        take too long."""
        self.dirty_cursors.flush_due(now_ns)
        due_ns = self.reads_limiter.timer_due_ns
        if due_ns is not None and now_ns >= due_ns:
            self.reads_limiter.timer_fired(now_ns)
        self.read_deadlines.fire_due(now_ns)
