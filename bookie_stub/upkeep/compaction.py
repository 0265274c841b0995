"""Compaction: the living entries of a mostly dead log go into a log of their own, then the old one is removed.

    <new>.log.compacting             being written; a start removes it
    <new>.log.<old>.compacted        complete and synced: from here on a start finishes the work
    <new>.log                        the same file under the name that readers look for
    location index                   names <new> where it named <old>, and only there
    <old>.log removed, then the second name

These are BookKeeper's names. At each step every living entry is in a log that the index names. What lives is decided by
the index: an entry that was rewritten, or whose ledger is gone, is not at the place that the scan found it at.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Event
from time import monotonic
from typing import NamedTuple

from bookie_stub.base.errors import BookieError, CorruptEntry
from bookie_stub.base.file_system import remove_quietly
from bookie_stub.base.record import KEY, LENGTH_BYTES, frame
from bookie_stub.disk.entry_log import LogScan, file_name, location_of, read_ledgers_map
from bookie_stub.disk.entry_log_writer import LogFile
from bookie_stub.disk.ledger_storage import LedgerStorage
from bookie_stub.disk.location_index import LOCATION
from bookie_stub.disk.rocks import Pause, no_pause

log = logging.getLogger(__name__)

COMPACTING = ".log.compacting"
_COMPACTED = re.compile(r"([0-9a-f]+)\.log\.([0-9a-f]+)\.compacted")
_PAUSE_S = 0.0002
_INDEX_SLICE = 5000
"""Rows that are changed under the lock at a time: a flush waits for about 20 ms."""


_SCAN_SLICE = 128
"""Entries between two breaths: less than a millisecond, and no more pages of the log than entries."""


class CompactionStopped(BookieError):
    """The bookie stops: what was copied is given up."""


class Throttler:
    """Keeps copying under a rate. One thread."""

    def __init__(self, per_s: float, stopping: Event) -> None:
        """`per_s`: bytes or entries, whatever `take` is told; 0 and less set no limit."""
        self._per_s = per_s
        self._stopping = stopping
        self._due = monotonic()

    def pause(self) -> None:
        """Lets others run, at no rate. Raises CompactionStopped."""
        if self._stopping.wait(_PAUSE_S):
            raise CompactionStopped("compaction: the bookie stops")

    def take(self, amount: int) -> None:
        """Waits for its turn. Raises CompactionStopped."""
        now = monotonic()
        self._due = max(self._due, now)
        if self._due > now:
            self._stopping.wait(self._due - now)
        if self._stopping.is_set():
            raise CompactionStopped("compaction: the bookie stops")
        if self._per_s > 0:
            self._due += amount / self._per_s


class _Move(NamedTuple):
    key: bytes
    old: int
    new: int


def compact_log(
    storage: LedgerStorage,
    log_id: int,
    living: Callable[[int], bool],
    pace: Callable[[int], None],
    pause: Pause = no_pause,
) -> int:
    """Returns the bytes that were freed. `pace` is called with the length of each record of a living ledger before it
    is looked up, as at BookKeeper; `pause` now and then, also where nothing lives.

    Raises OSError or BookieError, CompactionStopped among them; then the old log is as it was, unless the message of a
    start says otherwise. The log must be settled.
    """
    old = storage.directory / file_name(log_id)
    size = old.stat().st_size
    with storage.flushing:  # an entry that is flushed from now on goes to a log newer than the copy
        new_id = storage.logs.reserve_id()
    new = LogFile(storage.directory / f"{new_id:x}{COMPACTING}", new_id, storage.file_system)
    try:
        scanned, moves = _copy(storage, old, log_id, new, living, pace, pause)
        new.finish()
    except BaseException:
        new.abandon()
        remove_quietly(storage.file_system, new.path)
        raise
    kept = new.path.stat().st_size if moves else 0
    if moves:
        marked = storage.directory / f"{new_id:x}.log.{log_id:x}.compacted"
        storage.file_system.rename(new.path, marked)
        storage.file_system.sync_directory(storage.directory)
        _make_available(storage, marked, new_id)
        _update_index(storage, moves)
        _remove_old(storage, log_id, scanned, living)
        storage.file_system.remove(marked)
    else:
        storage.file_system.remove(new.path)
        _remove_old(storage, log_id, scanned, living)
    return size - kept


def _copy(
    storage: LedgerStorage,
    old: Path,
    log_id: int,
    new: LogFile,
    living: Callable[[int], bool],
    pace: Callable[[int], None],
    pause: Pause,
) -> tuple[set[int] | None, list[_Move]]:
    """The ledgers of the log (None: not all can be told) and what was copied."""
    ledgers = set(read_ledgers_map(old) or ())
    mapped = bool(ledgers)
    moves: list[_Move] = []
    found = LogScan(old)
    for number, entry in enumerate(found, 1):
        if number % _SCAN_SLICE == 0:
            pause()
        ledgers.add(entry.ledger_id)
        if not living(entry.ledger_id):
            continue
        pace(LENGTH_BYTES + entry.size)
        key = KEY.pack(entry.ledger_id, entry.entry_id)
        location = location_of(log_id, entry.offset + LENGTH_BYTES)
        if storage.locations.get(key) != location:
            continue
        record = frame(storage.log_reader.read(key, location))
        moves.append(_Move(key, location, new.append(record, entry.ledger_id)))
    return (ledgers if mapped or not found.rest else None), moves


def _make_available(storage: LedgerStorage, marked: Path, new_id: int) -> None:
    with contextlib.suppress(FileExistsError):
        storage.file_system.link(marked, storage.directory / file_name(new_id))
    storage.file_system.sync_directory(storage.directory)
    storage.inventory.added(new_id)


def _update_index(storage: LedgerStorage, moves: list[_Move]) -> None:
    for start in range(0, len(moves), _INDEX_SLICE):
        with storage.flushing:  # no flush may come between the look and the change
            puts = [
                (move.key, LOCATION.pack(move.new))
                for move in moves[start : start + _INDEX_SLICE]
                if storage.locations.get(move.key) == move.old
            ]
            storage.locations.write(puts, ())


def _remove_old(
    storage: LedgerStorage, log_id: int, ledgers: Iterable[int] | None, living: Callable[[int], bool]
) -> None:
    """CorruptEntry while the index names the log: what a damaged log hides from a scan may still be readable."""
    if is_named(storage, log_id, None if ledgers is None else [each for each in ledgers if living(each)]):
        raise CorruptEntry(
            f"{storage.directory / file_name(log_id)} has entries that a scan does not find; kept"
        )
    storage.remove_log(log_id)
    storage.file_system.sync_directory(storage.directory)


def is_named(storage: LedgerStorage, log_id: int, ledgers: Iterable[int] | None) -> bool:
    """Whether the location index names the log for one of these ledgers; None: for any."""
    if ledgers is None:
        return any(location >> 32 == log_id for _, _, location in storage.locations.all_rows())
    return any(
        location >> 32 == log_id
        for ledger_id in ledgers
        for _, location in storage.locations.ledger_rows(ledger_id)
    )


def finish_compactions(storage: LedgerStorage) -> None:
    """At start, before anything is flushed: give up what was being written, finish what was complete."""
    for path in storage.directory.glob(f"*{COMPACTING}"):
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
        if location >> 32 == old_id and location:
            moves.append(_Move(key, location, location_of(new_id, entry.offset + LENGTH_BYTES)))
    _update_index(storage, moves)
    old = storage.directory / file_name(old_id)
    if old.exists():
        try:
            _remove_old(storage, old_id, None, lambda _: True)
        except CorruptEntry as error:
            log.warning("%s", error)
    storage.file_system.remove(marked)
    log.info("compaction of %x.log into %x.log finished, %d entries moved", old_id, new_id, len(moves))
