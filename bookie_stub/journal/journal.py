"""A journal: one thread, and for all that waits one write, one fdatasync and one call into the loop.

Nothing is answered OK before its bytes are synced (unless `journalSyncData=false`). A write or sync that
fails is never repeated: its group is answered with an I/O error, the file is cut back to its last synced
group and given up, and so is everything queued until the loop has heard of the failure; then the next
group tries with a new file. Records are queued by the loop's thread only.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

from bookie_stub.base.file_system import FileSystem, remove_quietly
from bookie_stub.base.metrics import JournalStats
from bookie_stub.base.posting import Post, post_quietly
from bookie_stub.base.record import Record
from bookie_stub.config.settings import GroupSettings
from bookie_stub.journal.durable_mark import DurableMarkFile
from bookie_stub.journal.journal_file import HEADER_BYTES, Mark, closing, file_name, header, journal_ids
from protocol.bookie_frame import RC_IO_ERROR, RC_OK

log = logging.getLogger(__name__)

Done = Callable[[int, int], None]
"""(rc, the number given with the record)"""
Item = tuple[Record, int, Done, int]
"""Records in one piece, how many they are, and the one completion that they have together."""

GROUP_BYTES_MAX = 8 << 20
"""A longer queue is committed in several groups, so that a reader can hold a group in memory."""
_PART_BYTES_MIN = 16 << 10
"""On average; GROUP_BYTES_MAX of them, and the padding, are fewer than the kernel takes in one write (1024)."""


def nothing(_rc: int, _number: int) -> None:
    """For records whose fate nobody waits for."""


_RESUME: Item = (b"", 0, nothing, 0)
_STOP: Item = (b"", 0, nothing, 0)


class Journal:
    __slots__ = (
        "_alignment",
        "_allocate_bytes",
        "_allocated",
        "_descriptor",
        "_directory",
        "_durable",
        "_failing",
        "_file_bytes_max",
        "_file_system",
        "_group",
        "_last_id",
        "_oldest",
        "_on_failure",
        "_position",
        "_post",
        "_queue",
        "_stats",
        "_sync",
        "_thread",
        "mark",
    )

    def __init__(
        self,
        directory: Path,
        *,
        last_id: int,
        mark: Mark,
        sync: bool,
        alignment: int,
        file_bytes_max: int,
        allocate_bytes: int,
        group: GroupSettings,
        file_system: FileSystem,
        stats: JournalStats,
        post: Post,
        on_failure: Callable[[], None],
    ) -> None:
        """`last_id` is the newest journal that exists (0 = none); all that lies in it counts as durable.

        `on_failure` runs in the loop before the failed records are answered: what was put into the journal
        once for all, such as master keys, may be missing from it.
        """
        self._directory = directory
        self._last_id = last_id
        self.mark = mark
        """Durable up to here; moves with every synced group."""
        self._sync = sync
        self._alignment = alignment
        self._file_bytes_max = file_bytes_max
        self._allocate_bytes = allocate_bytes
        self._group = group
        self._file_system = file_system
        self._stats = stats
        self._post = post
        self._on_failure = on_failure
        self._queue: SimpleQueue[Item] = SimpleQueue()
        self._descriptor = -1
        self._position = 0
        self._allocated = 0
        self._durable = DurableMarkFile(directory, file_system)
        self._failing = False
        self._oldest = 0
        self._thread = threading.Thread(target=self._run, name="bookie-journal", daemon=True)

    def start(self) -> None:
        if not self._sync:
            log.warning("journalSyncData=false: entries are acknowledged before they are on disk")
        self._durable.open(self.mark)
        self._thread.start()

    def append(self, record: Record, done: Done, number: int) -> None:
        """`done(rc, number)` comes through `post` once the record is durable, or has failed."""
        self._queue.put((record, 1, done, number))

    def append_run(self, records: Record, count: int, done: Done, number: int) -> None:
        """`count` records in one piece, with one `done(rc, number)`: they are durable together."""
        self._queue.put((records, count, done, number))

    @property
    def queue_length(self) -> int:
        """Runs and single records that wait."""
        return self._queue.qsize()

    def close(self) -> None:
        """Commit what is queued, then end the thread. Completions are still posted."""
        self._queue.put(_STOP)
        self._thread.join()

    def remove_older(self, mark: Mark, backups: int) -> None:
        """Journals that a replay from `mark` does not need, except the newest `backups` of them."""
        old = [journal_id for journal_id in journal_ids(self._directory) if journal_id < mark.journal_id]
        for journal_id in old[: max(len(old) - backups, 0)]:
            remove_quietly(self._file_system, self._directory / file_name(journal_id))

    # The journal's thread from here on.

    def _run(self) -> None:
        get, size = self._queue.get, self._queue.qsize
        self._prepare_first()
        drained = time.perf_counter_ns()
        while True:
            idle = not size()
            items = [get()]
            # What was queued while the last group was written has waited since then at most.
            self._oldest = time.perf_counter_ns() if idle else drained
            items += [get() for _ in range(size())]
            if self._group.wait_s:
                self._wait_for_more(items)
            drained = time.perf_counter_ns()
            stop = items[-1] is _STOP
            if self._failing:
                items = self._refuse(items)
            for group in _groups(items):
                self._commit(group)
            if stop:
                self._leave_file()
                self._durable.close()
                return

    def _wait_for_more(self, items: list[Item]) -> None:
        """Until one of the group's limits is reached."""
        limits = self._group
        records_max = limits.records_max or sys.maxsize
        deadline = self._oldest + int(limits.wait_s * 1e9)
        size, records = _bytes_of(items), _count_of(items)
        while size < limits.bytes_max and records < records_max and items[-1] is not _STOP:
            left = deadline - time.perf_counter_ns()
            if left <= 0:
                return
            try:
                more = [self._queue.get(timeout=left / 1e9)]
            except Empty:
                return
            more += [self._queue.get() for _ in range(self._queue.qsize())]
            size += _bytes_of(more)
            records += _count_of(more)
            items += more

    def _prepare_first(self) -> None:
        """Have a file at hand when the first record comes."""
        try:
            self._roll()
        except OSError as error:
            log.error("journal: %s", error)
            self._leave_file()

    def _refuse(self, items: list[Item]) -> list[Item]:
        """Fail what was queued before the loop heard of the failure; what follows may be committed."""
        for index, item in enumerate(items):
            if item is _RESUME:
                self._failing = False
                self._answer(items[:index], RC_IO_ERROR)
                return items[index + 1 :]
        self._answer(items, RC_IO_ERROR)
        return []

    def _commit(self, items: list[Item]) -> None:
        if self._failing:
            self._answer(items, RC_IO_ERROR)
            return
        size = _bytes_of(items)
        try:
            if size:
                self._write(_parts(items), size)
        except Exception as error:  # noqa: BLE001 - unanswered, everybody would wait for ever
            self._fail(items, error)
            return
        if records := _count_of(items):
            self._stats.group(records, size, time.perf_counter_ns() - self._oldest)
        self._answer(items, RC_OK)

    def _write(self, parts: list[Record], size: int) -> None:
        if self._descriptor < 0 or self._position >= self._file_bytes_max:
            self._roll()
        padding = closing(self._last_id, self._position, parts, self._alignment)
        end = self._position + size + len(padding)
        if end > self._allocated:
            self._allocate(end)
        buffers = (*parts, padding)
        started = time.perf_counter_ns()
        if self._sync:
            # The file's header lies in the first group's first page, which goes with it.
            self._file_system.write_and_sync(self._descriptor, buffers, self._position)
            self._stats.sync(time.perf_counter_ns() - started)
        else:
            self._file_system.write(self._descriptor, buffers, self._position)
        is_first = self._position == HEADER_BYTES
        self._position = end
        self.mark = Mark(self._last_id, end)
        self._durable.write(self.mark, sync=is_first)

    def _roll(self) -> None:
        self._leave_file()
        self._durable.open(self.mark)  # if it could not be at the start
        journal_id = max(self._last_id + 1, 1 if self._last_id else int(time.time() * 1000))
        path = self._directory / file_name(journal_id)
        descriptor = self._file_system.create(path)
        self._last_id = journal_id
        self._descriptor = descriptor
        self._allocated = 0
        self._position = HEADER_BYTES
        self._allocate(HEADER_BYTES)
        self._file_system.write(descriptor, (header(journal_id, self.mark),), 0)
        self._file_system.sync_directory(self._directory)

    def _allocate(self, end: int) -> None:
        """Reserve whole steps of `journalPreAllocSizeMB`; without room for a step, the write itself decides."""
        length = -(-(end - self._allocated) // self._allocate_bytes) * self._allocate_bytes
        try:
            self._file_system.allocate(self._descriptor, self._allocated, length)
        except OSError as error:
            log.debug("journal %x: no pre-allocation: %s", self._last_id, error)
        self._allocated += length

    def _fail(self, items: list[Item], error: Exception) -> None:
        unexpected = not isinstance(error, OSError)
        count = _count_of(items)
        log.error("journal %x: %s; %d records failed", self._last_id, error, count, exc_info=unexpected)
        self._stats.failed(count)
        self._failing = True
        self._leave_file()
        post_quietly(self._post, partial(self._failed, items))

    def _leave_file(self) -> None:
        """Cut the current file to its last synced group, which frees what was reserved, and close it.

        A file without a group goes altogether, or a full disk would collect them.
        """
        if self._descriptor < 0:
            return
        descriptor, self._descriptor = self._descriptor, -1
        if self._position == HEADER_BYTES:
            remove_quietly(self._file_system, self._directory / file_name(self._last_id))
        try:
            self._file_system.truncate(descriptor, self._position)
        except OSError as error:
            # The torn group has no valid trailer, so a replay ends before it all the same.
            log.warning("journal %x: could not be cut to %d: %s", self._last_id, self._position, error)
        try:
            self._file_system.close(descriptor)
        except OSError as error:
            log.warning("journal %x: %s", self._last_id, error)

    def _answer(self, items: list[Item], rc: int) -> None:
        if items:
            post_quietly(self._post, partial(complete, items, rc))

    # The loop's thread.

    def _failed(self, items: list[Item]) -> None:
        # Resume first: what a completion adds again must come behind it, with its master key record.
        self._on_failure()
        self._queue.put(_RESUME)
        complete(items, RC_IO_ERROR)


def _bytes_of(items: list[Item]) -> int:
    return sum([len(item[0]) for item in items])


def _count_of(items: list[Item]) -> int:
    """Records in all of them."""
    return sum([item[1] for item in items])


def _parts(items: list[Item]) -> list[Record]:
    """What is to be written; small pieces are joined, each would cost more than its copy."""
    parts = [item[0] for item in items]
    return parts if len(parts) * _PART_BYTES_MIN <= _bytes_of(items) else [b"".join(parts)]


def _groups(items: list[Item]) -> list[list[Item]]:
    """Cut a long queue into groups of at most about GROUP_BYTES_MAX, in order."""
    if _bytes_of(items) <= GROUP_BYTES_MAX:
        return [items] if items else []
    groups: list[list[Item]] = [[]]
    group_bytes = 0
    for item in items:
        size = len(item[0])
        if group_bytes + size > GROUP_BYTES_MAX and groups[-1]:
            groups.append([])
            group_bytes = 0
        groups[-1].append(item)
        group_bytes += size
    return groups


def complete(items: list[Item], rc: int) -> None:
    for _, _, done, number in items:
        try:
            done(rc, number)
        except Exception:  # one caller's bug must not swallow the answers of the others in its group
            log.exception("a completion of the journal failed")
