"""Which plain adds the bookie takes, as far as its settings and the free space on its disks decide. Pure: no I/O, no clock.

A ledger is at home in one ledger directory and cannot go elsewhere. With `readOnlyModeOnAnyDiskFullEnabled`, as by
default, one full directory closes all of them, so that clients leave the bookie alone; without it only the ledgers of
full directories are refused, one by one.
"""

from __future__ import annotations

from collections.abc import Callable

from bookie_stub.config.settings import BookieSettings
from bookie_stub.upkeep.disk_monitor import DiskState, DiskStates


class Availability:
    def __init__(self, settings: BookieSettings, place_of: Callable[[int], int]) -> None:
        """`place_of` says in which of the ledger directories a ledger is at home."""
        self._forced = settings.read_only
        self._any_closes_all = settings.disk.any_full_is_read_only
        self._place_of = place_of
        self._disks: DiskStates = (DiskState(),) * len(settings.ledger_directories)
        self.read_only = self._forced
        """Only adds of a recovery are taken, whatever the ledger."""

    def disks_changed(self, disks: DiskStates) -> None:
        self._disks = disks
        full = [disk.full for disk in disks]
        self.read_only = self._forced or (any(full) if self._any_closes_all else all(full))

    @property
    def refusal(self) -> Callable[[int], bool] | None:
        """Says of a ledger whether plain adds to it are refused; None: of no ledger."""
        refuses_some = self.read_only or any(disk.full for disk in self._disks)
        return self.refuses if refuses_some else None

    def refuses(self, ledger_id: int) -> bool:
        return self.read_only or self._disks[self._place_of(ledger_id)].full

    @property
    def writable_directories(self) -> int:
        """Ledger directories that take plain adds."""
        return 0 if self.read_only else sum(not disk.full for disk in self._disks)
