"""ManagedLedger: one topic's entries: BookKeeper ledgers in a row, a cache, and cursors that read them.

It owns the parts that do the work and knows the order in which they open and close:

    writer     LedgerWriter    adds entries, rolls to the next ledger           (per message)
    cursors    LedgerCursors   subscriptions' places: reading, acknowledging    (per run of entries)
    trimming   Trimming        removes ledgers that no cursor needs
    delayed    DelayedEntries  entries that must wait for their delivery time
    context    LedgerContext   the state that all of them share

Each managed ledger is opened, closed, deleted and fenced by itself, so topics may move between brokers one by one.
`TopicRegistry` opens one per persistent topic. The rules for two brokers that both believe they have it are in
docs/architecture.md ("Taking a managed ledger over").
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from bookkeeper.metadata.metadata_store import Lease
from broker.managed_ledger.delayed.bucket_ledgers import BucketLedgers
from broker.managed_ledger.delayed.delayed_entries import NONE_DELAYED, DelayedEntries
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.ledger_context import LedgerContext
from broker.managed_ledger.ledger_cursors import LedgerCursors
from broker.managed_ledger.ledger_list_store import LedgerListStore
from broker.managed_ledger.ledger_parts import LedgerParts
from broker.managed_ledger.ledger_writer import LedgerWriter, ManagedLedgerState
from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.managed_ledger.managed_ledger_info import (
    NO_PROPERTIES,
    SHADOW_SOURCE,
    StoredNodes,
    cursor_key,
    managed_ledger_key,
)
from broker.managed_ledger.opening import open_ledger_list
from broker.managed_ledger.reading_cursors import ReadingCursors
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.managed_ledger.single_entry import find_newest, read_entries, read_entry, read_readable
from broker.managed_ledger.stats import ManagedLedgerStats
from broker.managed_ledger.storage_reads import StorageReads
from broker.managed_ledger.trimming import ShadowTrimming, Trimming
from entry_cache.cache_stats import ReadStats
from foundation.model.entry import Entry
from foundation.model.errors import BadVersion, BrokerError
from foundation.model.position import EARLIEST, LATEST, Position
from foundation.model.range_set import EntryRange
from protocol.broker_entry_metadata import EntryStamp

if TYPE_CHECKING:
    from broker.managed_ledger.offload.ledger_offloads import LedgerOffloads

SourceOf = Callable[[str], Awaitable["ManagedLedger"]]
"""Returns the open log of a topic by its full name. Raises BrokerError."""
_NO_SHADOWS: Final[Mapping[str, ManagedLedger]] = MappingProxyType({})


class ManagedLedger:
    """Opened with `ManagedLedger.open`; assign `context.listener` before the first add."""

    __slots__ = (
        "cache",
        "context",
        "cursors",
        "delayed",
        "environment",
        "ledgers",
        "name",
        "offloads",
        "on_growth",
        "reading_cursors",
        "shadows",
        "source",
        "storage_reads",
        "store",
        "trimming",
        "writer",
    )

    def __init__(
        self,
        context: LedgerContext,
        stamp: EntryStamp,
        source: ManagedLedger | None = None,
        storage_reads: StorageReads | None = None,
    ) -> None:
        """`source`: the log that this one reads in the place of its own; its context is a `ShadowContext` then.

        `storage_reads`: of a log that another broker writes.
        """
        self.source = source
        """The log of a shadow topic's source; None for a log of its own."""
        self.shadows = _NO_SHADOWS
        """The open shadows of this log, by name. Made anew by each change: most have none."""
        self.on_growth: Callable[[], None] = _nothing
        """Of a shadow: called when its source has new entries."""
        self.context = context
        """The state that all parts share. The next five are the most used of it."""
        self.name = context.name
        """Pulsar's path: tenant/namespace/domain/topic."""
        self.environment = context.environment
        """Stores, clocks and limits shared with all others of the broker."""
        self.ledgers = context.ledgers
        """The list of its ledgers, and the arithmetic of positions. To look at only."""
        self.cache = context.cache
        """The cached entries of this managed ledger."""
        self.store = context.store
        """The stored form of the list."""
        # One dict for two parts: LedgerCursors fills it and needs Trimming, and Trimming looks at the cursors.
        cursors: dict[str, ManagedCursor] = {}
        # A shadow shares these three with its source: the readers of both count as readers of one cache.
        if storage_reads is None:
            storage_reads = StorageReads(context) if source is None else source.storage_reads
        self.storage_reads: StorageReads = storage_reads
        """The reads from BookKeeper ledgers that are under way."""
        self.reading_cursors: ReadingCursors = (
            ReadingCursors(context) if source is None else source.reading_cursors
        )
        """The active cursors, as the cache knows them."""
        self.trimming: Trimming = (
            Trimming(context, self.storage_reads, cursors)
            if source is None
            else ShadowTrimming(source.trimming, cursors)
        )
        """Retention, and the removal of ledgers that no cursor needs."""
        parts = LedgerParts(context, self.storage_reads, self.reading_cursors, self.trimming)
        self.cursors = LedgerCursors(parts, cursors)
        """Opens, finds and deletes cursors."""
        self.writer = LedgerWriter(context, stamp, self.reading_cursors, self.trimming)
        """Adds entries. Topics call `writer.add` themselves: passing it on would cost a call per message."""

        self.offloads: LedgerOffloads | None = None
        """Copies closed ledgers to other storage; None = none was copied yet. See `own_offloads`."""
        self.delayed = NONE_DELAYED
        """Entries that must wait for their delivery time; `broker/service` takes out what is due. See `own_delayed`."""

    @classmethod
    async def open(
        cls,
        name: str,
        environment: ManagedLedgerEnvironment,
        settings: ManagedLedgerSettings,
        *,
        stamp: EntryStamp,
        source_of: SourceOf | None = None,
        nodes: StoredNodes | None = None,
        lease: Lease | None = None,
        properties: Mapping[str, str] = NO_PROPERTIES,
        reserved: int = -1,
    ) -> ManagedLedger:
        """Opens the managed ledger, or makes a new one.

        `source_of` opens the source of a shadow; needed for topics. `nodes`: what the metadata store has of it, where the
        caller knows that. Another broker that has it open is fenced by this. `lease`: that of the list's first write and of
        cursors. `properties`: of a new one. `reserved` as in `open_ledger_list`.
        Raises MetadataError or PersistenceError; opening may then be tried again.
        """
        known = None if nodes is None else nodes.info
        store: LedgerListStore = await open_ledger_list(
            name, environment, settings, stamp, known, lease, properties, reserved
        )
        # Its former owner may have written cursors until it was fenced.
        if nodes is not None and environment.metadata.is_shared and store.version != nodes.info.version:
            nodes = None
        source_name = store.properties.get(SHADOW_SOURCE)
        if source_name is None or source_of is None:
            ledger = cls(LedgerContext(name, environment, settings, store), stamp)
        else:
            # Imported late, here and below: most brokers have no shadow topics.
            from broker.managed_ledger.shadows.shadow_context import ShadowContext

            source = await source_of(source_name)
            ledger = cls(ShadowContext(name, environment, settings, store, source.context), stamp, source)
            source._attach(ledger)
        try:
            # A new managed ledger has no cursors; not asking saves a round trip per topic.
            if not store.is_new:
                await ledger.cursors.load(None if nodes is None else nodes.cursors)
        except BrokerError:
            ledger._detach()
            raise
        ledger.trimming.held_at = LATEST
        if store.buckets:
            await ledger.delayed_buckets.load(ledger.own_delayed())
        if settings.offload_at_open:
            ledger.check_offloads(environment.wall_ms())
        return ledger

    def reconfigure(self, settings: ManagedLedgerSettings) -> None:
        """Uses other settings; limits of a ledger apply from the next ledger on."""
        self.context.settings = settings
        self.context.store.affinity = settings.affinity

    def own_delayed(self) -> DelayedEntries:
        """Returns `delayed` to be filled, made if need be; `broker/service` fills it."""
        if self.delayed is NONE_DELAYED:
            settings = self.context.settings
            self.delayed = DelayedEntries(settings.delayed_segment_entries, settings.delayed_bucket_entries)
        return self.delayed

    def own_offloads(self) -> LedgerOffloads:
        """Returns `offloads`, made if need be."""
        if self.offloads is None:
            # Here, because most topics have no copies.
            from broker.managed_ledger.offload.ledger_offloads import LedgerOffloads

            self.offloads = LedgerOffloads(self.context, self.trimming)
        return self.offloads

    @property
    def is_offloading(self) -> bool:
        """True while closed ledgers are copied to other storage."""
        return self.offloads is not None and self.offloads.is_running

    def check_offloads(self, now_ms: int) -> None:
        """Begins the offloads and the deletions after them that are due; those of a shadow are its source's."""
        if self.source is not None:
            return
        if self.context.settings.offload.place.driver or any(one.offload for one in self.ledgers.infos()):
            self.own_offloads().check(now_ms)

    @property
    def delayed_buckets(self) -> BucketLedgers:
        """Keeps the delayed entries over a restart."""
        return BucketLedgers(self.context)

    @property
    def stats(self) -> ManagedLedgerStats:
        """Counters for metrics and the admin API. To be read only."""
        return self.context.stats

    @property
    def reads(self) -> ReadStats:
        """Reads of its cursors and of single entries; those of its shadows are theirs, though they share the cache."""
        if self.source is not None:
            from broker.managed_ledger.shadows.shadow_context import ShadowContext

            assert isinstance(self.context, ShadowContext)
            own = ReadStats()
            own.add(self.context.retired_reads)
            for cursor in self.cursors.by_name.values():
                own.add(cursor.reader.reads)
            return own
        reads = self.cache.reads
        for shadow in self.shadows.values():
            reads = reads.without(shadow.reads)
        return reads

    @property
    def state(self) -> ManagedLedgerState:
        """The writer's state, which says whether adds are taken."""
        return self.writer.state

    @property
    def last_confirmed(self) -> Position:
        """The last entry that can be read; (current ledger, -1) when there is none."""
        return self.context.last_confirmed

    @property
    def is_terminated(self) -> bool:
        """No entry will ever be added any more."""
        return self.context.is_terminated

    @property
    def properties(self) -> Mapping[str, str]:
        """Stored with the next write of the ledger list.

        `index` and `brokerTimestamp` (PIP-70) are the managed ledger's own.
        """
        return self.store.properties

    async def set_properties(self, changes: Mapping[str, str | None]) -> None:
        """Sets properties, None = remove; durable when this returns. A MetadataError leaves the properties as they
        were.
        """
        store = self.store
        async with store.lock:
            before = {name: store.properties.get(name) for name in changes}
            store.properties = _changed(store.properties, changes)
            try:
                await store.save()
            except BrokerError:
                store.properties = _changed(store.properties, before)
                raise

    async def read_entry(self, position: Position) -> Entry:
        """Returns one entry. Raises as `single_entry.read_entry`."""
        return await read_entry(self.context, self.storage_reads, position)

    async def read_entries(self, wanted: EntryRange) -> list[Entry]:
        """Returns the entries at these positions. Raises as `single_entry.read_entries`."""
        return await read_entries(self.context, self.storage_reads, wanted)

    async def read_readable(self, wanted: EntryRange) -> list[Entry]:
        """Returns those of the entries that storage still has, as `single_entry.read_readable`."""
        return await read_readable(self.context, self.storage_reads, wanted)

    async def find_newest(
        self, holds: Callable[[Entry], bool], near_ms: int | None = None
    ) -> Position | None:
        """Returns the newest entry that fits, as `single_entry.find_newest`."""
        return await find_newest(self.context, self.storage_reads, holds, near_ms)

    # Ends

    def _attach(self, shadow: ManagedLedger) -> None:
        """Lets a shadow read this log, and keeps what its cursors need."""
        self.shadows = {**self.shadows, shadow.name: shadow}
        # Until its cursors are known, nothing is superfluous.
        shadow.trimming.held_at = EARLIEST
        self.trimming.set_shadow(shadow.name, shadow.trimming)

    def _detach(self) -> None:
        """Lets a shadow read its source no more; the source holds it, as another broker may open it or make it anew."""
        source = self.source
        if source is None or source.shadows.get(self.name) is not self:
            return
        shadows = {name: one for name, one in source.shadows.items() if one is not self}
        source.shadows = shadows or _NO_SHADOWS
        source.trimming.hold(self.name)
        for cursor in self.cursors.by_name.values():
            self.context.forget_reader(cursor.reader)

    def grown(self) -> None:
        """Tells the shadows that this log has new entries, or will get no more."""
        for shadow in self.shadows.values():
            shadow.on_growth()

    async def terminate(self) -> Position:
        """Takes no more adds, for ever; returns the last entry.

        Raises MetadataError, and may then be tried again (adds stay refused until then).
        """
        store = self.store
        if store.terminated is not None:
            return store.terminated
        self.writer.refuse_unless_usable()
        # Before the position is taken: the last entry is known only when the adds in flight have ended.
        await self.writer.stop(ManagedLedgerState.TERMINATED)
        async with store.lock:
            self.writer.end_current()
            store.terminated = self.last_confirmed
            try:
                await store.save()
            except BrokerError:
                # Not stored, so not terminated: after a restart it would take adds again.
                store.terminated = None
                raise
        return self.last_confirmed

    async def close(self) -> None:
        """Finishes adds, closes the ledger, stores acknowledgements and empties the cache.

        A fenced managed ledger stores nothing: the metadata is another broker's now. So it is where the list has another
        version than the expected one. Raises the first MetadataError otherwise; it is closed all the same, and the next
        open recovers it.
        """
        if self.state is ManagedLedgerState.CLOSED:
            return
        fenced = self.state is ManagedLedgerState.FENCED
        if self.offloads is not None:
            self.offloads.stop()
        await self.writer.stop(ManagedLedgerState.CLOSED)
        # Before the cursors in memory are forgotten: nothing reads through it any more.
        self._detach()
        # After the adds: with the last of them deduplication acknowledges once more. At once with the list, since clients
        # of a topic that moves wait; a crash between the two is one before the close.
        end, problems = await asyncio.gather(self._save_end(fenced=fenced), self.cursors.close())
        await self._release()
        # A fenced one has nothing to report: every write is refused, as it must be. So it is where another broker took it
        # over, and no add has told since.
        for problem in () if fenced or isinstance(end, BadVersion) else (end, *problems):
            if problem is not None:
                raise problem

    async def _save_end(self, *, fenced: bool) -> BrokerError | None:
        if fenced:
            return None
        async with self.store.lock:
            started = self.store.current_started
            self.writer.end_current()
            try:
                # Without a begun ledger the list is as the open left it, so closing an idle topic costs no write.
                if started:
                    await self.store.save()
            except BrokerError as error:
                return error
        return None

    async def stored_nodes(self) -> StoredNodes | None:
        """Returns what the metadata store has of this managed ledger, once it is closed. Raises MetadataError.

        None on a shared store, where another broker may change it.
        """
        metadata = self.environment.metadata
        if metadata.is_shared:
            return None
        info = await metadata.get(managed_ledger_key(self.name))
        cursors = [(name, await metadata.get(cursor_key(self.name, name))) for name in self.cursors.by_name]
        found = tuple((name, node) for name, node in cursors if node is not None)
        return None if info is None else StoredNodes(info, found)

    async def abandon(self) -> None:
        """Finishes adds and stores nothing more, because the managed ledger is being deleted (`deletion.py`)."""
        if self.offloads is not None:
            self.offloads.stop()
        if self.state is not ManagedLedgerState.CLOSED:
            await self.writer.stop(ManagedLedgerState.CLOSED)
        self._detach()
        # Before the deletion: a cursor's late write would make a node below a key that is gone.
        self.cursors.abandon()
        await self._release()

    async def _release(self) -> None:
        """Waits for background work, then removes the cache: that work may still invalidate entries in it."""
        await self.context.background.drain()
        self.environment.caches.remove(self.name)


def _nothing() -> None:
    """Stands for `on_growth` before there is a topic."""


def _changed(properties: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    both = {**properties, **changes}
    return {name: text for name, text in both.items() if text is not None}
