"""LedgerStorage: one ledger directory, its entry logs and its indexes.

Its flush keeps logs and indexes in step.

BookKeeper: `SingleDirectoryDbLedgerStorage`; all of a bookie's are `Storages`, BookKeeper's `DbLedgerStorage`. A ledger is
at home in the directory that its id modulo their number names.

The law of a flush is its order: entry log, sync of the log, tombstones, location index, ledger index, inventory. An index
never names bytes that are not synced; a ledger has its tombstone before its fence leaves the ledger index; the inventory
lists only what is there.

A flush holds the lock `flushing`. A compaction holds it too while it changes the location index, since a flush between
its look at a row and its write would be undone; so does everything that needs the logs at rest.
"""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bookie_stub.base.disk_reserve import reserve_bytes
from bookie_stub.base.errors import BookieStorageError
from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.record import RECORD_KEY
from bookie_stub.config.settings import BookieSettings
from bookie_stub.disk.directories import NOTHING_LOST_FILE
from bookie_stub.disk.entry_log import LedgerBytes, file_name, log_ids
from bookie_stub.disk.entry_log_reader import EntryLogReader
from bookie_stub.disk.entry_log_writer import EntryLogWriter
from bookie_stub.disk.inventory import IndexCounts, Inventory
from bookie_stub.disk.ledger_index import LedgerData, LedgerIndex
from bookie_stub.disk.location_index import LOCATION, LocationIndex
from bookie_stub.disk.marks import MARK_FILE
from bookie_stub.disk.readahead import readahead
from bookie_stub.disk.rocks import Pause, Put, is_database, no_pause
from bookie_stub.disk.stored_entries import StoredEntries
from bookie_stub.disk.tombstones import FILE as TOMBSTONES
from bookie_stub.disk.tombstones import Tombstones
from bookie_stub.disk.write_cache import WriteCache

LOCATIONS = "locations"
"""The location index's directory."""
LEDGERS = "ledgers"
"""The ledger index's directory."""
REPLACED = "locations.replaced"
"""The old location index, while a rebuilt one takes its place."""
REBUILDING = "ledgers.rebuilding"
"""A file beside `ledgers` while that index is made from nothing: some of its rows are still missing."""
_APPEND_SLICE = 128
"""Entries appended between two pauses: about 0.2 ms."""


class _Appended(NamedTuple):
    """The appended part of a flush whose indexes are not written yet."""

    cache: WriteCache
    newer_than: int
    puts: list[Put]


class LedgerStorage:
    """The entry logs and indexes of one ledger directory."""

    def __init__(self, ledgers: Path, index: Path, settings: BookieSettings, file_system: FileSystem) -> None:
        """`ledgers` and `index` are the folders that hold the files.

        Raises BookieError when an index is missing, incomplete, damaged, or open in another bookie; OSError.
        """
        self.directory = ledgers
        """The folder of the entry logs."""
        self.file_system = file_system
        """Writes everything but the databases."""
        self.logs = EntryLogWriter(ledgers, settings.entry_log_bytes_max, file_system)
        """The entry log that grows. Only with `flushing` held."""
        self.log_reader = EntryLogReader(ledgers, settings.frame_bytes_max, file_system)
        """Reads entries of any log."""
        self.flushing = threading.Lock()
        """Held by a flush, and by all that must not meet one."""
        self._appended: _Appended | None = None
        """The appended part of a flush that failed later; dropped when another thread has judged the logs meanwhile."""
        self._kept_free = reserve_bytes(shutil.disk_usage(ledgers).total) // 2
        """Bytes of the disk that entries leave to indexes, marks and the broker's metadata."""
        _check_whole(ledgers, index)
        # Only after the check: an index directory made here would hide that the old one is missing.
        index.mkdir(parents=True, exist_ok=True)
        self.inventory = Inventory(ledgers, file_system)
        """The logs and rows that there must be."""
        self.tombstones = Tombstones(index / TOMBSTONES, file_system, self.inventory.counts.tombstones)
        """The ids of deleted ledgers."""
        self.locations = LocationIndex(index / LOCATIONS, file_system)
        """The place of each entry. Written with `flushing` held."""
        try:
            self.ledger_index = LedgerIndex(index / LEDGERS, file_system)
            """Key, fence, explicit LAC and limbo of each ledger. Written with `flushing` held."""
            try:
                self._check_complete(index)
            except BaseException:
                self.ledger_index.close()
                raise
        # A database that stays open holds its lock file, and the next start in this process would find it in use.
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
        """Reads entries with their readahead."""

    def flush(
        self,
        cache: WriteCache,
        ledger_ids: Sequence[int],
        changed: Mapping[int, LedgerData],
        deleted: Sequence[int],
        emptied: Sequence[int],
        pause: Pause = no_pause,
    ) -> int:
        """Writes the entries of `ledger_ids` and returns their number.

        Rows of the ledger index in `changed` are written; `deleted` ledgers leave both indexes; of `emptied` ones the
        older rows leave the location index. Raises OSError or BookieError; then it must be called again with the same
        arguments, and does not append the entries a second time when only an index had failed. Entries that would take
        the disk's last bytes raise too: indexes and the broker's metadata need these.
        """
        with self.flushing:
            puts = self._append_once(cache, ledger_ids, pause)
            if deleted:
                # Before the ledger index forgets that they were fenced: between the two a crash would make them new.
                self.tombstones.add(deleted)
            if puts or deleted or emptied:
                self.locations.write(puts, (*deleted, *emptied), pause)
            # Also when no entry was added: BookKeeper 4.17 skips it then, moves the mark, and forgets fences and
            # explicit LACs.
            if changed or deleted:
                self.ledger_index.write(changed, deleted)
            # After the indexes: a start is refused when an index has less than the inventory says.
            if puts or changed or deleted or emptied:
                self._list()
            self._appended = None
        return len(puts)

    def _append_once(self, cache: WriteCache, ledger_ids: Sequence[int], pause: Pause) -> list[Put]:
        """Appends and syncs once per flush, and returns the rows to put.

        Without this a full index disk would have the entries appended again every second.
        """
        last, self._appended = self._appended, None
        # After `reserve_id` the entries must go to a newer log than the compaction's, so what was appended before is void.
        if last is None or last.cache is not cache or last.newer_than != self.logs.newer_than:
            self._refuse_without_space(cache, ledger_ids)
            try:
                puts = self._append(cache, ledger_ids, pause)
                if puts:
                    self.logs.sync()
            except OSError:
                # Nothing in the file after its synced part can be trusted, so the repetition appends to another log.
                self.logs.abandon()
                raise
            last = _Appended(cache, self.logs.newer_than, puts)
        self._appended = last
        return last.puts

    def free_for_entries(self) -> int:
        """Returns the bytes that entries may still take on the disk of the logs, negative on a full disk. OSError."""
        return self.file_system.free_bytes(self.directory) - self._kept_free

    def _refuse_without_space(self, cache: WriteCache, ledger_ids: Sequence[int]) -> None:
        free = self.free_for_entries()
        # The size is an upper limit that costs nothing; a full disk alone makes the count necessary.
        if not ledger_ids or cache.size <= free:
            return
        present = [cache.entries.get(ledger_id) for ledger_id in ledger_ids]
        needed = sum(len(piece) for entries in present if entries is not None for piece in entries.pieces())
        if needed > free:
            raise OSError(
                errno.ENOSPC, f"No space left on device for {needed} bytes of entries", str(self.directory)
            )

    def _append(self, cache: WriteCache, ledger_ids: Iterable[int], pause: Pause) -> list[Put]:
        """Appends in the order of ledger and entry id. A later load then finds a ledger's entries side by side."""
        puts: list[Put] = []
        append, pack = self.logs.append, LOCATION.pack
        for ledger_id in sorted(ledger_ids):
            records = cache.entries.get(ledger_id)
            if records is None:
                continue  # the loop has deleted it since the flush began
            for _, record in records.in_order():
                puts.append((record[RECORD_KEY], pack(append(record, ledger_id))))
                if len(puts) % _APPEND_SLICE == 0:
                    pause()
        return puts

    def _list(self) -> None:
        logs = self.logs
        self.inventory.flushed(logs.finished, logs.synced, self._counts())
        logs.finished.clear()

    def _counts(self) -> IndexCounts:
        return IndexCounts(self.locations.sequence, self.ledger_index.sequence, len(self.tombstones))

    def _check_complete(self, index: Path) -> None:
        """Raises BookieStorageError when an index has fewer changes than the inventory says.

        RocksDB takes rows after a damaged place of its write-ahead log for never written, and reports nothing.
        """
        wanted = self.inventory.counts
        for path, found, written in (
            (index / LOCATIONS, self.locations.sequence, wanted.locations),
            (index / LEDGERS, self.ledger_index.sequence, wanted.ledgers),
        ):
            if found < written:
                raise BookieStorageError(
                    f"{path} has {found} changes of {written}: its newest rows are lost, or it is an older copy; run"
                    " `magnetar bookie index rebuild` with this bookie's settings, or bring the newest one back"
                )

    def settled_logs(self) -> list[int]:
        """Returns the logs that are complete and in the index. No record is appended to them any more."""
        with self.flushing:
            # A flush that failed in an index has entries in a log that no row names yet. To the caller they are dead, and
            # it may remove the log, so the flush must append them anew.
            self._appended = None
            return [log_id for log_id in log_ids(self.directory) if log_id != self.logs.log_id]

    def finish_current(self, is_dead: Callable[[LedgerBytes], bool]) -> None:
        """Finishes the current log early if `is_dead` holds for its ledgers; the next record begins another.

        Only finished logs are removed and compacted.
        """
        with self.flushing:
            if not self.logs.ledgers or not is_dead(self.logs.ledgers):
                return
            try:
                self.logs.finish()
                self._list()
            except OSError:
                # A full disk may have no byte for the ledgers map. A scan finds the ledgers of a log without one.
                self.logs.abandon()

    def finish(self) -> None:
        """Finishes the current log, for a clean stop. OSError."""
        with self.flushing:
            self.logs.finish()
            if self.logs.finished:
                self._list()

    def named_logs(self, log_ids: Collection[int]) -> set[int]:
        """Returns those of the logs that the location index names. It walks the whole index."""
        return {location >> 32 for _, _, location in self.locations.all_rows()}.intersection(log_ids)

    def remove_log(self, log_id: int) -> None:
        """Removes a log that no row names. OSError; then it may still be there, and must be removed again."""
        # Struck out first: a kill between the two leaves a log too many, the other order would report a lost log.
        self.inventory.removed([log_id])
        self.file_system.remove(self.directory / file_name(log_id))
        self.log_reader.forget(log_id)

    def note_lossy(self) -> None:
        """Notes for this and later starts that whole ledgers may be lost.

        Raises OSError or BookieStorageError; then it must be called again.
        """
        # Before the flag: a kill between the two costs a doubt, the other order would claim that nothing was lost.
        self.file_system.remove(self.directory / NOTHING_LOST_FILE)
        self.file_system.sync_directory(self.directory)
        with self.flushing:
            self.ledger_index.note_lossy()
            self._list()

    def close(self) -> None:
        """Closes the databases and the logs that are open to read."""
        self.locations.close()
        self.ledger_index.close()
        self.log_reader.close()


def _check_whole(ledgers: Path, index: Path) -> None:
    """Raises BookieStorageError when an index is missing or not complete.

    It is missing when there are entry logs or a mark, and no database.

    An index that is gone must not begin anew as an empty one: fences would be forgotten, entries answered as absent, and
    living entry logs removed as garbage. Without a log and a mark nothing was ever kept, so that is a first start.
    """
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
    """The ledger storages of a bookie, in the order of `ledgerDirectories`."""

    def __init__(self, storages: Sequence[LedgerStorage]) -> None:
        self.all = tuple(storages)
        """Every storage, at its place."""

    def of(self, ledger_id: int) -> LedgerStorage:
        """Returns the storage in which a ledger is at home."""
        return self.all[self.place_of(ledger_id)]

    def place_of(self, ledger_id: int) -> int:
        """Returns the place of a ledger's storage."""
        return ledger_id % len(self.all)

    def shares(self, ledger_ids: Iterable[int]) -> list[list[int]]:
        """Returns the ids at home in each storage."""
        count = len(self.all)
        if count == 1:
            return [list(ledger_ids)]
        shares: list[list[int]] = [[] for _ in self.all]
        for ledger_id in ledger_ids:
            shares[ledger_id % count].append(ledger_id)
        return shares

    def has_deleted(self, ledger_id: int) -> bool:
        """Returns whether a ledger has a tombstone. It was here, was deleted, and takes no adds any more."""
        return ledger_id in self.of(ledger_id).tombstones

    @property
    def highest_deleted(self) -> int:
        """The highest id of a tombstone, -1 for none."""
        return max(storage.tombstones.highest for storage in self.all)

    def note_lossy(self) -> None:
        """Notes in every storage that whole ledgers may be lost; see `LedgerStorage.note_lossy`."""
        for storage in self.all:
            storage.note_lossy()

    def note_lost_ledgers_known(self) -> None:
        """Notes that each ledger that may be lost has a row. BookieStorageError."""
        for storage in self.all:
            storage.ledger_index.note_lost_ledgers_known()

    def entry_log_count(self) -> int:
        """Returns the number of entry logs on disk."""
        return sum(len(log_ids(storage.directory)) for storage in self.all)

    def entry_count_estimate(self) -> int:
        """Returns RocksDB's estimate of the number of entries in all location indexes."""
        return sum(storage.locations.count_estimate() for storage in self.all)

    def finish(self) -> None:
        """Finishes the current log of each storage. OSError."""
        for storage in self.all:
            storage.finish()

    def close(self) -> None:
        """Closes all storages."""
        for storage in self.all:
            storage.close()
