"""LogUsage: knows the ledgers of each entry log, and removes dead logs.

BookKeeper: `EntryLogMetadata` and `GarbageCollectorThread.doGcEntryLogs`. The ledgers of a log come from its ledgers map,
or from a scan of a log that a crash left without one.

The law: a log is removed only when it is certain that none of its ledgers lives. A log whose ledgers are in doubt stays
until the next start. Used by the thread of garbage collection alone.
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
"""Returns whether a ledger's entries are still to be kept."""


class LogUsage:
    """The settled logs of one ledger directory, with their ledgers."""

    def __init__(self, storage: LedgerStorage, pause: Pause, whole_log_bytes: int = 1) -> None:
        """A log smaller than `whole_log_bytes` counts as that large. The difference counts as dead (by_whole_logs)."""
        self.storage = storage
        """The ledger directory."""
        self._pause = pause
        self._whole_log_bytes = whole_log_bytes
        self._ledgers: dict[int, LedgerBytes] = {}
        """The ledgers of each log that was looked at; a settled log never changes."""
        self._in_doubt: set[int] = set()
        """Logs that are left alone until the next start."""

    def remove_dead(self, living: Living) -> int:
        """Removes logs of which no ledger lives, the current one among them; returns freed bytes."""
        self.finish_mostly_dead(0, living)
        reclaimed = 0
        for log_id in self.storage.settled_logs():
            ledgers = self._ledgers_of(log_id)
            # The test that needs no scan comes first.
            if ledgers is not None and not any(map(living, ledgers)) and self._is_dead(log_id, living):
                reclaimed += self._remove(log_id)
        return reclaimed

    def finish_mostly_dead(self, share_max: float, living: Living) -> None:
        """Finishes the current log if at most `share_max` of its bytes are alive."""

        def is_dead(ledgers: LedgerBytes) -> bool:
            return _alive_bytes(ledgers, living) <= share_max * sum(ledgers.values())

        self.storage.finish_current(is_dead)

    def mostly_dead(self, share_max: float, living: Living) -> list[int]:
        """Returns logs with less than `share_max` alive, the emptiest first."""
        found = []
        for log_id in self.storage.settled_logs():
            share = self.share_alive(log_id, living)
            if share is not None and share < share_max:
                found.append((share, log_id))
        return [log_id for _, log_id in sorted(found)]

    def share_alive(self, log_id: int, living: Living) -> float | None:
        """Returns a log's living share of bytes, None in doubt.

        Entries of a living ledger that were written again count as alive, as at BookKeeper: the map has no more.
        """
        ledgers = self._ledgers_of(log_id)
        if ledgers is None:
            return None
        alive = _alive_bytes(ledgers, living)
        total = sum(ledgers.values())
        # A log without dead bytes is never compacted, however small: copying it would free nothing.
        return alive / max(total, 1 if alive == total else self._whole_log_bytes)

    def size_of(self, log_id: int) -> int:
        """Returns a log's bytes, 0 when it was removed a moment ago."""
        try:
            return (self.storage.directory / file_name(log_id)).stat().st_size
        except FileNotFoundError:
            return 0

    def give_up(self, log_id: int) -> None:
        """Leaves a log alone until the next start. It could not be compacted."""
        self._in_doubt.add(log_id)

    def forget(self, log_id: int) -> None:
        """Drops what is known of a log that was removed."""
        self._ledgers.pop(log_id, None)

    def _ledgers_of(self, log_id: int) -> LedgerBytes | None:
        if log_id in self._in_doubt:
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
            log.warning("%s is kept until the next start, its ledgers are unknown: %s", path, error)
            self._in_doubt.add(log_id)
            return None
        self._ledgers[log_id] = ledgers
        return ledgers

    def _is_dead(self, log_id: int, living: Living) -> bool:
        """Returns whether a log whose map names no living ledger may be removed.

        A map without a checksum, BookKeeper's, is not believed alone: one flipped bit of it can hide a living ledger.
        """
        path = self.storage.directory / file_name(log_id)
        try:
            header = read_header(path)
            # An empty file holds no entry, and a map of ours was compared with its checksum; a map of BookKeeper's
            # needs the scan.
            if header is None or header.crc is not None or not any(map(living, self._scan_ledgers(log_id))):
                return True
        except FileNotFoundError:
            return False
        except (CorruptEntry, OSError) as error:
            log.warning("%s is kept until the next start: %s", path, error)
        else:
            log.error("%s is kept, its ledgers map is damaged: it has entries of living ledgers", path)
        self._in_doubt.add(log_id)
        return False

    def _scan_ledgers(self, log_id: int) -> LedgerBytes:
        """Returns the ledgers that a scan finds.

        CorruptEntry when it breaks off before an entry that the index names.
        """
        ledgers: LedgerBytes = {}
        scan = LogScan(self.storage.directory / file_name(log_id))
        for number, entry in enumerate(scan):
            ledgers[entry.ledger_id] = ledgers.get(entry.ledger_id, 0) + LENGTH_BYTES + entry.size
            if number % _SCAN_SLICE == 0:
                self._pause()
        if scan.rest and _is_named_after(self.storage, log_id, scan.end):
            raise CorruptEntry(f"damaged at {scan.end}, {scan.rest} bytes before its end")
        return ledgers

    def _remove(self, log_id: int) -> int:
        path = self.storage.directory / file_name(log_id)
        try:
            size = path.stat().st_size
            self.storage.remove_log(log_id)
        except OSError as error:
            log.warning("%s could not be removed, the next round tries again: %s", path, error)
            return 0
        self.forget(log_id)
        log.info("%s removed, %d bytes: none of its ledgers is left", path.name, size)
        return size


def _alive_bytes(ledgers: LedgerBytes, living: Living) -> int:
    return sum(size for ledger_id, size in ledgers.items() if living(ledger_id))


def _is_named_after(storage: LedgerStorage, log_id: int, offset: int) -> bool:
    """Returns whether a row names the log after `offset`. It walks the whole index, which only torn logs need."""
    return any(
        location >> 32 == log_id and location & 0xFFFFFFFF > offset
        for _, _, location in storage.locations.all_rows()
    )
