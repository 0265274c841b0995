"""Profile: the points in which releases of the PIP-430 cache decide differently, as data.

The removal queue asks a profile and otherwise knows no release. What is the same in every release does not
stand here. The initial count of expected reads is -1 for "nobody counts this entry".

How the count stands in `Entry.expected_reads`: n >= 0 is itself, -1 is none. The older release lets a
count fall below zero when more readers come than were foreseen; such a count n is kept as n - 1, so that
-1 keeps its one meaning and the usual case (n > 0) costs one comparison. Only the functions of this
module write the field after the insert.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from broker.entry_cache.policies.policy import NOT_COUNTED, CountReads
from broker.model.entry import Entry


def handed_over_below_zero(entries: Iterable[Entry]) -> None:
    """One expected read of each entry is done; the count has no floor."""
    for entry in entries:
        count = entry.expected_reads
        if count > 0:
            entry.expected_reads = count - 1
        elif count != NOT_COUNTED:
            entry.expected_reads = count - 1 if count else -2


def put_back_below_zero(entries: Iterable[Entry]) -> None:
    """Each entry waits for one more read; a count below zero first has to come up again."""
    for entry in entries:
        count = entry.expected_reads
        if count != NOT_COUNTED:
            entry.expected_reads = count + 1 if count != -2 else 0


def handed_over_to_zero(entries: Iterable[Entry]) -> None:
    """One expected read of each entry is done; the count stops at zero."""
    for entry in entries:
        count = entry.expected_reads
        if count > 0:
            entry.expected_reads = count - 1


def put_back_from_zero(entries: Iterable[Entry]) -> None:
    """Each entry waits for one more read."""
    for entry in entries:
        if entry.expected_reads >= 0:
            entry.expected_reads += 1


@dataclass(frozen=True, slots=True)
class Profile:
    name: str
    counts_from: int
    """The smallest initial count that is counted at all, and that lets a storage read fill the cache."""

    duplicate_renews_count: bool
    """Whether an entry that is present takes over the count of the one that was refused."""

    one_protected_lap: bool
    """Whether a size pass protects nothing any more once it has looked at every slot of the queue."""

    handed_over: CountReads
    put_back: CountReads
    protects: bool = True
    """Whether anything is put back at all."""

    @staticmethod
    def count_of(entry: Entry) -> int | None:
        """The expected reads as the release counts them, possibly below zero; none = not counted."""
        count = entry.expected_reads
        if count >= 0:
            return count
        return None if count == NOT_COUNTED else count + 1


PROFILE_4_2: Final = Profile(
    name="4.2",
    counts_from=1,
    duplicate_renews_count=False,
    one_protected_lap=False,
    handed_over=handed_over_below_zero,
    put_back=put_back_below_zero,
)
"""Apache Pulsar 4.1 and 4.2, the first releases with PIP-430."""

PROFILE_5_0: Final = Profile(
    name="5.0",
    counts_from=0,
    duplicate_renews_count=True,
    one_protected_lap=True,
    handed_over=handed_over_to_zero,
    put_back=put_back_from_zero,
)
"""Apache Pulsar 5.0: a size pass spends at most one extension of an entry, counts stay at zero or above."""

BEFORE_PIP_430: Final = Profile(
    name="fifo-ttl",
    counts_from=1,
    duplicate_renews_count=False,
    one_protected_lap=False,
    handed_over=handed_over_below_zero,
    put_back=put_back_below_zero,
    protects=False,
)
"""What came before: first in, first out, by age and for want of room, whoever is still to read."""

PROFILES: Final = {profile.name: profile for profile in (PROFILE_4_2, PROFILE_5_0)}
