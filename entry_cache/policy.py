"""The interface through which a policy decides which cached entries stay.

The manager of the caches says when to evict and how much; a policy says which entries go. The policy of PIP-430
is the `RemovalQueue`. The others stand in `policies/`; a policy that has to hear of more than the calls below
listens as well (`listener.py`).

Law: the cached entries of all caches are exactly the entries of the policy's slots that are `cached`. A cache that
invalidates an entry leaves its slot; the policy drops that slot when it comes to it. A policy that removes an
entry must do all of this itself, as `range_cache.evict` does:

* take it out of `entry.holder.entries` and lower `entry.holder.size_bytes` by its size,
* set `entry.holder` to None and `entry.cached` to False,
* put it into `Removed.entries` and add its size to `Removed.size_bytes`.

A policy has no clock and does no I/O: the caller passes the time, so that the same objects decide in the broker, in
the replay of an access record and in simulations.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from foundation.model.entry import Entry

if TYPE_CHECKING:
    from entry_cache.expected_reads import ReadCounts
    from entry_cache.settings import CacheSettings

NO_LIMIT: Final = sys.maxsize
"""Stands for "no limit" in visits, bytes and entry ids."""

EXPECTED_READS: Final = "expected_reads"
"""Cause of a requeue: reads of the entry are expected (all policies but `fifo-ttl`)."""
RECENTLY_ACCESSED: Final = "recently_accessed"
"""Cause of a requeue: a reader got the entry since the last visit (policy `pip430`)."""
MAY_RETURN: Final = "may_return"
"""Cause of a requeue: a reader may come back for the entry (policy `magnetar`)."""

Requeued = dict[str, list[Entry]]
"""By cause, the entries that a pass moved to the tail instead of removing them."""


@dataclass(slots=True)
class Removed:
    """The result of one pass, of one slice of a pass, or of one invalidation."""

    entries: list[Entry] = field(default_factory=list)
    """The removed entries, in the order of their removal."""

    size_bytes: int = 0
    """The bytes of `entries` together."""

    visits: int = 0
    """Slots that the pass looked at."""

    done: bool = True
    """False if the pass used up its visits and must be continued."""


class SizePass(Protocol):
    """A size pass that has begun; a policy may keep more state in its own."""

    bytes_to_free: int
    """Bytes that the pass still has to remove; at 0 or below it ends."""


class EvictionPolicy(Protocol):
    """Orders all cached entries of the broker and removes them in passes."""

    name: str
    """The name that statistics and reports show."""

    requeues: dict[str, int]
    """By cause, how often a pass requeued an entry, since the start."""

    @property
    def counts(self) -> ReadCounts:
        """Keeps the expected reads of each entry."""
        ...

    def configure(self, settings: CacheSettings) -> None:
        """Takes over changed settings; they hold from the next visit on."""
        ...

    def __len__(self) -> int:
        """Returns the number of slots, those of invalidated entries included."""
        ...

    def __iter__(self) -> Iterator[Entry]:
        """Yields the entries of all slots in order, invalidated ones included."""
        ...

    def admit(self, entries: list[Entry]) -> None:
        """Appends new slots for entries of one ledger, in ascending order.

        Called after the entries were put into their range cache, with `holder` and `queued_at_ns` set.
        """
        ...

    def remove_expired(
        self, threshold_ns: int, now_ns: int, visits_max: int = NO_LIMIT, requeued: Requeued | None = None
    ) -> Removed:
        """Removes entries queued strictly before `threshold_ns`, unless a rule keeps them.

        It looks at `visits_max` slots at most; the next call then continues the pass. Requeued entries are also put
        into `requeued`, which is None when no listener asks for them.
        """
        ...

    def begin_size_pass(self, bytes_to_free: int) -> SizePass:
        """Begins a pass that frees bytes; ValueError unless they are positive."""
        ...

    def free(
        self, size_pass: SizePass, now_ns: int, visits_max: int = NO_LIMIT, requeued: Requeued | None = None
    ) -> Removed:
        """Removes entries until the pass has freed its bytes or the queue is empty.

        It looks at `visits_max` slots at most; the next call then continues the pass. To end a pass early, call this
        once more with `bytes_to_free` set to 0: a policy then puts postponed slots back in their original order, and
        changes nothing else.
        """
        ...

    def drop_invalidated(self) -> None:
        """Drops the slots of all invalidated entries, so that their bytes become free."""
        ...


def positive(bytes_to_free: int) -> int:
    """Returns the argument; ValueError unless it is positive."""
    if bytes_to_free <= 0:
        raise ValueError(f"bytes to free must be positive, not {bytes_to_free}")
    return bytes_to_free
