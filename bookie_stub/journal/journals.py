"""The journals of a bookie, one thread and one directory each; a ledger always writes to the same one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.metrics import JournalStats
from bookie_stub.base.posting import Post
from bookie_stub.config.settings import BookieSettings
from bookie_stub.journal.journal import Journal
from bookie_stub.journal.journal_file import Marks, journal_ids


class Journals:
    def __init__(self, journals: Sequence[Journal]) -> None:
        self.all = tuple(journals)

    def of(self, ledger_id: int) -> Journal:
        return self.all[ledger_id % len(self.all)]

    @property
    def marks(self) -> Marks:
        return tuple([journal.mark for journal in self.all])

    def start(self) -> None:
        for journal in self.all:
            journal.start()

    def remove_older(self, marks: Marks, backups: int) -> None:
        for journal, mark in zip(self.all, marks, strict=True):
            journal.remove_older(mark, backups)

    @property
    def queue_length(self) -> int:
        return sum(journal.queue_length for journal in self.all)

    def close(self) -> None:
        """Commit what is queued, then end the threads. Completions are still posted."""
        for journal in self.all:
            journal.close()


def open_journals(
    settings: BookieSettings,
    directories: Sequence[Path],
    marks: Marks,
    file_system: FileSystem,
    stats: Sequence[JournalStats],
    post: Post,
    on_failure: Callable[[Callable[[int], bool]], None],
) -> Journals:
    """Behind everything that was replayed. `on_failure` is told which ledgers write to the journal that failed."""
    count = len(directories)

    def failure(index: int) -> Callable[[], None]:
        return lambda: on_failure(lambda ledger_id: ledger_id % count == index)

    return Journals(
        [
            Journal(
                directory,
                last_id=max(journal_ids(directory), default=0),
                mark=marks[index],
                sync=settings.journal_sync_data,
                alignment=settings.journal_alignment,
                file_bytes_max=settings.journal_bytes_max,
                allocate_bytes=settings.journal_allocate_bytes,
                group=settings.journal_group,
                file_system=file_system,
                stats=stats[index],
                post=post,
                on_failure=failure(index),
            )
            for index, directory in enumerate(directories)
        ]
    )
