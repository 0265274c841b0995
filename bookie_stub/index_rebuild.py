"""`index rebuild`: the indexes of a ledger directory anew, from what its entry logs and the journals hold.

Of two copies of an entry the one in the newer log counts, and in one log the later one. The new location index is built
beside the old one and takes its place when it is complete. A ledger index that is there is kept, and says which ledgers
live; it is only rebuilt when it is missing, unreadable or when that is asked for, from what `ledger_facts` knows: then
every ledger is fenced, and ledgers that were deleted long ago and have no tombstone come back until the metadata store
is asked. Until one that begins empty is complete, no bookie starts and a rebuild takes it for missing still. What damage
hides in a log is in limbo: the ledgers of its map, or those of which the old location index has rows behind the damage,
or all when there is neither. The bookie must be down.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bookie_stub.directories import NOTHING_LOST_FILE
from bookie_stub.entry_log import LogScan, file_name, location_of, log_ids, read_ledgers_map
from bookie_stub.errors import BookieError, BookieStorageError, CorruptEntry
from bookie_stub.file_system import FileSystem
from bookie_stub.ledger_facts import LedgerFacts
from bookie_stub.ledger_index import LedgerIndex
from bookie_stub.ledger_storage import LEDGERS, LOCATIONS, REBUILDING, REPLACED
from bookie_stub.location_index import LOCATION, LocationIndex
from bookie_stub.progress import Progress, Say
from bookie_stub.record import KEY, LENGTH_BYTES
from bookie_stub.rocks import Put, is_database, read_rows

_BUILT = "locations.rebuilt"
_BATCH = 50_000


class Rebuilt(NamedTuple):
    entries: int
    ledgers: int
    skipped: int
    """Entries of ledgers that the ledger index does not have."""
    torn: tuple[str, ...]
    """Logs with bytes behind their last record: torn by a crash, or damaged."""
    limbo: int
    """Ledgers that may have lost entries."""
    lossy: bool
    """Ledgers may have been forgotten; the next start asks the metadata store which."""


def rebuild(
    logs: Path, index: Path, journals: Sequence[Path], *, ledgers_too: bool, share: tuple[int, int], say: Say
) -> Rebuilt:
    """`share`: which directory of how many this is. Raises BookieError, BookieInUse among them, or OSError."""
    file_system = FileSystem()
    missing = (index / REBUILDING).exists() or not is_database(index / LEDGERS)
    if missing:
        file_system.replace(index / REBUILDING, b"")
    ledger_index = LedgerIndex(index / LEDGERS)
    try:
        facts = LedgerFacts(logs, index, None if missing else ledger_index)
        if facts.rows is None and not missing:
            # What cannot be read now could not be at the next start either.
            file_system.replace(index / REBUILDING, b"")
            ledger_index.close()
            shutil.rmtree(index / LEDGERS)
            ledger_index = LedgerIndex(index / LEDGERS)
        facts.read(journals, share)
        anew = ledgers_too or facts.rows is None
        scan = _Scan(logs, None if anew else set(facts.rows or ()), facts.has_deleted)
        progress = scan.run(index, say)
        facts.keep_tombstones()
        rows = facts.rebuilt(scan.found) if anew else dict(facts.rows or {})
        hidden = scan.hidden(index)
        hit = rows.keys() if hidden is None else hidden & rows.keys()
        damaged = {each: rows[each]._replace(fenced=True, limbo=True) for each in hit}
        if facts.lossy or damaged:
            file_system.remove(logs / NOTHING_LOST_FILE)
            file_system.sync_directory(logs)
        if facts.lossy:
            ledger_index.note_lossy()
        changed = {**rows, **damaged} if anew else damaged
        ledger_index.write(changed, [each for each in facts.rows or () if facts.has_deleted(each)])
        _take_place(index)
        file_system.remove(index / REBUILDING)
        file_system.sync_directory(index)
        lossy = facts.lossy
    finally:
        ledger_index.close()
    limbo = sum(row.limbo for row in {**rows, **damaged}.values())
    return Rebuilt(progress.count, len(scan.found), scan.skipped, tuple(scan.torn), limbo, lossy)


class _Scan:
    """All entry logs of a directory into a new location index."""

    def __init__(self, logs: Path, known: set[int] | None, has_deleted: Callable[[int], bool]) -> None:
        """Entries of other ledgers than `known` are passed over; None: all are known but the deleted ones."""
        self._logs = logs
        self._known = known
        self._has_deleted = has_deleted
        self.found: set[int] = set()
        self._mapped: set[int] = set()
        """Ledgers of finished logs that cannot be read to their end."""
        self._unmapped: dict[int, int] = {}
        """Where the scan of each other log ended that cannot be read to its end. No map says what it had."""
        self.skipped = 0
        self.torn: list[str] = []

    def run(self, index: Path, say: Say) -> Progress:
        shutil.rmtree(index / _BUILT, ignore_errors=True)
        ids = log_ids(self._logs)
        total = sum((self._logs / file_name(log_id)).stat().st_size for log_id in ids)
        progress = Progress(f"rebuild {index}", "entries", say, total)
        locations = LocationIndex(index / _BUILT)
        try:
            for log_id in ids:
                self._log(log_id, locations, progress)
            locations.write([], ())
        finally:
            locations.close()
        say(f"rebuild {index}: {progress.text()}")
        return progress

    def _log(self, log_id: int, locations: LocationIndex, progress: Progress) -> None:
        path = self._logs / file_name(log_id)
        puts: list[Put] = []
        scan = LogScan(path)
        for entry in scan:
            if not self._is_known(entry.ledger_id):
                self.skipped += 1
                progress.add(0, LENGTH_BYTES + entry.size)
                continue
            self.found.add(entry.ledger_id)
            location = location_of(log_id, entry.offset + LENGTH_BYTES)
            puts.append((KEY.pack(entry.ledger_id, entry.entry_id), LOCATION.pack(location)))
            progress.add(1, LENGTH_BYTES + entry.size)
            if len(puts) == _BATCH:
                locations.write(puts, ())
                puts = []
        locations.write(puts, ())
        if scan.rest:
            self.torn.append(f"{path} from {scan.end} on, {scan.rest} bytes")
            ledgers = None
            with contextlib.suppress(CorruptEntry):
                ledgers = read_ledgers_map(path)
            if ledgers is None:
                self._unmapped[log_id] = scan.end
            else:
                self._mapped |= ledgers.keys()

    def hidden(self, index: Path) -> set[int] | None:
        """Ledgers that have entries where no log can be read; None when nobody can tell which."""
        if not self._unmapped:
            return self._mapped
        old = index / (LOCATIONS if is_database(index / LOCATIONS) else REPLACED)
        try:
            return self._mapped | _named_behind(old, self._unmapped)
        except BookieStorageError:
            return None

    def _is_known(self, ledger_id: int) -> bool:
        return not self._has_deleted(ledger_id) and (self._known is None or ledger_id in self._known)


def _named_behind(old: Path, ends: Mapping[int, int]) -> set[int]:
    """Ledgers with entries that the old location index names behind the ends of these logs. BookieStorageError."""
    ledger_ids = set()
    with read_rows(old) as rows:
        for key, value in rows:
            log_id, offset = divmod(int.from_bytes(value, "big"), 1 << 32)
            if offset > ends.get(log_id, offset):
                ledger_ids.add(KEY.unpack(key)[0])
    return ledger_ids


def _take_place(index: Path) -> None:
    """A start between the two renames is refused, and this is to be run again."""
    shutil.rmtree(index / REPLACED, ignore_errors=True)
    if (index / LOCATIONS).exists():
        (index / LOCATIONS).rename(index / REPLACED)
    else:
        (index / REPLACED).mkdir()
    file_system = FileSystem()
    file_system.sync_directory(index)
    (index / _BUILT).rename(index / LOCATIONS)
    file_system.sync_directory(index)
    shutil.rmtree(index / REPLACED, ignore_errors=True)


def check_directories(directories: Sequence[Path]) -> None:
    """BookieError that names the one that is missing."""
    for directory in directories:
        if not directory.is_dir():
            raise BookieError(f"there is no {directory}")
