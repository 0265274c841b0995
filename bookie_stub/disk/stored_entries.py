"""Entries that a flush has written: what the index names, read from the entry logs together with what follows.

The index decides for every entry, also for one that is read ahead: that two entries lie side by side in a log
proves nothing, because one of them may have been rewritten since. A missing entry is only reported when the
index was read and has none; everything else that goes wrong is an error. Any thread.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from operator import sub
from typing import NamedTuple

from bookie_stub.base.errors import BookieError, MissingLog
from bookie_stub.disk.entry_log_reader import EntryLogReader
from bookie_stub.disk.location_index import LocationIndex, Rows
from bookie_stub.disk.readahead import Load, Readahead

log = logging.getLogger(__name__)

_NEAR_BYTES = 64 << 10
"""Entries of a ledger that lie closer together are read in one go, with whatever is between them."""
_SPAN_BYTES_MAX = 4 << 20
_ATTEMPTS = 5
"""A compaction may remove the log that the index has just named; then the index names another one."""


class Loaded(NamedTuple):
    """What one load brought; without ids there is no such entry."""

    ids: list[int]
    entries: list[bytes]
    index_ns: int
    """Spent in the location index."""
    logs_ns: int
    """Spent in the entry logs."""


class StoredEntries:
    def __init__(self, locations: LocationIndex, logs: EntryLogReader, readahead: Readahead) -> None:
        self._locations = locations
        self._logs = logs
        self._readahead = readahead

    def last_entry(self, ledger_id: int) -> int:
        return self._locations.last_entry(ledger_id)

    def load(self, ledger_id: int, first: int, asked: int, room: int) -> Loaded:
        """Entry `first`, those asked for and those read ahead, see `Load`.

        Raises BookieError or OSError when `first` cannot be read; a later one that cannot ends the load.
        """
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(MissingLog):
                return self._load(ledger_id, first, asked, room)
        return self._load(ledger_id, first, asked, room)

    def _load(self, ledger_id: int, first: int, asked: int, room: int) -> Loaded:
        load = Load(first, asked, room, self._readahead)
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

    def _read_rows(self, load: Load, rows: Rows) -> bool:
        """Whether the load may go on behind these rows."""
        try:
            start = 0
            while start < len(rows.ids) and load.takes(rows.ids[start], rows.locations[start]):
                stop = near_until(rows.locations, start, load.bytes_left)
                locations = rows.locations[start:stop]
                entries = self._logs.read_run(rows.keys[start:stop], locations)
                if not load.take_run(rows.ids[start:stop], locations, entries):
                    return False
                start = stop
        except (BookieError, OSError) as error:
            if not load.ids:
                raise
            log.warning("a load ends early, who asks for the next entry is told: %s", error)
            return False
        return start == len(rows.ids)


def near_until(locations: Sequence[int], start: int, bytes_max: int) -> int:
    """Where the run from `start` on ends because the next entry is elsewhere or far, so that one read is worth it."""
    span_max = min(bytes_max, _SPAN_BYTES_MAX)
    gaps = list(map(sub, locations[start + 1 :], locations[start:]))
    if not gaps or (
        min(gaps) > 0 and max(gaps) <= _NEAR_BYTES and locations[-1] - locations[start] <= span_max
    ):
        return len(locations)
    for index, gap in enumerate(gaps, start + 1):
        if not 0 < gap <= _NEAR_BYTES or locations[index] - locations[start] > span_max:
            return index
    return len(locations)
