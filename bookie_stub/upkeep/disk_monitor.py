"""How full the disks are, and what follows: no major compaction, then no adds, then back.

Judged for each ledger directory, together with the directory of its indexes: a ledger is at home in one of them and
cannot go elsewhere. `judge` is the rule. A thread looks every `diskCheckInterval`; what changes is told in the loop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.posting import Post, post_quietly
from bookie_stub.config.settings import DiskSettings

log = logging.getLogger(__name__)


class DiskState(NamedTuple):
    """Of a ledger directory."""

    full: bool = False
    """It takes no adds."""
    almost_full: bool = False
    """There is no room for a major compaction."""


DiskStates = tuple[DiskState, ...]
"""Of all ledger directories, in their order."""


def judge(shares: Iterable[float], before: DiskState, settings: DiskSettings) -> DiskState:
    """`shares`: what is taken of each disk that the directory needs. One that was full needs all of them below the low
    mark."""
    highest = max(shares)
    full = highest > settings.full or (before.full and highest >= settings.low)
    return DiskState(full, full or highest > settings.warn)


class DiskMonitor:
    def __init__(
        self,
        places: Sequence[Sequence[Path]],
        settings: DiskSettings,
        post: Post,
        changed: Callable[[DiskStates], None],
        file_system: FileSystem,
    ) -> None:
        """`places`: for each ledger directory, it and its index directory. `changed` is called in the loop."""
        self._places = [tuple(dict.fromkeys(place)) for place in places]
        self._settings = settings
        self._post = post
        self._changed = changed
        self._file_system = file_system
        self._rooms: DiskStates = (DiskState(),) * len(self._places)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bookie-disk", daemon=True)

    def look(self) -> DiskStates:
        """As it is now."""
        self._rooms = tuple(map(self._look_at, self._places, self._rooms))
        return self._rooms

    def _look_at(self, place: Sequence[Path], before: DiskState) -> DiskState:
        shares = {path: self._file_system.share_taken(path) for path in place}
        room = judge(shares.values(), before, self._settings)
        if room != before:
            path = max(shares, key=lambda each: shares[each])
            words = (
                "no adds any more"
                if room.full
                else "no major compaction"
                if room.almost_full
                else "room again"
            )
            level = logging.WARNING if room.almost_full else logging.INFO
            log.log(level, "the disk of %s is %.1f %% full: %s", path, 100 * shares[path], words)
        return room

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(self._settings.interval_s):
            before = self._rooms
            try:
                rooms = self.look()
            except OSError as error:
                log.warning("the disks cannot be looked at: %s", error)
                continue
            if rooms != before:
                post_quietly(self._post, lambda rooms=rooms: self._changed(rooms))  # type: ignore[misc]
