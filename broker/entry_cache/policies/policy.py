"""Policy: what decides which cached entries stay. The manager counts and triggers, a policy orders and chooses.

A policy is told of every entry that enters a cache, of reads handed over and of reads to come again. It is asked
for two passes: over what is too old, and over what must go for want of room. Both can be cut into slices by
the number of visits. No clock and no I/O: the caller says what time it is and receives what was removed.

The same objects decide in the broker, in the replay of recorded decisions and in the replay of a broker's record.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from broker.model.entry import Entry

if TYPE_CHECKING:
    from broker.entry_cache.settings import EntryCacheSettings

NO_LIMIT: Final = sys.maxsize
NOT_COUNTED: Final = -1
"""Initial expected reads of an entry whose readers nobody counts."""

CountReads = Callable[[Iterable[Entry]], None]
"""Given entries of one delivery."""

EXPECTED_READS: Final = "expected_reads"
RECENTLY_ACCESSED: Final = "recently_accessed"
MAY_RETURN: Final = "may_return"


@dataclass(slots=True)
class Removed:
    """What one pass, or one slice of it, has taken out of the caches."""

    entries: list[Entry] = field(default_factory=list)
    size_bytes: int = 0
    visits: int = 0
    done: bool = True
    """Whether the pass has ended; otherwise it used up its visits."""

    requeued: dict[str, list[Entry]] = field(default_factory=dict)
    """By cause, what stays for another while. Only filled while somebody watches (`Policy.watched`)."""


MakeRoom = Callable[[int, int], Removed]
"""Given bytes and the time: remove so many now, without looking at what stays. It costs by what is removed."""


class SizePass(Protocol):
    """A pass for want of room that has begun: what is left to do. A policy may keep more in it."""

    bytes_to_free: int


class Policy(Protocol):
    name: str
    requeues: dict[str, int]
    """By cause, how often an entry that could have gone got another while."""

    by_position: bool
    """Whether the readers to come of an entry are those that stand at it or before, and its own count is of replays
    alone; otherwise it counts all of them."""

    watched: bool
    """Whether to report in `Removed.requeued` which entries those were."""

    make_room: MakeRoom | None
    """Of a strict policy, for which the size is a bound and not a wish: what entries pin counts too, an insert that goes
    over it makes room at once, by this where a pass would take too long, and an entry that nobody is known to come for is
    kept out while there is none."""

    @property
    def handed_over(self) -> CountReads:
        """One expected read of each entry is done: it was written to a consumer."""
        ...

    def put_back(self, reader: int, entries: Iterable[Entry]) -> None:
        """Each entry waits for one more read by that reader: it was handed over and goes to its replay."""
        ...

    def kept_back(self, reader: int, entries: Iterable[Entry]) -> None:
        """Each entry was read and not handed over: it goes to the reader's replay."""
        ...

    def taken_again(self, reader: int, entry: Entry) -> None:
        """The entry was read for the reader's replay, or will not be; if it goes back there, that will be told."""
        ...

    def configure(self, settings: EntryCacheSettings) -> None:
        """New values hold from the next visit on."""
        ...

    def __len__(self) -> int:
        """Slots, those of invalidated entries included."""
        ...

    def __iter__(self) -> Iterator[Entry]:
        """In the order of the slots, invalidated entries included."""
        ...

    def initial_count(self, expected_reads: int) -> int:
        """What `Entry.expected_reads` begins with, for so many readers to come, -1 = not counted."""
        ...

    def caches_storage_reads(self, expected_reads: int) -> bool:
        """Whether entries that came from storage for so many readers are worth a place."""
        ...

    def offered_again(self, present: Entry, count: int) -> bool:
        """An entry that is present was offered once more, with that initial count. Whether the two share one
        count from now on, so that readers get the present one."""
        ...

    def admit(self, entries: list[Entry]) -> None:
        """Entries of one ledger, ascending, that have just been put into their holder, `queued_at_ns` set."""
        ...

    def remove_expired(self, threshold_ns: int, now_ns: int, visits_max: int = NO_LIMIT) -> Removed:
        """Remove what joined strictly before `threshold_ns`, except what may stay. A next call goes on."""
        ...

    def begin_size_pass(self, bytes_to_free: int) -> SizePass:
        """ValueError unless positive."""
        ...

    def free(self, size_pass: SizePass, now_ns: int, visits_max: int = NO_LIMIT) -> Removed:
        """Remove until the pass has freed its bytes or nothing is left."""
        ...

    def abandon(self, size_pass: SizePass) -> None:
        """The pass is not gone on with: others have made the room."""
        ...

    def drop_invalidated(self) -> None:
        """Let go of the slots of invalidated entries, wherever they stand; their bytes become free."""
        ...


def positive(bytes_to_free: int) -> int:
    if bytes_to_free <= 0:
        raise ValueError(f"bytes to free must be positive: {bytes_to_free}")
    return bytes_to_free
