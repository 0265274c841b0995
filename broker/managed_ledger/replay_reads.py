"""Reading single positions again, for a replay: in runs of neighbours, past the cache, answered all together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from broker.entry_cache.reader import Reader
from broker.errors import BrokerError
from broker.managed_ledger.cursor_log import CursorLog
from broker.managed_ledger.inflight_reads_limiter import Permits
from broker.managed_ledger.storage_reads import NOT_CACHED
from broker.model.entry import Entry
from broker.model.position import Position
from broker.model.range_set import EntryRange

PositionsRead = Callable[[list[Entry], BrokerError | None], None]
"""(the entries that could be read, in order; why others could not)"""

_place = attrgetter("ledger_id", "entry_id")


def read_positions(
    log: CursorLog, reader: Reader, positions: Sequence[Position], done: PositionsRead
) -> None:
    """`done` is called once, never inside this call. Positions that do not exist are left out."""
    runs = neighbours([item for item in sorted(set(positions)) if log.ledgers.has_entry(*item)])
    if not runs:
        log.at_end_of_turn(lambda: done([], None))
        return
    size_bytes = sum([log.estimated_bytes(ledger_id, last - first + 1) for ledger_id, first, last in runs])
    entries: list[Entry] = []
    failure: BrokerError | None = None
    left = len(runs)

    def begin(permits: Permits) -> None:
        def arrived(run: list[Entry], error: BrokerError | None) -> None:
            nonlocal left, failure
            left -= 1
            failure = failure or error
            entries.extend(run)
            if not left:
                log.give_back(permits)
                done(sorted(entries, key=_place), failure)

        for ledger_id, first, last in runs:
            log.reads.read(reader, ledger_id, first, last, _not_cached, arrived)

    log.with_permits(size_bytes, begin, lambda error: done([], error))


def neighbours(positions: Sequence[Position]) -> list[EntryRange]:
    """Ordered positions as ranges of consecutive entries."""
    runs: list[EntryRange] = []
    for ledger_id, entry_id in positions:
        if runs and runs[-1].ledger_id == ledger_id and runs[-1].last + 1 == entry_id:
            runs[-1] = runs[-1]._replace(last=entry_id)
        else:
            runs.append(EntryRange(ledger_id, entry_id, entry_id))
    return runs


def _not_cached() -> int:
    return NOT_CACHED
