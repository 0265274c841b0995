"""RecordWriter: writes rows into files, each complete in itself.

A file ends when it is large or old enough, with the hour, and when the cache's settings change, since they stand in its
metadata. Rows that cannot be written are dropped and counted, one line is logged, and the writer tries again after
`RETRY_S`: the broker continues without its record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Final

import pyarrow as pa

from broker.recorder.names import NamesWriter
from broker.recorder.record_file import RecordFile
from broker.recorder.retention import keep_newest
from broker.recorder.row_encoder import RowEncoder
from broker.recorder.schema import FileFacts, broker_folder, file_name, names_name
from broker.recorder.settings import RecordSettings
from entry_cache.observe.cache_events import CacheEvent, Op

log = logging.getLogger("magnetar")
"""The log of the process; lines that begin with `!` need attention."""

RETRY_S: Final = 30.0
"""Seconds after an error during which nothing is written."""

_US_PER_HOUR: Final = 3_600_000_000
_REFUSALS: Final = (OSError, pa.ArrowException)
_op = itemgetter(1)


class RecordWriter:
    """Writes the access record of one broker lifetime. Times in seconds are of a monotonic clock."""

    def __init__(
        self,
        settings: RecordSettings,
        *,
        start: str,
        software: str,
        clock_offset_us: int,
        overflowed: Callable[[], int] = lambda: 0,
        loop_late_us: Callable[[], int] = lambda: 0,
    ) -> None:
        """`overflowed` returns the rows that were dropped before they came here, since the start.

        `loop_late_us` returns the sum of the event loop's lags since then.
        """
        self.rows = 0
        """Rows that came here."""
        self.bytes = 0
        """The size of the complete files."""
        self.files = 0
        """Complete files."""
        self.errors = 0
        """Failed writes and removals."""
        self.lost = 0
        """Rows that were not written, or were in a file that could not be completed."""
        self._settings = settings
        self._start = start
        self._software = software
        self._clock_offset_us = clock_offset_us
        self._overflowed = overflowed
        self._loop_late_us = loop_late_us
        self._folder = settings.directory / broker_folder(settings.broker)
        self._names = NamesWriter(self._folder / names_name(start))
        self._encoder = RowEncoder(self._names, clock_offset_us, settings.sample)
        self._cache_settings = ""
        self._file: RecordFile | None = None
        self._in_file = 0
        """Rows of the file being written: lost if it cannot be completed."""
        self._in_hand = 0
        """Encoded rows that are not in the file yet."""
        self._file_until_s = 0.0
        self._file_hour = 0
        self._sequence = 0
        self._late_told_us = 0
        self._dropped_told = 0
        """Dropped rows that the metadata of complete files tell of."""
        self._retry_at_s: float | None = None
        """When to try again after an error; None while writing works."""

    def write(self, rows: Sequence[CacheEvent], now_s: float) -> None:
        """Writes rows in their order. Errors of the disk are counted and logged, never raised."""
        # Operations are below 128, so the search for SETTINGS is one `find` over bytes instead of a loop over
        # rows.
        ops = bytes(map(_op, rows))
        begin, at = 0, ops.find(Op.SETTINGS)
        while at >= 0:
            self._append(rows[begin:at], now_s)
            # Before the new settings are stored: the file's metadata tells the settings that held for all its
            # rows.
            self._guarded(now_s, self._end_file)
            self._cache_settings = rows[at][9][0]
            begin, at = at, ops.find(Op.SETTINGS, at + 1)
        self._append(rows[begin:], now_s)

    def tick(self, now_s: float) -> None:
        """Ends a file that is old enough although no row comes; called now and then."""
        if self._file is not None and now_s >= self._file_until_s:
            self._guarded(now_s, self._end_file)

    def close(self, now_s: float, totals: Mapping[str, int] | None) -> None:
        """Completes the last file. `totals`: the counts of the broker."""

        def end() -> None:
            # The totals go into the metadata of the last file, so a file without rows is made for them if the
            # last one has ended.
            if self._file is None and self._sequence:
                self._file = self._new_file(self._file_hour, now_s)
            self._end_file(totals)

        self._guarded(now_s, end)

    def _append(self, rows: Sequence[CacheEvent], now_s: float) -> None:
        if not rows:
            return
        self.rows += len(rows)
        # Encoded even while writing is paused after an error: the encoder gives ids to names, which later rows
        # need.
        columns = self._encoder.encode(rows)
        if self._retry_at_s is not None and now_s < self._retry_at_s:
            self.lost += len(rows)
            return
        hour = int(columns["ts"][0]) // _US_PER_HOUR if len(columns["ts"]) else self._file_hour
        self.tick(now_s)
        self._in_hand = len(rows)

        def append() -> None:
            # The names first. After a crash a name without rows is harmless, and a row without a name cannot be
            # read.
            self._names.flush()
            if self._file is not None and hour > self._file_hour:
                self._end_file()
            if self._file is None:
                self._file = self._new_file(hour, now_s)
            # Moved before the append: if that fails, the rows count as lost once, with the file.
            self._in_file, self._in_hand = self._in_file + self._in_hand, 0
            self._file.append(columns)
            if self._file.size_bytes >= self._settings.file_bytes:
                self._end_file()

        self._guarded(now_s, append)

    def _new_file(self, hour: int, now_s: float) -> RecordFile:
        at = datetime.fromtimestamp(hour * 3600, UTC)
        folder = self._folder / f"date={at:%Y-%m-%d}" / f"hour={at:%H}"
        file = RecordFile(folder, file_name(self._start, self._sequence))
        self._file_hour = hour
        self._file_until_s = now_s + self._settings.file_seconds
        return file

    def _end_file(self, totals: Mapping[str, int] | None = None) -> None:
        if self._file is None:
            return
        # Each file tells of the rows lost since the one before, so a replay knows between which files its
        # record has a gap.
        dropped, late_us = self.lost + self._overflowed(), self._loop_late_us()
        facts = FileFacts(
            broker=self._settings.broker,
            start=self._start,
            sequence=self._sequence,
            software=self._software,
            clock_offset_us=self._clock_offset_us,
            settings=self._cache_settings,
            sample=self._settings.sample,
            dropped=dropped - self._dropped_told,
            totals=totals,
            loop_late_us=late_us - self._late_told_us,
        )
        self.bytes += self._file.complete(facts)
        self.files += 1
        self._file = None
        self._in_file = 0
        self._sequence += 1
        self._dropped_told, self._late_told_us = dropped, late_us
        if self._retry_at_s is not None:
            self._retry_at_s = None
            log.info("the access record is written again")
        self._delete_oldest()

    def _delete_oldest(self) -> None:
        try:
            keep_newest(self._folder, self._settings.kept_bytes, self._start)
        except OSError as error:
            self.errors += 1
            log.warning("cannot remove an old file of the access record: %s", error)

    def _guarded(self, now_s: float, action: Callable[[], None]) -> None:
        """Runs an action; an error of the disk gives up the file being written."""
        try:
            action()
        except _REFUSALS as error:
            self.errors += 1
            # One line for each outage, not one every RETRY_S.
            if self._retry_at_s is None:
                log.error(
                    "! cannot write the access record in %s: %s; its rows are dropped and it is tried again"
                    " every %d s",
                    self._folder,
                    error,
                    RETRY_S,
                )
            self._retry_at_s = now_s + RETRY_S
            self._give_up_file()

    def _give_up_file(self) -> None:
        file, self._file = self._file, None
        self.lost += self._in_file + self._in_hand
        self._in_file = self._in_hand = 0
        if file is not None:
            try:
                file.discard()
            except _REFUSALS as error:
                log.warning("cannot remove what was written of %s: %s", file.path, error)
