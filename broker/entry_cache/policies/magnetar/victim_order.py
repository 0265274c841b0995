"""VictimOrder: which segments go first when there is no room, as one lap over all of them has found.

Lists by claim and time instead of a sort: putting a segment in costs the same however many there are.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Final

from broker.entry_cache.policies.magnetar.segment import Claim, Segment

_LATEST: Final = 61 * 8
USED_UP: Final = 8
"""An order serves until one in so many of its segments has gone."""


class VictimOrder:
    __slots__ = ("_gone", "_groups", "_made_ns", "_segments", "_turns", "complete", "seen_ns", "share_bytes")

    def __init__(self, made_ns: int, segments: int, share_bytes: int) -> None:
        """`share_bytes`: what a topic may hold before its segments go first; 0 = nobody is asked first."""
        self.share_bytes = share_bytes
        self.seen_ns = made_ns
        """Segments that were cached before have their place."""
        self._made_ns = made_ns
        self._segments = segments
        self._gone = 0
        self.complete = False
        """Whether the lap has ended, so that every segment has its place."""
        self._groups: dict[int, deque[Segment]] = {}
        """The lower numbers go first. An even number is of topics that hold more than their share, the odd one behind
        it of the others. Where somebody is sure to come the last of a group goes first, otherwise the first."""
        self._turns: list[int] = []
        """The numbers of the groups, as a heap."""

    def is_young(self, now_ns: int, age_ns_max: int) -> bool:
        return now_ns - self._made_ns <= age_ns_max

    def serves(self, now_ns: int, age_ns_max: int) -> bool:
        """Whether a further pass may go on with it."""
        return self.complete and self.is_young(now_ns, age_ns_max) and self._gone * USED_UP < self._segments

    def holds_more(self, segment: Segment) -> bool:
        return segment.holder.log.size_bytes > self.share_bytes

    def add(self, segment: Segment, claim: Claim, due_us: int) -> None:
        """Segments come oldest first. `due_us`: when the first of those who are sure to come does."""
        grade = _LATEST - _grade(due_us) if claim is Claim.EXPECTED else 0
        group = 2 * (claim + grade) + (not self.holds_more(segment))
        self._group(group).append(segment)

    def _group(self, group: int) -> deque[Segment]:
        members = self._groups.get(group)
        if members is None:
            members = self._groups[group] = deque()
            heappush(self._turns, group)
        return members

    def next(self) -> tuple[Segment, Claim] | None:
        """The segment that goes now, and the claim that it was added with. It stays next until it is empty or
        dropped, or one is added that goes before it."""
        while self._turns:
            group = self._turns[0]
            members = self._groups[group]
            while members:
                segment = members[_end(group)]
                if not segment.entries:
                    self.drop()
                    self._gone += 1
                elif not group % 2 and not self.holds_more(segment):
                    self.drop()
                    self._group(group + 1).append(segment)
                else:
                    return segment, Claim(min(group // 2, Claim.EXPECTED))
            heappop(self._turns)
            del self._groups[group]
        return None

    def drop(self) -> None:
        """The segment that is next does not go."""
        group = self._turns[0]
        members = self._groups[group]
        if _end(group):
            members.pop()
        else:
            members.popleft()


def _end(group: int) -> int:
    """Which of the group's members goes first."""
    return -1 if group >= 2 * Claim.EXPECTED else 0


def _grade(due_us: int) -> int:
    """Times in eight grades to a power of two, at most `_LATEST`: near enough, and no sorting."""
    bits = due_us.bit_length()
    return due_us if bits <= 3 else (bits - 4) * 8 + (due_us >> (bits - 4))
