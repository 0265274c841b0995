"""CursorReads: the reading half of a cursor: where it reads, what it takes, and what it asks of storage.

Taking never waits: from what a read has brought, else from the cache. What is not at hand is asked for with
`request`, one read at a time, and stays with the cursor until it is taken. A read has its share of the budget
of reads in flight from before it begins until its last entry was handed over or dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.managed_ledger.acks import Acks
from broker.managed_ledger.cursor_log import CursorLog
from broker.managed_ledger.read_permits import ReadPermits
from broker.managed_ledger.replay_reads import ReplayRead
from broker.model.entry import Entry
from broker.model.errors import BrokerError, ServiceNotReady
from broker.model.position import Position
from broker.model.range_set import EntryRange


class CursorReads:
    __slots__ = (
        "_acks",
        "_cache",
        "_generation",
        "_ledgers",
        "_permits",
        "_read_entry",
        "_read_ledger",
        "_ready",
        "_replays",
        "_request",
        "active",
        "caches_reads",
        "closed",
        "last_error",
        "ledger",
        "name",
        "reader",
    )

    def __init__(self, name: str, ledger: CursorLog, acks: Acks) -> None:
        self.name = name
        self.ledger = ledger
        self.active = False
        """Somebody takes from it, so that entries are kept for it."""
        self.caches_reads = False
        """What it reads from storage fills the cache, though expected reads are not counted: others of a like
        backlog follow (backlog caching)."""
        self.closed = False
        self.last_error: BrokerError | None = None
        """Why the last read failed; None after one that did not."""
        self._acks = acks
        self._cache = ledger.cache
        self.reader = ledger.cache.reader(name)
        """This cursor, as the cache knows it."""
        self._ledgers = ledger.ledgers
        self._request: _RangeRequest | None = None
        self._replays: list[ReplayRead] = []
        self._ready: list[Entry] = []
        """A completed read from the read position on, not taken yet, and what it holds of the read budget."""
        self._permits: ReadPermits | None = None
        self._generation = 0
        """Grows when the read position jumps, so that a read begun before is not taken for the new place."""
        self._read_ledger, self._read_entry = self._ledgers.next_valid(acks.mark_delete)

    @property
    def read_position(self) -> Position:
        """The next entry to take, if there is one."""
        return Position(self._read_ledger, self._read_entry)

    @property
    def mark_delete_position(self) -> Position:
        """Everything up to here is acknowledged."""
        return self._acks.mark_delete

    @property
    def reading(self) -> bool:
        """A read from the read position on is out, or waits for its permits."""
        return self._request is not None

    def activate(self) -> None:
        """Count among the readers that entries are kept for."""
        if not self.active:
            self.active = True
            self.ledger.readers.activated(self)

    def deactivate(self) -> None:
        """Nobody takes any more: what was read goes, what waits for permits leaves the line, and what storage
        still answers is dropped."""
        if self.active:
            self.active = False
            self.ledger.readers.deactivated(self)
        self._generation += 1
        self._drop_ready()
        if self._request is not None:
            self._request.withdraw()
        for replay in list(self._replays):
            replay.withdraw()

    def has_more(self) -> bool:
        """Whether an entry stands at or behind the read position; it may turn out to be acknowledged."""
        end_ledger, end_entry = self.ledger.last_confirmed
        if self._read_ledger == end_ledger:
            return self._read_entry <= end_entry
        return self._ledgers.at_or_after((self._read_ledger, self._read_entry)) <= (end_ledger, end_entry)

    # Taking

    def take(self, entries_max: int, bytes_max: int) -> list[Entry]:
        """The next entries that are at hand, in order, those acknowledged left out; [] when none is.

        Never more than a run of consecutive entries in one ledger, so call again for more. At least one
        entry, whatever its size, if there is one.
        """
        by_hit = not self._ready
        if self._ready:
            taken = self._take_ready(entries_max, bytes_max)
        else:
            ledger_id = self._read_ledger
            last = self._ledgers.last_entry(ledger_id)
            if self._read_entry > last or self._acks.beyond.count:
                if not self._skip():
                    return []
                ledger_id = self._read_ledger
                last = self._ledgers.last_entry(ledger_id)
            first = self._read_entry
            last = min(last, first + entries_max - 1)
            taken = self._cache.read_run(self.reader, ledger_id, first, last, bytes_max)
        if not taken:
            return taken
        self._read_entry = taken[-1].entry_id + 1
        if self.active:
            self.ledger.readers.moved(self, by_hit=by_hit)
        if self._acks.beyond.count:
            taken = self._without_acknowledged(taken)
        self.ledger.stats.took(taken)
        return taken

    def give_back(self, position: Position, rest: Sequence[Entry] = ()) -> None:
        """Entries of the run taken last, from `position` on, were not handed over: they are taken next. Passing
        them as `rest` spares reading them again should the cache not have them."""
        assert position <= self.read_position
        self._generation += 1
        if rest:
            self._ready = [*rest, *self._ready]
        else:
            self._drop_ready()
        self.ledger.stats.took_back(rest)
        self._move_to(position)

    def _skip(self) -> bool:
        """Move the read position to an unacknowledged entry; False when there is none."""
        position = self._acks.first_open(self.read_position)
        if position != (self._read_ledger, self._read_entry):
            self._move_to(position)
        return self._read_entry <= self._ledgers.last_entry(self._read_ledger)

    def _move_to(self, position: Position) -> None:
        self._read_ledger, self._read_entry = position
        if self.active:
            self.ledger.readers.moved(self)

    def _take_ready(self, entries_max: int, bytes_max: int) -> list[Entry]:
        ready = self._ready
        count = 0
        size_bytes = 0
        for entry in ready[:entries_max]:
            size_bytes += entry.size
            if size_bytes > bytes_max and count:
                break
            count += 1
        self._ready = ready[count:]
        if not self._ready:
            self._settle_later()
        return ready[:count]

    def _without_acknowledged(self, entries: list[Entry]) -> list[Entry]:
        """Those acknowledged are read all the same, as far as the cache is concerned."""
        beyond = self._acks.beyond
        ledger_id, first, last = entries[0].ledger_id, entries[0].entry_id, entries[-1].entry_id
        if beyond.first_present(ledger_id, first, last) > last:
            return entries
        skipped = [entry for entry in entries if (entry.ledger_id, entry.entry_id) in beyond]
        self.ledger.handed_over(skipped)
        return [entry for entry in entries if (entry.ledger_id, entry.entry_id) not in beyond]

    # What a read has brought, and its permits

    def _keep(self, entries: list[Entry], permits: ReadPermits) -> None:
        """A read has ended. What was taken meanwhile, because it came into the cache, is not taken again."""
        head = entries[0]
        same_ledger = head.ledger_id == self._read_ledger
        self._ready = entries[self._read_entry - head.entry_id :] if same_ledger else []
        self._permits = permits
        permits.correct(sum([entry.size for entry in self._ready]))
        self._settle_later()

    def _settle_later(self) -> None:
        """After the dispatchers of this turn, which hand over what they can."""
        if self._permits is not None and self._permits.held:
            self.ledger.ground.turn.write(self._settle)

    def _settle(self, now_ns: int) -> None:
        """All is handed over, or the rest waits for a client that may never take it."""
        if not self._ready:
            self._drop_ready()
        elif self._permits is not None:
            self._permits.lend(self._drop_ready)

    def _drop_ready(self) -> None:
        self._ready = []
        if self._permits is not None:
            permits, self._permits = self._permits, None
            permits.release()

    # Asking for more

    def request(self, entries_max: int, bytes_max: int, ready: Callable[[], None]) -> None:
        """Read on; `ready()` when `take` has something or `last_error` says why not.

        One read at a time. It ends at the first entry that is acknowledged, so that nothing is read for
        nothing. A read that waits for its permits reads where the cursor stands when it has them.
        """
        assert self._request is None, "one read at a time"
        assert entries_max > 0
        self.last_error = ServiceNotReady(f"cursor {self.name} is closed") if self.closed else None
        self._drop_ready()
        if self.closed or not self._skip():
            self.ledger.at_end_of_turn(ready)
            return
        self._request = _RangeRequest(self, entries_max, bytes_max, ready)
        self._request.ask()

    def _range_to_read(self, entries_max: int, bytes_max: int) -> EntryRange | None:
        """From the first unacknowledged entry on, as many as are wanted and likely to fit, up to the next that
        is acknowledged; None when there is none."""
        if not self._skip():
            return None
        ledger_id, first = self._read_ledger, self._read_entry
        count = max(1, min(entries_max, bytes_max // self.ledger.estimated_bytes(ledger_id, 1)))
        last = min(first + count - 1, self._ledgers.last_entry(ledger_id))
        if self._acks.beyond.count:
            last = self._acks.beyond.first_present(ledger_id, first, last) - 1
        return EntryRange(ledger_id, first, last)

    def get_positions(self, positions: Sequence[Position]) -> tuple[list[Entry], list[Position]]:
        """For a replay: (entries that are cached, positions that are not). What has been acknowledged or
        does not exist is in neither."""
        found: list[Entry] = []
        missing: list[Position] = []
        over: list[Position] = []
        get = self._cache.get_for_redelivery
        for position in positions:
            if self._acks.is_acknowledged(position) or not self._ledgers.has_entry(*position):
                over.append(position)
                continue
            entry = get(self.reader, *position)
            if entry is None:
                missing.append(position)
            else:
                found.append(entry)
        if over:
            self._cache.drop_redeliveries(self.reader, over)
        self.ledger.stats.took(found)
        return found, missing

    def request_positions(self, positions: Sequence[Position], ready: Callable[[list[Entry]], None]) -> None:
        """Read entries for a replay; the cache keeps them for the one reader that is to come. `ready` gets
        those that could be read, in order, and `last_error` says why others could not."""
        self.last_error = None

        def done(entries: list[Entry], error: BrokerError | None) -> None:
            self._replays.remove(replay)
            self.last_error = error
            self.ledger.stats.took(entries)
            ready(entries)

        replay = ReplayRead(self.ledger, self, positions, done)
        self._replays.append(replay)
        replay.begin()

    def rewind(self) -> None:
        """Read on from the first unacknowledged entry."""
        self._jump(self._ledgers.next_valid(self._acks.mark_delete))

    def _jump(self, position: Position) -> None:
        self._generation += 1
        self._drop_ready()
        self._move_to(position)


class _RangeRequest:
    """One read of a cursor, from the asking for permits to the end; `ready` is called exactly once."""

    __slots__ = ("_bytes_max", "_cursor", "_entries_max", "_generation", "_permits", "_ready")

    def __init__(
        self, cursor: CursorReads, entries_max: int, bytes_max: int, ready: Callable[[], None]
    ) -> None:
        self._cursor = cursor
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._ready = ready
        self._permits = ReadPermits(cursor.ledger.ground)
        self._generation = 0

    def ask(self) -> None:
        """Get permits for what would be read now. There is something to read."""
        place = self._cursor._range_to_read(self._entries_max, self._bytes_max)
        assert place is not None
        size_bytes = self._cursor.ledger.estimated_bytes(place.ledger_id, place.last - place.first + 1)
        self._permits.ask(size_bytes, self._read, self._end)

    def _read(self) -> None:
        cursor = self._cursor
        place = cursor._range_to_read(self._entries_max, self._bytes_max)
        if place is None:  # What was left has been acknowledged while this waited.
            self._permits.release()
            self._end(None)
            return
        self._generation = cursor._generation
        readers = cursor.ledger.readers
        cursor.ledger.reads.read(cursor.reader, *place, lambda: readers.at_or_before(cursor), self._arrived)

    def _arrived(self, entries: list[Entry], error: BrokerError | None) -> None:
        cursor = self._cursor
        wanted = self._generation == cursor._generation
        if wanted and error is None:
            cursor._keep(entries, self._permits)
        else:
            self._permits.release()
        self._end(error if wanted else None)

    def withdraw(self) -> None:
        """Leave the line, if it stands in it; a read that is out ends by itself."""
        if self._permits.waiting:
            self._permits.release()
            self._cursor.ledger.at_end_of_turn(lambda: self._end(None))

    def _end(self, error: BrokerError | None) -> None:
        self._cursor._request = None
        self._cursor.last_error = error
        self._ready()
