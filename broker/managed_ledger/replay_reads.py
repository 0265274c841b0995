"""ReplayRead: single positions read again, for a replay: in runs of neighbours, answered all together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from broker.managed_ledger.cache_readers import ReadingCursor
from broker.managed_ledger.cursor_log import CursorLog
from broker.managed_ledger.read_permits import ReadPermits
from broker.model.entry import Entry
from broker.model.errors import BrokerError
from broker.model.position import Position
from broker.model.range_set import EntryRange

PositionsRead = Callable[[list[Entry], BrokerError | None], None]
"""(the entries that could be read, in order; why others could not)"""

_place = attrgetter("ledger_id", "entry_id")


class ReplayRead:
    """`done` is called once, never inside `begin`. Positions that do not exist are left out.

    The entries go out in the turn in which they come, or wait in the dispatcher's list as positions again:
    so the permits go back behind the dispatchers of that turn.
    """

    __slots__ = ("_cursor", "_done", "_entries", "_error", "_left", "_log", "_permits", "_runs")

    def __init__(
        self, log: CursorLog, cursor: ReadingCursor, positions: Sequence[Position], done: PositionsRead
    ) -> None:
        self._log = log
        self._cursor = cursor
        self._done = done
        self._runs = neighbours([item for item in sorted(set(positions)) if log.ledgers.has_entry(*item)])
        self._left = len(self._runs)
        self._entries: list[Entry] = []
        self._error: BrokerError | None = None
        self._permits = ReadPermits(log.ground)

    def begin(self) -> None:
        if not self._runs:
            self._log.at_end_of_turn(self._end)
            return
        estimate = self._log.estimated_bytes
        size_bytes = sum([estimate(ledger_id, last - first + 1) for ledger_id, first, last in self._runs])
        self._permits.ask(size_bytes, self._read, self._refused)

    def _read(self) -> None:
        for ledger_id, first, last in self._runs:
            self._log.reads.read(
                self._cursor.reader,
                ledger_id,
                first,
                last,
                lambda: self._log.readers.of_replay(self._cursor),
                self._arrived,
            )

    def _arrived(self, run: list[Entry], error: BrokerError | None) -> None:
        self._left -= 1
        self._error = self._error or error
        self._entries += run
        if self._left:
            return
        self._entries.sort(key=_place)
        self._permits.correct(sum([entry.size for entry in self._entries]))
        self._end()
        if self._permits.held:
            self._log.ground.turn.write(self._handed_over)

    def _handed_over(self, now_ns: int) -> None:
        self._permits.release()

    def _refused(self, error: BrokerError) -> None:
        self._error = error
        self._end()

    def withdraw(self) -> None:
        """Leave the line, if it stands in it: `done` gets nothing. A read that is out ends by itself."""
        if self._permits.waiting:
            self._permits.release()
            self._log.at_end_of_turn(self._end)

    def _end(self) -> None:
        self._done(self._entries, self._error)


def neighbours(positions: Sequence[Position]) -> list[EntryRange]:
    """Ordered positions as ranges of consecutive entries."""
    runs: list[EntryRange] = []
    for ledger_id, entry_id in positions:
        if runs and runs[-1].ledger_id == ledger_id and runs[-1].last + 1 == entry_id:
            runs[-1] = runs[-1]._replace(last=entry_id)
        else:
            runs.append(EntryRange(ledger_id, entry_id, entry_id))
    return runs
