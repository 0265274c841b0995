"""LedgerIndexRebuild: keeps the ledger index, or makes it anew (BookKeeper: `LedgersIndexRebuildOp`).

An index that is there, can be read, and has all changes that the inventory says, is kept: it says which ledgers live. It
is made anew when it is missing, damaged, older, or when that is asked for. Then every ledger is fenced, since a fence
may be among what was lost, and ledgers that were deleted long ago without a tombstone come back until garbage collection
asks the metadata store.

The file `ledgers.rebuilding` stands beside an index that begins empty. While it is there no bookie starts, and a rebuild
takes the index for missing.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bookie_stub.base.file_system import FileSystem
from bookie_stub.disk.directories import NOTHING_LOST_FILE
from bookie_stub.disk.inventory import IndexCounts, InventoryContents
from bookie_stub.disk.ledger_index import LedgerData, LedgerIndex
from bookie_stub.disk.ledger_storage import LEDGERS, REBUILDING
from bookie_stub.disk.rocks import is_database
from bookie_stub.tools.ledger_row_sources import LedgerRowSources


class LedgerIndexRebuild:
    """The ledger index of one directory while a rebuild runs, which closes it at its end."""

    def __init__(
        self, logs: Path, index: Path, inventory: InventoryContents | None, file_system: FileSystem
    ) -> None:
        """Opens the index, an empty one where it is missing. Raises BookieInUse, BookieStorageError and OSError."""
        self._logs = logs
        self._index = index
        self._counts = IndexCounts() if inventory is None else inventory.counts
        self._file_system = file_system
        self._missing = (index / REBUILDING).exists() or not is_database(index / LEDGERS)
        if self._missing:
            file_system.replace(index / REBUILDING, b"")
        self._database = LedgerIndex(index / LEDGERS)
        self._all_known = False
        """True when every ledger of the entry logs counts, but for deleted ones."""

    def learn(self, journals: Sequence[Path], share: tuple[int, int], *, anew: bool) -> None:
        """Finds out which ledgers there are.

        `share` is (place, count) of the ledger directories.
        With `anew` all rows are made anew although the index can be read. Raises BookieError and OSError.
        """
        older = self._database.sequence < self._counts.ledgers
        believed = None if self._missing or older else self._database
        self._sources = LedgerRowSources(self._logs, self._index, believed, self._counts.tombstones)
        if self._sources.rows is None and not self._missing:
            # It could not be read, and would fail the next start too, so it begins again as an empty one.
            self._file_system.replace(self._index / REBUILDING, b"")
            self._database.close()
            shutil.rmtree(self._index / LEDGERS)
            self._database = LedgerIndex(self._index / LEDGERS)
        self._sources.read(journals, share)
        self._all_known = anew or self._sources.rows is None

    def is_known(self, ledger_id: int) -> bool:
        """Returns whether a ledger's entries belong into the location index."""
        if self._sources.has_deleted(ledger_id):
            return False
        return self._all_known or ledger_id in (self._sources.rows or ())

    def rows(self, with_entries: Iterable[int]) -> dict[int, LedgerData]:
        """Returns the rows that the index is to have. `with_entries` are the ledgers that the entry logs have."""
        sources = self._sources
        rows = sources.rebuilt_rows(with_entries) if self._all_known else sources.rows or {}
        return {each: row for each, row in rows.items() if not sources.has_deleted(each)}

    def keep_tombstones(self) -> None:
        """Writes tombstones for the ledgers that the journals say are deleted. OSError."""
        self._sources.keep_tombstones()

    @property
    def lossy(self) -> bool:
        """True when ledgers may be lost of which nothing is known. The next start asks the metadata store for them."""
        return self._sources.lossy

    def write(self, rows: Mapping[int, LedgerData], in_doubt: Mapping[int, LedgerData]) -> None:
        """Writes the rows in doubt, and all rows if made anew. BookieStorageError, OSError."""
        sources = self._sources
        if sources.lossy or in_doubt:
            self._file_system.remove(self._logs / NOTHING_LOST_FILE)
            self._file_system.sync_directory(self._logs)
        if sources.lossy:
            self._database.note_lossy()
        changed = {**rows, **in_doubt} if self._all_known else in_doubt
        self._database.write(changed, [each for each in sources.rows or () if sources.has_deleted(each)])

    def counts(self) -> IndexCounts:
        """Returns the counts for the inventory. An index that was made anew counts its changes from the start."""
        kept = 0 if self._sources.rows is None else self._counts.ledgers
        return IndexCounts(0, kept, self._sources.tombstone_count)

    def close(self) -> None:
        """Closes the index."""
        self._database.close()
