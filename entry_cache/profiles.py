"""Profiles: the points in which the removal queues of Pulsar's releases differ, as data.

Everything that is the same in every release stands in `removal_queue.py`, and the counts of 4.2 in `expected_reads.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from entry_cache.expected_reads import CountsOf42, ReadCounts
from foundation.model.entry import Entry
from foundation.value import Value


class CountsOf50(CountsOf42):
    """Counts as Pulsar 5.0 does: from 0 on, and never below it."""

    def initial(self, expected_reads: int | None) -> int | None:
        """5.0 counts from 0 on, so an entry cached with 0 can gain reads later."""
        return expected_reads

    def fills_cache(self, expected_reads: int) -> bool:
        """5.0 caches what an active cursor reads, even with a count of 0."""
        return expected_reads >= 0

    def mark_delivered(self, entries: Iterable[Entry]) -> None:
        """The count stops at zero."""
        for entry in entries:
            count = entry.expected_reads
            if count:  # Neither None nor zero.
                entry.expected_reads = count - 1

    def offered_again(self, present: Entry, count: int | None) -> bool:
        """5.0 gives the present entry the counter of the second offer, "not counted" included."""
        present.expected_reads = count
        return True


class Profile(Value):
    """The points in which the removal queues of Pulsar's releases differ, as data."""

    name: str
    """The release, or the policy, that this profile stands for."""

    counts: ReadCounts
    """How the release counts expected reads."""

    protects_once: bool
    """True if a size pass requeues nothing any more after as many visits as it began with slots (5.0)."""

    protects: bool = True
    """False if passes never requeue: the rules before PIP-430."""


PROFILE_4_2: Final = Profile(name="4.2", counts=CountsOf42(), protects_once=False)
"""Apache Pulsar 4.1 and 4.2, the first releases with PIP-430."""

PROFILE_5_0: Final = Profile(name="5.0", counts=CountsOf50(), protects_once=True)
"""Apache Pulsar 5.0: a size pass spends one requeue of an entry at most."""

BEFORE_PIP_430: Final = Profile(name="fifo-ttl", counts=CountsOf42(), protects_once=False, protects=False)
"""The rules before PIP-430: first in, first out, by age and by size, without regard to readers."""

PROFILES: Final = {profile.name: profile for profile in (PROFILE_4_2, PROFILE_5_0)}
"""By release, the profiles that the policy `pip430` can follow."""
