"""Journal: makes records durable in groups, by a thread or by the loop's own hand (BookKeeper: `Journal`).

The law: an answer with RC_OK says that the record's bytes are synced (written only, with `journalSyncData=false`). A
write or a sync that failed is never repeated, because a second sync of the same pages may succeed without having written
them. From that law follow the steps after a failure:

1. the group is answered with RC_IO_ERROR, its file is cut to the last synced group and left (`JournalChannel.leave`)
2. everything queued before the loop hears of the failure fails too: it may rely on a record that is lost, such as
   the master key record of its ledger, without which a replay skips the ledger's entries
3. the loop is told (`on_failure`: every ledger writes its key record again), and queues `_RESUME`; records after
   `_RESUME` are committed again, in a new file

One group takes one system call where the kernel has synced writes (pwritev with RWF_DSYNC), otherwise a write and an
fdatasync. The loop's thread gathers the records of a turn (`append`, `append_run`) in the order of the adds, and at the
end of the turn there are two ways:

* The loop writes a small group itself while the disk syncs quickly (`_end_turn`). The turns of the interpreter's lock and
  the two wake-ups between the threads would cost several times as much as the write. While the thread has a group, the
  records wait for its answer.
* It hands everything else to the thread, in one piece. A group of the thread consists of the records that were handed over
  while the group before it was written, so it grows with the load; `GroupSettings` can make it wait for more. One call
  into the loop answers a group. BookKeeper uses one thread for writes and one for syncs; here one thread does both.

Only one of the two uses the file at a time: the loop writes only when the thread has answered all it was given.
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

from bookie_stub.base.disk_space import is_full
from bookie_stub.base.file_system import FileSystem, remove_quietly
from bookie_stub.base.metrics import JournalStats
from bookie_stub.base.posting import AtEndOfTurn, Post, post_quietly
from bookie_stub.base.record import Record, force_record
from bookie_stub.config.settings import BookieSettings
from bookie_stub.journal.add_space import AddSpace
from bookie_stub.journal.journal_channel import STEP_BYTES_MIN, JournalChannel
from bookie_stub.journal.journal_file import JournalMark, file_name, journal_ids
from protocol.bookie_frame import RC_IO_ERROR, RC_OK

log = logging.getLogger(__name__)

Done = Callable[[int, int], None]
"""A completion, called as `done(rc, number)` with the number that was given with the record."""
# One item per add is made and taken apart on the hottest path of the bookie. A plain tuple costs 28 ns, a slots class
# 130 ns and a NamedTuple 225 ns; an add of 128 bytes takes 700 ns in all.
_Item = tuple[Record, int, Done, int]
"""Records in one piece, their count, their completion, and the number for the completion."""

OWN_BYTES_MAX = 256 << 10
"""The loop writes a group of at most so many bytes itself: the thread writes more while the loop goes on."""
OWN_SYNC_NS_MAX = 1_000_000
"""The loop writes itself while a write with its sync takes less than this. A slow disk must not hold the loop up."""
BUSY_SYNC_NS_MAX = 4_000_000
"""The same for a loop that was busy with other things for `BUSY_FACTOR` times as long since its last write."""
BUSY_FACTOR = 4
GROUP_BYTES_MAX = 8 << 20
"""Bytes of a group; a longer queue becomes several groups. A reader holds a whole group in memory."""
_PART_BYTES_MIN = 16 << 10
"""The average piece of a group must have this size to be written as it is. Then a full group has 512 pieces, and with the
padding stays below the 1,024 buffers that the kernel takes in one write (IOV_MAX)."""


def nothing(_rc: int, _number: int) -> None:
    """Does nothing: the completion of a record on which no caller waits, such as a master key record."""


def _no_reaction(_refused: bool) -> None:
    """Stands for the upkeep until it is made."""


# Told apart from each other and from records by identity, so both must be objects of their own.
_RESUME: _Item = (b"", 0, nothing, 0)
_STOP: _Item = (b"", 0, nothing, 0)


class Journal:
    """One journal: a queue, a thread, and the growing file."""

    def __init__(
        self,
        directory: Path,
        settings: BookieSettings,
        file_system: FileSystem,
        stats: JournalStats,
        post: Post,
        on_failure: Callable[[], None],
        space: AddSpace,
        *,
        mark: JournalMark,
        at_end_of_turn: AtEndOfTurn | None = None,
    ) -> None:
        """`mark` is the end of what was replayed; all older files count as durable.

        Without `at_end_of_turn` each record goes to the thread at once.

        `on_failure` runs in the loop before the failed records are answered. Records that are written once for many
        adds, such as master keys, may be missing then, and must be queued again.
        """
        self._directory = directory
        self._sync = settings.journal_sync_data
        self._share_max = settings.disk.warn
        self._left_bytes_min = min(settings.journal_allocate_bytes, 2 * STEP_BYTES_MIN)
        """A smaller file is not left early: its successor takes at least a step."""
        self.space = space
        """The bytes that adds may take."""
        self.when_short: Callable[[bool], None] = _no_reaction
        """Called in the loop when the disk becomes short, and with True when it has refused a group."""
        self._was_short = False
        self._group = settings.journal_group
        self._file_system = file_system
        self._stats = stats
        self._post = post
        self._on_failure = on_failure
        last_id = max(journal_ids(directory), default=0)
        self._channel = JournalChannel(
            directory, settings, file_system, stats, space, last_id=last_id, mark=mark
        )
        self._begin_group: Callable[[], object] = self._hand_over
        if at_end_of_turn is not None:
            self._begin_group = partial(at_end_of_turn, self._end_turn)
        self._waiting: list[_Item] = []
        """Records without a group. This and the next three belong to the loop's thread."""
        self._own_end_ns = 0
        """When the loop's last own group was written."""
        self._unanswered = 0
        """Items that left `_waiting` and have no answer yet."""
        self._handed = 0
        """Items that the thread was given since the start; `_taken` of them have left its queue."""
        self._taken = 0
        self._queue: SimpleQueue[list[_Item]] = SimpleQueue()
        self._failing = False
        """True from a failed group until `_RESUME` arrives."""
        self._oldest_ns = 0
        """The earliest time at which a record of the current group was queued; for the latency that is reported."""
        self._thread = threading.Thread(target=self._run, name="bookie-journal", daemon=True)

    @property
    def mark(self) -> JournalMark:
        """The end of the newest durable group. It moves in the journal's thread, before the group is answered."""
        return self._channel.mark

    def start(self) -> None:
        """Starts the thread, which begins a file at once. The first add then finds one."""
        if not self._sync:
            log.warning("journalSyncData=false: entries are acknowledged before they are on disk")
        self._channel.open()
        self._thread.start()

    def append(self, record: Record, done: Done, number: int) -> None:
        """Queues one record, and posts `done(rc, number)` when it is durable.

        It is posted with an error when the record's group has failed.
        An empty record writes nothing and is answered after everything queued before it (FORCE_LEDGER).
        """
        waiting = self._waiting
        begins = not waiting
        waiting.append((record, 1, done, number))
        if begins:
            self._begin_group()

    def append_run(self, records: Record, count: int, done: Done, number: int) -> None:
        """Queues `count` records in one piece. They are durable together, and have one `done(rc, number)`."""
        waiting = self._waiting
        begins = not waiting
        waiting.append((records, count, done, number))
        if begins:
            self._begin_group()

    @property
    def queue_length(self) -> int:
        """Single records and runs that wait for their group."""
        return len(self._waiting) + self._handed - self._taken

    def close(self) -> None:
        """Commits what is queued and ends the thread. Completions are still posted."""
        self._hand_over()
        self._put([_STOP])
        self._thread.join()

    def _end_turn(self, _now_ns: int) -> None:
        items = self._waiting
        # Nothing waits any more after a failure or a close, which empty the list within a turn.
        if not items:
            return
        now_ns = time.perf_counter_ns()
        writes_itself = self._writes_itself(now_ns)
        # In the thread's queue these records would have their answer a turn later, after waits for a processor and twice for
        # the interpreter's lock; and the thread would never be without a group, so it would write all further ones.
        if writes_itself and self._unanswered:
            return
        size, records = _measured(items)
        # A new file or a reservation of disk blocks takes milliseconds. After a failure there is no file before the
        # thread has begun the next one.
        if not writes_itself or size > OWN_BYTES_MAX or not self._channel.has_room(size):
            self._hand_over()
            return
        self._waiting = []
        self._oldest_ns = now_ns
        if self._write(items, size, records):
            self._own_end_ns = time.perf_counter_ns()
            complete(items, RC_OK)
        else:
            self._unanswered += len(items)

    def _writes_itself(self, now_ns: int) -> bool:
        write_ns = self._channel.write_ns
        return not self._group.wait_s and (
            write_ns < OWN_SYNC_NS_MAX
            or (write_ns < BUSY_SYNC_NS_MAX and now_ns - self._own_end_ns > BUSY_FACTOR * write_ns)
        )

    def _hand_over(self) -> None:
        """Gives the thread everything that waits, with one wake-up."""
        items = self._waiting
        if items:
            self._waiting = []
            self._unanswered += len(items)
            self._put(items)

    def _put(self, items: list[_Item]) -> None:
        self._handed += len(items)
        self._queue.put(items)

    def adds_are_refused(self, refused: bool) -> None:
        """Returns True while records of any kind may take the bytes that adds leave free."""
        self._channel.adds_are_refused = refused

    def remove_older(self, mark: JournalMark, backups: int, begun: Callable[[], None]) -> None:
        """Removes journals that a replay from `mark` does not read; OSError.

        The newest `backups` of them are kept. A disk that is short keeps none: one above `diskUsageWarnThreshold`, or with
        less free than these journals take. There the current file is left early too, and `begun` runs in the loop when the
        next one has a group: another checkpoint then removes it, which could otherwise take `journalMaxSizeMB` for ever.
        """
        old = [journal_id for journal_id in journal_ids(self._directory) if journal_id < mark.journal_id]
        current = mark.journal_id == self.mark.journal_id
        if self._is_short(old, mark.offset if current else 0):
            backups = 0
            if current and mark.offset >= self._left_bytes_min:
                post_quietly(self._post, partial(self._begin_next_file, begun))
        for journal_id in old[: max(len(old) - backups, 0)]:
            remove_quietly(self._file_system, self._directory / file_name(journal_id))

    def _is_short(self, old: list[int], covered: int) -> bool:
        if self._file_system.share_taken(self._directory) > self._share_max:
            return True
        covered += sum((self._directory / file_name(journal_id)).stat().st_size for journal_id in old)
        return self._file_system.free_bytes(self._directory) < covered

    def _begin_next_file(self, begun: Callable[[], None]) -> None:
        # With a record, because a mark can name the new file only after its first group; until then the old one stays.
        self._channel.next_wanted = True
        self.append(force_record(), lambda _rc, _number: begun(), 0)

    # The journal's thread from here on.

    def _run(self) -> None:
        # Bound once: both run for each record.
        get, size = self._queue.get, self._queue.qsize
        self._begin_file()
        drained_ns = time.perf_counter_ns()
        while True:
            idle = not size()
            items = get()
            # No clock is read per record. Records that were queued during the last group count from its beginning,
            # so the reported latency is an upper bound.
            self._oldest_ns = time.perf_counter_ns() if idle else drained_ns
            # `qsize` is read once: records that arrive during the drain belong to the next group, or this would never end.
            for _ in range(size()):
                items += get()
            self._taken += len(items)
            # Off by default (journalFlushWhenQueueEmpty): a wait of 1 ms would leave a disk idle that syncs in 0.1 to
            # 0.3 ms.
            if self._group.wait_s:
                self._wait_for_more(items)
            drained_ns = time.perf_counter_ns()
            # `close` queues it last, so it can only be the last item.
            stop = items[-1] is _STOP
            if self._failing:
                items = self._refuse(items)
            for group in _groups(items):
                self._commit(group)
            if stop:
                self._channel.close()
                return

    def _wait_for_more(self, items: list[_Item]) -> None:
        """Extends a group until one of the limits of `GroupSettings` is reached."""
        limits = self._group
        records_max = limits.records_max or sys.maxsize
        deadline = self._oldest_ns + int(limits.wait_s * 1e9)
        size, records = _measured(items)
        while size < limits.bytes_max and records < records_max and items[-1] is not _STOP:
            left = deadline - time.perf_counter_ns()
            if left <= 0:
                return
            try:
                more = self._queue.get(timeout=left / 1e9)
            except Empty:
                return
            for _ in range(self._queue.qsize()):
                more += self._queue.get()
            self._taken += len(more)
            more_bytes, more_records = _measured(more)
            size += more_bytes
            records += more_records
            items += more

    def _begin_file(self) -> None:
        try:
            self._channel.roll()
        except OSError as error:
            # The first group tries again, and is answered with the error if that fails too.
            log.error("%s: no journal file can be begun: %s", self._directory, error)
            self._channel.leave()

    def _refuse(self, items: list[_Item]) -> list[_Item]:
        """Fails the records queued before `_RESUME`, and returns those after it."""
        for index, item in enumerate(items):
            if item is _RESUME:
                self._failing = False
                self._answer(items[:index], RC_IO_ERROR)
                return items[index + 1 :]
        self._answer(items, RC_IO_ERROR)
        return []

    def _commit(self, items: list[_Item]) -> None:
        # A group after the failed one: its records may rely on a key record that is lost.
        if self._failing:
            self._answer(items, RC_IO_ERROR)
            return
        if self._write(items, *_measured(items)):
            self._answer(items, RC_OK)

    def _write(self, items: list[_Item], size: int, records: int) -> bool:
        """Makes a group durable; returns False when it has failed, and its answers are on their way."""
        try:
            if size:
                self._channel.write(_parts(items, size), size)
                if self._channel.short != self._was_short:
                    self._was_short = self._channel.short
                    post_quietly(self._post, partial(self.when_short, False))
        except Exception as error:  # noqa: BLE001 - whatever it is: without an answer every caller would wait for ever
            self._fail(items, error)
            return False
        # Only `_STOP`, which stands for no record, makes this 0.
        if records:
            self._stats.group(records, size, time.perf_counter_ns() - self._oldest_ns)
        return True

    def _fail(self, items: list[_Item], error: Exception) -> None:
        unexpected = not isinstance(error, OSError)
        _, count = _measured(items)
        log.error(
            "%s: %s; %d records failed, the next group begins a new file",
            self._directory / self._channel.name,
            error,
            count,
            exc_info=unexpected,
        )
        self._stats.failed(count)
        self._failing = True
        self._channel.leave()
        post_quietly(self._post, partial(self._failed, items, full=is_full(error)))

    def _answer(self, items: list[_Item], rc: int) -> None:
        if items:
            post_quietly(self._post, partial(self._answered, items, rc))

    # The loop's thread.

    def _answered(self, items: list[_Item], rc: int) -> None:
        self._unanswered -= len(items)
        complete(items, rc)
        # Records that `_end_turn` left for this moment.
        if self._waiting and not self._unanswered:
            self._begin_group()

    def _failed(self, items: list[_Item], *, full: bool) -> None:
        # `_RESUME` goes into the queue before the completions run: an add that a completion makes at once is then queued
        # after it, together with its ledger's new master key record. Records of this turn stand before it.
        self._on_failure()
        if full:
            self.when_short(True)
        self._hand_over()
        self._put([_RESUME])
        self._answered(items, RC_IO_ERROR)


def _measured(items: list[_Item]) -> tuple[int, int]:
    """Returns the bytes of all items, and the number of records in them."""
    size = records = 0
    for record, count, _, _ in items:
        size += len(record)
        records += count
    return size, records


def _parts(items: list[_Item], size: int) -> list[Record]:
    """Returns the pieces to write, small ones joined. Each piece costs the kernel more than a copy."""
    if len(items) == 1:
        return [items[0][0]]
    parts = [item[0] for item in items]
    return parts if len(parts) * _PART_BYTES_MIN <= size else [b"".join(parts)]


def _groups(items: list[_Item]) -> list[list[_Item]]:
    """Cuts a long queue into groups of at most about GROUP_BYTES_MAX, in order."""
    if _measured(items)[0] <= GROUP_BYTES_MAX:
        return [items] if items else []
    groups: list[list[_Item]] = [[]]
    group_bytes = 0
    for item in items:
        size = len(item[0])
        if group_bytes + size > GROUP_BYTES_MAX and groups[-1]:
            groups.append([])
            group_bytes = 0
        groups[-1].append(item)
        group_bytes += size
    return groups


def complete(items: list[_Item], rc: int) -> None:
    """Calls the completions of `items` with `rc`. One that raises is logged and does not stop the others."""
    for _, _, done, number in items:
        try:
            done(rc, number)
        except Exception:  # one caller's bug must not swallow the answers of the others in its group
            log.exception("a completion of the journal failed")
