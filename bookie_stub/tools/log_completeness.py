"""Whether an entry log has all that was written to it: judged from a scan, its ledgers map and the inventory. Pure, but for
the few bytes of header and map.

A scan cannot tell by itself: a log that was cut where a record ends looks like one that a kill left unfinished, and what
lies behind a damaged size is not found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from bookie_stub.disk.inventory import Listed


class LogState(NamedTuple):
    flaw: str = ""
    """What is wrong, with the file and the offset."""
    proven: bool = True
    """Every entry that was written to it was found."""
    short: frozenset[int] | None = frozenset()
    """Unless proven: the ledgers that lack bytes; None when nobody can tell which."""


_DAMAGED = LogHeader(-1, 0, 0, None)


class ScannedLog:
    """One log. To be iterated to its end, then judged."""

    def __init__(self, directory: Path, log_id: int) -> None:
        self.path = directory / file_name(log_id)
        self._log_id = log_id
        self._found: LedgerBytes = {}
        self._scan = LogScan(self.path)

    def __iter__(self) -> Iterator[ScannedEntry]:
        found = self._found
        for entry in self._scan:
            found[entry.ledger_id] = found.get(entry.ledger_id, 0) + LENGTH_BYTES + entry.size
            yield entry

    @property
    def torn(self) -> str:
        """What is behind the last record and is none, or nothing."""
        rest = self._scan.rest
        return f"{self.path} from {self._scan.end} on, {rest} bytes" if rest else ""

    def state(self, listed: Listed | None) -> LogState:
        """OSError."""
        try:
            header = read_header(self.path)
        except CorruptEntry:
            header = _DAMAGED
        if header is not None and not 0 <= header.version <= VERSION:
            return LogState(f"{self.path} at 0: its header is damaged", proven=False, short=None)
        if header is None:
            return self._growing(listed)
        try:
            ledgers = read_ledgers_map(self.path)
        except CorruptEntry:
            flaw = f"{self.path} at {header.map_offset}: its ledgers map is damaged or cut off"
            if header.map_offset and self._scan.gap is None and self._scan.end >= header.map_offset:
                return LogState(flaw)
            return LogState(f"{flaw}; {self._where()}", proven=False, short=None)
        if ledgers is None:
            return self._growing(listed)
        short = frozenset(each for each, size in ledgers.items() if self._found.get(each, 0) != size)
        if short:
            return LogState(f"{self.path} {self._where()}", proven=False, short=short)
        if self._found.keys() - ledgers.keys():
            return LogState(f"{self.path} at {header.map_offset}: its ledgers map is damaged")
        return LogState()

    def _growing(self, listed: Listed | None) -> LogState:
        """A log without a map: only the inventory knows how long it was."""
        if listed is None:
            return LogState(proven=False, short=None)
        if self._log_id in listed.finished:
            flaw = f"{self.path} at 0: its header names no ledgers map, and it was finished"
            return LogState(flaw, proven=False, short=None)
        wanted = listed.growing.get(self._log_id)
        if wanted is None:  # nothing in it counts yet
            return LogState()
        if self._scan.end < wanted or (self._scan.gap is not None and self._scan.gap < wanted):
            flaw = f"{self.path} {self._where()}; {wanted} bytes of it were written"
            return LogState(flaw, proven=False, short=None)
        return LogState()

    def _where(self) -> str:
        place = self._scan.end if self._scan.gap is None else self._scan.gap
        return f"at {place}: no record that can be read"


def missing_logs(directory: Path, found: Mapping[int, object] | set[int], listed: Listed | None) -> list[str]:
    """What is wrong, a line for each log that must be there and is not."""
    if listed is None:
        return []
    wanted = {*listed.finished, *listed.growing}
    return [f"{directory / file_name(log_id)}: is missing" for log_id in sorted(wanted.difference(found))]
