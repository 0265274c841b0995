"""What a cache event is: its operation, the numbers in its detail, its fields. The numbers stand in recorded files."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from broker.entry_cache.cache_stats import Reason


class Op(IntEnum):
    """What an event tells. The numbers stand in recorded files and never change."""

    APPEND = 1
    """Entries were confirmed in the log."""
    INSERT = 2
    """They entered the cache; `detail` = expected reads, -1 = not counted."""
    HIT = 3
    """They were read from the cache; `detail` = HIT_MOVES, HIT_STAYS or HIT_AGAIN."""
    MISS = 4
    """They were asked of storage; `detail` = how many of them were cached all the same."""
    COALESCED = 5
    """They were asked for while another reader's storage read for them was under way; `detail` as of MISS."""
    FAILED = 6
    """A storage read ended with an error: its MISS and COALESCED events came to nothing."""
    DELIVER = 7
    """They were written to a consumer: one expected read of each is done. `detail` 1 = they were not, or no longer,
    what the cache holds, so that nothing was counted there."""
    REPLAY = 8
    """They were handed over and wait to be read once more by the reader; `detail` as of DELIVER."""
    REQUEUE = 9
    """They could have gone and stay for another while; `detail` = a number of CAUSES."""
    EVICT = 10
    """They left the cache; `detail` = a number of REASONS, plus STILL_EXPECTED."""
    CURSOR_ADDED = 11
    """A cursor became active; it stands at (`ledger_id`, `first`)."""
    CURSOR_MOVED = 12
    """An active cursor stands at another place for another reason than a hit, which moves it behind the run."""
    CURSOR_LEFT = 13
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
    KEPT_BACK = 20
    """They were read and not handed over, and wait to be read once more by the reader; `detail` as of DELIVER."""
    READER = 21
    """A cursor got its number; `who` has its name."""
    FETCHED = 22
    """They came from storage and were offered to the cache; `detail` = expected reads, -1 = not to be cached."""
    ARRIVED = 23
    """They came to whom they had been asked for; `detail` = MISS or COALESCED."""
    CURSOR_FORGOTTEN = 24
    """A cursor was deleted and will not come back."""
    SETTINGS = 25
    """The cache has these settings from here on; `who` has them as one text."""
    PINNED = 26
    """What entries pin was looked at to decide whether there is room, and mattered: `size_bytes`. `entries` = looks
    since the event before, this one included."""
    OPEN = 27
    """A log was opened: `size_bytes` = microseconds that new entries are still cached for after the last cursor has
    left, `detail` = the sum of COUNTS_READS and BY_MARK_DELETE where they hold."""
    GIVEN_UP = 28
    """The reader's replays that waited for them are forgotten."""
    NOT_CACHED = 100
    """They did not enter the cache; `detail` = an `Obstacle`. In the ring alone: a replay finds out itself."""


HIT_MOVES: Final = 0
"""The cursor stands behind the run from here on."""
HIT_STAYS: Final = 1
"""Single positions or a look ahead: the cursor stays where it is."""
HIT_AGAIN: Final = 2
"""Likewise, by a replay that has waited for it."""

COUNTS_READS: Final = 1
"""Expected reads are counted (`cacheEvictionByExpectedReadCount`)."""
BY_MARK_DELETE: Final = 2
"""Cursors count at what they have acknowledged, not where they read (`cacheEvictionByMarkDeletedPosition`)."""

REASONS: Final = tuple(Reason)
"""By number: the `detail` of EVICT."""

STILL_EXPECTED: Final = 8
"""Added to the `detail` of EVICT: they left although reads of them were expected."""

CAUSES: Final = ("expected_reads", "recently_accessed", "may_return")
"""By number: the `detail` of REQUEUE."""


class Obstacle(IntEnum):
    """Why entries did not enter the cache: the `detail` of NOT_CACHED."""

    DISABLED = 1
    """There is no cache, by its size."""
    NO_ACTIVE_CURSOR = 2
    """They were confirmed while no cursor was active, and none had been shortly before."""
    NOBODY_TO_COME = 3
    """They were read from storage, and no active cursor is known to read them."""
    FULL = 4
    """There was no room, and nobody was known to come for them."""
    TOO_LARGE = 5
    """The entry is larger than the cache."""


class Event(NamedTuple):
    at_ns: int
    op: Op
    log: str
    """The managed ledger's name; empty where the event is about the whole cache."""
    reader: int
    """The number of the cursor within its log, 0 = nobody."""
    ledger_id: int
    first: int
    entries: int
    size_bytes: int
    """Of all entries together; 0 where that is not known yet."""
    detail: int
    who: Sequence[str]
    """INSERT: the names of the cursors that were to read it, `NAMES_KEPT` at most. HIT, MISS, COALESCED, FAILED: of the
    reader. READER, SETTINGS: see there."""
    sizes: Sequence[int]
    """APPEND and FETCHED: bytes of each entry."""


Row = tuple[int, int, str, int, int, int, int, int, int, Sequence[str], Sequence[int]]
"""An `Event` as it is noted: making a plain tuple costs a fraction."""
