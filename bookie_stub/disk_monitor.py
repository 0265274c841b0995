"""How full the ledger directories' disks are, and what follows: no major compaction, then read-only, then back.

`judge` is the rule. A thread looks every `diskCheckInterval`; what changes is told in the loop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bookie_stub.config import DiskSettings
from bookie_stub.file_system import FileSystem
from bookie_stub.posting import Post, post_quietly

log = logging.getLogger(__name__)


class Room(NamedTuple):
    """Of the fullest disk."""

    full: bool = False
    """The bookie takes no adds."""
    scarce: bool = False
    """There is no room for a major compaction."""


def judge(shares: Iterable[float], before: Room, settings: DiskSettings) -> Room:
    """`shares`: of each disk what is taken. A bookie that was full needs all disks below the low mark."""
    highest = max(shares, default=0.0)
    full = highest > settings.full or (before.full and highest >= settings.low)
    return Room(full, full or highest > settings.warn)


class DiskMonitor:
    def __init__(
        self,
        directories: Sequence[Path],
        settings: DiskSettings,
        post: Post,
        changed: Callable[[Room], None],
        file_system: FileSystem,
    ) -> None:
        """`changed` is called in the loop."""
        self._directories = tuple(dict.fromkeys(directories))
        self._settings = settings
        self._post = post
        self._changed = changed
        self._file_system = file_system
        self._room = Room()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bookie-disk", daemon=True)

    def look(self) -> Room:
        """As it is now."""
        shares = {path: self._file_system.share_taken(path) for path in self._directories}
        room = judge(shares.values(), self._room, self._settings)
        if room != self._room:
            path = max(shares, key=lambda each: shares[each])
            words = (
                "no adds any more" if room.full else "no major compaction" if room.scarce else "room again"
            )
            level = logging.WARNING if room.scarce else logging.INFO
            log.log(level, "the disk of %s is %.1f %% full: %s", path, 100 * shares[path], words)
        self._room = room
        return room

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(self._settings.interval_s):
            before = self._room
            try:
                room = self.look()
            except OSError as error:
                log.warning("the disks cannot be looked at: %s", error)
                continue
            if room != before:
                post_quietly(self._post, lambda room=room: self._changed(room))  # type: ignore[misc]
