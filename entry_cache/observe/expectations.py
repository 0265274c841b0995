"""Expectations: which reads of a cached entry are still to come, for statistics and explanations.

It depends on the policy: PIP-430 counts expected reads at the entry (`CountedReads`); the policy `magnetar` looks at the
positions of the cursors (`PositionReads`), so counts at its entries are those of redeliveries alone.
"""

from __future__ import annotations

from typing import Protocol

from entry_cache.active_cursors import count_to
from entry_cache.policies.magnetar.log_readers import LogReaders
from entry_cache.policy import NO_LIMIT
from entry_cache.range_cache import CachedLog
from foundation.model.entry import Entry


class Expectations(Protocol):
    """Answers for cached entries, or for entries that have just been removed."""

    by_position: bool
    """True if the positions of cursors matter; False if the counts at the entries tell everything."""

    def expected_from(self, cache: CachedLog, ledger_id: int, now_ns: int) -> int:
        """Returns the lowest entry id of the ledger that a cursor is to come for; NO_LIMIT if that is not known."""
        ...

    def forget_overdue(self, cache: CachedLog, now_ns: int) -> None:
        """Called before `expected_from` for removed entries, so that often repeated questions stay cheap."""
        ...

    def expected_back(self, cache: CachedLog, entry: Entry, now_ns: int) -> tuple[str, ...]:
        """Returns the cursors that left a short while ago and are expected back for the entry."""
        ...

    def reads_left(self, cache: CachedLog, entry: Entry, now_ns: int) -> int | None:
        """Returns how many reads of a cached entry are expected, at least 0; None if they are not counted."""
        ...


class CountedReads:
    """The `Expectations` of policies that count reads at the entry."""

    by_position = False
    """True if the positions of cursors matter; False if the counts at the entries tell everything."""

    def expected_from(self, cache: CachedLog, ledger_id: int, now_ns: int) -> int:
        """Positions do not matter."""
        return NO_LIMIT

    def forget_overdue(self, cache: CachedLog, now_ns: int) -> None:
        """Does nothing: no cursor is waited for."""

    def expected_back(self, cache: CachedLog, entry: Entry, now_ns: int) -> tuple[str, ...]:
        """Does nothing: no cursor is waited for."""
        return ()

    def reads_left(self, cache: CachedLog, entry: Entry, now_ns: int) -> int | None:
        """A count below zero (4.2) stands for no reads."""
        count = entry.expected_reads
        # A count below zero must not cancel the reads of other entries in a sum.
        return None if count is None else max(0, count)


class PositionReads:
    """The `Expectations` of the policy `magnetar`."""

    by_position = True
    """True if the positions of cursors matter; False if the counts at the entries tell everything."""

    def expected_from(self, cache: CachedLog, ledger_id: int, now_ns: int) -> int:
        """Returns the lowest entry id of the ledger that a reader is to come for; NO_LIMIT if none is."""
        readers = _readers_of(cache)
        return NO_LIMIT if readers is None else readers.expected_from(ledger_id, now_ns)

    def forget_overdue(self, cache: CachedLog, now_ns: int) -> None:
        """Forgets departed cursors that have not come back in time, `looks_max` at most; returns how many."""
        readers = _readers_of(cache)
        if readers is not None:
            readers.forget_overdue(now_ns)

    def expected_back(self, cache: CachedLog, entry: Entry, now_ns: int) -> tuple[str, ...]:
        """Returns the cursors that left and are expected back to begin at the position or before."""
        readers = _readers_of(cache)
        return () if readers is None else readers.names_returning(entry.position, now_ns)

    def reads_left(self, cache: CachedLog, entry: Entry, now_ns: int) -> int | None:
        """Redeliveries, cursors at the entry or before, and cursors that are expected back."""
        count = entry.expected_reads or 0
        if cache.cursors is None:
            return count
        back = len(self.expected_back(cache, entry, now_ns))
        return count + count_to(cache.cursors.places, entry.position) + back


def _readers_of(cache: CachedLog) -> LogReaders | None:
    # An `isinstance` test and no cast: a managed ledger without cursors has no watcher, and a test may attach
    # its own.
    readers = None if cache.cursors is None else cache.cursors.watcher
    return readers if isinstance(readers, LogReaders) else None
