"""All journals of a bookie.

A ledger writes to the journal that its id modulo their number names, as at BookKeeper.

So the records of a ledger are in one sequence, and the number and order of `journalDirectories` must never change (the
cookie has them, see `disk/cookie.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.metrics import JournalStats
from bookie_stub.base.posting import AtEndOfTurn, Post
from bookie_stub.config.settings import BookieSettings
from bookie_stub.journal.add_space import AddSpace
from bookie_stub.journal.journal import Journal
from bookie_stub.journal.journal_file import Marks

OwnLedgers = Callable[[int], bool]
"""Returns whether a ledger writes to one certain journal."""


class Journals:
    """The journals in the order of `journalDirectories`."""

    def __init__(self, journals: Sequence[Journal]) -> None:
        self.all = tuple(journals)
        """Every journal, at its place."""

    def of(self, ledger_id: int) -> Journal:
        """Returns the journal of a ledger."""
        return self.all[ledger_id % len(self.all)]

    @property
    def marks(self) -> Marks:
        """The end of the newest durable group in each journal."""
        return tuple([journal.mark for journal in self.all])

    def start(self) -> None:
        """Starts all threads."""
        for journal in self.all:
            journal.start()

    def remove_older(self, marks: Marks, backups: int, begun: Callable[[], None]) -> None:
        """Removes journals before `marks`, but for the newest `backups` in each directory.

        `begun` runs in the loop for each current file that was left early. Raises OSError.
        """
        for journal, mark in zip(self.all, marks, strict=True):
            journal.remove_older(mark, backups, begun)

    def room(self) -> int:
        """Returns the bytes by which each journal may grow, negative on a disk that is short. OSError."""
        return min(journal.space.room() for journal in self.all)

    def adds_are_refused(self, refused: bool) -> None:
        """Returns True while records of any kind may take the bytes that adds leave free."""
        for journal in self.all:
            journal.adds_are_refused(refused)

    def when_short(self, react: Callable[[bool], None]) -> None:
        """Has `react` called in the loop when a disk becomes short, and with True when it has refused a group."""
        for journal in self.all:
            journal.when_short = react

    @property
    def queue_length(self) -> int:
        """Single records and runs that wait in all journals."""
        return sum(journal.queue_length for journal in self.all)

    def close(self) -> None:
        """Commits what is queued and ends the threads. Completions are still posted."""
        for journal in self.all:
            journal.close()


def open_journals(
    settings: BookieSettings,
    directories: Sequence[Path],
    marks: Marks,
    file_system: FileSystem,
    stats: Sequence[JournalStats],
    post: Post,
    on_failure: Callable[[OwnLedgers], None],
    spaces: Sequence[AddSpace],
    at_end_of_turn: AtEndOfTurn | None = None,
) -> Journals:
    """Makes the journals without starting them; see `Journal` for `at_end_of_turn`.

    `marks` are the ends of what was replayed.
    `on_failure` runs in the loop when a group has failed, with the predicate for the ledgers of that journal.
    """
    count = len(directories)
    return Journals(
        [
            Journal(
                directory,
                settings,
                file_system,
                stats[place],
                post,
                partial(on_failure, partial(_is_of_journal, place, count)),
                spaces[place],
                mark=marks[place],
                at_end_of_turn=at_end_of_turn,
            )
            for place, directory in enumerate(directories)
        ]
    )


def _is_of_journal(place: int, count: int, ledger_id: int) -> bool:
    # The same rule as `Journals.of`, for the ledgers of a journal that failed.
    return ledger_id % count == place
