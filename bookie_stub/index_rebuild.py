"""`index rebuild`: the indexes of a ledger directory anew, from what its entry logs and the journals hold.

Of two copies of an entry the one in the newer log counts, and in one log the later one. The new location index is built
beside the old one and takes its place when it is complete. A ledger index that is there is kept, and says which ledgers
live; it is only rebuilt when it is missing or when that is asked for: a fence may then be forgotten, hence every ledger
is fenced, and ledgers that were deleted come back until the metadata store is asked. The bookie must be down.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bookie_stub.entry_log import LogScan, file_name, location_of, log_ids
from bookie_stub.errors import BookieError
from bookie_stub.file_system import FileSystem
from bookie_stub.journal_file import JournalReader, journal_ids
from bookie_stub.journal_file import file_name as journal_name
from bookie_stub.ledger_index import LedgerData, LedgerIndex
from bookie_stub.ledger_storage import LEDGERS, LOCATIONS, REPLACED
from bookie_stub.location_index import LOCATION, LocationIndex
from bookie_stub.progress import Progress, Say
from bookie_stub.record import (
    DELETE_ID,
    EXPLICIT_LAC_ID,
    KEY,
    LENGTH_BYTES,
    MASTER_KEY_ID,
    UNSET_KEY,
    explicit_lac_of,
    special_body,
)
from bookie_stub.rocks import Put

_BUILT = "locations.rebuilt"
_BATCH = 50_000


class Rebuilt(NamedTuple):
    entries: int
    ledgers: int
    skipped: int
    """Entries of ledgers that the ledger index does not have."""
    torn: tuple[str, ...]
    """Logs with bytes behind their last record: torn by a crash, or damaged."""


def rebuild(
    logs: Path, index: Path, journals: Sequence[Path], *, ledgers_too: bool, share: tuple[int, int], say: Say
) -> Rebuilt:
    """`share`: which directory of how many this is. Raises BookieError, BookieInUse among them, or OSError."""
    anew = ledgers_too or not (index / LEDGERS / "CURRENT").exists()
    ledger_index = LedgerIndex(index / LEDGERS)
    try:
        known = None if anew else set(ledger_index.load()[0])
        rebuilt, found = _locations(logs, index, known, say)
        if anew:
            ledger_index.write(_ledgers(found, journals, share), ())
        _take_place(index)
        return rebuilt
    finally:
        ledger_index.close()


def _locations(logs: Path, index: Path, known: set[int] | None, say: Say) -> tuple[Rebuilt, set[int]]:
    shutil.rmtree(index / _BUILT, ignore_errors=True)
    ids = log_ids(logs)
    total = sum((logs / file_name(log_id)).stat().st_size for log_id in ids)
    progress = Progress(f"rebuild {index}", "entries", say, total)
    locations = LocationIndex(index / _BUILT)
    found: set[int] = set()
    skipped = 0
    torn: list[str] = []
    try:
        puts: list[Put] = []
        for log_id in ids:
            scan = LogScan(logs / file_name(log_id))
            for entry in scan:
                if known is not None and entry.ledger_id not in known:
                    skipped += 1
                    progress.add(0, LENGTH_BYTES + entry.size)
                    continue
                found.add(entry.ledger_id)
                location = location_of(log_id, entry.offset + LENGTH_BYTES)
                puts.append((KEY.pack(entry.ledger_id, entry.entry_id), LOCATION.pack(location)))
                progress.add(1, LENGTH_BYTES + entry.size)
                if len(puts) == _BATCH:
                    locations.write(puts, ())
                    puts = []
            if scan.rest:
                torn.append(f"{logs / file_name(log_id)} from {scan.end} on, {scan.rest} bytes")
        locations.write(puts, ())
    finally:
        locations.close()
    say(f"rebuild {index}: {progress.text()}")
    return Rebuilt(progress.count, len(found), skipped, tuple(torn)), found


def _ledgers(found: set[int], journals: Sequence[Path], share: tuple[int, int]) -> dict[int, LedgerData]:
    """Every ledger with entries or with a record in the journals; fenced, because a fence may be forgotten."""
    place, count = share
    keys: dict[int, bytes] = {}
    lacs: dict[int, bytes] = {}
    deleted: set[int] = set()
    for directory in journals:
        for journal_id in journal_ids(directory):
            for record in JournalReader(directory / journal_name(journal_id), skip_invalid=True):
                ledger_id, entry_id = KEY.unpack_from(record, LENGTH_BYTES)
                if ledger_id % count != place:
                    continue
                if entry_id == DELETE_ID:
                    deleted.add(ledger_id)
                elif entry_id == MASTER_KEY_ID:
                    keys[ledger_id] = special_body(record)
                    deleted.discard(ledger_id)
                elif entry_id == EXPLICIT_LAC_ID:
                    body = special_body(record)
                    if explicit_lac_of(body) >= explicit_lac_of(lacs.get(ledger_id, b"")):
                        lacs[ledger_id] = body
    living = (found | keys.keys()) - deleted
    return {
        ledger_id: LedgerData(keys.get(ledger_id, UNSET_KEY), fenced=True, explicit_lac=lacs.get(ledger_id))
        for ledger_id in sorted(living)
    }


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
