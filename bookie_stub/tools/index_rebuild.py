"""`index rebuild`: the indexes of a ledger directory anew, from what its entry logs and the journals hold.

Of two copies of an entry the one in the newer log counts, and in one log the later one. The new location index is built
beside the old one and takes its place when it is complete. A ledger index that is there is kept, and says which ledgers
live; it is only rebuilt when it is missing, unreadable or when that is asked for, from what `ledger_row_sources` knows: then
every ledger is fenced, and ledgers that were deleted long ago and have no tombstone come back until the metadata store
is asked. Until one that begins empty is complete, no bookie starts and a rebuild takes it for missing still.

What the logs do not have any more is not forgotten. The old location index names it while it can be read: such rows
stay, and the journals may still have the entries. Where it cannot be read, the inventory and the logs' own ledgers maps
say what is complete; ledgers of which that is not proven are in limbo, but for those that the cluster says are closed
and that are all here. The bookie must be down.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bookie_stub.base.errors import BookieError, BookieStorageError
from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.record import KEY, LENGTH_BYTES
from bookie_stub.disk.directories import MARK_FILE, NOTHING_LOST_FILE
from bookie_stub.disk.entry_log import file_name, location_of, log_ids
from bookie_stub.disk.entry_log_reader import EntryLogReader
from bookie_stub.disk.entry_log_writer import LAST_ID_FILE
from bookie_stub.disk.inventory import FILE as INVENTORY
from bookie_stub.disk.inventory import Inventory, Listed, Written, read_inventory
from bookie_stub.disk.ledger_index import LedgerData, LedgerIndex
from bookie_stub.disk.ledger_storage import LEDGERS, LOCATIONS, REBUILDING, REPLACED
from bookie_stub.disk.location_index import LOCATION, LocationIndex
from bookie_stub.disk.rocks import Put, is_database
from bookie_stub.tools.journal_salvage import JournalSalvage, differs
from bookie_stub.tools.ledger_row_sources import LedgerRowSources
from bookie_stub.tools.log_completeness import LogState, ScannedLog, missing_logs
from bookie_stub.tools.previous_locations import PreviousLocations
from bookie_stub.tools.progress import Progress, Say

_BUILT = "locations.rebuilt"
_BATCH = 50_000

ClosedEntries = Callable[[Collection[int]], Iterable[tuple[int, Iterable[int]]]]
"""Of these ledgers those that the cluster says are closed, each with the entries that this bookie is to have of it."""


class RebuildReport(NamedTuple):
    entries: int
    ledgers: int
    skipped: int
    """Entries of ledgers that the ledger index does not have."""
    flaws: tuple[str, ...]
    """What is wrong with entry logs, a line each."""
    rescued: int
    """Entries that only the old location index could find."""
    restored: int
    """Entries that only the journals had."""
    unreadable: int
    """Entries that are named and that nobody has; they are answered with an I/O error."""
    limbo: int
    """Ledgers that may have lost entries, nobody knows which."""
    lossy: bool
    """Ledgers may have been forgotten; the next start asks the metadata store which."""


def rebuild(
    logs: Path,
    index: Path,
    journals: Sequence[Path],
    *,
    ledgers_too: bool,
    share: tuple[int, int],
    entry_bytes_max: int,
    closed: ClosedEntries | None,
    say: Say,
) -> RebuildReport:
    """`share`: which directory of how many this is; `closed`: what the cluster knows, if it can be asked.

    Raises BookieError, BookieInUse among them, or OSError.
    """
    work = _Rebuild(logs, index, entry_bytes_max, say)
    try:
        work.learn(journals, share, ledgers_too=ledgers_too)
        work.build(journals)
        work.doubt(closed)
        work.finish()
    finally:
        work.close()
    return work.result()


class _Rebuild:
    """Its steps in their order."""

    def __init__(self, logs: Path, index: Path, entry_bytes_max: int, say: Say) -> None:
        self._file_system = FileSystem()
        self._logs = logs
        self._index = index
        self._say = say
        self._missing = (index / REBUILDING).exists() or not is_database(index / LEDGERS)
        if self._missing:
            self._file_system.replace(index / REBUILDING, b"")
        self._ledger_index = LedgerIndex(index / LEDGERS)
        self._reader = EntryLogReader(logs, entry_bytes_max, self._file_system)
        self._listed, self._flaws = _listed(logs)
        old = index / (LOCATIONS if is_database(index / LOCATIONS) else REPLACED)
        self._old = PreviousLocations(old, 0 if self._listed is None else self._listed.written.locations)
        self._states: list[LogState] = []
        self._found: set[int] = set()
        self._entries = self._skipped = self._restored = 0
        self._built: LocationIndex | None = None
        self._hidden: set[int] | None = None
        """Ledgers that may have lost entries that no row names; None when nobody can tell which."""
        self._rows: dict[int, LedgerData] = {}
        self._damaged: dict[int, LedgerData] = {}

    def learn(self, journals: Sequence[Path], share: tuple[int, int], *, ledgers_too: bool) -> None:
        """Which ledgers there are."""
        written = Written() if self._listed is None else self._listed.written
        behind = self._ledger_index.sequence < written.ledgers
        believed = None if self._missing or behind else self._ledger_index
        self._facts = LedgerRowSources(self._logs, self._index, believed, written.tombstones)
        if self._facts.rows is None and not self._missing:
            # What cannot be read now could not be at the next start either.
            self._file_system.replace(self._index / REBUILDING, b"")
            self._ledger_index.close()
            shutil.rmtree(self._index / LEDGERS)
            self._ledger_index = LedgerIndex(self._index / LEDGERS)
        self._facts.read(journals, share)
        self._anew = ledgers_too or self._facts.rows is None
        self._known = None if self._anew else set(self._facts.rows or ())

    def _is_known(self, ledger_id: int) -> bool:
        """All are but the deleted ones, where the ledger index is made anew."""
        return not self._facts.has_deleted(ledger_id) and (self._known is None or ledger_id in self._known)

    # The new location index.

    def build(self, journals: Sequence[Path]) -> None:
        shutil.rmtree(self._index / _BUILT, ignore_errors=True)
        self._built = LocationIndex(self._index / _BUILT)
        self._scan(self._built)
        self._old.keep(self._built, self._is_known, self._reader)
        self._facts.keep_tombstones()
        rows = self._facts.rebuilt(self._found | self._old.ledgers) if self._anew else self._facts.rows or {}
        self._rows = {each: row for each, row in rows.items() if not self._facts.has_deleted(each)}
        self._hidden = self._hidden_ledgers()
        if self._old.unreadable or self._hidden is None or self._hidden:
            self._rescue(journals, self._built)

    def _scan(self, built: LocationIndex) -> None:
        ids = log_ids(self._logs)
        total = sum((self._logs / file_name(log_id)).stat().st_size for log_id in ids)
        progress = Progress(f"rebuild {self._index}", "entries", self._say, total)
        for log_id in ids:
            log = ScannedLog(self._logs, log_id)
            self._take(log_id, log, built, progress)
            state = log.state(self._listed)
            self._states.append(state)
            if state.flaw:
                self._flaws.append(state.flaw)
            elif log.torn:
                self._flaws.append(f"{log.torn}: torn by a crash, or damaged")
        self._flaws += missing_logs(self._logs, set(ids), self._listed)
        self._entries = progress.count
        self._say(f"rebuild {self._index}: {progress.text()}")

    def _take(self, log_id: int, log: ScannedLog, built: LocationIndex, progress: Progress) -> None:
        puts: list[Put] = []
        for entry in log:
            if not self._is_known(entry.ledger_id):
                self._skipped += 1
                progress.add(0, LENGTH_BYTES + entry.size)
                continue
            self._found.add(entry.ledger_id)
            location = location_of(log_id, entry.offset + LENGTH_BYTES)
            puts.append((KEY.pack(entry.ledger_id, entry.entry_id), LOCATION.pack(location)))
            progress.add(1, LENGTH_BYTES + entry.size)
            if len(puts) == _BATCH:
                built.write(puts, ())
                puts = []
        built.write(puts, ())

    def _rescue(self, journals: Sequence[Path], built: LocationIndex) -> None:
        old = self._old

        def wanted(key: bytes, record: bytes) -> bool:
            if KEY.unpack(key)[0] not in self._rows:
                return False
            return key in old.unreadable or (not old.complete and differs(self._reader, built, key, record))

        self._say(f"rebuild {self._index}: looking for lost entries in the journals")
        rescue = JournalSalvage(journals, wanted)
        rescue.run(self._logs, built)
        self._restored = len(rescue.rescued)
        for key in rescue.rescued & old.unreadable.keys():
            del old.unreadable[key]

    # What cannot be known.

    def doubt(self, closed: ClosedEntries | None) -> None:
        hidden = self._hidden
        hit = set(self._rows) if hidden is None else hidden & self._rows.keys()
        if hit and closed is not None:
            hit -= self._proven(closed, hit)
        self._damaged = {each: self._rows[each]._replace(fenced=True, limbo=True) for each in hit}

    def _hidden_ledgers(self) -> set[int] | None:
        if self._old.complete:
            return set()
        ids = log_ids(self._logs)
        if self._listed is None and not _never_collected(self._logs, ids):
            return None
        if missing_logs(self._logs, set(ids), self._listed):
            return None
        hidden: set[int] = set()
        for state in self._states:
            if not state.proven:
                if state.short is None:
                    return None
                hidden |= state.short
        return hidden

    def _proven(self, closed: ClosedEntries, ledger_ids: Collection[int]) -> set[int]:
        """Those of them that are closed and all here."""
        assert self._built is not None
        return {
            ledger_id
            for ledger_id, wanted in closed(ledger_ids)
            if set(self._built.entry_ids(ledger_id)).issuperset(wanted)
        }

    # In place of the old ones.

    def finish(self) -> None:
        facts, file_system = self._facts, self._file_system
        if facts.lossy or self._damaged:
            file_system.remove(self._logs / NOTHING_LOST_FILE)
            file_system.sync_directory(self._logs)
        if facts.lossy:
            self._ledger_index.note_lossy()
        changed = {**self._rows, **self._damaged} if self._anew else self._damaged
        self._ledger_index.write(changed, [each for each in facts.rows or () if facts.has_deleted(each)])
        assert self._built is not None
        self._built.close()
        self._built = None
        inventory = Inventory(self._logs, file_system)
        ledgers = 0 if facts.rows is None or self._listed is None else self._listed.written.ledgers
        inventory.forget(Written(0, ledgers, facts.tombstone_count))
        _take_place(self._index)
        file_system.remove(self._index / REBUILDING)
        file_system.sync_directory(self._index)

    def close(self) -> None:
        if self._built is not None:
            self._built.close()
        self._ledger_index.close()
        self._reader.close()

    def result(self) -> RebuildReport:
        limbo = sum(row.limbo for row in {**self._rows, **self._damaged}.values())
        old = self._old
        if old.unreadable:
            names = ", ".join(old.logs_of_unreadable())
            self._flaws.append(f"{len(old.unreadable)} entries that were in {names} cannot be read")
        return RebuildReport(
            self._entries,
            len(self._found),
            self._skipped,
            tuple(self._flaws),
            old.rescued,
            self._restored,
            len(old.unreadable),
            limbo,
            self._facts.lossy,
        )


def _listed(logs: Path) -> tuple[Listed | None, list[str]]:
    """The inventory, and what is wrong with it; a damaged one is given up."""
    try:
        return read_inventory(logs), []
    except BookieStorageError:
        (logs / INVENTORY).unlink()
        return None, [f"{logs / INVENTORY} is damaged"]


def _never_collected(logs: Path, ids: Sequence[int]) -> bool:
    """Whether every log that there ever was is there, as the ids that were given out say."""
    try:
        last = int((logs / LAST_ID_FILE).read_text(), 16)
    except FileNotFoundError:
        return not ids and not any(logs.glob(f"{MARK_FILE}*"))
    except ValueError:
        return False
    return list(ids) == list(range(last + 1))


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


def require_directories(directories: Sequence[Path]) -> None:
    """BookieError that names the one that is missing."""
    for directory in directories:
        if not directory.is_dir():
            raise BookieError(f"there is no {directory}")
