"""JournalChannel: writes one journal file after the other (BookKeeper: `JournalChannel`).

Two laws. A file names the journal before it and that journal's end, so `mark` must be the end of the last group when a
file begins. And after a write that failed no further group goes into the same file: its reader takes an intact group
after a damaged one as proof that the damaged one was acknowledged. So `Journal` calls `leave` after any error.

A small group goes past the page cache, into blocks that were filled with zeros before (`_past_cache`). Through the cache the
kernel copies it and prepares its pages; and a block that is reserved only counts as empty until its first write, which has
to be noted in the file's metadata, a second write to the disk. Both together are most of the price of a synced write of
one page. Filling costs one write for `FILL_BYTES`.

Used by one thread at a time, the journal's or the loop's; `mark` may be read by any thread.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import time
from collections.abc import Sequence
from mmap import mmap
from pathlib import Path

from bookie_stub.base.disk_space import is_full
from bookie_stub.base.file_system import PAGE_BYTES, FileSystem, remove_quietly
from bookie_stub.base.metrics import JournalStats
from bookie_stub.base.record import Record
from bookie_stub.config.settings import BookieSettings
from bookie_stub.journal.add_space import AddSpace
from bookie_stub.journal.durable_mark import DurableMarkFile
from bookie_stub.journal.journal_file import HEADER_BYTES, JournalMark, closing, file_name, header

log = logging.getLogger(__name__)

STEP_BYTES_MIN = 64 << 10
"""A file grows by at least so much at a time on a disk that is short: the disk is asked once per step."""
PAST_CACHE_BYTES_MAX = 64 << 10
"""Larger groups, their padding counted, go through the page cache, where they cost the same without one copy more."""
FILL_BYTES = 1 << 20
"""Bytes that are filled with zeros at a time: a millisecond of a quick disk, and 256 groups of a page."""
_RISE_NS = 10_000
"""With this and an eighth, `write_ns` rises from nothing to 1 ms in 22 groups, all of them slower."""


class JournalChannel:
    """Writes groups to the current journal file. When it is full the next file is begun."""

    def __init__(
        self,
        directory: Path,
        settings: BookieSettings,
        file_system: FileSystem,
        stats: JournalStats,
        space: AddSpace,
        *,
        last_id: int,
        mark: JournalMark,
    ) -> None:
        """`last_id` is the newest journal in the directory, 0 for none. `mark` is the end of what was replayed."""
        self.mark = mark
        """The end of the newest group that was written, and synced unless `journalSyncData=false`."""
        self.next_wanted = False
        """Set by another thread: the next group begins a new file."""
        self.adds_are_refused = False
        """Set by another thread: fences, deletions and adds of a recovery may take what adds leave free."""
        self.short = False
        """True when the last step was cut or refused for want of space."""
        self.write_ns = 0
        """Time of a write and its sync, in nanoseconds: follows a quicker one at once, slower ones step by step."""
        self._space = space
        self._directory = directory
        self._settings = settings
        self._file_system = file_system
        self._stats = stats
        self._last_id = last_id
        self._descriptor = -1
        self._past_cache = -1
        """A second descriptor of the file, for writes past the page cache; -1 where there are none."""
        self._position = 0
        self._allocated = 0
        self._filled = 0
        """Before this offset the file's blocks have been written, at least with zeros."""
        # Anonymous maps begin at a page. The zeros are read alone, so they take no memory.
        self._aligned, self._zeros = mmap(-1, PAST_CACHE_BYTES_MAX), mmap(-1, FILL_BYTES)
        self._durable = DurableMarkFile(directory, file_system)

    def open(self) -> None:
        """Opens the file `durable`. The journal file is begun by `roll` or by the first group."""
        self._durable.open(self.mark)

    @property
    def name(self) -> str:
        """The name of the newest file, for messages."""
        return file_name(self._last_id)

    def has_room(self, size: int) -> bool:
        """Returns True when a group of `size` bytes fits into the current file as it is."""
        # At most two blocks of padding, see `closing`.
        end = self._position + size + 2 * self._settings.journal_alignment
        return (
            self._descriptor >= 0
            and end <= self._allocated
            and self._position < self._settings.journal_bytes_max
            and not self.next_wanted
            and (end <= self._filled or not self._goes_past_cache(end))
        )

    def write(self, parts: list[Record], size: int) -> None:
        """Writes a group of `size` bytes and syncs it, unless `journalSyncData=false`.

        Raises OSError; then any part of the group may be in the file, and `leave` is to be called.
        """
        settings = self._settings
        if self._descriptor < 0 or self._position >= settings.journal_bytes_max or self.next_wanted:
            self.roll()
        padding = closing(self._last_id, self._position, parts, settings.journal_alignment)
        end = self._position + size + len(padding)
        # Allocated ahead, the file does not grow with each group, so a sync has less metadata to write.
        if end > self._allocated:
            self._allocate(end)
        buffers: Sequence[Record] = (*parts, padding)
        descriptor = self._descriptor
        if self._goes_past_cache(end) and self._is_filled(end):
            descriptor, buffers = self._past_cache, (self._copied(buffers),)
        started = time.perf_counter_ns()
        if settings.journal_sync_data:
            # The file's header needs no sync of its own: it lies in the page with which the first group begins, and
            # fdatasync and RWF_DSYNC write whole pages.
            self._file_system.write_and_sync(descriptor, buffers, self._position)
            took_ns = time.perf_counter_ns() - started
            self._stats.sync(took_ns)
        else:
            self._file_system.write(self._descriptor, buffers, self._position)
            took_ns = time.perf_counter_ns() - started
        # The least of the last groups: where processors are short, a write takes milliseconds on a quick disk as well.
        slower_ns = self.write_ns + (self.write_ns >> 3) + _RISE_NS
        self.write_ns = took_ns if took_ns < slower_ns else slower_ns
        is_first = self._position == HEADER_BYTES
        self._position = end
        self.mark = JournalMark(self._last_id, end)
        # After the sync and before the answers: earlier it would promise too much, later it would miss acknowledged
        # groups. It is synced with the first group of a file only, so that the newest file is always named.
        self._durable.write(self.mark, sync=is_first)

    def roll(self) -> None:
        """Leaves the current file and begins the next one. Raises OSError."""
        self.next_wanted = False
        self.leave()
        self._durable.open(self.mark)  # tried again in case it failed at the start
        # The first id is the wall clock in milliseconds, as at BookKeeper; then the clock does not matter any more.
        journal_id = self._last_id + 1 if self._last_id else int(time.time() * 1000)
        descriptor = self._file_system.create(self._directory / file_name(journal_id))
        # Now and not at the end: if the header cannot be written, the next attempt must take another name.
        self._last_id = journal_id
        self._descriptor = descriptor
        self._allocated = self._filled = 0
        self._position = HEADER_BYTES
        self._grow(HEADER_BYTES, STEP_BYTES_MIN)
        self._file_system.write(descriptor, (header(journal_id, self.mark),), 0)
        if self._settings.journal_sync_data and not self._settings.journal_alignment % PAGE_BYTES:
            try:
                self._past_cache = self._file_system.open_past_cache(self._directory / self.name)
            except OSError as error:
                log.debug("%s: all groups go through the page cache: %s", self.name, error)
        # The name must be durable before the first group is acknowledged; a power cut could otherwise lose the whole file.
        self._file_system.sync_directory(self._directory)

    def _allocate(self, end: int) -> None:
        """Reserves disk blocks up to `end`, in steps of `journalPreAllocSizeMB`, in small ones on a disk that is short.

        OSError (ENOSPC) when adds must leave the bytes free.
        """
        room = self._space.room()
        step = self._settings.journal_allocate_bytes
        self.short = _steps(end - self._allocated, step) > room
        if self.short:
            step = min(step, STEP_BYTES_MIN)
            if not self.adds_are_refused and _steps(end - self._allocated, step) > room:
                raise OSError(
                    errno.ENOSPC, "No space left on device besides that for a start", str(self._directory)
                )
        self._grow(end, step)

    def _grow(self, end: int, step: int) -> None:
        length = _steps(end - self._allocated, min(step, self._settings.journal_allocate_bytes))
        try:
            self._file_system.allocate(self._descriptor, self._allocated, length)
        except OSError as error:
            # The last bytes are for records that free space: the step may not fit although the group does.
            if is_full(error) and not self.adds_are_refused and end > HEADER_BYTES:
                raise
            # A file system without the operation: only the write decides.
            log.debug("%s: no pre-allocation: %s", self.name, error)
        # Also after an error: the next try comes with the next step, and not with each group.
        self._allocated += length

    def _goes_past_cache(self, end: int) -> bool:
        """Returns True for a small group up to `end`, if there is a way past the cache.

        The first group of a file goes through the cache: it begins within a page, after the header.
        """
        start = self._position
        return self._past_cache >= 0 and end - start <= PAST_CACHE_BYTES_MAX and start != HEADER_BYTES

    def _is_filled(self, end: int) -> bool:
        """Fills the file with zeros up to `end` and further; returns False where that fails."""
        if end <= self._filled:
            return True
        # Groups that went through the cache have filled their blocks themselves.
        start = max(self._filled, self._position)
        length = min(FILL_BYTES, self._allocated - start)
        try:
            self._file_system.write(self._past_cache, (memoryview(self._zeros)[:length],), start)
        except OSError as error:
            # The first write past the cache: a file system that wants larger units says so here. No record is concerned.
            log.debug("%s: further groups go through the page cache: %s", self.name, error)
            self._close_past_cache()
            return False
        self._filled = start + length
        return True

    def _copied(self, buffers: Sequence[Record]) -> memoryview:
        """Returns the bytes of `buffers` in memory that begins at a page."""
        end = 0
        for buffer in buffers:
            start, end = end, end + len(buffer)
            self._aligned[start:end] = buffer
        return memoryview(self._aligned)[:end]

    def _close_past_cache(self) -> None:
        descriptor, self._past_cache = self._past_cache, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                self._file_system.close(descriptor)

    def leave(self) -> None:
        """Cuts the current file to its last group, and closes it.

        That frees the reserved blocks. It raises nothing.
        A file without a group is removed; otherwise a full disk would gain one such file with each attempt.
        """
        if self._descriptor < 0:
            return
        # First, whatever fails below: the next `write` then begins a new file.
        descriptor, self._descriptor = self._descriptor, -1
        self._close_past_cache()
        # No group was written, so no later file names this one, and nothing in it was acknowledged.
        if self._position == HEADER_BYTES:
            remove_quietly(self._file_system, self._directory / self.name)
        try:
            self._file_system.truncate(descriptor, self._position)
        except OSError as error:
            # The torn group that stays has no fitting trailer, so a replay ends before it all the same.
            log.warning("%s: could not be cut to %d: %s", self.name, self._position, error)
        try:
            self._file_system.close(descriptor)
        except OSError as error:
            log.warning("%s: %s", self.name, error)

    def close(self) -> None:
        """Leaves the current file and closes `durable`."""
        self.leave()
        self._durable.close()


def _steps(size: int, step: int) -> int:
    """Returns `size` rounded up to whole steps."""
    return -(-size // step) * step
