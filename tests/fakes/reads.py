"""Reads of ranges without a cursor, and a managed ledger's context over a storage that a test answers itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from bookkeeper.ensembles.ledger_ids import LedgerIdSource
from bookkeeper.ensembles.ledgers import Ledgers
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import ABSENT
from broker.compose.cache_settings import EntryCacheSettings
from broker.managed_ledger.entry_read import EntryRead
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.ledger_context import LedgerContext
from broker.managed_ledger.ledger_list import LedgerInfo, LedgerList
from broker.managed_ledger.ledger_list_store import LedgerListStore
from broker.managed_ledger.managed_ledger_info import ManagedLedgerInfo
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.managed_ledger.storage_reads import StorageReads
from entry_cache.compose import ComposedCache
from entry_cache.entry_cache_manager import EntryCacheManager
from entry_cache.reader import Reader
from foundation.loop.turn import Turn
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError
from foundation.model.range_set import EntryRange

EntriesRead = Callable[[list[Entry], BrokerError | None], None]
"""(the whole range in order, None), or ([], the error)."""


class ReadsLedgers(Protocol):
    """The one method of `Ledgers` that reads call."""

    def read(self, ledger_id: int, first: int, last: int, bytes_max: int, done: EntriesRead) -> None: ...


class RangeRequest:
    """Reads one range for a reader; `done` gets the result."""

    def __init__(
        self,
        reader: Reader,
        wanted: EntryRange,
        done: EntriesRead,
        expected_reads: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.reader = reader
        self._wanted = wanted
        self._done = done
        self._counted = expected_reads

    def begin(self, context: LedgerContext, storage_reads: StorageReads) -> EntryRead:
        read = EntryRead(context, storage_reads, self)
        read.begin(self.ranges())
        return read

    def ranges(self) -> Sequence[EntryRange]:
        return (self._wanted,)

    def expected_reads(self) -> int | None:
        return self._counted()

    def read_ended(self, entries: list[Entry], error: BrokerError | None) -> None:
        self._done(entries, error)


def context_over(
    ledgers: ReadsLedgers,
    *,
    name: str = "ledger",
    caches: EntryCacheManager | None = None,
    now_ns: Callable[[], int] = lambda: 0,
) -> LedgerContext:
    """A managed ledger's context whose storage is `ledgers`; without `caches` nothing fits into its cache."""
    metadata = MemoryMetadataStore()
    client = cast(Ledgers, ledgers)
    environment = ManagedLedgerEnvironment(
        metadata,
        client,
        cast(LedgerIdSource, None),
        caches or ComposedCache(EntryCacheSettings(size_bytes_max=1)).manager,
        Turn(deque[Callable[[], None]]().append, now_ns),
        now_ns,
        lambda: 0,
    )
    store = LedgerListStore(
        name, metadata, client, LedgerList([], LedgerInfo(1)), ManagedLedgerInfo(), ABSENT
    )
    return LedgerContext(name, environment, ManagedLedgerSettings(), store)
