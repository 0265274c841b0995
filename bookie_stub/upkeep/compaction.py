"""EntryLogCompactor: copies the living entries of a log, then removes it.

BookKeeper: `TransactionalEntryLogCompactor`; the file names are the same.

```
1  <new>.log.compacting            being written; a start removes it
2  <new>.log.<old>.compacted       complete and synced: from here on a start finishes the work
3  <new>.log                       a second name of the same file, under which readers find it
4  location index                  each row that names <old> names <new>
5  <old>.log is removed, then the name of step 2
```

The law: the copy is indexed before the old log goes. So at each step every living entry is in a log that its row names,
and a kill at any step loses none.

The index decides which entries live. An entry that was written again, or whose ledger is deleted, has no row that names
the place at which the scan found it. A row is changed with `LedgerStorage.flushing` held and only if it still names the
old place; a flush in between could otherwise lose its newer version of the entry.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from bookie_stub.base.errors import CorruptEntry
from bookie_stub.base.file_system import remove_quietly
from bookie_stub.base.record import KEY, LENGTH_BYTES, frame
from bookie_stub.disk.entry_log import LogScan, file_name, location_of, read_ledgers_map
from bookie_stub.disk.entry_log_writer import LogFile
from bookie_stub.disk.ledger_storage import LedgerStorage
from bookie_stub.disk.location_index import LOCATION
from bookie_stub.disk.rocks import Pause, no_pause

log = logging.getLogger(__name__)

_COMPACTING = ".log.compacting"
_COMPACTED = re.compile(r"([0-9a-f]+)\.log\.([0-9a-f]+)\.compacted")
_INDEX_SLICE = 5000
"""Rows changed with the lock held: a flush waits for about 20 ms."""
_SCAN_SLICE = 128
"""Entries scanned between two pauses: less than a millisecond, also when each lies in another page of the log."""


class _Move(NamedTuple):
    key: bytes
    old: int
    new: int


class EntryLogCompactor:
    """Compacts the logs of one ledger directory. It works in its caller's thread, one log after the other."""

    def __init__(
        self,
        storage: LedgerStorage,
        living: Callable[[int], bool],
        acquire: Callable[[int], None],
        pause: Pause = no_pause,
    ) -> None:
        """`living` returns whether a ledger's entries are still to be kept.

        `acquire` is called with the size of each record of a living ledger before its row is looked up, as at BookKeeper,
        and may wait. `pause` is called every 128 entries, also where nothing lives. Either may raise, which gives the
        compaction up.
        """
        self._storage = storage
        self._file_system = storage.file_system
        self._living = living
        self._acquire = acquire
        self._pause = pause

    def compact(self, log_id: int) -> int:
        """Compacts one settled log and returns the bytes that were freed.

        Raises OSError or BookieError, CompactionStopped among them. Until step 2 the old log is as it was then; later
        the next start finishes the work.
        """
        storage = self._storage
        old = storage.directory / file_name(log_id)
        size = old.stat().st_size
        with storage.flushing:  # entries flushed from now on go to a log with a higher id than the copy's
            new_id = storage.logs.reserve_id()
        new = LogFile(storage.directory / f"{new_id:x}{_COMPACTING}", new_id, self._file_system)
        try:
            ledgers, moves = self._copy(old, log_id, new)
            new.finish()
        # Also for KeyboardInterrupt: the half-written copy must go whatever ends the compaction.
        except BaseException:
            new.abandon()
            remove_quietly(self._file_system, new.path)
            raise
        # No entry lives, so the copy is empty and there is nothing to index.
        if not moves:
            self._file_system.remove(new.path)
            self._remove_old(log_id, ledgers)
            return size
        kept = new.path.stat().st_size
        marked = storage.directory / f"{new_id:x}.log.{log_id:x}.compacted"
        self._file_system.rename(new.path, marked)
        # The name says that the copy is complete, so it must survive a power cut before the index names the copy.
        self._file_system.sync_directory(storage.directory)
        _make_available(storage, marked, new_id)
        _update_index(storage, moves)
        self._remove_old(log_id, ledgers)
        # Last: without this name a start after a kill would not know that the old log is to be removed.
        self._file_system.remove(marked)
        return size - kept

    def _copy(self, old: Path, log_id: int, new: LogFile) -> tuple[set[int] | None, list[_Move]]:
        """Copies the living entries; returns the log's ledgers and the moves.

        The ledgers are None when they are not known.
        """
        storage = self._storage
        # The map also names ledgers whose entries a damaged place hides from the scan.
        ledgers = set(read_ledgers_map(old) or ())
        mapped = bool(ledgers)
        moves: list[_Move] = []
        scan = LogScan(old)
        for number, entry in enumerate(scan, 1):
            if number % _SCAN_SLICE == 0:
                self._pause()
            ledgers.add(entry.ledger_id)
            if not self._living(entry.ledger_id):
                continue
            self._acquire(LENGTH_BYTES + entry.size)
            key = KEY.pack(entry.ledger_id, entry.entry_id)
            location = location_of(log_id, entry.offset + LENGTH_BYTES)
            if storage.locations.get(key) != location:
                continue  # written again, so the row names another place
            # Read by its location, as for a client: a damaged entry raises here, and the old log stays.
            record = frame(storage.log_reader.read(key, location))
            moves.append(_Move(key, location, new.append(record, entry.ledger_id)))
        # Without a map, bytes after the last record may hide entries of ledgers that the scan has not met.
        return (ledgers if mapped or not scan.rest else None), moves

    def _remove_old(self, log_id: int, ledgers: set[int] | None) -> None:
        remove_unnamed(self._storage, log_id, None if ledgers is None else filter(self._living, ledgers))


def _make_available(storage: LedgerStorage, marked: Path, new_id: int) -> None:
    """Gives the complete copy its name as an entry log. A second call, after a kill, finds the name."""
    with contextlib.suppress(FileExistsError):
        storage.file_system.link(marked, storage.directory / file_name(new_id))
    storage.file_system.sync_directory(storage.directory)
    storage.inventory.added(new_id)


def _update_index(storage: LedgerStorage, moves: list[_Move]) -> None:
    for start in range(0, len(moves), _INDEX_SLICE):
        with storage.flushing:  # no flush may come between the check and the change
            puts = [
                (move.key, LOCATION.pack(move.new))
                for move in moves[start : start + _INDEX_SLICE]
                if storage.locations.get(move.key) == move.old
            ]
            storage.locations.write(puts, ())


def remove_unnamed(storage: LedgerStorage, log_id: int, ledgers: Iterable[int] | None) -> None:
    """Removes a log that no row names. CorruptEntry when one does, OSError.

    `ledgers` are those whose rows are looked at; None stands for all. A row can name a log after damage that hides the
    entry from a scan, and the entry itself may still be readable.
    """
    if is_named(storage, log_id, ledgers):
        raise CorruptEntry(
            f"{storage.directory / file_name(log_id)} is kept: it has entries that the index names and a scan does not"
            " find; `magnetar bookie check` lists them"
        )
    storage.remove_log(log_id)
    storage.file_system.sync_directory(storage.directory)


def is_named(storage: LedgerStorage, log_id: int, ledgers: Iterable[int] | None) -> bool:
    """Returns whether a row of these ledgers names the log. None stands for all ledgers."""
    if ledgers is None:
        return any(location >> 32 == log_id for _, _, location in storage.locations.all_rows())
    return any(
        location >> 32 == log_id
        for ledger_id in ledgers
        for _, location in storage.locations.ledger_rows(ledger_id)
    )


def finish_compactions(storage: LedgerStorage) -> None:
    """Removes compactions that were being written, and finishes those that were complete.

    To be called at a start, before anything is flushed. Raises OSError and BookieError.
    """
    for path in storage.directory.glob(f"*{_COMPACTING}"):
        log.info("%s removed: its compaction did not end", path.name)
        storage.file_system.remove(path)
    for path in sorted(storage.directory.glob("*.compacted")):
        match = _COMPACTED.fullmatch(path.name)
        if match is not None:
            _finish(storage, path, int(match[1], 16), int(match[2], 16))


def _finish(storage: LedgerStorage, marked: Path, new_id: int, old_id: int) -> None:
    _make_available(storage, marked, new_id)
    moves = []
    for entry in LogScan(marked):
        key = KEY.pack(entry.ledger_id, entry.entry_id)
        location = storage.locations.get(key)
        if location and location >> 32 == old_id:
            moves.append(_Move(key, location, location_of(new_id, entry.offset + LENGTH_BYTES)))
    _update_index(storage, moves)
    old = storage.directory / file_name(old_id)
    if old.exists():
        try:
            remove_unnamed(storage, old_id, None)
        except CorruptEntry as error:
            log.warning("%s", error)
    storage.file_system.remove(marked)
    log.info("compaction of %x.log into %x.log finished, %d entries moved", old_id, new_id, len(moves))
