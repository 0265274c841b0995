"""One ledger directory: its entry logs, its two indexes, and the flush that keeps them in step.

A bookie has one or more of them; a ledger is at home in the one that its id modulo their number names, as at
BookKeeper. Law of the place: log, sync, tombstones, location index, ledger index, in this order, and under
`flushing`. Who else changes the location index (a compaction) or needs the logs to be at rest holds that lock too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bookie_stub.config import BookieSettings
from bookie_stub.directories import MARK_FILE, NOTHING_LOST_FILE
from bookie_stub.entry_log import log_ids
from bookie_stub.entry_log_reader import EntryLogReader
from bookie_stub.entry_log_writer import EntryLogWriter
from bookie_stub.errors import BookieStorageError
from bookie_stub.file_system import FileSystem
from bookie_stub.ledger_index import LedgerData, LedgerIndex
from bookie_stub.location_index import LOCATION, LocationIndex
from bookie_stub.readahead import readahead
from bookie_stub.record import RECORD_KEY
from bookie_stub.rocks import Breathe, Put, is_database, no_pause
from bookie_stub.stored_entries import StoredEntries
from bookie_stub.tombstones import FILE as TOMBSTONES
from bookie_stub.tombstones import Tombstones

LOCATIONS = "locations"
LEDGERS = "ledgers"
REPLACED = "locations.replaced"
"""The old location index, while a rebuilt one takes its place."""
REBUILDING = "ledgers.rebuilding"
"""A file beside `ledgers` while that is made from nothing: what is in it is not all that there was."""
_APPEND_SLICE = 128
"""Entries between two breaths: about 0.2 ms."""

Entries = Mapping[int, Mapping[int, bytes]]
"""Ledger id to entry id to record."""


class LedgerStorage:
    def __init__(self, ledgers: Path, index: Path, settings: BookieSettings, file_system: FileSystem) -> None:
        """`ledgers` and `index` are the directories that the files are in. Raises BookieError."""
        self.directory = ledgers
        self.file_system = file_system
        self.logs = EntryLogWriter(ledgers, settings.entry_log_bytes_max, file_system)
        self.log_reader = EntryLogReader(ledgers, settings.frame_bytes_max, file_system)
        self.flushing = threading.Lock()
        _check_whole(ledgers, index)
        index.mkdir(parents=True, exist_ok=True)
        self.tombstones = Tombstones(index / TOMBSTONES, file_system)
        self.locations = LocationIndex(index / LOCATIONS, file_system)
        try:
            self.ledger_index = LedgerIndex(index / LEDGERS, file_system)
        except BaseException:
            self.locations.close()
            raise
        limits = readahead(
            settings.readahead_entries,
            settings.readahead_bytes,
            settings.read_cache_bytes,
            settings.readahead_stops_at_gap,
        )
        self.stored = StoredEntries(self.locations, self.log_reader, limits)

    def flush(
        self,
        entries: Entries,
        ledger_ids: Iterable[int],
        changed: Mapping[int, LedgerData],
        deleted: Sequence[int],
        emptied: Sequence[int],
        breathe: Breathe = no_pause,
    ) -> int:
        """Those of `entries` that belong to `ledger_ids`; returns how many they were. Older ones of the ledgers of
        `emptied` are forgotten.

        Raises OSError or BookieError; then it is to be called again as a whole.
        """
        with self.flushing:
            try:
                puts = self._append(entries, ledger_ids, breathe)
                if puts:
                    self.logs.sync()
            except OSError:
                self.logs.abandon()
                raise
            if deleted:  # before the ledger index forgets that they were fenced
                self.tombstones.add(deleted)
            if puts or deleted or emptied:
                self.locations.write(puts, (*deleted, *emptied), breathe)
            if changed or deleted:
                self.ledger_index.write(changed, deleted)
        return len(puts)

    def _append(self, entries: Entries, ledger_ids: Iterable[int], breathe: Breathe) -> list[Put]:
        """Append in order of ledger and entry, so that a ledger's entries lie together in the log."""
        puts: list[Put] = []
        append, pack = self.logs.append, LOCATION.pack
        for ledger_id in sorted(ledger_ids):
            records = entries.get(ledger_id)
            if records is None:
                continue  # deleted while this flush was running
            for entry_id in sorted(records):
                record = records[entry_id]
                puts.append((record[RECORD_KEY], pack(append(record, ledger_id))))
                if len(puts) % _APPEND_SLICE == 0:
                    breathe()
        return puts

    def settled_logs(self) -> list[int]:
        """Logs that nothing is appended to any more and whose entries the index has, as far as they are to be read."""
        with self.flushing:
            return [log_id for log_id in log_ids(self.directory) if log_id != self.logs.log_id]

    def finish(self) -> None:
        """Close the current log as a whole one: for a clean stop."""
        with self.flushing:
            self.logs.finish()

    def close(self) -> None:
        self.locations.close()
        self.ledger_index.close()
        self.log_reader.close()


def _check_whole(ledgers: Path, index: Path) -> None:
    """An index that is gone must not begin anew as an empty one: fences would be forgotten, and living entry logs be
    taken for garbage. A bookie that has kept nothing yet has neither entry logs nor a mark."""
    if (index / REBUILDING).exists():
        raise BookieStorageError(
            f"{index / LEDGERS} is not complete: `magnetar bookie index rebuild` was interrupted; run it again"
        )
    if (index / REPLACED).exists() and not (index / LOCATIONS).exists():
        raise BookieStorageError(
            f"{index / LOCATIONS} is missing: `magnetar bookie index rebuild` was interrupted at its end; run it again"
        )
    if not log_ids(ledgers) and not any(ledgers.glob(f"{MARK_FILE}*")):
        return
    for path in (index / LEDGERS, index / LOCATIONS):
        if not is_database(path):
            raise BookieStorageError(
                f"{path} is missing, and {ledgers} has data: run `magnetar bookie index rebuild` with this bookie's"
                " settings, or bring the directory back"
            )


class Storages:
    """All of a bookie's, in the order of their configuration."""

    def __init__(self, storages: Sequence[LedgerStorage]) -> None:
        self.all = tuple(storages)

    def of(self, ledger_id: int) -> LedgerStorage:
        return self.all[self.place_of(ledger_id)]

    def place_of(self, ledger_id: int) -> int:
        """Where among them the ledger is at home."""
        return ledger_id % len(self.all)

    def shares(self, ledger_ids: Iterable[int]) -> list[list[int]]:
        """The ids at home in each one."""
        count = len(self.all)
        if count == 1:
            return [list(ledger_ids)]
        shares: list[list[int]] = [[] for _ in self.all]
        for ledger_id in ledger_ids:
            shares[ledger_id % count].append(ledger_id)
        return shares

    def has_deleted(self, ledger_id: int) -> bool:
        """Whether it is on disk that the ledger was here and is to take no adds any more."""
        return ledger_id in self.of(ledger_id).tombstones

    @property
    def highest_deleted(self) -> int:
        """-1 for none."""
        return max(storage.tombstones.highest for storage in self.all)

    def note_lossy(self) -> None:
        """Raises OSError or BookieStorageError; then it is to be called again."""
        for storage in self.all:
            storage.file_system.remove(storage.directory / NOTHING_LOST_FILE)
            storage.file_system.sync_directory(storage.directory)
            storage.ledger_index.note_lossy()

    def note_forgotten_known(self) -> None:
        for storage in self.all:
            storage.ledger_index.note_forgotten_known()

    def entry_log_count(self) -> int:
        return sum(len(log_ids(storage.directory)) for storage in self.all)

    def entry_count_estimate(self) -> int:
        return sum(storage.locations.count_estimate() for storage in self.all)

    def finish(self) -> None:
        for storage in self.all:
            storage.finish()

    def close(self) -> None:
        for storage in self.all:
            storage.close()
