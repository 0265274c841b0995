"""Readahead: the limits of one load, and the entries it brings.

A load brings the entries that were asked for, and then goes on while all of this holds:

* fewer than `dbStorage_readAheadCacheBatchSize` entries were read ahead
* fewer bytes than the limits (`readahead`) were read ahead
* the next entry begins in the log right after the last one: not another ledger's, not in another log, not rewritten
* with `readAheadStopsAtGap` its id is the next one, as at BookKeeper since 4.16

Limits are tested before an entry is read, so the last entry may pass the byte limits. Entries that are cached already are
read again: looking each of them up would cost more. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bookie_stub.base.record import LENGTH_BYTES

LOAD_BYTES_MAX = 16 << 20
"""Bytes that one load may read ahead: no limit of memory counts them until they are in the read cache."""


class Readahead(NamedTuple):
    """The limits of reading ahead."""

    entries_max: int
    """Entries read ahead, besides those asked for."""
    bytes_max: int
    """Bytes read ahead; 0 turns it off."""
    stops_at_gap: bool
    """False lets a bookie read ahead that has only every n-th entry of a ledger (E > Qw)."""


def readahead(entries_max: int, batch_bytes_max: int, cache_bytes: int, stops_at_gap: bool) -> Readahead:
    """Returns the limits for a read cache of `cache_bytes`.

    The bytes are at most half of the read cache, as at BookKeeper, LOAD_BYTES_MAX, and `batch_bytes_max` if above 0.
    """
    bytes_max = min(cache_bytes // 2, LOAD_BYTES_MAX)
    if batch_bytes_max > 0:
        bytes_max = min(bytes_max, batch_bytes_max)
    return Readahead(entries_max, bytes_max, stops_at_gap)


class Load:
    """One load of a ledger's entries while it grows. It says whether the next row of the index belongs to it."""

    def __init__(self, first: int, asked: int, answer_bytes: int, limits: Readahead) -> None:
        """Called when `asked` entries from `first` on are to be answered.

        The first one always is, the others while `answer_bytes` is not used up. An entry counts as long as its record,
        as it does in the answer of a batch read.
        """
        self.first = first
        """The entry for which the load was started."""
        self.ids: list[int] = []
        """Ids of the entries so far."""
        self.entries: list[bytes] = []
        """The entries so far."""
        self._asked = asked
        self._answer_bytes = answer_bytes
        self._readahead = limits
        self._ahead_bytes = limits.bytes_max
        self._end = -1
        """The location at which a record right after the last entry would begin."""

    @property
    def count_max(self) -> int:
        """The highest number of rows that can belong to the load."""
        ahead = self._readahead.entries_max if self._readahead.bytes_max > 0 else 0
        return max(self._asked, ahead + 1)

    @property
    def bytes_left(self) -> int:
        """Bytes that the rest of the load may have. The last entry may pass them."""
        wanted = self._answer_bytes if len(self.entries) < self._asked else 0
        return max(wanted, self._ahead_bytes)

    def wants(self, entry_id: int, location: int) -> bool:
        """Returns whether the load goes on with this entry. It is the next one in the index."""
        count = len(self.ids)
        if not count:
            return entry_id == self.first
        is_next = entry_id == self.ids[-1] + 1
        if is_next and count < self._asked and self._answer_bytes > 0:
            return True
        limits = self._readahead
        return (
            count <= limits.entries_max
            and self._ahead_bytes > 0
            and location - LENGTH_BYTES == self._end
            and (is_next or not limits.stops_at_gap)
        )

    def add_run(self, ids: Sequence[int], locations: Sequence[int], entries: Iterable[bytes]) -> bool:
        """Adds entries up to the first that does not belong here. Returns False when there was one."""
        limits = self._readahead
        for entry_id, location, entry in zip(ids, locations, entries, strict=False):
            touches = location - LENGTH_BYTES == self._end and entry_id == self.ids[-1] + 1
            # The usual case without a call: the entry touches the last one and the limits are not reached.
            within = self._ahead_bytes > 0 and len(self.ids) <= limits.entries_max
            if not (touches and within) and not self.wants(entry_id, location):
                return False
            size = len(entry)
            # The entry that was asked for first is no readahead.
            if self.ids:
                self._ahead_bytes -= size
            # An answer has each entry with its length, a slot of the read cache without it.
            self._answer_bytes -= size + LENGTH_BYTES
            self._end = location + size
            self.ids.append(entry_id)
            self.entries.append(entry)
        return True
