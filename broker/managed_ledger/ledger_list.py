"""LedgerList: the BookKeeper ledgers of one managed ledger in order, and the arithmetic of positions over them.

The last ledger is the current one: it is written to, or reserved for the next entry. Clients may send positions in
ledgers that were never in the list or have been trimmed, so every method has a result for those too. Pure
bookkeeping, no I/O.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from foundation.model.position import Position

if TYPE_CHECKING:
    from uuid import UUID

FILES: Final = "filesystem"
"""Pulsar's name of the driver for copies in files."""


class OffloadPlace(NamedTuple):
    """A storage that keeps copies of ledgers."""

    driver: str
    """Pulsar's name of its kind: `filesystem`, `aws-s3` or `S3`."""
    bucket: str = ""
    """Of an S3 service."""
    region: str = ""
    """Of the bucket."""
    endpoint: str = ""
    """URL of the S3 service, empty = Amazon's; of files, the URI of their folder."""


class OffloadContext(NamedTuple):
    """A copy of a ledger. It is noted before the copy begins, so that what was begun is always found."""

    uuid: UUID
    """In the names of its objects."""
    place: OffloadPlace
    """Its storage."""
    complete: bool = False
    """The copy is whole and was compared; until then the objects are there in part or not at all."""
    bookkeeper_deleted: bool = False
    """The bookies have the ledger no more, or may lose it any moment."""
    at_ms: int = 0
    """When the copy was complete, ms since 1970."""


class OffloadedLedger(NamedTuple):
    """The objects of one copy."""

    ledger_id: int
    """The ledger that was copied."""
    uuid: UUID
    """In the names of the objects."""
    place: OffloadPlace
    """Their storage."""


@dataclass(slots=True)
class LedgerInfo:
    """A ledger of the list."""

    ledger_id: int
    """Above the ids of all ledgers before it."""
    entries: int = 0
    """Confirmed entries."""

    size_bytes: int = 0
    """Payload bytes of those."""

    closed_at_ms: int | None = None
    """None = open."""

    offload: OffloadContext | None = None
    """Its copy in other storage; None = there is none."""

    @property
    def is_offloaded(self) -> bool:
        """True once a complete copy is in other storage."""
        return self.offload is not None and self.offload.complete


_NONE_EARLIER: Final[dict[int, LedgerInfo]] = {}
"""The ledgers before the current one of every list that has it alone, as most lists. Nothing is ever put in."""


class LedgerList:
    """The ledgers in order; the current one is always there."""

    __slots__ = ("_earlier", "_ids", "current")

    def __init__(self, infos: list[LedgerInfo], current: LedgerInfo) -> None:
        # Beside the dict, so that any position finds its neighbours by bisection.
        # A tuple: most topics have one ledger, and a list keeps space for more.
        self._ids = tuple([info.ledger_id for info in (*infos, current)])
        assert [*self._ids] == sorted(set(self._ids)), f"ledgers are not in order: {self._ids}"
        self._earlier = {info.ledger_id: info for info in infos} or _NONE_EARLIER
        self.current = current
        """The last one, which takes the next entry."""

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, ledger_id: int) -> bool:
        return ledger_id == self.current.ledger_id or ledger_id in self._earlier

    def get(self, ledger_id: int) -> LedgerInfo | None:
        """Returns a ledger of the list, or None."""
        current = self.current
        return current if ledger_id == current.ledger_id else self._earlier.get(ledger_id)

    def _entries(self, listed_id: int) -> int:
        """Returns the confirmed entries of a ledger that is in the list."""
        current = self.current
        return (current if listed_id == current.ledger_id else self._earlier[listed_id]).entries

    def infos(self) -> list[LedgerInfo]:
        """Returns the ledgers in order, the current one last."""
        # The dict has their order: it grows at its end, and nothing that was removed comes back.
        return [*self._earlier.values(), self.current]

    def append(self, info: LedgerInfo) -> None:
        """Makes this ledger the current one; its id exceeds all others."""
        assert info.ledger_id > self._ids[-1]
        self._ids = (*self._ids, info.ledger_id)
        if self._earlier is _NONE_EARLIER:
            self._earlier = {}
        self._earlier[self.current.ledger_id] = self.current
        self.current = info

    def reserve(self, ledger_id: int) -> None:
        """Gives the current ledger, which has not begun, another id; it exceeds all others."""
        assert ledger_id > self._ids[-1]
        assert not self.current.entries
        self._ids = (*self._ids[:-1], ledger_id)
        self.current.ledger_id = ledger_id

    def remove(self, ledger_id: int) -> LedgerInfo:
        """Removes a ledger other than the current one, and returns it."""
        assert ledger_id != self.current.ledger_id
        self._ids = tuple([each for each in self._ids if each != ledger_id])
        return self._earlier.pop(ledger_id)

    @property
    def entries(self) -> int:
        """Confirmed entries of all ledgers."""
        return sum(info.entries for info in self._earlier.values()) + self.current.entries

    @property
    def size_bytes(self) -> int:
        """Payload bytes of all ledgers."""
        return sum(info.size_bytes for info in self._earlier.values()) + self.current.size_bytes

    @property
    def offloaded_bytes(self) -> int:
        """Payload bytes of the ledgers with a complete copy in other storage."""
        # With the current one, which a terminated topic may have offloaded.
        return sum(info.size_bytes for info in self.infos() if info.is_offloaded)

    def average_entry_bytes(self, ledger_id: int) -> int:
        """Returns the average size of the ledger's entries, at least 1."""
        info = self.get(ledger_id)
        return max(1, info.size_bytes // info.entries) if info is not None and info.entries else 1

    def last_entry(self, ledger_id: int) -> int:
        """Returns the ledger's last confirmed entry id, -1 if it has none."""
        # `get`, written out here and below: both run per message.
        current = self.current
        if ledger_id == current.ledger_id:
            return current.entries - 1
        info = self._earlier.get(ledger_id)
        return -1 if info is None else info.entries - 1

    def has_entry(self, ledger_id: int, entry_id: int) -> bool:
        """Returns True for a confirmed entry of a ledger in the list."""
        current = self.current
        info = current if ledger_id == current.ledger_id else self._earlier.get(ledger_id)
        return info is not None and 0 <= entry_id < info.entries

    def first(self) -> Position:
        """Returns the first entry, or the place where it will stand."""
        return self.at_or_after(Position(-1, -1))

    def last(self) -> Position:
        """Returns the last entry, or (current ledger, -1) without one."""
        found = self.at_or_before(Position(self._ids[-1], self.current.entries))
        return found if found.entry_id >= 0 else Position(self._ids[-1], -1)

    def at_or_after(self, position: tuple[int, int]) -> Position:
        """Returns the first entry at or after the position, or the place where the next one will stand."""
        ledger_id, entry_id = position
        place = bisect_left(self._ids, ledger_id)
        if place < len(self._ids) and self._ids[place] == ledger_id:
            if 0 <= entry_id < self._entries(ledger_id):
                return Position(ledger_id, entry_id)
            # Past the end of this ledger; a negative id stands before its first entry instead.
            place += entry_id >= 0
        # A ledger that was trimmed or never listed: its place among the ids says what follows.
        for later in self._ids[place:]:
            if self._entries(later):
                return Position(later, 0)
        return Position(self._ids[-1], self.current.entries)

    def next_valid(self, position: tuple[int, int]) -> Position:
        """Returns the first entry after the position, or the next one's place."""
        return self.at_or_after((position[0], position[1] + 1))

    def at_or_before(self, position: tuple[int, int]) -> Position:
        """Returns the last entry at or before the position; (first ledger, -1) before the first entry."""
        ledger_id, entry_id = position
        place = bisect_left(self._ids, ledger_id)
        if place < len(self._ids) and self._ids[place] == ledger_id:
            entry_id = min(entry_id, self._entries(ledger_id) - 1)
            if entry_id >= 0:
                return Position(ledger_id, entry_id)
        for earlier in reversed(self._ids[:place]):
            if entries := self._entries(earlier):
                return Position(earlier, entries - 1)
        return Position(self._ids[0], -1)

    def previous(self, position: tuple[int, int]) -> Position:
        """Returns the last entry before the position, or (first ledger, -1)."""
        return self.at_or_before((position[0], position[1] - 1))

    def entries_between(self, after: tuple[int, int], through: tuple[int, int]) -> int:
        """Counts the entries after `after`, up to and including `through`; 0 when `through` is not later than `after`."""
        # A dispatcher asks per look; mostly both positions are in the current ledger.
        if after[0] == through[0] == self._ids[-1]:
            last = min(through[1], self.current.entries - 1)
            return max(last - max(after[1], -1), 0)
        return max(self.rank(through) - self.rank(after), 0)

    def rank(self, position: tuple[int, int]) -> int:
        """Counts the entries at or before the position."""
        ledger_id, entry_id = position
        count = 0
        for known in self._ids:
            if known > ledger_id:
                break
            entries = self._entries(known)
            # A position may have any entry id, so it is cut to the entries that exist.
            count += entries if known < ledger_id else min(max(entry_id + 1, 0), entries)
        return count

    def position_at(self, index: int) -> Position:
        """Returns the entry with `index` entries before it. Raises IndexError past the last entry."""
        assert index >= 0
        for ledger_id in self._ids:
            entries = self._entries(ledger_id)
            if index < entries:
                return Position(ledger_id, index)
            index -= entries
        raise IndexError("past the last entry")
