"""EntryReads: where a dispatcher gets its next entries from.

A `ManagedCursor` is one: it reads the log. `CompactedReads` is the other: the compacted ledger first, then the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from foundation.model.entry import Entry
from foundation.model.errors import BrokerError
from foundation.model.position import Position


class EntryReads(Protocol):
    """Entries of one subscription in order; see the methods of `ManagedCursor`."""

    @property
    def reading(self) -> bool:
        """A read is in flight or waits."""
        ...

    @property
    def last_error(self) -> BrokerError | None:
        """Why the last read failed; None after one that succeeded."""
        ...

    def has_more(self) -> bool:
        """Returns True when an entry stands at or after the read position."""
        ...

    def take(self, entries_max: int, bytes_max: int) -> list[Entry]:
        """Returns the next entries that are in memory; [] if none."""
        ...

    def give_back(self, position: Position, rest: Sequence[Entry] = ()) -> None:
        """Undoes the last `take` from `position` on."""
        ...

    def request(self, entries_max: int, bytes_max: int, ready: Callable[[], None]) -> None:
        """Reads on, and calls `ready` after this call has returned."""
        ...

    def rewind(self) -> None:
        """Reads on from the first unacknowledged entry."""
        ...
