"""Which entry logs hold which ledgers, and the removal of logs that hold no living one.

Only whole logs are removed; moving the living entries out of a mostly dead log (compaction) is not done
yet. What a log holds is known from its ledgers map, or by scanning a log that a crash left without one.
Runs in the checkpoint's thread, after the index has forgotten the deleted ledgers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from bookie_stub.entry_log import (
    EntryLogReader,
    EntryLogWriter,
    LedgerBytes,
    file_name,
    log_ids,
    read_ledgers_map,
    scan,
)
from bookie_stub.errors import CorruptEntry
from bookie_stub.file_system import FileSystem, remove_quietly
from bookie_stub.record import LENGTH_BYTES
from bookie_stub.rocks import Breathe

log = logging.getLogger(__name__)
_SCAN_SLICE = 1000


class GarbageCollector:
    def __init__(
        self, directory: Path, writer: EntryLogWriter, reader: EntryLogReader, file_system: FileSystem
    ) -> None:
        self._directory = directory
        self._writer = writer
        self._reader = reader
        self._file_system = file_system
        self._ledgers: dict[int, LedgerBytes] = {}
        self._unreadable: set[int] = set()

    def collect(self, living: Callable[[int], bool], breathe: Breathe) -> int:
        """Remove logs whose ledgers are all gone; returns the bytes reclaimed."""
        self._ledgers.update(self._writer.finished)
        self._writer.finished.clear()
        reclaimed = 0
        for log_id in log_ids(self._directory):
            if log_id == self._writer.log_id or log_id in self._unreadable:
                continue
            ledgers = self._ledgers_of(log_id, breathe)
            if ledgers is not None and not any(map(living, ledgers)):
                reclaimed += self._remove(log_id)
        return reclaimed

    def _ledgers_of(self, log_id: int, breathe: Breathe) -> LedgerBytes | None:
        known = self._ledgers.get(log_id)
        if known is not None:
            return known
        path = self._directory / file_name(log_id)
        try:
            ledgers = read_ledgers_map(path)
            if ledgers is None:
                ledgers = _scan_ledgers(path, breathe)
        except (CorruptEntry, OSError) as error:
            log.warning("%s is kept, its ledgers are unknown: %s", path, error)
            self._unreadable.add(log_id)
            return None
        self._ledgers[log_id] = ledgers
        return ledgers

    def _remove(self, log_id: int) -> int:
        path = self._directory / file_name(log_id)
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return 0
        self._reader.forget(log_id)
        remove_quietly(self._file_system, path)
        self._ledgers.pop(log_id, None)
        log.info("%s removed, %d bytes: none of its ledgers is left", path.name, size)
        return size


def _scan_ledgers(path: Path, breathe: Breathe) -> LedgerBytes:
    ledgers: LedgerBytes = {}
    for number, entry in enumerate(scan(path)):
        ledgers[entry.ledger_id] = ledgers.get(entry.ledger_id, 0) + LENGTH_BYTES + entry.size
        if number % _SCAN_SLICE == 0:
            breathe()
    return ledgers
