"""Recorder: takes the cache's events on the loop; a thread writes them.

The loop appends a tuple to a buffer and does nothing else. When the buffer is full, the row is dropped and counted: a
slow disk costs rows of the record and never stops the loop.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import repeat, starmap
from typing import TYPE_CHECKING, Final

from broker.recorder.errors import RecordError
from broker.recorder.schema import broker_folder
from broker.recorder.settings import RecordSettings
from entry_cache.observe.cache_events import CacheEvent

if TYPE_CHECKING:
    from broker.recorder.record_writer import RecordWriter

log = logging.getLogger("magnetar")
"""The log of the process; lines that begin with `!` need attention."""

POLL_S: Final = 0.25
"""The thread looks at the buffer this often, in seconds."""
WAIT_S: Final = 1.0
"""Few rows wait this long for more, in seconds: a batch costs as much as some hundred rows."""
ROWS_AT_ONCE: Final = 2048
"""Rows that take 1 to 2 ms to encode; then the thread gives the interpreter to the loop."""


class Recorder:
    """The access record of one broker lifetime, for the cache that calls `record`."""

    def __init__(
        self, settings: RecordSettings, software: str, loop_late_us: Callable[[], int] = lambda: 0
    ) -> None:
        """`software`: the broker's version. Rows are taken from now on and written from `open` on.

        `loop_late_us` returns the sum of the event loop's lags; the thread asks at the end of each file.
        """
        self.settings = settings
        """The folder, the limits and the sample."""
        self.overflowed = 0
        """Rows dropped because the buffer was full."""
        self._software = software
        self._loop_late_us = loop_late_us
        self._rows: deque[CacheEvent] = deque()
        self.record = self._taker(settings.buffer_rows)
        """Takes one event; the cache calls it for each of them."""
        self._writer: RecordWriter | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._totals: Mapping[str, int] | None = None

    def _taker(self, rows_max: int) -> Callable[[CacheEvent], None]:
        """Returns a closure: the loop calls it for every event, and a method would look up three attributes each time."""
        rows = self._rows
        append = rows.append

        def take(row: CacheEvent) -> None:
            if len(rows) < rows_max:
                append(row)
            else:
                self.overflowed += 1

        return take

    def open(self) -> None:
        """Begins to write. Raises RecordError if a package is missing or the folder cannot be made."""
        try:
            # Here and not at the top: pyarrow is an optional package and a broker without a record starts
            # without it.
            from broker.recorder.record_writer import RecordWriter
        except ImportError as error:
            raise RecordError(
                f"entryCacheRecordDirectory is set, and recording needs {error.name}, which is not installed:"
                " pip install 'WHEEL[record]'"
            ) from None
        folder = self.settings.directory / broker_folder(self.settings.broker)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecordError(f"entryCacheRecordDirectory={self.settings.directory}: {error}") from None
        # Read side by side, once: events carry monotonic time, and one offset for the whole lifetime keeps
        # their order when the wall clock is set.
        wall_ns, monotonic_ns = time.time_ns(), time.monotonic_ns()
        self._writer = RecordWriter(
            self.settings,
            start=f"{datetime.fromtimestamp(wall_ns / 1e9, UTC):%Y%m%dT%H%M%S.%f}",
            software=self._software,
            clock_offset_us=wall_ns // 1000 - monotonic_ns // 1000,
            overflowed=lambda: self.overflowed,
            loop_late_us=self._loop_late_us,
        )
        self._thread = threading.Thread(
            target=self._run, args=(self._writer,), name="access record", daemon=True
        )
        self._thread.start()
        log.info("the cache's events are recorded in %s", folder)

    def close(self, totals: Mapping[str, int]) -> None:
        """Writes the waiting rows, completes the last file and ends the thread; blocks until then.

        `totals`: the counts of the cache, for the last file's metadata.
        """
        self._totals = totals
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    # Counts, for the metrics

    @property
    def rows(self) -> int:
        """Rows that came to the writer."""
        return self._writer.rows if self._writer is not None else 0

    @property
    def dropped(self) -> int:
        """Rows that are missing in the record, for whatever reason."""
        return self.overflowed + (self._writer.lost if self._writer is not None else 0)

    @property
    def bytes(self) -> int:
        """The size of all complete files."""
        return self._writer.bytes if self._writer is not None else 0

    @property
    def files(self) -> int:
        """Complete files."""
        return self._writer.files if self._writer is not None else 0

    @property
    def errors(self) -> int:
        """Failed writes and removals."""
        return self._writer.errors if self._writer is not None else 0

    # The thread

    def _run(self, writer: RecordWriter) -> None:
        # A quarter of a small buffer, so that it is emptied before it overflows.
        enough = min(ROWS_AT_ONCE, self.settings.buffer_rows // 4)
        drained_s = time.monotonic()
        while not self._stop.wait(POLL_S):
            # Polling costs the loop nothing. Waking the thread from `take` would cost a lock for each event.
            now_s = time.monotonic()
            if len(self._rows) >= enough or now_s - drained_s >= WAIT_S:
                drained_s = now_s
                self._drain(writer)
        self._drain(writer)
        writer.close(time.monotonic(), self._totals)

    def _drain(self, writer: RecordWriter) -> None:
        take = self._rows.popleft
        while self._rows:
            rows = list(starmap(take, repeat((), min(len(self._rows), ROWS_AT_ONCE))))
            try:
                writer.write(rows, time.monotonic())
            except Exception:  # A defect must not end the thread: the buffer would stay full.
                log.exception("! %d rows of the access record are lost", len(rows))
                writer.lost += len(rows)
                writer.errors += 1
            # Gives the interpreter to the loop between two batches, each of which takes 1 to 2 ms.
            time.sleep(0)
        writer.tick(time.monotonic())
