"""One ledger directory: its entry logs, its two indexes, and the flush that keeps them in step.

A bookie has one or more of them; a ledger is at home in the one that its id modulo their number names, as at
BookKeeper. Law of the place: log, sync, tombstones, location index, ledger index, inventory, in this order, and under
`flushing`. Who else changes the location index (a compaction) or needs the logs to be at rest holds that lock too.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bookie_stub.base.errors import BookieStorageError
from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.record import RECORD_KEY
from bookie_stub.config.settings import BookieSettings
from bookie_stub.disk.directories import MARK_FILE, NOTHING_LOST_FILE
from bookie_stub.disk.entry_log import file_name, log_ids
from bookie_stub.disk.entry_log_reader import EntryLogReader
from bookie_stub.disk.entry_log_writer import EntryLogWriter
from bookie_stub.disk.inventory import Inventory, Written
from bookie_stub.disk.ledger_entries import LedgerEntries
from bookie_stub.disk.ledger_index import LedgerData, LedgerIndex
from bookie_stub.disk.location_index import LOCATION, LocationIndex
from bookie_stub.disk.readahead import readahead
from bookie_stub.disk.rocks import Pause, Put, is_database, no_pause
from bookie_stub.disk.stored_entries import StoredEntries
from bookie_stub.disk.tombstones import FILE as TOMBSTONES
from bookie_stub.disk.tombstones import Tombstones

LOCATIONS = "locations"
LEDGERS = "ledgers"
REPLACED = "locations.replaced"
"""The old location index, while a rebuilt one takes its place."""
REBUILDING = "ledgers.rebuilding"
"""A file beside `ledgers` while that is made from nothing: what is in it is not all that there was."""
_APPEND_SLICE = 128
"""Entries between two breaths: about 0.2 ms."""

Entries = Mapping[int, LedgerEntries]
"""By ledger id."""


class _Appended(NamedTuple):
    """What a flush has in the logs, and could not bring into the indexes."""

    entries: Entries
    newer_than: int
    puts: list[Put]


class LedgerStorage:
    def __init__(self, ledgers: Path, index: Path, settings: BookieSettings, file_system: FileSystem) -> None:
        """`ledgers` and `index` are the directories that the files are in. Raises BookieError."""
        self.directory = ledgers
        self.file_system = file_system
        self.logs = EntryLogWriter(ledgers, settings.entry_log_bytes_max, file_system)
        self.log_reader = EntryLogReader(ledgers, settings.frame_bytes_max, file_system)
        self.flushing = threading.Lock()
        self._appended: _Appended | None = None
        """Good until somebody else judges the logs by the indexes, or takes a log's id."""
        _check_whole(ledgers, index)
        index.mkdir(parents=True, exist_ok=True)
        self.inventory = Inventory(ledgers, file_system)
        self.tombstones = Tombstones(index / TOMBSTONES, file_system, self.inventory.written.tombstones)
        self.locations = LocationIndex(index / LOCATIONS, file_system)
        try:
            self.ledger_index = LedgerIndex(index / LEDGERS, file_system)
            try:
                self._check_complete(index)
            except BaseException:
                self.ledger_index.close()
                raise
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
        pause: Pause = no_pause,
    ) -> int:
        """Those of `entries` that belong to `ledger_ids`; returns how many they were. Older ones of the ledgers of
        `emptied` are forgotten.

        Raises OSError or BookieError; then it is to be called again as a whole. An index that goes on failing does not
        make the entries be appended each time.
        """
        with self.flushing:
            puts = self._append_once(entries, ledger_ids, pause)
            if deleted:  # before the ledger index forgets that they were fenced
                self.tombstones.add(deleted)
            if puts or deleted or emptied:
                self.locations.write(puts, (*deleted, *emptied), pause)
            if changed or deleted:
                self.ledger_index.write(changed, deleted)
            if puts or changed or deleted or emptied:
                self._list()
            self._appended = None
        return len(puts)

    def _append_once(self, entries: Entries, ledger_ids: Iterable[int], pause: Pause) -> list[Put]:
        """Append and sync, unless the last attempt of this flush has done so."""
        last, self._appended = self._appended, None
        if last is None or last.entries is not entries or last.newer_than != self.logs.newer_than:
            try:
                puts = self._append(entries, ledger_ids, pause)
                if puts:
                    self.logs.sync()
            except OSError:
                self.logs.abandon()
                raise
            last = _Appended(entries, self.logs.newer_than, puts)
        self._appended = last
        return last.puts

    def _list(self) -> None:
        """Note what is on disk by now."""
        logs = self.logs
        self.inventory.flushed(logs.finished, logs.synced, self._written())
        logs.finished.clear()

    def _written(self) -> Written:
        return Written(self.locations.sequence, self.ledger_index.sequence, len(self.tombstones))

    def _check_complete(self, index: Path) -> None:
        """RocksDB takes what follows a damaged place of its write-ahead log for never written."""
        wanted = self.inventory.written
        for path, found, written in (
            (index / LOCATIONS, self.locations.sequence, wanted.locations),
            (index / LEDGERS, self.ledger_index.sequence, wanted.ledgers),
        ):
            if found < written:
                raise BookieStorageError(
                    f"{path} has {found} changes of {written}: its newest rows are lost, or it is an older copy; run"
                    " `magnetar bookie index rebuild` with this bookie's settings, or bring the newest one back"
                )

    def _append(self, entries: Entries, ledger_ids: Iterable[int], pause: Pause) -> list[Put]:
        """Append in order of ledger and entry, so that a ledger's entries lie together in the log."""
        puts: list[Put] = []
        append, pack = self.logs.append, LOCATION.pack
        for ledger_id in sorted(ledger_ids):
            records = entries.get(ledger_id)
            if records is None:
                continue  # deleted while this flush was running
            for _, record in records.in_order():
                puts.append((record[RECORD_KEY], pack(append(record, ledger_id))))
                if len(puts) % _APPEND_SLICE == 0:
                    pause()
        return puts

    def settled_logs(self) -> list[int]:
        """Logs that nothing is appended to any more and whose entries the index has, as far as they are to be read."""
        with self.flushing:
            self._appended = None
            return [log_id for log_id in log_ids(self.directory) if log_id != self.logs.log_id]

    def finish(self) -> None:
        """Close the current log as a whole one: for a clean stop."""
        with self.flushing:
            self.logs.finish()
            if self.logs.finished:
                self._list()

    def named_logs(self, log_ids: Collection[int]) -> set[int]:
        """Those of them that the location index names. Walks the whole of it."""
        return {location >> 32 for _, _, location in self.locations.all_rows()}.intersection(log_ids)

    def remove_log(self, log_id: int) -> None:
        """One that no index names. OSError; then it may still be there, and is to be removed again."""
        self.inventory.removed([log_id])
        self.file_system.remove(self.directory / file_name(log_id))
        self.log_reader.forget(log_id)

    def note_lossy(self) -> None:
        """Raises OSError or BookieStorageError; then it is to be called again."""
        self.file_system.remove(self.directory / NOTHING_LOST_FILE)
        self.file_system.sync_directory(self.directory)
        with self.flushing:
            self.ledger_index.note_lossy()
            self._list()

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
            storage.note_lossy()

    def note_lost_ledgers_known(self) -> None:
        for storage in self.all:
            storage.ledger_index.note_lost_ledgers_known()

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
