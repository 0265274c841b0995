"""Decisions on fragments: what a ledger's bookies must have, which of them were lost, and the metadata after a copy. Pure.

A fragment is a segment of a ledger with its last entry. The last segment of a ledger that is not closed has no last
entry: it cannot be copied before a recovery has ended the ledger. BookKeeper's names: LedgerFragment, LedgerChecker for
the choice, LedgerFragmentReplicator for the change of the metadata.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from bookkeeper.ensembles.placement import write_set
from protocol.ledger_metadata import LedgerMetadata, LedgerSegment, LedgerState


@dataclass(frozen=True, slots=True)
class Fragment:
    """A segment of a ledger and its last entry."""

    segment: LedgerSegment
    """The members, and the first entry."""
    last_entry_id: int | None
    """The last entry; None while the ledger is not closed and the segment is its last one."""
    write_quorum: int
    """Bookies that have each entry."""

    @property
    def is_open(self) -> bool:
        """True when a writer may add entries after those that are known."""
        return self.last_entry_id is None

    def sources(self, entry_id: int) -> tuple[int, ...]:
        """Returns the positions of the ensemble that have the entry."""
        return write_set(entry_id, len(self.segment.members), self.write_quorum)

    def entries_at(self, position: int, first: int | None = None) -> Iterator[int]:
        """Yields the entries that the bookie at `position` must have, ascending, from `first` on."""
        assert self.last_entry_id is not None
        size = len(self.segment.members)
        begin = self.segment.first_entry_id if first is None else first
        # The same as "position is in the write set of the entry", without making the set for each.
        return (
            entry_id
            for entry_id in range(begin, self.last_entry_id + 1)
            if (position - entry_id) % size < self.write_quorum
        )

    def edges_at(self, position: int) -> tuple[int, ...]:
        """Returns the first and the last entry at `position`, one where they are the same, none without entries."""
        assert self.last_entry_id is not None
        first = next(self.entries_at(position), None)
        if first is None:
            return ()
        # The last E entries have every position, so the search is as short.
        after = max(first, self.last_entry_id - len(self.segment.members) + 1)
        last = max(self.entries_at(position, after), default=first)
        return (first,) if first == last else (first, last)


def fragments_of(metadata: LedgerMetadata) -> tuple[Fragment, ...]:
    """Returns the ledger's fragments in the order of their entries."""
    ends: list[int | None] = [following.first_entry_id - 1 for following in metadata.segments[1:]]
    ends.append(metadata.last_entry_id if metadata.state is LedgerState.CLOSED else None)
    return tuple(
        Fragment(segment, end, metadata.write_quorum)
        for segment, end in zip(metadata.segments, ends, strict=True)
    )


def bookies_needed(metadata: LedgerMetadata) -> frozenset[str]:
    """Returns the bookies that have entries of the ledger, or may get some.

    A bookie without an entry in a closed ledger is not needed, although the metadata names it.
    """
    return frozenset(
        member
        for fragment in fragments_of(metadata)
        for position, member in enumerate(fragment.segment.members)
        if fragment.is_open or fragment.edges_at(position)
    )


def lost_of(metadata: LedgerMetadata, registered: Collection[str]) -> tuple[str, ...]:
    """Returns the bookies that the ledger needs and that are not registered, sorted."""
    return tuple(sorted(member for member in bookies_needed(metadata) if member not in registered))


def replace_members(
    metadata: LedgerMetadata, segment: LedgerSegment, fresh: Mapping[int, str]
) -> LedgerMetadata | None:
    """Returns the metadata with other bookies at some positions of a segment.

    None when the segment is not as it was, so that what was copied may lie at the wrong place.
    """
    members = list(segment.members)
    for position, bookie in fresh.items():
        members[position] = bookie
    if segment not in metadata.segments or len(set(members)) < len(members):
        return None
    changed = LedgerSegment(tuple(members), segment.first_entry_id)
    return replace(metadata, segments=tuple(changed if one == segment else one for one in metadata.segments))


def due_bookies(
    lost_since_ns: Mapping[str, int], delay_ns: int, now_ns: int
) -> tuple[frozenset[str], int | None]:
    """Returns the lost bookies whose ledgers are to be marked now, and the time at which the others are due.

    One lost bookie may come back within the delay. Several are not waited for: with two copies of an entry, two lost
    bookies may have had both.
    """
    if len(lost_since_ns) > 1:
        return frozenset(lost_since_ns), None
    waiting = {bookie: since_ns + delay_ns for bookie, since_ns in lost_since_ns.items()}
    due = frozenset(bookie for bookie, at_ns in waiting.items() if at_ns <= now_ns)
    return due, min((at_ns for bookie, at_ns in waiting.items() if bookie not in due), default=None)


def follow_lost(
    lost_since_ns: Mapping[str, int], known: Iterable[str], registered: Collection[str], now_ns: int
) -> dict[str, int]:
    """Returns the lost bookies with the time at which each was missed first.

    `known` are bookies that have entries, or were registered before.
    """
    return {
        bookie: lost_since_ns.get(bookie, now_ns)
        for bookie in {*known, *lost_since_ns}
        if bookie not in registered
    }


def backoff_ns(failures: int, first_ns: int, most_ns: int) -> int:
    """Returns the wait after so many failures in a row: doubled each time, up to a limit."""
    return min(first_ns << min(failures - 1, 40), most_ns)
