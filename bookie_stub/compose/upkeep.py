"""Upkeep of a running bookie: garbage collector and disk monitor.

Full disks change which adds are accepted and which compactions run."""

from __future__ import annotations

from collections.abc import Callable

from bookie_stub.compose.start import Disk, Environment
from bookie_stub.ledgers.adds import Adds
from bookie_stub.ledgers.availability import Availability
from bookie_stub.ledgers.removals import Removals
from bookie_stub.ledgers.state import BookieState
from bookie_stub.upkeep.disk_monitor import DiskMonitor, DiskStates
from bookie_stub.upkeep.garbage_collector import GarbageCollectorThread, KnownLedgers


class Upkeep:
    """Two threads beside the requests.

    Tells adds and the cluster when the bookie becomes read-only."""

    def __init__(
        self,
        environment: Environment,
        disk: Disk,
        state: BookieState,
        removals: Removals,
        adds: Adds,
        availability: Availability,
    ) -> None:
        settings, post = environment.settings, environment.post
        known = KnownLedgers(state.ledgers.by_id, state.ledgers.deletions.hidden, post, removals)
        self.collector = GarbageCollectorThread(
            disk.storages, known, settings, environment.metadata, state.stats.collection
        )
        """Deletes ledgers, removes and compacts entry logs."""
        self.when_read_only_changes: Callable[[bool], None] = _ignore
        """Called in the loop with the new state.

        Set by the process that registers the bookie."""
        places = list(zip(disk.directories.ledgers, disk.directories.indexes, strict=True))
        self._monitor = DiskMonitor(places, settings.disk, post, self.disks_changed, environment.file_system)
        self._adds = adds
        self._availability = availability

    def open(self) -> None:
        """Looks at the disks and starts both threads."""
        # First the disks: the collector's first round must not compact on a full one.
        self.disks_changed(self._monitor.look())
        self.collector.start()
        self._monitor.start()

    def disks_changed(self, disks: DiskStates) -> None:
        """Applies the state of each ledger directory's disk to adds and compactions."""
        self.collector.disks_changed(disks)
        before = self._availability.read_only
        self._availability.directories_changed([disk.full for disk in disks])
        self._adds.availability_changed()
        if self._availability.read_only != before:
            self.when_read_only_changes(self._availability.read_only)

    def close(self) -> None:
        """Ends both threads.

        A compaction that copies is given up, one that changes the index ends first."""
        self._monitor.close()
        self.collector.close()


def _ignore(_read_only: bool) -> None:
    """Stands for the cluster of a bookie on its own."""
