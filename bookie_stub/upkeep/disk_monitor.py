"""DiskMonitor: judges how full the disks are (BookKeeper: `LedgerDirsMonitor`).

Each ledger directory is judged by its own disk and that of its indexes, whichever is fuller: a ledger is at home in one
directory and cannot move. `judge` is the rule, without I/O. Above `diskUsageWarnThreshold` there is no major compaction,
above `diskUsageThreshold` there are no adds, and both come back below `diskUsageLwmThreshold` and the warning.

A thread looks every `diskCheckInterval`; changes are posted into the loop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.posting import Post, post_quietly
from bookie_stub.config.settings import DiskSettings

log = logging.getLogger(__name__)


class DiskState(NamedTuple):
    """The free space of one ledger directory, in BookKeeper's words."""

    full: bool = False
    """Above `diskUsageThreshold`: the directory takes no adds."""
    almost_full: bool = False
    """Above `diskUsageWarnThreshold`: too little free space for a major compaction. Always true when `full`."""


DiskStates = tuple[DiskState, ...]
"""The state of each ledger directory, in their order."""


def judge(shares: Iterable[float], before: DiskState, settings: DiskSettings) -> DiskState:
    """Returns the state that follows from used shares of disks.

    A directory that was full stays so until all its disks are below the low mark; otherwise it would change to and fro
    with each log that is written and removed.
    """
    highest = max(shares)
    full = highest > settings.full or (before.full and highest >= settings.low)
    return DiskState(full, full or highest > settings.warn)


class DiskMonitor:
    """The thread that looks at the disks."""

    def __init__(
        self,
        places: Sequence[Sequence[Path]],
        settings: DiskSettings,
        post: Post,
        changed: Callable[[DiskStates], None],
        looked: Callable[[], None],
        file_system: FileSystem,
    ) -> None:
        """`places` has each ledger directory with its index directory.

        `changed` is called in the loop, and `looked` after each check.
        """
        # Without duplicates: ledgers and indexes often share a directory.
        self._places = [tuple(dict.fromkeys(place)) for place in places]
        self._settings = settings
        self._post = post
        self._changed = changed
        self._looked = looked
        self._file_system = file_system
        self._states: DiskStates = (DiskState(),) * len(self._places)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bookie-disk", daemon=True)

    def look(self) -> DiskStates:
        """Looks at the disks now and returns the states. OSError. A start calls it before the first request."""
        self._states = tuple(map(self._look_at, self._places, self._states))
        return self._states

    def _look_at(self, place: Sequence[Path], before: DiskState) -> DiskState:
        shares = {path: self._file_system.share_taken(path) for path in place}
        state = judge(shares.values(), before, self._settings)
        if state != before:
            # The fuller disk is the one to name: it alone has decided.
            path = max(shares, key=lambda each: shares[each])
            consequence = (
                "the directory takes no adds"
                if state.full
                else "no major compaction"
                if state.almost_full
                else "adds and compactions go on"
            )
            level = logging.WARNING if state.almost_full else logging.INFO
            log.log(level, "the disk of %s is %.1f %% full: %s", path, 100 * shares[path], consequence)
        return state

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(self._settings.interval_s):
            before = self._states
            try:
                states = self.look()
            except OSError as error:
                log.warning("the free space of the disks is unknown, the last state holds: %s", error)
                continue
            if states != before:
                post_quietly(self._post, partial(self._changed, states))
            post_quietly(self._post, self._looked)
