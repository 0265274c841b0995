"""VictimOrder: in which order a size pass removes segments, as one scan over all of them has found.

It keeps lists by claim and time instead of sorting, so adding a segment costs the same however many there are.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Final

from entry_cache.policies.magnetar.segment import CacheSegment, Claim

_LATEST: Final = 61 * 8
USED_UP: Final = 8
"""An order is used until one in so many of its segments was removed."""


class VictimOrder:
    """Groups of segments, by claim, time until the next reader, and share of the topic."""

    def __init__(self, made_ns: int, segments: int, share_bytes: int) -> None:
        """`share_bytes`: a topic that holds more loses its segments first; 0 = all topics are alike."""
        self.share_bytes = share_bytes
        """The bytes that a topic may hold before its segments go first."""
        self.seen_ns = made_ns
        """Segments that were cached before this time have their place."""
        self._made_ns = made_ns
        self._segments = segments
        self._removed = 0
        self.complete = False
        """True once the scan has ended, so that every segment has its place."""
        self._groups: dict[int, deque[CacheSegment]] = {}
        """Groups by number; lower numbers are removed first.

        An even number is of topics that hold more than their share, the next odd one of the others. In groups with the
        claim EXPECTED the last segment is removed first, in others the first.
        """
        self._turns: list[int] = []
        """The numbers of the groups, as a heap."""

    def is_young(self, now_ns: int, age_ns_max: int) -> bool:
        """Returns True if it was made at most `age_ns_max` ago."""
        return now_ns - self._made_ns <= age_ns_max

    def serves(self, now_ns: int, age_ns_max: int) -> bool:
        """Returns True if another size pass may use it."""
        return (
            self.complete and self.is_young(now_ns, age_ns_max) and self._removed * USED_UP < self._segments
        )

    def holds_more(self, segment: CacheSegment) -> bool:
        """Returns True if the segment's topic holds more than its share."""
        return segment.holder.log.size_bytes > self.share_bytes

    def add(self, segment: CacheSegment, claim: Claim, due_us: int) -> None:
        """Adds a segment; segments come oldest first. `due_us` is the time until its first reader comes."""
        # The latest reader first: what is read last is worth least in a cache that cannot keep all. Other
        # claims have no time.
        grade = _LATEST - _grade(due_us) if claim is Claim.EXPECTED else 0
        # One number sorts by claim, then time, then share; grades begin at 0, so EXPECTED (2) is above both
        # other claims.
        group = 2 * (claim + grade) + (not self.holds_more(segment))
        self._group(group).append(segment)

    def _group(self, group: int) -> deque[CacheSegment]:
        members = self._groups.get(group)
        if members is None:
            members = self._groups[group] = deque()
            # Numbers stand in a heap and members in lists: there are some hundred numbers and many thousand
            # segments.
            heappush(self._turns, group)
        return members

    def next(self) -> tuple[CacheSegment, Claim] | None:
        """Returns the segment to remove now and the claim it was added with; None if no segment is left.

        It stays the next one until it is empty or dropped, or one with a lower number is added.
        """
        while self._turns:
            group = self._turns[0]
            members = self._groups[group]
            while members:
                segment = members[_end(group)]
                # Another pass, or an eviction during an insert, has emptied it. Only here it counts as removed,
                # once.
                if not segment.entries:
                    self.drop()
                    self._removed += 1
                # Removals since the scan have brought the topic below its share, so the segment moves after
                # those of larger topics.
                elif not group % 2 and not self.holds_more(segment):
                    self.drop()
                    self._group(group + 1).append(segment)
                else:
                    return segment, Claim(min(group // 2, Claim.EXPECTED))
            heappop(self._turns)
            del self._groups[group]
        return None

    def drop(self) -> None:
        """Takes out the segment that is next, which is not to be removed."""
        group = self._turns[0]
        members = self._groups[group]
        if _end(group):
            members.pop()
        else:
            members.popleft()


def _end(group: int) -> int:
    """Returns the index of the group's member that is removed first."""
    # Within a time grade the youngest segment has its reader farthest away; without a claim the oldest goes
    # first.
    return -1 if group >= 2 * Claim.EXPECTED else 0


def _grade(due_us: int) -> int:
    """Returns a time as one of eight grades to each power of two, at most `_LATEST`: exact enough without sorting."""
    bits = due_us.bit_length()
    # The three bits below the highest make eight grades to each power of two; smaller times are grades
    # themselves.
    return due_us if bits <= 3 else (bits - 4) * 8 + (due_us >> (bits - 4))
