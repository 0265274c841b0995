"""Which entry logs hold which ledgers, how much of each is alive, and the removal of those that hold nothing alive.

What a log holds is known from its ledgers map, or by scanning a log that a crash left without one. Of each ledger
directory one; used by the garbage collection's thread alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from bookie_stub.base.errors import CorruptEntry
from bookie_stub.base.record import LENGTH_BYTES
from bookie_stub.disk.entry_log import LedgerBytes, LogScan, file_name, read_header, read_ledgers_map
from bookie_stub.disk.ledger_storage import LedgerStorage
from bookie_stub.disk.rocks import Pause

log = logging.getLogger(__name__)
_SCAN_SLICE = 1000

Living = Callable[[int], bool]
"""Whether a ledger's entries are still to be kept."""


class LogUsage:
    def __init__(self, storage: LedgerStorage, pause: Pause, whole_log_bytes: int = 1) -> None:
        """`whole_log_bytes`: a log that is smaller counts as if it had so many, the missing ones dead."""
        self.storage = storage
        self._pause = pause
        self._whole_log_bytes = whole_log_bytes
        self._ledgers: dict[int, LedgerBytes] = {}
        self._unreadable: set[int] = set()

    def remove_dead(self, living: Living) -> int:
        """Remove logs whose ledgers are all gone; returns the bytes reclaimed."""
        reclaimed = 0
        for log_id in self.storage.settled_logs():
            ledgers = self._ledgers_of(log_id)
            if ledgers is not None and not any(map(living, ledgers)) and self._is_dead(log_id, living):
                reclaimed += self._remove(log_id)
        return reclaimed

    def mostly_dead(self, share_max: float, living: Living) -> list[int]:
        """Logs of which less than `share_max` is alive, by the bytes of living ledgers; the emptiest first."""
        found = []
        for log_id in self.storage.settled_logs():
            share = self.share_alive(log_id, living)
            if share is not None and share < share_max:
                found.append((share, log_id))
        return [log_id for _, log_id in sorted(found)]

    def share_alive(self, log_id: int, living: Living) -> float | None:
        """None when it cannot be told."""
        ledgers = self._ledgers_of(log_id)
        if ledgers is None:
            return None
        alive = sum(size for ledger_id, size in ledgers.items() if living(ledger_id))
        total = sum(ledgers.values())
        return alive / max(total, 1 if alive == total else self._whole_log_bytes)

    def size_of(self, log_id: int) -> int:
        """0 for a log that has just been removed."""
        try:
            return (self.storage.directory / file_name(log_id)).stat().st_size
        except FileNotFoundError:
            return 0

    def give_up(self, log_id: int) -> None:
        """A log that could not be compacted is left alone until the next start."""
        self._unreadable.add(log_id)

    def forget(self, log_id: int) -> None:
        self._ledgers.pop(log_id, None)

    def _ledgers_of(self, log_id: int) -> LedgerBytes | None:
        if log_id in self._unreadable:
            return None
        known = self._ledgers.get(log_id)
        if known is not None:
            return known
        path = self.storage.directory / file_name(log_id)
        try:
            ledgers = read_ledgers_map(path)
            if ledgers is None:
                ledgers = self._scan_ledgers(log_id)
        except FileNotFoundError:
            return None
        except (CorruptEntry, OSError) as error:
            log.warning("%s is kept, its ledgers are unknown: %s", path, error)
            self._unreadable.add(log_id)
            return None
        self._ledgers[log_id] = ledgers
        return ledgers

    def _is_dead(self, log_id: int, living: Living) -> bool:
        """A map without a checksum (BookKeeper's) is not believed alone: one bit of it can hide a living ledger."""
        path = self.storage.directory / file_name(log_id)
        try:
            header = read_header(path)
            if header is None or header.crc is not None or not any(map(living, self._scan_ledgers(log_id))):
                return True
        except FileNotFoundError:
            return False
        except (CorruptEntry, OSError) as error:
            log.warning("%s is kept: %s", path, error)
        else:
            log.error("%s is kept, its ledgers map is damaged: it has entries of living ledgers", path)
        self._unreadable.add(log_id)
        return False

    def _scan_ledgers(self, log_id: int) -> LedgerBytes:
        """CorruptEntry when the scan breaks off before entries that the index names."""
        ledgers: LedgerBytes = {}
        found = LogScan(self.storage.directory / file_name(log_id))
        for number, entry in enumerate(found):
            ledgers[entry.ledger_id] = ledgers.get(entry.ledger_id, 0) + LENGTH_BYTES + entry.size
            if number % _SCAN_SLICE == 0:
                self._pause()
        if found.rest and _is_named_behind(self.storage, log_id, found.end):
            raise CorruptEntry(f"damaged at {found.end}, {found.rest} bytes before its end")
        return ledgers

    def _remove(self, log_id: int) -> int:
        path = self.storage.directory / file_name(log_id)
        try:
            size = path.stat().st_size
            self.storage.remove_log(log_id)
        except OSError as error:
            log.warning("%s could not be removed: %s", path, error)
            return 0
        self.forget(log_id)
        log.info("%s removed, %d bytes: none of its ledgers is left", path.name, size)
        return size


def _is_named_behind(storage: LedgerStorage, log_id: int, offset: int) -> bool:
    """Walks the whole index: only for logs that a crash has torn."""
    return any(
        location >> 32 == log_id and location & 0xFFFFFFFF > offset
        for _, _, location in storage.locations.all_rows()
    )
