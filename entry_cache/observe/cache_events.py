"""The events of the cache as they are kept and recorded: operations, the numbers in `detail`, the fields.

The numbers stand in access records and never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from entry_cache.cache_stats import Reason
from entry_cache.listener import HitKind
from entry_cache.policy import EXPECTED_READS, MAY_RETURN, RECENTLY_ACCESSED


class Op(IntEnum):
    """The operation that an event tells of."""

    APPEND = 1
    """Entries were confirmed in the log."""
    INSERT = 2
    """Entries entered the cache; `detail` = expected reads, -1 = not counted."""
    HIT = 3
    """Entries were read from the cache; `detail` = HIT_MOVES, HIT_STAYS or HIT_REDELIVERY."""
    MISS = 4
    """Entries were asked of storage; `detail` = how many of them were cached all the same."""
    COALESCED = 5
    """Entries were asked for while another reader's storage read for them was running; `detail` as of MISS."""
    FAILED = 6
    """A storage read ended with an error: its MISS and COALESCED events came to nothing."""
    DELIVER = 7
    """Entries were written to a consumer, so one expected read of each is done. `detail` 1 = the cache does not hold these
    objects, so nothing was counted there."""
    REDELIVERY = 8
    """Delivered entries wait to be read once more by the reader, for redelivery; `detail` as of DELIVER."""
    REQUEUE = 9
    """A pass requeued entries instead of removing them; `detail` = a number of CAUSES_OF_REQUEUES."""
    EVICT = 10
    """Entries were removed from the cache; `detail` = a number of REASONS, plus STILL_EXPECTED."""
    CURSOR_ADDED = 11
    """A cursor became active; it stands at (`ledger_id`, `first`)."""
    CURSOR_MOVED = 12
    """An active cursor stands at another place for another reason than a hit, which moves it past the run."""
    CURSOR_LEFT = 13
    """A cursor is no longer active; its mark-delete position is (`ledger_id`, `first`)."""
    ACK = 14
    """Everything up to (`ledger_id`, `first`) is acknowledged by the cursor."""
    TICK = 15
    """The periodic pass ran, or a slice of it of at most `count` visits."""
    SIZE_CHECK = 16
    """A check that an insert had asked for ran, likewise."""
    INVALIDATE = 17
    """The entries up to (`ledger_id`, `first`), it excluded, were invalidated; `detail` 1 = of that ledger alone, all."""
    CLOSE = 18
    """The log's cache was dropped."""
    OFFER = 19
    """Entries were offered that are present already; `detail` = expected reads."""
    POSTPONED = 20
    """Entries were read and not delivered, and wait to be read once more by the reader; `detail` as of DELIVER."""
    READER = 21
    """A cursor got its number; `who` has its name."""
    FETCHED = 22
    """Entries came from storage and were offered to the cache; `detail` = expected reads, -1 = not to be cached."""
    ARRIVED = 23
    """Entries came from storage to the reader that had asked for them; `detail` = MISS or COALESCED."""
    CURSOR_FORGOTTEN = 24
    """A cursor was deleted and will not come back."""
    SETTINGS = 25
    """The cache has these settings from here on; `who` has them as one text."""
    PINNED = 26
    """A look at the pinned bytes decided something: `size_bytes` of them. `entries` = looks since the PINNED event before,
    this one included."""
    OPEN = 27
    """A log was opened: `size_bytes` = microseconds that new entries are still cached for after the last cursor has
    left, `detail` = the sum of COUNTS_READS and BY_MARK_DELETE where they hold."""
    DROPPED = 28
    """The reader no longer waits for the redelivery of these entries."""
    NOT_CACHED = 100
    """Entries did not enter the cache; `detail` = an `Obstacle`. Never recorded: a replay finds out itself."""


HIT_MOVES: Final = int(HitKind.MOVES)
"""The `detail` of a HIT after which the cursor stands after the run."""
HIT_STAYS: Final = int(HitKind.STAYS)
"""The `detail` of a HIT of single positions, or of a look ahead: the cursor stays at its place."""
HIT_REDELIVERY: Final = int(HitKind.REDELIVERY)
"""The `detail` of a HIT by a redelivery that waited for the entry."""

COUNTS_READS: Final = 1
"""In the `detail` of OPEN: expected reads are counted (`cacheEvictionByExpectedReadCount`)."""
BY_MARK_DELETE: Final = 2
"""In the `detail` of OPEN: cursors count by their mark-delete position (`cacheEvictionByMarkDeletedPosition`)."""

REASONS: Final = tuple(Reason)
"""Reasons of removals by number: the `detail` of EVICT."""

STILL_EXPECTED: Final = 8
"""Added to the `detail` of EVICT: the entries were removed although reads of them were expected."""

CAUSES_OF_REQUEUES: Final = (EXPECTED_READS, RECENTLY_ACCESSED, MAY_RETURN)
"""Causes of requeues by number: the `detail` of REQUEUE."""

NOT_COUNTED: Final = -1
"""The `detail` of INSERT, OFFER and FETCHED that stands for None: expected reads are not counted, or not cached."""


def detail_of(expected_reads: int | None) -> int:
    """Returns expected reads as events hold them."""
    return NOT_COUNTED if expected_reads is None else expected_reads


def expected_reads_of(detail: int) -> int | None:
    """Returns expected reads from the detail of an event."""
    return None if detail == NOT_COUNTED else detail


class Event(NamedTuple):
    """One event, most of them about a run of entries of one ledger."""

    at_ns: int
    """Monotonic time."""
    op: Op
    """The operation; it says which of the fields below have a meaning."""
    log: str
    """The managed ledger's name; empty if the event is about the whole cache."""
    reader: int
    """The number of the cursor within its log; 0 = none."""
    ledger_id: int
    """The ledger of the run, or of a position."""
    first: int
    """The first entry id of the run, or the entry id of a position."""
    entries: int
    """The number of entries of the run."""
    size_bytes: int
    """The bytes of all entries together; 0 if they are not known yet."""
    detail: int
    """A number whose meaning depends on `op`."""
    who: Sequence[str]
    """INSERT: the names of the cursors that were to read the run, `NAMES_KEPT` at most. HIT, MISS, COALESCED, FAILED: the
    name of the reader. READER, SETTINGS: see there."""
    sizes: Sequence[int]
    """APPEND and FETCHED: the bytes of each entry."""


CacheEvent = tuple[int, int, str, int, int, int, int, int, int, Sequence[str], Sequence[int]]
"""An `Event` as it is kept: making a plain tuple costs a fraction of making a named one."""
