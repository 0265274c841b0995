"""Judges if an entry log has all that was written to it.

The evidence is a scan, the log's ledgers map and the inventory.

A scan alone cannot tell: a log that was cut where a record ends looks like one that a kill left unfinished, and entries
after a damaged size field are not found. A finished log is compared with its own map; a log without one with the number
of synced bytes that the inventory has.

`check` reports the flaws; `index rebuild` also needs to know which ledgers may lack entries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from bookie_stub.base.errors import CorruptEntry
from bookie_stub.base.record import LENGTH_BYTES
from bookie_stub.disk.entry_log import (
    VERSION,
    LedgerBytes,
    LogHeader,
    LogScan,
    ScannedEntry,
    file_name,
    read_header,
    read_ledgers_map,
)
from bookie_stub.disk.inventory import InventoryContents


class LogCompleteness(NamedTuple):
    """The judgement on one log."""

    flaw: str = ""
    """The damage, with the file and the offset; empty for a whole log."""
    proven: bool = True
    """True when the scan is proven to have found every entry that was written."""
    short: frozenset[int] | None = frozenset()
    """The ledgers that lack bytes, unless `proven`; None when any ledger may."""


_DAMAGED = LogHeader(-1, 0, 0, None)


class ScannedLog:
    """One log, whose entries it yields; `completeness` is to be called after the last one."""

    def __init__(self, directory: Path, log_id: int) -> None:
        self.path = directory / file_name(log_id)
        """The log's file."""
        self._log_id = log_id
        self._found: LedgerBytes = {}
        self._scan = LogScan(self.path)

    def __iter__(self) -> Iterator[ScannedEntry]:
        """Yields the entries of the log, in the order of their places. OSError."""
        found = self._found
        for entry in self._scan:
            found[entry.ledger_id] = found.get(entry.ledger_id, 0) + LENGTH_BYTES + entry.size
            yield entry

    @property
    def torn(self) -> str:
        """The bytes after the last record, as text, or nothing."""
        rest = self._scan.rest
        return f"{self.path} from {self._scan.end} on, {rest} bytes" if rest else ""

    def completeness(self, inventory: InventoryContents | None) -> LogCompleteness:
        """Returns the judgement; to be called after the last entry. `inventory` is None where there is none. OSError."""
        try:
            header = read_header(self.path)
        except CorruptEntry:
            header = _DAMAGED
        if header is not None and not 0 <= header.version <= VERSION:
            return LogCompleteness(f"{self.path} at 0: its header is damaged", proven=False, short=None)
        if header is None:
            return self._without_map(inventory)
        try:
            ledgers = read_ledgers_map(self.path)
        except CorruptEntry:
            flaw = f"{self.path} at {header.map_offset}: its ledgers map is damaged or cut off"
            # The records reach up to the place of the map without a gap, so only the map is damaged.
            if header.map_offset and self._scan.gap is None and self._scan.end >= header.map_offset:
                return LogCompleteness(flaw)
            return LogCompleteness(f"{flaw}; {self._first_bad_place()}", proven=False, short=None)
        if ledgers is None:
            return self._without_map(inventory)
        short = frozenset(each for each, size in ledgers.items() if self._found.get(each, 0) != size)
        if short:
            return LogCompleteness(f"{self.path} {self._first_bad_place()}", proven=False, short=short)
        if self._found.keys() - ledgers.keys():
            return LogCompleteness(f"{self.path} at {header.map_offset}: its ledgers map is damaged")
        return LogCompleteness()

    def _without_map(self, inventory: InventoryContents | None) -> LogCompleteness:
        """Judges a log without a map by the inventory, which knows its length."""
        if inventory is None:
            return LogCompleteness(proven=False, short=None)
        if self._log_id in inventory.finished:
            flaw = f"{self.path} at 0: its header names no ledgers map, and it was finished"
            return LogCompleteness(flaw, proven=False, short=None)
        wanted = inventory.growing.get(self._log_id)
        if wanted is None:
            # The log was begun after the last checkpoint, so the journal still has all of it.
            return LogCompleteness()
        if self._scan.end < wanted or (self._scan.gap is not None and self._scan.gap < wanted):
            flaw = f"{self.path} {self._first_bad_place()}; {wanted} bytes of it were written"
            return LogCompleteness(flaw, proven=False, short=None)
        return LogCompleteness()

    def _first_bad_place(self) -> str:
        place = self._scan.end if self._scan.gap is None else self._scan.gap
        return f"at {place}: no record that can be read"


def missing_logs(directory: Path, found: Collection[int], inventory: InventoryContents | None) -> list[str]:
    """Returns a line for each listed log that is not found."""
    if inventory is None:
        return []
    wanted = {*inventory.finished, *inventory.growing}
    return [f"{directory / file_name(log_id)}: is missing" for log_id in sorted(wanted.difference(found))]
