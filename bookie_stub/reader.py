"""Reads that need the disk: index, then entry logs, in a few threads, answered to the loop in groups.

A missing entry is only reported when the index was read and has none; everything else that goes wrong is an
I/O error to the caller. Threads start with the first such read: a broker that serves its tail from memory
has none.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue

from bookie_stub.entry_log import EntryLogReader
from bookie_stub.errors import BookieError
from bookie_stub.location_index import LocationIndex
from bookie_stub.posting import Answer, Post, post_quietly, run_safely
from bookie_stub.record import KEY
from protocol.bookie_frame import BATCH_ENTRY_OVERHEAD_BYTES

log = logging.getLogger(__name__)

_LOCATIONS_MAX = 512
"""Entries looked up in the index at a time."""
_NEAR_BYTES = 64 << 10
"""Entries of a ledger that lie closer together are read in one go, with whatever is between them."""
_SPAN_BYTES_MAX = 4 << 20

Halves = Sequence[dict[int, bytes]]


class StoredEntries:
    """Entries that a flush has written. Any thread; raises BookieError or OSError."""

    def __init__(self, locations: LocationIndex, logs: EntryLogReader) -> None:
        self._locations = locations
        self._logs = logs

    def read(self, ledger_id: int, entry_id: int) -> bytes | None:
        """None when the index has no such entry."""
        key = KEY.pack(ledger_id, entry_id)
        location = self._locations.get(key)
        return self._logs.read(key, location) if location else None

    def last_entry(self, ledger_id: int) -> int:
        return self._locations.last_entry(ledger_id)

    def batch(self, ledger_id: int, first: int, count_max: int, bytes_max: int, newer: Halves) -> list[bytes]:
        """Consecutive entries from `first` on, up to a gap or an entry that has a newer version in memory.

        An entry counts 4 bytes more than it has; the first one is returned even if it is too long. Empty
        when there is no such entry.
        """
        entries: list[bytes] = []
        while not entries or ((count_max <= 0 or len(entries) < count_max) and bytes_max > 0):
            wanted = min(count_max - len(entries), _LOCATIONS_MAX) if count_max > 0 else _LOCATIONS_MAX
            keys, locations = self._locations.run(ledger_id, first + len(entries), wanted)
            count = _until_newer(first + len(entries), len(keys), newer)
            if not count:
                break
            for start, stop in _near_runs(locations[:count]):
                found = self._run(keys[start:stop], locations[start:stop], bytes_max, bool(entries))
                entries += found
                bytes_max -= sum(map(len, found)) + BATCH_ENTRY_OVERHEAD_BYTES * len(found)
                if len(found) < stop - start:
                    return entries
            if count < wanted:
                break
        return entries

    def _run(
        self, keys: Sequence[bytes], locations: Sequence[int], bytes_max: int, begun: bool
    ) -> list[bytes]:
        """`begun`: there are entries already, so that even the first of these has to fit, and may fail."""
        try:
            found = self._logs.read_run(keys, locations, bytes_max)
        except (BookieError, OSError) as error:
            if not begun:
                raise
            log.warning("batch read ends early, who asks for the next entry is told: %s", error)
            return []
        if begun and sum(map(len, found[:1])) + BATCH_ENTRY_OVERHEAD_BYTES > bytes_max:
            return []
        return found


def _until_newer(first: int, count: int, newer: Halves) -> int:
    for half in newer:
        for index in range(count):
            if first + index in half:
                count = index
                break
    return count


def _near_runs(locations: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Cut (from, to) where the next entry is in another log or far away, so that each run is worth one read."""
    start = 0
    for index in range(1, len(locations)):
        gap = locations[index] - locations[index - 1]
        if not 0 < gap <= _NEAR_BYTES or locations[index] - locations[start] > _SPAN_BYTES_MAX:
            yield start, index
            start = index
    yield start, len(locations)


class ReadPool:
    """Threads for work that ends in an answer; the answers are delivered by one posted call for many."""

    def __init__(self, threads_max: int, post: Post) -> None:
        self._threads_max = threads_max
        self._post = post
        self._threads: list[threading.Thread] = []
        self._queue: SimpleQueue[tuple[Callable[[], Answer], Answer] | None] = SimpleQueue()
        self._answers: deque[Answer] = deque()
        self._posted = False

    def submit(self, work: Callable[[], Answer], failed: Answer) -> None:
        """`work` runs in a thread and returns the answer; `failed` is the answer when it raises."""
        if len(self._threads) < self._threads_max and self._queue.qsize() >= len(self._threads):
            thread = threading.Thread(target=self._run, name=f"bookie-read-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._queue.put((work, failed))

    @property
    def queue_length(self) -> int:
        return self._queue.qsize()

    def close(self) -> None:
        """After the work that is queued. Answers are still posted."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            work, failed = job
            try:
                answer = work()
            except Exception as error:  # whatever went wrong, the caller gets an I/O error, never "no entry"
                log.error("read failed: %s", error, exc_info=not isinstance(error, BookieError | OSError))
                answer = failed
            self._answers.append(answer)
            if not self._posted:
                self._posted = True
                post_quietly(self._post, self.deliver)

    def deliver(self) -> None:
        """In the loop."""
        self._posted = False
        while self._answers:
            run_safely(self._answers.popleft())
