"""ManagedLedgerEnvironment: the stores, clocks, cache and limits that all managed ledgers of a broker share.

`BrokerService` makes one and looks after what falls due in it: a few times a second it calls
`unsaved_cursors.write_due`, `reads_limiter.expire_due` and `read_deadlines.fire_due`. Nothing in this room has a
timer or a clock of its own, so a test decides what time it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from bookkeeper.ensembles.ledger_ids import LedgerIdSource
from bookkeeper.ensembles.ledgers import Ledgers
from bookkeeper.metadata.metadata_store import MetadataStore
from broker.managed_ledger.inflight_reads_limiter import InflightReadsLimiter
from broker.managed_ledger.read_deadlines import ReadDeadlines
from broker.managed_ledger.removal.deletion import no_tier
from broker.managed_ledger.stats import AckStateCuts, ChangedLedgers, TimeSearches
from broker.managed_ledger.unsaved_cursors import UnsavedCursors
from entry_cache.entry_cache_manager import EntryCacheManager
from foundation.loop.turn import Turn
from foundation.value import Value
from protocol.broker_entry_metadata import ClockClamps, EntryStamp

if TYPE_CHECKING:
    from broker.managed_ledger.entry_metadata.own_interceptors import OwnInterceptors
    from broker.managed_ledger.offload.tier import OpenTier


class ManagedLedgerEnvironment(Value):
    """Stores, clocks and limits that a broker's managed ledgers share."""

    metadata: MetadataStore
    """Keeps ledger lists and cursor infos."""
    ledgers: Ledgers
    """Makes, writes, reads, recovers and deletes BookKeeper ledgers."""
    ids: LedgerIdSource
    """Gives out ids of new ledgers."""
    caches: EntryCacheManager
    """Holds the entry cache of each managed ledger."""
    turn: Turn
    """Runs callbacks at the end of a turn of the event loop."""
    now_ns: Callable[[], int]
    """Monotonic clock, for intervals."""
    wall_ms: Callable[[], int]
    """Milliseconds since 1970, for times that are stored."""
    reads_limiter: InflightReadsLimiter = field(default_factory=lambda: InflightReadsLimiter(0, 0, 0))
    """`managedLedgerMaxReadsInFlightSizeInMB`; 0 = no limit. Permits cover a read from its beginning until its last
    entry was dispatched or dropped. Entries that a cursor takes from the cache need none: they are dispatched in
    the same turn."""
    read_deadlines: ReadDeadlines = field(default_factory=ReadDeadlines)
    """`managedLedgerReadEntryTimeoutSeconds`: reads that fail unless storage answers in time."""
    unsaved_cursors: UnsavedCursors = field(default_factory=UnsavedCursors)
    """Cursors whose acknowledgements are not stored yet."""
    ack_cuts: AckStateCuts = field(default_factory=AckStateCuts)
    """Counts writes of cursors that could not store every acknowledgement."""
    clock_clamps: ClockClamps = field(default_factory=ClockClamps)
    """Counts entries whose timestamp is later than the clock."""
    time_searches: TimeSearches = field(default_factory=TimeSearches)
    """Counts searches by time, and the entries that they read."""
    changed: ChangedLedgers = field(default_factory=ChangedLedgers)
    """Managed ledgers whose numbers are to be summed again."""
    perhaps_idle: ChangedLedgers = field(default_factory=ChangedLedgers)
    """Managed ledgers of topics that were opened or that a client has left."""
    open_tier: OpenTier = no_tier
    """Opens the storage beside the bookies that keeps copies of ledgers."""
    interceptors: OwnInterceptors | None = None
    """Add fields of one's own to the broker entry metadata; None, the usual case, adds none."""

    def note_opened(self, name: str) -> None:
        """Notes a managed ledger that was opened, or a topic without one that was."""
        self.changed.note(name)
        self.perhaps_idle.note(name)

    def stamp(self, topic: str, *, timestamp: bool, index: bool) -> EntryStamp:
        """Returns the stamp of a topic that is about to open."""
        if self.interceptors is not None:
            return self.interceptors.stamp(
                topic, timestamp=timestamp, index=index, now_ms=self.wall_ms, clamps=self.clock_clamps
            )
        return EntryStamp(timestamp=timestamp, index=index, now_ms=self.wall_ms, clamps=self.clock_clamps)
