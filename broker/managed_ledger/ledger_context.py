"""LedgerContext: the state that all parts of one managed ledger share.

The parts stand above it and call one another in one direction only:

    ManagedLedger        opens, closes, deletes; owns the parts
      LedgerWriter       adds entries, rolls to the next BookKeeper ledger
      LedgerCursors      opens and deletes cursors
        ManagedCursor    reads and acknowledges
          Trimming       removes BookKeeper ledgers that no cursor needs
          ReadingCursors tells the cache which cursors read where
          StorageReads   reads from BookKeeper ledgers, shared by cursors
    LedgerContext        this
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from bookkeeper.ensembles.ledger_handle import Added
from bookkeeper.ensembles.lost_entries import NONE_LOST, LostEntries
from broker.managed_ledger.background import Background
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.ledger_list_store import LedgerListStore
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.managed_ledger.stats import NO_STATS, ManagedLedgerStats
from entry_cache.entry_cache import EntryCache
from entry_cache.reader import LOOKS_ONLY, Reader
from foundation.model.entry import Entry
from foundation.model.errors import LOST_ENTRY, BrokerError
from foundation.model.position import Position
from foundation.seldom import when_used

OVERHEAD_ESTIMATE_BYTES: Final = 64
"""Added to the average size of an entry when a read is estimated, as Pulsar does (PIP-430, size estimates)."""


class Divided(NamedTuple):
    """Entries that a cursor has taken, by their fate."""

    shown: list[Entry]
    """To be delivered."""
    left_out: list[Entry]
    """Not to be delivered now."""
    dead: list[tuple[int, int]]
    """Positions, all of entries in `left_out`, that no reader will ever get: the cursor acknowledges them."""


class ReadView(Protocol):
    """Limits what cursors of a managed ledger see: a topic with transactions has one.

    Its readers stop before the oldest open transaction and do not get the entries of aborted ones.
    """

    def last_readable(self, last_confirmed: Position) -> Position:
        """Returns the last entry that may be read, at or before `last_confirmed`; never goes back."""
        ...

    def divide(self, cursor_name: str, taken: list[Entry]) -> Divided:
        """Divides consecutive entries of one ledger; `taken` may itself be the first list."""
        ...


class LedgerListener(Protocol):
    """Receives the outcome of adds, in their order, and the end of ownership: a persistent topic."""

    def entries_added(self, entries: list[Entry], added: list[Added], now_ns: int) -> None:
        """The entries, at least one, are durable, readable and, if readers are expected, cached.

        `added`: the adds that they came with. A run that a roll has cut comes as several, with the same context.
        """
        ...

    def add_failed(self, added: list[Added], error: BrokerError) -> None:
        """The entries of these adds were not stored. Adds that waited after them fail with the same error."""
        ...

    def taken_over(self) -> None:
        """Another broker stores a cursor of this managed ledger now, or has done so: it must be opened anew."""
        ...


def _background_of(context: LedgerContext) -> Background:
    return Background("managed ledger", context.name)


class LedgerContext:
    """Shared state of one open managed ledger.

    `settings`, `last_confirmed`, `listener` and `view` are replaced while it is open; the rest stays.
    """

    __slots__ = (
        "cache",
        "environment",
        "known_background",
        "last_confirmed",
        "ledgers",
        "listener",
        "lost",
        "name",
        "settings",
        "stats",
        "store",
        "view",
    )

    # Own tasks per managed ledger, so that closing one topic waits for its work alone.
    background: Background = when_used("known_background", _background_of)
    """Ledger rolls and removals in progress; a close waits for them."""

    def __init__(
        self,
        name: str,
        environment: ManagedLedgerEnvironment,
        settings: ManagedLedgerSettings,
        store: LedgerListStore,
    ) -> None:
        self.name = name
        """Pulsar's path: tenant/namespace/domain/topic, the last part percent-encoded."""
        self.environment = environment
        """Stores, clocks and limits shared with all others of the broker."""
        self.settings = settings
        """Replaced as a whole when a setting changes at run time, so read it anew for each use."""
        self.store = store
        """The stored form of the ledger list."""
        self.ledgers = store.ledgers
        """The ledger list in memory, and the arithmetic of positions."""
        self.last_confirmed = self.ledgers.last()
        """The last entry that can be read; (current ledger, -1) when there is none."""
        self.lost = NONE_LOST
        """Entries that storage does not return any more; `read_failed` adds to them."""
        self.listener: LedgerListener | None = None
        """Receives the outcome of every add; the topic sets it after the open."""
        self.view: ReadView | None = None
        """Hides entries from cursors; None, the usual case, shows them all."""
        self.stats = NO_STATS
        """Counters for metrics and the admin API; `counters` has them to be changed."""
        self.cache: EntryCache = environment.caches.open(name)
        """The cached entries of this managed ledger."""
        self.known_background: Background | None = None
        """`background`, None before its first use."""

    def counters(self) -> ManagedLedgerStats:
        """Returns `stats` to be changed; made by the first use, because most topics of a large broker are silent."""
        if self.stats is NO_STATS:
            self.stats = ManagedLedgerStats()
        return self.stats

    @property
    def single_reader(self) -> Reader:
        """Counts the reads that belong to no cursor; made by the first of them."""
        self.note_change()
        return self.cache.reader(LOOKS_ONLY)

    def reader(self, cursor_name: str) -> Reader:
        """Returns the reader that the cache knows a cursor by."""
        return self.cache.reader(cursor_name)

    def forget_reader(self, reader: Reader) -> None:
        """Forgets the reader of a cursor that will not return."""
        self.cache.forget_reader(reader.name)

    def read_failed(self, ledger_id: int, entry_id: int, error: BrokerError) -> None:
        """Notes the first entry that a storage read could not bring, if the error proves its loss."""
        if isinstance(error, LOST_ENTRY):
            if self.lost is NONE_LOST:
                self.lost = LostEntries(self.name)
            self.lost.read_failed(ledger_id, entry_id, error)

    @property
    def is_terminated(self) -> bool:
        """No entry will ever be added any more."""
        return self.store.terminated is not None

    @property
    def last_readable(self) -> Position:
        """The last entry that cursors may read: the last confirmed one, or an earlier one that the view names."""
        return self.last_confirmed if self.view is None else self.view.last_readable(self.last_confirmed)

    def estimated_bytes(self, ledger_id: int, entries: int) -> int:
        """Returns the estimated bytes of so many entries of the ledger."""
        return entries * (self.ledgers.average_entry_bytes(ledger_id) + OVERHEAD_ESTIMATE_BYTES)

    def note_change(self) -> None:
        """Notes that a number of the topic has changed: of its entries, its cursors or its clients."""
        # As `ChangedLedgers.note`, written out: this runs several times per message.
        names = self.environment.changed.names
        if names is not None:
            names[self.name] = None

    def at_end_of_turn(self, callback: Callable[[], None]) -> None:
        """Calls back at the end of this loop turn, before the dispatchers."""
        self.environment.turn.confirm(lambda _: callback())
