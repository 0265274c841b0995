"""ShadowContext: the state that the parts of a shadow's managed ledger share: mostly that of its source.

The list of ledgers, the last entry, the cache and the knowledge of lost entries are the source's own objects. Cursors,
delayed entries, properties and counters are the shadow's; its own list in the metadata store has no ledger.
"""

from __future__ import annotations

from bookkeeper.ensembles.lost_entries import LostEntries
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.ledger_context import LedgerContext
from broker.managed_ledger.ledger_list_store import LedgerListStore
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.managed_ledger.stats import ManagedLedgerStats
from entry_cache.cache_stats import ReadStats
from entry_cache.reader import Reader
from foundation.model.errors import BrokerError
from foundation.model.position import Position
from foundation.model.topic_name import TopicName


class ShadowContext(LedgerContext):
    """Shared state of one open shadow."""

    __slots__ = ("retired_reads", "source")

    def __init__(
        self,
        name: str,
        environment: ManagedLedgerEnvironment,
        settings: ManagedLedgerSettings,
        store: LedgerListStore,
        source: LedgerContext,
    ) -> None:
        # Not the base's constructor, which would open a cache and a list of its own.
        self.source = source
        """The state of the log that is read."""
        self.name, self.environment, self.settings, self.store = name, environment, settings, store
        self.ledgers, self.cache = source.ledgers, source.cache
        self.view = self.listener = None
        self.stats = ManagedLedgerStats()
        self.retired_reads = ReadStats()
        """Reads of cursors that were deleted."""
        self.known_background = None

    @property
    def last_confirmed(self) -> Position:  # type: ignore[override]  # The source alone moves it.
        """The last entry that can be read."""
        return self.source.last_confirmed

    @property
    def lost(self) -> LostEntries:  # type: ignore[override]  # The source alone notes them.
        """Entries that storage does not return any more."""
        return self.source.lost

    @property
    def is_terminated(self) -> bool:
        """No entry will ever be added to the source any more."""
        return self.source.is_terminated

    def reader(self, cursor_name: str) -> Reader:
        """Returns the reader of a cursor; the source may have a cursor of the same name."""
        return self.cache.reader(f"{cursor_name} of {TopicName.of_ledger_name(self.name)}")

    def forget_reader(self, reader: Reader) -> None:
        """Forgets a reader, and keeps its counts with those of the shadow."""
        self.retired_reads.add(reader.reads)
        super().forget_reader(reader)

    def read_failed(self, ledger_id: int, entry_id: int, error: BrokerError) -> None:
        """Notes it in the source."""
        self.source.read_failed(ledger_id, entry_id, error)
