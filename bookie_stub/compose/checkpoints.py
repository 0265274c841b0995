"""Checkpoints as the loop sees them: contents, start and end.

Invariant: the journals' marks are read before the write caches are swapped. So every entry before the marks is in the
cache that is flushed, or in a log already. `disk.checkpoint` does the writing, in a thread of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from bookie_stub.base.errors import BookieError
from bookie_stub.compose.start import OpenDisk
from bookie_stub.config.settings import BookieSettings
from bookie_stub.disk.checkpoint import Checkpoint, Checkpointer
from bookie_stub.disk.write_cache import WriteCache
from bookie_stub.journal.journal_file import Marks
from bookie_stub.ledgers.state import BookieState

log = logging.getLogger(__name__)


class Checkpoints:
    """Runs one checkpoint at a time."""

    def __init__(
        self,
        state: BookieState,
        disk: OpenDisk,
        settings: BookieSettings,
        marks: Marks,
        ended: Callable[[Checkpoint], None],
    ) -> None:
        """`marks` are those on disk.

        `ended` is called in the loop after each checkpoint and each removal that succeeded."""
        self._state = state
        self._storages = disk.storages
        self._saved_marks = marks
        self._ended = ended
        self._running: Checkpoint | None = None
        self._removal: Checkpoint | None = None
        """A removal that passes the running checkpoint, until the loop hears of its end."""
        self._closed = False
        self._checkpointer = Checkpointer(
            disk.writer,
            state.journals,
            interval_s=settings.flush_interval_s,
            backups=settings.journal_backups,
            marks=marks,
            post=state.answers.post,
            due=self.start,
            done=self._done,
            failed=self._remove_past_running,
            removed=self._removed,
            awaited=self._adds_wait,
        )

    def open(self, unwritten: Checkpoint | None = None) -> None:
        """Starts the thread, which asks for a checkpoint every `flushInterval`.

        `unwritten`: one that the start could not write; it is tried until the disk has space.
        """
        self._checkpointer.start()
        if unwritten is not None:
            self._running = unwritten
            self._checkpointer.submit(unwritten)

    @property
    def running(self) -> bool:
        """True from a checkpoint's start until the loop hears of its end."""
        return self._running is not None

    def start(self) -> None:
        """Starts a checkpoint, unless one is running or nothing has changed."""
        if self._closed or self.running:
            return
        self._running = self._next()
        if self._running is not None:
            self._checkpointer.submit(self._running)

    def free_journals(self) -> None:
        """Removes the journals that the last checkpoint covers, if a disk is short."""
        if not self._closed:
            self._checkpointer.free_journals()

    def _next(self) -> Checkpoint | None:
        state, ledgers = self._state, self._state.ledgers
        marks = state.journals.marks  # Before the swap, see the invariant above.
        nothing_new = marks == self._saved_marks and not ledgers.changed and not ledgers.deletions
        if nothing_new and not state.write_caches.active.entries:
            return None
        changed = ledgers.take_changed()
        number, deleted, emptied = ledgers.deletions.begin_checkpoint()
        return Checkpoint(number, marks, state.write_caches.swap(), changed, deleted, emptied)

    def _remove_past_running(self) -> None:
        """Has deleted ledgers leave the indexes although the running checkpoint fails.

        It may lack the very space that they free."""
        running, deletions = self._running, self._state.ledgers.deletions
        if self._closed or running is None or self._removal is not None or not deletions.hidden:
            return
        number, deleted, emptied = deletions.begin_checkpoint()
        # Those of the running checkpoint too: `checkpoint_done` of this higher number counts them as removed.
        deleted, emptied = deleted | running.deleted, emptied | running.emptied
        self._removal = Checkpoint(number, running.marks, WriteCache(), {}, deleted, emptied)
        self._checkpointer.submit_removal(self._removal)

    def _removed(self, removal: Checkpoint) -> None:
        if self._closed:
            return
        self._removal = None
        self._state.ledgers.deletions.checkpoint_done(removal.number)
        self._ended(removal)

    def _adds_wait(self) -> bool:
        return self._state.write_caches.full

    def _done(self, checkpoint: Checkpoint) -> None:
        # After `close` the write caches belong to `write_last`. A swap now would begin a checkpoint that no thread
        # writes.
        if self._closed:
            return
        caches, deletions = self._state.write_caches, self._state.ledgers.deletions
        self._running = None
        self._saved_marks = checkpoint.marks
        caches.flushed()
        deletions.checkpoint_done(checkpoint.number)
        # The thread has not taken it, or `_removed` would have run before.
        removal, self._removal = self._removal, None
        if removal is not None:
            self._running = removal
            self._checkpointer.submit(removal)
        # Before `ended`, which stores the held adds: they need the active cache that the swap brings.
        if caches.active_full or (deletions.waiting and deletions.hidden):
            self.start()
        self._ended(checkpoint)

    def close(self) -> None:
        """Ends the thread. A running checkpoint goes on to its end, a failing one is given up."""
        self._closed = True
        self._checkpointer.close()

    def write_last(self) -> bool:
        """Writes everything that is left, in the calling thread.

        To be called after `close`.

        Returns False when the disk refuses. The journals still have the entries then, and the next start replays
        them."""
        try:
            # The failed or interrupted one first: its marks are lower than those of the next one, and its cache must be
            # written before `flushed` drops it.
            if self._removal is not None:
                self._checkpointer.write_removal(self._removal)
            if self._checkpointer.unfinished is not None:
                self._checkpointer.run(self._checkpointer.unfinished)
            self._state.write_caches.flushed()
            checkpoint = self._next()
            if checkpoint is not None:
                self._checkpointer.run(checkpoint)
            self._storages.finish()
        except (OSError, BookieError) as error:
            log.error("the last checkpoint failed, the next start replays the journal: %s", error)
            return False
        return True
