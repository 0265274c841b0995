"""`magnetar bookie index rebuild`: makes indexes anew from logs and journals.

`LedgerIndexRebuild` says which ledgers there are, `LocationIndexRebuild` where their entries stand. This file runs their
steps in order, and judges what cannot be known: ledgers of which it is not proven that all entries are here are put in
limbo, but for those that the cluster says are closed and that are here completely.

The law: nothing that was confirmed may look as if it had never existed. The bookie must be down; its indexes are locked
while this runs, and an interrupted rebuild must be run again before a bookie starts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bookie_stub.base.errors import BookieError, BookieStorageError
from bookie_stub.base.file_system import FileSystem
from bookie_stub.disk.inventory import FILE as INVENTORY
from bookie_stub.disk.inventory import Inventory, InventoryContents, read_inventory
from bookie_stub.disk.ledger_index import LedgerData
from bookie_stub.disk.ledger_storage import REBUILDING
from bookie_stub.tools.ledger_index_rebuild import LedgerIndexRebuild
from bookie_stub.tools.location_index_rebuild import LocationIndexRebuild
from bookie_stub.tools.progress import Say

ClosedEntries = Callable[[Collection[int]], Iterable[tuple[int, Iterable[int]]]]
"""Returns those of some ledgers that the cluster says are closed, each with the ids of the entries that this bookie is to
have of it."""


class RebuildReport(NamedTuple):
    """The result of a rebuild of one directory."""

    entries: int
    """Entries that the scan of the entry logs found."""
    ledgers: int
    """Ledgers with such entries."""
    skipped: int
    """Entries of ledgers that the ledger index does not have, or that were deleted."""
    flaws: tuple[str, ...]
    """The damage in entry logs and inventory, a line each."""
    rescued: int
    """Entries that only the old location index could find."""
    restored: int
    """Entries that only the journals had; they are in an entry log again."""
    unreadable: int
    """Entries that the old index names and no file has; they are answered with an I/O error."""
    limbo: int
    """Ledgers that may have lost entries: an entry that they lack is answered as unknown."""
    lossy: bool
    """True when ledgers may be forgotten; the next start asks the metadata store which."""


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
    """Rebuilds the indexes of one ledger directory.

    The folders are those that hold the files.
    `ledgers_too` makes the ledger index anew although it can be read. `share` is (place, count) of the ledger directories.
    `closed` asks the cluster, None when it cannot be asked. Raises BookieError, BookieInUse among them, and OSError.
    """
    file_system = FileSystem()
    contents, flaws = _inventory_of(logs)
    ledger_index = LedgerIndexRebuild(logs, index, contents, file_system)
    locations = LocationIndexRebuild(logs, index, contents, entry_bytes_max, say)
    try:
        ledger_index.learn(journals, share, anew=ledgers_too)
        locations.scan(ledger_index.is_known)
        ledger_index.keep_tombstones()
        # Also ledgers that the old index alone names: their entries may be lost, and without a row they would be "no
        # such ledger".
        rows = ledger_index.rows(locations.ledgers | locations.previous.ledgers)
        hidden = locations.hidden_ledgers()
        if locations.previous.unreadable or hidden is None or hidden:
            locations.salvage(journals, rows)
        in_doubt = _in_doubt(rows, hidden, locations, closed)
        ledger_index.write(rows, in_doubt)
        # Closed before it is renamed: RocksDB would go on using the old path.
        locations.close()
        # The new indexes count their changes from the start, so the inventory must expect less before they are there.
        Inventory(logs, file_system).reset_counts(ledger_index.counts())
        locations.take_place()
        # Last: while this file is there no bookie starts, and everything above may still be repeated.
        file_system.remove(index / REBUILDING)
        file_system.sync_directory(index)
    finally:
        locations.close()
        ledger_index.close()
    final_rows = {**rows, **in_doubt}
    return _report(flaws, locations, sum(row.limbo for row in final_rows.values()), lossy=ledger_index.lossy)


def _report(flaws: list[str], locations: LocationIndexRebuild, limbo: int, *, lossy: bool) -> RebuildReport:
    previous = locations.previous
    flaws = [*flaws, *locations.flaws]
    if previous.unreadable:
        names = ", ".join(previous.logs_of_unreadable())
        flaws.append(f"{len(previous.unreadable)} entries that were in {names} cannot be read")
    return RebuildReport(
        entries=locations.entries,
        ledgers=len(locations.ledgers),
        skipped=locations.skipped,
        flaws=tuple(flaws),
        rescued=previous.rescued,
        restored=locations.salvaged,
        unreadable=len(previous.unreadable),
        limbo=limbo,
        lossy=lossy,
    )


def _in_doubt(
    rows: dict[int, LedgerData],
    hidden: set[int] | None,
    locations: LocationIndexRebuild,
    closed: ClosedEntries | None,
) -> dict[int, LedgerData]:
    """Returns fenced rows in limbo for ledgers that may have lost entries.

    A ledger that the cluster says is closed cannot have more than the entries it names; with all of them here it is whole.
    """
    doubted = set(rows) if hidden is None else hidden & rows.keys()
    if doubted and closed is not None:
        whole = {each for each, entry_ids in closed(doubted) if locations.has_all(each, entry_ids)}
        doubted -= whole
    return {each: rows[each]._replace(fenced=True, limbo=True) for each in doubted}


def _inventory_of(logs: Path) -> tuple[InventoryContents | None, list[str]]:
    """Returns the inventory and what is wrong with it. A damaged one is removed, as nothing in it can be believed."""
    try:
        return read_inventory(logs), []
    except BookieStorageError:
        (logs / INVENTORY).unlink()
        return None, [f"{logs / INVENTORY} is damaged"]


def require_directories(directories: Sequence[Path]) -> None:
    """Raises BookieError for the first directory that does not exist. A tool must not make an empty one."""
    for directory in directories:
        if not directory.is_dir():
            raise BookieError(f"there is no {directory}: check the settings of this bookie")
