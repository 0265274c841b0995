"""StoredEntries: reads a ledger's entries from index and logs, and ahead.

Two laws. The index decides for every entry, also for one that is read ahead: that two entries lie side by side in a log
proves nothing, because either may have been written again since. And a missing entry is reported only when the index was
read and has none; everything else that goes wrong is an error.

Any thread; `ledgers/reads.py` calls it in the threads of the read pool.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from operator import sub
from typing import NamedTuple

from bookie_stub.base.errors import BookieError, MissingLog
from bookie_stub.base.record import KEY
from bookie_stub.disk.entry_log_reader import EntryLogReader
from bookie_stub.disk.location_index import LocationIndex, LocationRows
from bookie_stub.disk.readahead import Load, Readahead

log = logging.getLogger(__name__)

_NEAR_BYTES = 64 << 10
"""Entries of a ledger with smaller gaps are read in one go, together with the gaps: a second read would cost more."""
_SPAN_BYTES_MAX = 4 << 20
"""Bytes of one read of a log."""
_ATTEMPTS = 5
"""A compaction may remove a log between the look into the index and the read. The index then names another log."""


class Loaded(NamedTuple):
    """The result of one load; without ids there is no such entry."""

    ids: list[int]
    """The entry asked for, and those after it."""
    entries: list[bytes]
    """The entries, one for each id."""
    index_ns: int
    """Nanoseconds spent in the location index."""
    logs_ns: int
    """Nanoseconds spent in the entry logs."""


class StoredEntries:
    """Reads from one ledger directory."""

    def __init__(self, locations: LocationIndex, logs: EntryLogReader, readahead: Readahead) -> None:
        self._locations = locations
        self._logs = logs
        self._readahead = readahead

    def last_entry(self, ledger_id: int) -> int:
        """Returns the highest entry id in the index, -1 without one. BookieStorageError."""
        return self._locations.last_entry(ledger_id)

    def file_of(self, ledger_id: int, entry_id: int) -> str:
        """Returns the entry log and offset of an entry for a log line, empty when the index does not tell."""
        with contextlib.suppress(BookieError):
            if location := self._locations.get(KEY.pack(ledger_id, entry_id)):
                return f"{self._logs.path_of(location >> 32)} at {location & 0xFFFFFFFF}"
        return ""

    def load(self, ledger_id: int, first: int, asked: int, answer_bytes: int) -> Loaded:
        """Reads entries from `first` on, and reads ahead; see `Load`.

        `asked` entries are wanted, as far as `answer_bytes` go.
        Raises BookieError or OSError when `first` cannot be read. A later entry that cannot be read ends the load.
        """
        for _ in range(_ATTEMPTS - 1):
            # Only a missing log is tried again; damage would be the same the next time.
            with contextlib.suppress(MissingLog):
                return self._load(ledger_id, first, asked, answer_bytes)
        return self._load(ledger_id, first, asked, answer_bytes)

    def _load(self, ledger_id: int, first: int, asked: int, answer_bytes: int) -> Loaded:
        load = Load(first, asked, answer_bytes, self._readahead)
        logs_ns = 0
        started = time.perf_counter_ns()
        for rows in self._locations.rows(ledger_id, first, load.count_max):
            logs_started = time.perf_counter_ns()
            goes_on = self._read_rows(load, rows)
            logs_ns += time.perf_counter_ns() - logs_started
            if not goes_on:
                break
        index_ns = time.perf_counter_ns() - started - logs_ns
        return Loaded(load.ids, load.entries, index_ns, logs_ns)

    def _read_rows(self, load: Load, rows: LocationRows) -> bool:
        """Reads the entries of some rows into the load.

        Returns True when the rows after them may belong to the load too.
        """
        try:
            start = 0
            while start < len(rows.ids) and load.wants(rows.ids[start], rows.locations[start]):
                stop = near_until(rows.locations, start, load.bytes_left)
                locations = rows.locations[start:stop]
                entries = self._logs.read_run(rows.keys[start:stop], locations)
                if not load.add_run(rows.ids[start:stop], locations, entries):
                    return False
                start = stop
        except (BookieError, OSError) as error:
            if not load.ids:
                raise
            # The entries so far are good. A client that asks for the unreadable one starts a load of its own, and gets
            # the error.
            log.warning("a load of ledger entries ends early: %s", error)
            return False
        # The load stopped inside these rows, so it wants none of the next ones.
        return start == len(rows.ids)


def near_until(locations: Sequence[int], start: int, bytes_max: int) -> int:
    """Returns the end of the run that one read should fetch.

    The run ends where the next entry is in another log, before the last one, or too far after it.
    """
    span_max = min(bytes_max, _SPAN_BYTES_MAX)
    gaps = list(map(sub, locations[start + 1 :], locations[start:]))
    # The usual case in four steps of C: all of them are near each other.
    if not gaps or (
        min(gaps) > 0 and max(gaps) <= _NEAR_BYTES and locations[-1] - locations[start] <= span_max
    ):
        return len(locations)
    for index, gap in enumerate(gaps, start + 1):
        if not 0 < gap <= _NEAR_BYTES or locations[index] - locations[start] > span_max:
            return index
    return len(locations)
