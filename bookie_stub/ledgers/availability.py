"""The rule for plain adds to a full or read-only bookie.

Every ledger belongs to one ledger directory and cannot move. With `readOnlyModeOnAnyDiskFullEnabled` (the default)
one full directory makes the whole bookie read-only, so that clients choose another bookie. Without it the bookie
refuses the ledgers of the full directories one by one. Adds of a recovery are accepted in either case. Pure: no I/O,
no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


class Availability:
    """Decides about plain adds by settings and full directories."""

    def __init__(
        self, place_of: Callable[[int], int], directories: int, *, forced: bool, any_full_closes_all: bool
    ) -> None:
        """`place_of(ledger id)` is the number of the ledger's directory. `forced` comes from `forceReadOnlyBookie`."""
        self._place_of = place_of
        self._forced = forced
        self._any_full_closes_all = any_full_closes_all
        self._full = [False] * directories
        self._journals_short = False
        self.read_only = forced
        """True while the bookie accepts no plain add at all. It registers as read-only then."""
        self.refuses_some = forced
        """True while at least one ledger is refused. Adds look at it before they ask `refuses`."""

    def directories_changed(self, full: Sequence[bool]) -> None:
        """Sets which ledger directories are full, in the order of their configuration."""
        self._full = list(full)
        self._decide()

    def journals_changed(self, *, short: bool) -> None:
        """Sets whether adds have taken all bytes that they may take for journals and entry logs."""
        self._journals_short = short
        self._decide()

    def _decide(self) -> None:
        full = self._full
        closed = any(full) if self._any_full_closes_all else all(full)
        self.read_only = self._forced or self._journals_short or closed
        self.refuses_some = self.read_only or any(full)

    def is_writable(self, place: int) -> bool:
        """Returns True while the directory of this number takes plain adds."""
        return not self.read_only and not self._full[place]

    def refuses(self, ledger_id: int) -> bool:
        """Returns True when plain adds to this ledger are answered "read-only" (105)."""
        return self.read_only or self._full[self._place_of(ledger_id)]

    @property
    def writable_directories(self) -> int:
        """Number of ledger directories that accept plain adds."""
        return 0 if self.read_only else self._full.count(False)
