"""LedgerRowSources: the sources from which a ledger index is made anew.

They are the old rows, the journals and the tombstones.

The journals reach back only to the last checkpoints. So without the old rows, a fence of a ledger without entries may be
forgotten, and with it the ledger; limbo too, unless the directory says that nothing was ever lost. The law: doubt counts
as the worse case. A ledger in doubt is fenced, and in limbo, and the bookie may have forgotten others: that costs a
repair, and never a confirmed entry.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from bookie_stub.base.errors import BookieStorageError
from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.record import (
    DELETE_ID,
    EXPLICIT_LAC_ID,
    FENCE_ID,
    KEY,
    LENGTH_BYTES,
    MASTER_KEY_ID,
    UNSET_KEY,
    explicit_lac_of,
    special_body,
)
from bookie_stub.disk.directories import NOTHING_LOST_FILE
from bookie_stub.disk.ledger_index import LedgerData, LedgerIndex
from bookie_stub.disk.tombstones import FILE as TOMBSTONES
from bookie_stub.disk.tombstones import Tombstones
from bookie_stub.journal.journal_file import file_name, journal_ids
from bookie_stub.journal.journal_reader import JournalReader


class LedgerRowSources:
    """The sources for one ledger directory and its index directory."""

    def __init__(
        self, logs: Path, index: Path, ledger_index: LedgerIndex | None, tombstones_min: int
    ) -> None:
        """`ledger_index` is the old one; None when missing or incomplete.

        `tombstones_min` is the number of tombstones that there must be. OSError.
        """
        self.rows: dict[int, LedgerData] | None = None
        """The rows of the old ledger index; None when it is missing or cannot be read."""
        self.lossy = True
        """True when other ledgers may be lost of which no source tells."""
        self._keys: dict[int, bytes] = {}
        self._lacs: dict[int, bytes] = {}
        self._fenced: set[int] = set()
        self._deleted: set[int] = set()
        self._tombstones = _open_tombstones(index / TOMBSTONES, tombstones_min)
        if ledger_index is not None:
            with contextlib.suppress(BookieStorageError):
                self.rows, self.lossy = ledger_index.load()
        self._any_in_limbo = self.rows is None and not (logs / NOTHING_LOST_FILE).exists()
        """True when any ledger may have been in limbo."""

    def read(self, journals: Sequence[Path], share: tuple[int, int]) -> None:
        """Reads the special records of the journals. `share` is (place, count) of the ledger directories. OSError."""
        place, count = share
        for directory in journals:
            for journal_id in journal_ids(directory):
                for record in JournalReader(directory / file_name(journal_id), skip_invalid=True):
                    if len(record) >= LENGTH_BYTES + KEY.size:
                        ledger_id, entry_id = KEY.unpack_from(record, LENGTH_BYTES)
                        if ledger_id % count == place:
                            self._note(ledger_id, entry_id, record)

    def _note(self, ledger_id: int, entry_id: int, record: bytes) -> None:
        if entry_id == DELETE_ID:
            self._deleted.add(ledger_id)
        elif entry_id == MASTER_KEY_ID:
            self._keys[ledger_id] = special_body(record)
        elif entry_id == FENCE_ID:
            self._fenced.add(ledger_id)
        elif entry_id == EXPLICIT_LAC_ID:
            body = special_body(record)
            # The highest one counts, as at a replay; an older journal may have a higher one.
            if explicit_lac_of(body) >= explicit_lac_of(self._lacs.get(ledger_id, b"")):
                self._lacs[ledger_id] = body

    def has_deleted(self, ledger_id: int) -> bool:
        """Returns whether the journals or a tombstone name a deleted ledger."""
        return ledger_id in self._deleted or ledger_id in self._tombstones

    def rebuilt_rows(self, with_entries: Iterable[int]) -> dict[int, LedgerData]:
        """Returns a fenced row for every ledger of any source.

        The sources are entries, old rows, and records in the journals.
        """
        rows = self.rows or {}
        known = {*with_entries, *rows, *self._keys, *self._fenced}
        return {each: self._row(each, rows.get(each)) for each in sorted(known) if not self.has_deleted(each)}

    def _row(self, ledger_id: int, old: LedgerData | None) -> LedgerData:
        # Without a key the first one that is presented becomes the ledger's key.
        key = self._keys.get(ledger_id, UNSET_KEY) if old is None else old.master_key
        old_lac = b"" if old is None else old.explicit_lac or b""
        lac = max(old_lac, self._lacs.get(ledger_id, b""), key=explicit_lac_of) or None
        limbo = self._any_in_limbo if old is None else old.limbo
        return LedgerData(key, fenced=True, explicit_lac=lac, limbo=limbo)

    def keep_tombstones(self) -> None:
        """Writes tombstones for the ledgers that the journals say are deleted. OSError."""
        if self._deleted:
            self._tombstones.add(self._deleted)

    @property
    def tombstone_count(self) -> int:
        """The number of tombstones."""
        return len(self._tombstones)


def _open_tombstones(path: Path, count_min: int) -> Tombstones:
    """Opens the tombstones. A damaged file is given up, as the journals may still have the latest of its ids."""
    try:
        return Tombstones(path, FileSystem(), count_min)
    except BookieStorageError:
        path.unlink(missing_ok=True)
        return Tombstones(path, FileSystem())
