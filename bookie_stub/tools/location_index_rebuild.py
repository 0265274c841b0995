"""LocationIndexRebuild: the location index anew from the entry logs (BookKeeper: `LocationsIndexRebuildOp`).

Of two copies of an entry the one in the log with the higher id counts, and in one log the later one. The new index is
built in `locations.rebuilt` and takes the place of the old one when it is complete.

Entries that the logs have lost are not forgotten. The old location index names them while it can be read
(`PreviousLocations`), and the journals may still have them (`JournalSalvage`). Where the old index cannot be read, the
inventory and the ledgers maps say which logs are complete, and ledgers of which that is not proven count as hidden.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path

from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.record import KEY, LENGTH_BYTES
from bookie_stub.disk.entry_log import file_name, location_of, log_ids
from bookie_stub.disk.entry_log_reader import EntryLogReader
from bookie_stub.disk.entry_log_writer import LAST_ID_FILE
from bookie_stub.disk.inventory import InventoryContents
from bookie_stub.disk.ledger_storage import LOCATIONS, REPLACED
from bookie_stub.disk.location_index import LOCATION, LocationIndex
from bookie_stub.disk.marks import MARK_FILE
from bookie_stub.disk.rocks import Put, is_database
from bookie_stub.tools.journal_salvage import JournalSalvage, differs
from bookie_stub.tools.log_completeness import LogCompleteness, ScannedLog, missing_logs
from bookie_stub.tools.previous_locations import PreviousLocations
from bookie_stub.tools.progress import Progress, Say

_BUILT = "locations.rebuilt"
_BATCH = 50_000


class LocationIndexRebuild:
    """The new location index of one directory while a rebuild runs, which closes it at its end."""

    def __init__(
        self, logs: Path, index: Path, inventory: InventoryContents | None, entry_bytes_max: int, say: Say
    ) -> None:
        """Reads nothing yet. An entry that says to be longer than `entry_bytes_max` is damaged."""
        self._logs = logs
        self._index = index
        self._inventory = inventory
        self._say = say
        self._reader = EntryLogReader(logs, entry_bytes_max, FileSystem())
        changes = 0 if inventory is None else inventory.counts.locations
        # An interrupted rebuild may have renamed the old index already.
        old = index / (LOCATIONS if is_database(index / LOCATIONS) else REPLACED)
        self.previous = PreviousLocations(old, changes)
        """The old location index."""
        self._built: LocationIndex | None = None
        self._completeness: list[LogCompleteness] = []
        self.flaws: list[str] = []
        """The damage in entry logs, a line each."""
        self.ledgers: set[int] = set()
        """The ledgers of which the scan found entries."""
        self.entries = 0
        """Entries that the scan found."""
        self.skipped = 0
        """Entries of ledgers that are not known."""
        self.salvaged = 0
        """Entries that only the journals had."""

    def scan(self, is_known: Callable[[int], bool]) -> None:
        """Fills a new index from the entry logs and the old one. Raises BookieError and OSError."""
        shutil.rmtree(self._index / _BUILT, ignore_errors=True)
        self._built = built = LocationIndex(self._index / _BUILT)
        ids = log_ids(self._logs)
        total = sum((self._logs / file_name(log_id)).stat().st_size for log_id in ids)
        progress = Progress(f"rebuild {self._index}", "entries", self._say, total)
        # In ascending order: a later put replaces an earlier one, and of two copies the one in the higher log is the
        # newer.
        for log_id in ids:
            log = ScannedLog(self._logs, log_id)
            self._put_entries(log_id, log, is_known, built, progress)
            completeness = log.completeness(self._inventory)
            self._completeness.append(completeness)
            if completeness.flaw:
                self.flaws.append(completeness.flaw)
            elif log.torn:
                self.flaws.append(f"{log.torn}: torn by a crash, or damaged")
        self.flaws += missing_logs(self._logs, ids, self._inventory)
        self.entries = progress.count
        self._say(f"rebuild {self._index}: {progress.text()}")
        self.previous.keep(built, is_known, self._reader)

    def _put_entries(
        self,
        log_id: int,
        log: ScannedLog,
        is_known: Callable[[int], bool],
        built: LocationIndex,
        progress: Progress,
    ) -> None:
        puts: list[Put] = []
        for entry in log:
            if not is_known(entry.ledger_id):
                self.skipped += 1
                progress.add(0, LENGTH_BYTES + entry.size)
                continue
            self.ledgers.add(entry.ledger_id)
            location = location_of(log_id, entry.offset + LENGTH_BYTES)
            puts.append((KEY.pack(entry.ledger_id, entry.entry_id), LOCATION.pack(location)))
            progress.add(1, LENGTH_BYTES + entry.size)
            if len(puts) == _BATCH:
                built.write(puts, ())
                puts = []
        built.write(puts, ())

    def hidden_ledgers(self) -> set[int] | None:
        """Returns the ledgers that may have lost entries no row names. None when any ledger may."""
        if self.previous.complete:
            return set()
        ids = log_ids(self._logs)
        if self._inventory is None and not _no_log_was_removed(self._logs, ids):
            return None
        if missing_logs(self._logs, ids, self._inventory):
            return None
        hidden: set[int] = set()
        for each in self._completeness:
            if not each.proven:
                if each.short is None:
                    return None
                hidden |= each.short
        return hidden

    def salvage(self, journals: Sequence[Path], ledgers: Container[int]) -> None:
        """Looks in the journals for lost entries of these ledgers. Raises BookieError and OSError."""
        previous, built = self.previous, self._index_built()

        def wanted(key: bytes, record: bytes) -> bool:
            if KEY.unpack(key)[0] not in ledgers:
                return False
            lost = key in previous.unreadable
            return lost or (not previous.complete and differs(self._reader, built, key, record))

        self._say(f"rebuild {self._index}: looking for lost entries in the journals")
        salvage = JournalSalvage(journals, wanted)
        salvage.run(self._logs, built)
        self.salvaged = len(salvage.salvaged)
        for key in salvage.salvaged & previous.unreadable.keys():
            del previous.unreadable[key]

    def has_all(self, ledger_id: int, entry_ids: Iterable[int]) -> bool:
        """Returns whether the new index has all these entries of a ledger. BookieStorageError."""
        return set(self._index_built().entry_ids(ledger_id)).issuperset(entry_ids)

    def _index_built(self) -> LocationIndex:
        assert self._built is not None, "scan first"
        return self._built

    def close(self) -> None:
        """Closes the new index and the entry logs."""
        if self._built is not None:
            self._built.close()
            self._built = None
        self._reader.close()

    def take_place(self) -> None:
        """Puts the new index in the place of the old one.

        To be called after `close`. OSError.
        A start between the two renames is refused, and the rebuild must run again.
        """
        # Two renames instead of one, because a rename cannot replace a directory that has files.
        index, file_system = self._index, FileSystem()
        shutil.rmtree(index / REPLACED, ignore_errors=True)
        if (index / LOCATIONS).exists():
            (index / LOCATIONS).rename(index / REPLACED)
        else:
            # An empty one, by which a start between the two renames knows that a rebuild was interrupted.
            (index / REPLACED).mkdir()
        file_system.sync_directory(index)
        (index / _BUILT).rename(index / LOCATIONS)
        file_system.sync_directory(index)
        shutil.rmtree(index / REPLACED, ignore_errors=True)


def _no_log_was_removed(logs: Path, ids: Sequence[int]) -> bool:
    """Returns True when the logs' ids have no gap up to `lastId`. Then every log that there ever was is there."""
    try:
        last = int((logs / LAST_ID_FILE).read_text(), 16)
    except FileNotFoundError:
        return not ids and not any(logs.glob(f"{MARK_FILE}*"))
    except ValueError:
        return False
    return list(ids) == list(range(last + 1))
