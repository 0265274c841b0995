"""StorageReads: the reads from ledgers that are under way, for one managed ledger.

Readers that want a range which is being read already wait for that read (coalescing, PIP-430): `running` is what
`plan_read` looks at. All of them receive the same entry objects. A RunningRead asks its ledger in batches, because
a bookie bounds the bytes of one answer, and offers every entry to the cache once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from broker.managed_ledger.ledger_context import LedgerContext
from broker.managed_ledger.read_plan import Join, Match, Span
from entry_cache.listener import Obstacle
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError
from foundation.model.range_set import EntryRange

ExpectedReads = Callable[[], int | None]
"""Returns the number of readers to come; called once when the entries have arrived. None keeps them out of the cache."""

_NONE_RUNNING: Final[Mapping[Span, RunningRead]] = {}


class ReadPart(NamedTuple):
    """A part of a range that a reader wants."""

    wanted: EntryRange
    """The whole range."""
    first: int
    """First entry of the part."""
    last: int
    """Last entry of the part, included."""


class PartReceiver(Protocol):
    """The reader's side of a storage read; each part ends once."""

    def part_arrived(self, part: ReadPart, entries: list[Entry], *, fetched: bool) -> None:
        """Receives the part's entries in order, in a list to keep.

        `fetched`: this receiver started the storage read; the others have joined it.
        """
        ...

    def part_failed(self, part: ReadPart, error: BrokerError) -> None:
        """Receives the error: the storage read failed or took too long."""
        ...


class RunningRead:
    """A range of one ledger, read in batches of limited bytes."""

    __slots__ = (
        "_ended",
        "_entries",
        "_expected_reads",
        "_next",
        "_reads",
        "_waiters",
        "first",
        "last",
        "ledger_id",
    )

    def __init__(
        self,
        reads: StorageReads,
        ledger_id: int,
        span: Span,
        receiver: PartReceiver,
        part: ReadPart,
        expected_reads: ExpectedReads,
    ) -> None:
        self.ledger_id = ledger_id
        """The ledger of the range; `first` and `last` are its ends."""
        self.first, self.last = span
        self._reads = reads
        self._expected_reads = expected_reads
        self._waiters = [(receiver, part)]
        """The first one has started the read."""
        self._next = self.first
        self._entries: list[Entry] = []
        self._ended = False

    def join(self, receiver: PartReceiver, part: ReadPart) -> None:
        """Lets another reader receive a part of this range too."""
        self._waiters.append((receiver, part))

    def read_on(self) -> None:
        """Asks for the next batch; completes in a later loop turn."""
        self._reads.ask_ledger(self.ledger_id, self._next, self.last, self._arrived)

    def _arrived(self, entries: list[Entry], error: BrokerError | None) -> None:
        # Given up before: the readers have been told, and the cache must not change after that.
        if self._ended:
            return
        if error is not None:
            self.fail(error)
            return
        # A bookie answers with fewer entries than asked for when they exceed its limit of bytes.
        self._entries += entries
        self._next += len(entries)
        if self._next <= self.last:
            self.read_on()
        else:
            self._succeed()

    def _succeed(self) -> None:
        self._ended = True
        entries = self._entries
        # Before the readers get them: the cache may put the objects that it has in the place of these.
        self._reads.offer_to_cache(entries, self._expected_reads())
        # Also before: a receiver may ask for more at once, and nothing would wake a reader that joined now.
        self._reads.ended(self)
        fetched = True
        for receiver, part in self._waiters:
            # A slice is a list of its own: receivers append to it.
            receiver.part_arrived(
                part, entries[part.first - self.first : part.last - self.first + 1], fetched=fetched
            )
            fetched = False

    def fail(self, error: BrokerError) -> None:
        """Ends the read with an error for all its readers; harmless once it has ended."""
        if self._ended:
            return
        self._ended = True
        # Before the receivers, as in `_succeed`: none of them may join a read that has ended.
        self._reads.failed(self, self._next, error)
        for receiver, part in self._waiters:
            receiver.part_failed(part, error)


class StorageReads:
    """Begins storage reads and knows those under way, by ledger and range."""

    __slots__ = ("_context", "_running", "_stats")

    def __init__(self, context: LedgerContext) -> None:
        self._context = context
        self._running: dict[int, dict[Span, RunningRead]] | None = None
        self._stats = context.environment.caches.stats.pending_reads

    def running(self, ledger_id: int) -> Mapping[Span, RunningRead]:
        """The reads of this ledger that may be joined, the oldest first."""
        return _NONE_RUNNING if self._running is None else self._running.get(ledger_id, _NONE_RUNNING)

    def join(self, join: Join, receiver: PartReceiver, part: ReadPart) -> None:
        """Waits for a read under way, as planned."""
        stats, count = self._stats, join.last - join.first + 1
        if join.match is Match.SAME:
            stats.matched += count
        elif join.match is Match.INCLUDED:
            stats.matched_included += count
        else:
            stats.overlapping[join.match] += count
        stats.not_read += count
        assert self._running is not None
        self._running[part.wanted.ledger_id][join.running].join(receiver, part)

    def fetch(
        self, span: Span, receiver: PartReceiver, part: ReadPart, expected_reads: ExpectedReads
    ) -> RunningRead:
        """Begins a storage read; it ends in a later loop turn."""
        stats, count = self._stats, span[1] - span[0] + 1
        stats.read += count
        stats.missed += count
        ledger_id = part.wanted.ledger_id
        started = RunningRead(self, ledger_id, span, receiver, part, expected_reads)
        # No running read has this range, or the plan would have joined it.
        if self._running is None:
            self._running = {}
        self._running.setdefault(ledger_id, {})[span] = started
        started.read_on()
        return started

    def invalidate_ledger(self, ledger_id: int) -> None:
        """Lets no further reader join the reads of this ledger.

        They still serve the readers that wait.
        """
        if self._running is not None:
            self._running.pop(ledger_id, None)

    # Called by a RunningRead

    def ask_ledger(
        self,
        ledger_id: int,
        first: int,
        last: int,
        done: Callable[[list[Entry], BrokerError | None], None],
    ) -> None:
        """Reads one batch; `done` is called in a later loop turn."""
        context = self._context
        context.environment.ledgers.read(ledger_id, first, last, context.settings.read_bytes_max, done)

    def offer_to_cache(self, entries: list[Entry], expected_reads: int | None) -> None:
        """Caches fetched entries if readers for them are to come (PIP-430)."""
        context = self._context
        stats, cache, caches = context.counters(), context.cache, context.environment.caches
        stats.storage_entries_read += len(entries)
        stats.storage_bytes_read += sum([entry.size for entry in entries])
        if context.lost.positions.count:
            context.lost.read_succeeded(
                EntryRange(entries[0].ledger_id, entries[0].entry_id, entries[-1].entry_id)
            )
        now_ns = context.environment.now_ns()
        # Told first: a record must show the read before the insertion that it causes.
        cache.listener.fetched(cache, entries, expected_reads, now_ns)
        if expected_reads is not None and caches.policy.counts.fills_cache(expected_reads):
            caches.stats.from_storage_entries += cache.insert_run(entries, expected_reads, now_ns)
        else:
            cache.not_cached(entries, Obstacle.NO_READER, now_ns)

    def failed(self, read: RunningRead, entry_id: int, error: BrokerError) -> None:
        """Counts the failed read, then ends it. `entry_id`: the first entry that did not come."""
        self._context.counters().read_errors += 1
        self._context.read_failed(read.ledger_id, entry_id, error)
        self.ended(read)

    def ended(self, read: RunningRead) -> None:
        """Lets no further reader join this read.

        After an invalidation a newer read may have the same range; that one stays.
        """
        if self._running is None:
            return
        running = self._running.get(read.ledger_id)
        span = (read.first, read.last)
        if running is not None and running.get(span) is read:
            del running[span]
            if not running:
                del self._running[read.ledger_id]
            self._running = self._running or None
