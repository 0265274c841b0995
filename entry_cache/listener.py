"""CacheListener: the one interface through which other parts hear of everything that the cache does.

The core calls its listener and never looks at the result, with the two exceptions that are named below. Without a
listener it calls a plain `CacheListener`, which costs one empty call for each run of entries and nothing for an entry.
Statistics, the decisions that the admin API explains, access records, the accounting of pinned buffers and the policy
`magnetar` all attach here; `CombinedListener` makes one listener of several.

The numbers of the enumerations stand in access records and never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from entry_cache.policy import Removed, Requeued
from entry_cache.range_cache import CachedLog
from entry_cache.reader import Reader
from foundation.model.entry import Entry
from foundation.model.position import Position

if TYPE_CHECKING:
    from entry_cache.active_cursors import ActiveCursors
    from entry_cache.cache_stats import Reason
    from entry_cache.settings import CacheSettings


class HitKind(IntEnum):
    """The place of the cursor after a read from the cache."""

    MOVES = 0
    """The cursor stands after the run from here on."""
    STAYS = 1
    """Single positions, or a look ahead: the cursor stays at its place."""
    REDELIVERY = 2
    """Like STAYS, by a redelivery that waited for the entry."""


class StorageRead(IntEnum):
    """How a read that the cache could not serve goes on."""

    MISS = 4
    """The entries are read from storage for this reader."""
    COALESCED = 5
    """Another reader's storage read for these entries is running, and this reader waits for it."""
    FAILED = 6
    """The storage read ended with an error."""


class CursorChange(IntEnum):
    """A change of a cursor of the log."""

    ADDED = 11
    """The cursor became active at the position."""
    MOVED = 12
    """The cursor moved to the position for another reason than a hit."""
    LEFT = 13
    """The cursor is no longer active; the position is its mark-delete position."""
    ACKNOWLEDGED = 14
    """The cursor's mark-delete position is this one."""
    FORGOTTEN = 24
    """The cursor was deleted."""


class Redelivery(IntEnum):
    """A change of the redeliveries that entries wait for."""

    EXPECTED = 8
    """Delivered entries wait to be read once more."""
    POSTPONED = 20
    """Entries were read, could not be delivered, and wait to be read once more.

    Their expected reads stay: the read is still to be counted.
    """
    DROPPED = 28
    """The entries are no longer waited for: they were acknowledged, or the cursor was deleted."""


class Obstacle(IntEnum):
    """Why entries did not enter the cache."""

    DISABLED = 1
    """The cache is switched off by its size."""
    NO_ACTIVE_CURSOR = 2
    """The entries were confirmed while no cursor was active, and none had been shortly before."""
    NO_READER = 3
    """The entries were read from storage, and no active cursor is known to read them again."""
    FULL = 4
    """The cache was full, and no reader was known to come for them."""
    TOO_LARGE = 5
    """The entry is larger than the cache."""


class Pass(IntEnum):
    """The trigger of passes."""

    PERIODIC = 15
    """The timer (`managedLedgerCacheEvictionIntervalMs`)."""
    SIZE_CHECK = 16
    """An insert that exceeded the trigger."""


class CacheListener:
    """Hears of the cache's inputs and of its decisions, in order; this class ignores them.

    A run holds at least one entry.
    """

    @property
    def hears_deliveries(self) -> bool:
        """True if `delivered` is to be called; asked once, when the manager is made.

        Deliveries are the hottest event: without this the manager lends out the policy's own function.
        """
        return False

    def hears(self, event: str) -> bool:
        """Returns True if an event of this name is to be called; asked once, by callers that run once per message."""
        return True

    # Caches and their cursors

    def configured(self, settings: CacheSettings) -> None:
        """The manager has these settings from here on."""

    def cache_removed(self, cache: CachedLog) -> None:
        """The managed ledger was closed; its entries were invalidated before."""

    def ledger_changed(self, cache: CachedLog, ledger_id: int, *, opened: bool) -> None:
        """The cache holds entries of another ledger from here on, or none of that ledger any more."""

    def reader_made(self, cache: CachedLog, reader: Reader) -> None:
        """A cursor of the log got its number."""

    def cursors_attached(
        self,
        cache: CachedLog,
        cursors: ActiveCursors,
        now_ns: int,
        *,
        counts_reads: bool,
        by_mark_delete: bool,
    ) -> None:
        """The managed ledger was opened.

        `counts_reads`: it inserts entries with expected reads. `by_mark_delete`: its cursors stand at their mark-delete
        positions.
        """

    def cursor_changed(
        self,
        change: CursorChange,
        cache: CachedLog,
        reader: Reader,
        position: Position,
        at_ns: int | None = None,
    ) -> None:
        """A cursor of the log came, moved, acknowledged or left."""

    # Entries that enter

    def appended(self, cache: CachedLog, entries: Sequence[Entry], now_ns: int) -> None:
        """The log confirmed a run; it may be cached next."""

    def fetched(
        self, cache: CachedLog, entries: Sequence[Entry], expected_reads: int | None, now_ns: int
    ) -> None:
        """A run came from storage; None = the reader is not active, so it is not to be cached."""

    def not_cached(self, cache: CachedLog, entries: Sequence[Entry], obstacle: Obstacle, now_ns: int) -> None:
        """A run does not enter the cache."""

    def slices_inserted(self, entries: Sequence[Entry]) -> None:
        """Some of the inserted entries are slices of larger receive buffers; called before `inserted`."""

    def inserted(
        self,
        cache: CachedLog,
        entries: Sequence[Entry],
        size_bytes: int,
        expected_reads: int | None,
        now_ns: int,
    ) -> None:
        """A run was inserted; entries that were present are left out, so there may be gaps."""

    def offered_again(self, cache: CachedLog, entry: Entry, expected_reads: int | None, now_ns: int) -> None:
        """The position of an offered entry was present already."""

    # Reads

    def run_read(
        self, cache: CachedLog, reader: Reader, entries: list[Entry], size_bytes: int
    ) -> list[Entry]:
        """The reader got a run and moves past it. Returns the list to deliver: `entries`, or a marked copy."""
        return entries

    def hit(
        self,
        cache: CachedLog,
        reader: Reader,
        run: tuple[int, int, int, int],
        kind: HitKind,
    ) -> None:
        """The reader got `run` (see `runs.Run`) and stays at its place."""

    def asked_storage(
        self, read: StorageRead, cache: CachedLog, reader: Reader, ledger_id: int, first: int, count: int
    ) -> None:
        """The cache could not serve a read."""

    def arrived(
        self, read: StorageRead, cache: CachedLog, reader: Reader, entries: Sequence[Entry], size_bytes: int
    ) -> None:
        """A run came from storage to the reader that had asked for it."""

    # Deliveries

    def delivered(self, entries: list[Entry]) -> None:
        """Entries were written to a consumer, so one expected read of each is done."""

    def redelivery_changed(self, change: Redelivery, reader: Reader, entries: Sequence[Entry]) -> None:
        """Entries, at least one unless they are DROPPED, wait for redelivery to the reader, or no longer do."""

    def redelivery_read(self, reader: Reader, entry: Entry) -> None:
        """The entry was read for a redelivery."""

    # Passes

    def requeued_wanted(self) -> Requeued | None:
        """Returns a dictionary that the next pass fills with the entries it requeues; None if that is not needed."""
        return None

    def pass_began(self, trigger: Pass, now_ns: int, visits_max: int) -> None:
        """Passes run now, in a slice of at most `visits_max` visits."""

    def pass_ran(self, reason: Reason, removed: Removed, requeued: Requeued | None) -> None:
        """A slice of a pass ended; `removed` tells of its entries below, if there are any."""

    def removed(self, removed: Removed, reason: Reason, now_ns: int) -> None:
        """Entries, at least one, were removed by a pass or invalidated."""

    def invalidating(self, cache: CachedLog, position: Position, now_ns: int, *, whole_ledger: bool) -> None:
        """The cache is about to invalidate all entries before the position, or one whole ledger."""


EVENTS: Final = tuple(
    name
    for name in vars(CacheListener)
    if not name.startswith("_") and name not in ("hears", "hears_deliveries")
)
"""The names of all events."""


class CombinedListener(CacheListener):
    """Passes each event on to those of several objects that have a method of its name, in their order.

    So an attached object has methods for the events that it needs, and no others; `tests/entry_cache` checks their
    signatures. An event that one object hears costs no more than that object's own method: the bound method replaces the one
    of this object. At most one object may hear `run_read` and `requeued_wanted`, whose results count.
    """

    def __init__(self, attached: Iterable[object]) -> None:
        """Raises ValueError if two objects hear an event whose result counts."""
        self._attached = tuple(attached)
        for event in EVENTS:
            hearing = [getattr(one, event) for one in self._attached if hasattr(one, event)]
            if len(hearing) > 1 and event in ("run_read", "requeued_wanted"):
                raise ValueError(f"two listeners have {event}, whose result counts: attach only one of them")
            if hearing:
                setattr(self, event, hearing[0] if len(hearing) == 1 else _all_of(hearing))

    @property
    def hears_deliveries(self) -> bool:
        """True if any object wants to hear of deliveries."""
        return any(getattr(one, "hears_deliveries", False) for one in self._attached)

    def hears(self, event: str) -> bool:
        """Returns True if any object hears the event."""
        return event in vars(self)


def _all_of(hearing: Sequence[Callable[..., object]]) -> Callable[..., None]:
    """Returns a function that calls all of these with its own arguments."""

    def call_all(*arguments: object, **named: object) -> None:
        for one in hearing:
            one(*arguments, **named)

    return call_all
