"""Upkeep of a running bookie: garbage collector and disk monitor.

Full disks change which adds are accepted and which compactions run."""

from __future__ import annotations

import logging
from collections.abc import Callable

from bookie_stub.base.disk_reserve import kept_by_adds
from bookie_stub.compose.checkpoints import Checkpoints
from bookie_stub.compose.start import Environment, OpenDisk
from bookie_stub.journal.journal_channel import STEP_BYTES_MIN
from bookie_stub.ledgers.adds import Adds
from bookie_stub.ledgers.availability import Availability
from bookie_stub.ledgers.removals import Removals
from bookie_stub.ledgers.state import BookieState
from bookie_stub.upkeep.disk_monitor import DiskMonitor, DiskStates
from bookie_stub.upkeep.garbage_collector import GarbageCollectorThread, KnownLedgers

log = logging.getLogger(__name__)


class Upkeep:
    """Two threads beside the requests. Tells adds and the cluster when the bookie becomes read-only."""

    def __init__(
        self,
        environment: Environment,
        disk: OpenDisk,
        state: BookieState,
        removals: Removals,
        adds: Adds,
        availability: Availability,
        checkpoints: Checkpoints,
    ) -> None:
        settings, post = environment.settings, environment.post
        known = KnownLedgers(state.ledgers.by_id, state.ledgers.deletions.hidden, post, removals)
        self.collector = GarbageCollectorThread(
            disk.storages, known, settings, environment.metadata, state.stats.collection
        )
        """Deletes ledgers, removes and compacts entry logs."""
        self.when_read_only_changes: Callable[[bool], None] = _ignore
        """Called in the loop with the new state. Set by the process that registers the bookie."""
        places = list(zip(disk.directories.ledgers, disk.directories.indexes, strict=True))
        self._monitor = DiskMonitor(
            places, settings.disk, post, self.disks_changed, self._looked, environment.file_system
        )
        self._adds = adds
        self._availability = availability
        self._journals = state.journals
        self._checkpoints = checkpoints
        self._again_bytes = sum(map(kept_by_adds, disk.directories.ledgers[:1])) // 2
        """Adds come back when so much room is there, or each step of the journal would change it."""
        self._short = False
        state.journals.when_short(self.journals_short)

    def open(self) -> None:
        """Looks at the disks and starts both threads."""
        # First the disks: the collector's first round must not compact on a full one.
        self.disks_changed(self._monitor.look())
        self.judge_journals()
        self.collector.start()
        self._monitor.start()

    def disks_changed(self, disks: DiskStates) -> None:
        """Applies the state of each ledger directory's disk to adds and compactions."""
        self.collector.disks_changed(disks)
        before = self._availability.read_only
        self._availability.directories_changed([disk.full for disk in disks])
        self._apply(before)

    def journals_short(self, refused: bool) -> None:
        """Refuses adds if they have no room left, and frees what the journals need no more."""
        self.judge_journals(refused=refused)
        self._free_space()

    def judge_journals(self, *, refused: bool = False) -> None:
        """Refuses plain adds while the disks have no room for them, and accepts them again.

        `refused`: a journal had no room for a group, which may be larger than a step.
        """
        try:
            room = self._journals.room()
        except OSError as error:
            log.warning("the free space for adds is unknown, the last state holds: %s", error)
            return
        short = room < (self._again_bytes if self._short or refused else STEP_BYTES_MIN)
        if short == self._short:
            return
        self._short = short
        before = self._availability.read_only
        self._availability.journals_changed(short=short)
        # Before adds are accepted: from then on the journals keep the space free again.
        self._journals.adds_are_refused(short)
        if short:
            log.warning(
                "! the disk is full: the rest serves metadata and a start; adds are refused until space is free"
            )
            self._free_space()
        else:
            log.info("adds are accepted again: %d KiB of journal fit on the disk", room >> 10)
        self._apply(before)

    def _looked(self) -> None:
        self.judge_journals()
        if self._short:
            self._free_space()
        else:
            self._checkpoints.free_journals()

    def _free_space(self) -> None:
        self._checkpoints.free_journals()
        self._checkpoints.start()
        # Dead logs too: ledgers may have been deleted before the last start.
        self.collector.nudge()

    def _apply(self, before: bool) -> None:
        self._adds.availability_changed()
        if self._availability.read_only != before:
            self.when_read_only_changes(self._availability.read_only)

    def close(self) -> None:
        """Ends both threads. A compaction that copies is given up, one that changes the index ends first."""
        self._monitor.close()
        self.collector.close()


def _ignore(_read_only: bool) -> None:
    """Stands for the cluster of a bookie on its own."""
