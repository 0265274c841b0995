"""A broker's cache under a workload, without the broker: the real caches, cursors and coalescing, a fake clock.

Time advances in steps of 10 ms, as the periodic pass does. In each step entries are appended, and cursors read at their
rates, acknowledge after their delays, disconnect or come back; a storage read takes one step. Counted is the same as by
PIP-430's author: entries consumed, and how many of these were read from storage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from broker.compose.cache_settings import EntryCacheSettings
from broker.managed_ledger.storage_reads import StorageReads
from entry_cache.active_cursors import ActiveCursors
from entry_cache.compose import ComposedCache
from entry_cache.listener import HitKind, Redelivery, StorageRead
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError
from foundation.model.position import Position
from foundation.model.range_set import EntryRange
from tests.fakes.reads import EntriesRead, RangeRequest, context_over

MS = 1_000_000
STEP_NS = 10 * MS
STEP_S = 0.01
READ_ENTRIES_MAX = 100
READ_BYTES_MAX = 5 << 20
TTL_NS = 1000 * MS


@dataclass(frozen=True)
class CursorPlan:
    """How one subscription behaves."""

    rate: float
    """Entries a second that its consumer can take."""
    ack_delay_s: float = 0.05
    """Seconds from delivery to acknowledgement."""
    start_s: float = 0.0
    """When it first connects. It begins at the first entry."""
    down: tuple[tuple[float, float], ...] = ()
    """(from, to), seconds: not connected; it begins again after what it has acknowledged."""
    replay_share: float = 0.0
    """Share of the entries that is redelivered once, `replay_delay_s` later."""
    replay_delay_s: float = 0.0
    """Seconds until the redelivery."""


@dataclass(frozen=True)
class TopicPlan:
    """How one topic behaves."""

    rate: float
    """Entries appended a second, on average."""
    entry_bytes: int
    """Bytes of each entry."""
    cursors: tuple[CursorPlan, ...]
    """One per subscription."""
    backlog: int = 0
    """Entries in the log when the run begins, none of them cached."""
    poll_s: float = 0.0
    """0 = cursors read on in every step; otherwise each reads so long after an entry was appended, which makes
    thousands of quiet topics cheap."""


@dataclass(frozen=True)
class Workload:
    """A named set of topics, for a number of simulated seconds."""

    name: str
    """First column of the table."""
    about: str
    seconds: float
    """Simulated seconds."""
    base_bytes: int
    """The cache size that the table calls 1."""
    topics: Callable[[np.random.Generator], list[TopicPlan]]
    """Returns the topics; draws what differs between seeds."""


@dataclass(frozen=True)
class PolicyChoice:
    """A cache policy with the settings that it is compared under."""

    name: str
    """Heading of the column."""
    policy: str
    """`entryCachePolicy`."""
    profile: str = "4.2"
    """`pulsarDefaults`; only `pip430` depends on it."""
    extend_recently_accessed: bool = True
    counts: bool = True
    """`cacheEvictionByExpectedReadCount`."""
    by_mark_delete: bool = False
    """`cacheEvictionByMarkDeletedPosition`, which matters where nothing is counted."""


@dataclass
class Outcome:
    """The counters of one simulation."""

    consumed: int = 0
    """Entries delivered, redeliveries included."""
    from_storage: int = 0
    """Entries delivered after a storage read."""
    peak_bytes: int = 0
    """Most bytes cached at the end of a step."""
    held: list[int] = field(default_factory=list)
    """Entries cached, once per tenth of a second."""

    @property
    def hit_ratio(self) -> float:
        """Share of the consumed entries that needed no storage read."""
        return 1 - self.from_storage / self.consumed if self.consumed else 1.0


class Simulation:
    """One workload under one policy with one size and seed; deterministic."""

    def __init__(self, workload: Workload, choice: PolicyChoice, size_bytes: int, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.choice = choice
        self.now_ns = 0
        self.outcome = Outcome()
        self.cache = ComposedCache(
            EntryCacheSettings(
                size_bytes_max=size_bytes,
                policy=choice.policy,
                profile=choice.profile,
                extend_recently_accessed=choice.extend_recently_accessed,
                ttl_ns=TTL_NS,
            )
        )
        self.caches = self.cache.manager
        self._arriving: list[Callable[[], None]] = []
        plans = workload.topics(self.random)
        self._steps = round(workload.seconds / STEP_S)
        self._calendar: dict[int, list[Callable[[float], None]]] = {}
        self._logs: list[_Log] = []
        for number, plan in enumerate(plans, 1):
            log = _Log(self, number, plan)
            if plan.poll_s:
                log.plan_polls(workload.seconds)
            else:
                self._logs.append(log)

    def run(self) -> Outcome:
        """Executes all steps; to be called once."""
        outcome, caches = self.outcome, self.caches
        for step in range(self._steps):
            self.now_ns += STEP_NS
            # Swapped first: a read that arrives may ask for the next one, which arrives one step later.
            arriving, self._arriving = self._arriving, []
            for arrive in arriving:
                arrive()
            for log in self._logs:
                log.step(step * STEP_S)
            for action in self._calendar.pop(step, ()):
                action(step * STEP_S)
            # Before the peak is noted: a broker checks the size at the end of the turn that inserted, too.
            self.cache.run_pending(self.now_ns)
            outcome.peak_bytes = max(outcome.peak_bytes, caches.used_bytes)
            self.cache.tick(self.now_ns)
            if step % 10 == 0:
                outcome.held.append(caches.entries)
        outcome.from_storage = caches.reads().miss_entries
        return outcome

    def at(self, now_s: float, action: Callable[[float], None]) -> None:
        """Plans `action` for a moment; it is given the simulated seconds."""
        self._calendar.setdefault(round(now_s / STEP_S), []).append(action)

    def at_next_step(self, arrive: Callable[[], None]) -> None:
        """Delivers a storage read at the begin of the next step."""
        self._arriving.append(arrive)


class _Log:
    """One topic: its log, its cursors and its cache."""

    def __init__(self, simulation: Simulation, ledger_id: int, plan: TopicPlan) -> None:
        self.simulation = simulation
        self.ledger_id = ledger_id
        self.plan = plan
        self.end = plan.backlog
        self.cache = simulation.caches.open(str(ledger_id))
        self.active = ActiveCursors(2 * TTL_NS, 0)
        self.cache.attach_cursors(self.active)
        self.context = context_over(
            self, name=str(ledger_id), caches=simulation.caches, now_ns=lambda: simulation.now_ns
        )
        self.storage_reads = StorageReads(self.context)
        self.body = bytes(plan.entry_bytes)
        self.cursors = [_Cursor(self, str(number), one) for number, one in enumerate(plan.cursors)]
        self._owed = 0.0

    def entry(self, entry_id: int) -> Entry:
        """Makes an entry; all of a topic share one body."""
        return Entry(self.ledger_id, entry_id, b"", self.body, 1)

    def step(self, now_s: float) -> None:
        """Lets 10 ms pass."""
        for cursor in self.cursors:
            cursor.connect_or_leave(now_s)
        self._append(now_s)
        for cursor in self.cursors:
            if cursor.connected:
                cursor.step(now_s)
        self._invalidate()

    def _append(self, now_s: float) -> None:
        plan = self.plan
        count = int(self.simulation.random.poisson(plan.rate * STEP_S)) if plan.rate else 0
        if count:
            self._append_entries(count)

    def plan_polls(self, seconds: float) -> None:
        """Writes the events and their times into the calendar; used instead of `step`."""
        for cursor in self.cursors:
            cursor.connect_or_leave(0.0)
        now_s, at = 0.0, self.simulation.at
        while (now_s := now_s + float(self.simulation.random.exponential(1 / self.plan.rate))) < seconds:
            at(now_s, lambda _: self._append_entries(1))
            for cursor in self.cursors:
                at(now_s + self.plan.poll_s, cursor.step)
                at(now_s + self.plan.poll_s + cursor.plan.ack_delay_s + STEP_S, cursor.step)

    def _append_entries(self, count: int) -> None:
        run = [self.entry(entry_id) for entry_id in range(self.end, self.end + count)]
        self.end += count
        now_ns = self.simulation.now_ns
        if self.active.should_cache_added(now_ns):
            self.cache.insert_run(run, len(self.active) if self.simulation.choice.counts else None, now_ns)

    def read(self, ledger_id: int, first: int, last: int, bytes_max: int, done: EntriesRead) -> None:
        """Stands for storage: the whole range arrives in the next step."""
        entries = [self.entry(entry_id) for entry_id in range(first, last + 1)]
        self.simulation.at_next_step(lambda: done(entries, None))

    def _invalidate(self) -> None:
        """Invalidates entries that the slowest active cursor has passed, under policies without counts."""
        if self.simulation.choice.counts or not self.cache.entries:
            return
        active = [cursor for cursor in self.cursors if cursor.connected]
        if not active:
            self.cache.clear()
        elif self.simulation.choice.by_mark_delete:
            slowest = min(cursor.acknowledged for cursor in active)
            self.cache.invalidate_before(Position(self.ledger_id, slowest + 1))
        else:
            self.cache.invalidate_before(Position(self.ledger_id, min(cursor.next for cursor in active)))


class _Cursor:
    """One subscription of a topic."""

    def __init__(self, log: _Log, name: str, plan: CursorPlan) -> None:
        self.log = log
        self.name = name
        self.plan = plan
        self.reader = log.cache.reader(name)
        self.next = 0
        self.acknowledged = -1
        self.connected = False
        self._reading = False
        self._unacknowledged: deque[tuple[float, int]] = deque()
        """(when, up to which entry)"""
        self._replays: deque[tuple[float, int]] = deque()
        self._owed = 0.0
        self._generation = 0
        self._now_s = 0.0

    def connect_or_leave(self, now_s: float) -> None:
        """Connects or disconnects as the plan says."""
        wanted = now_s >= self.plan.start_s and not any(a <= now_s < b for a, b in self.plan.down)
        if wanted == self.connected:
            return
        self.connected = wanted
        self._generation += 1
        self._reading = False
        if wanted:
            self.next = self.acknowledged + 1
            self._unacknowledged.clear()
            self._replays.clear()
            self._owed = 0.0
            self.log.active.add(self.name, self._position(), self)
        else:
            self.log.active.remove(self.name, self.log.simulation.now_ns)

    def _position(self) -> Position:
        return Position(self.log.ledger_id, self.next)

    @property
    def mark_delete_position(self) -> Position:
        """The last position up to which every entry is acknowledged."""
        return Position(self.log.ledger_id, self.acknowledged)

    def step(self, now_s: float) -> None:
        """Acknowledges, redelivers and reads for 10 ms."""
        self._now_s = now_s
        while self._unacknowledged and self._unacknowledged[0][0] <= now_s:
            self.acknowledged = self._unacknowledged.popleft()[1]
        self._read_replays()
        # At most one step's worth is owed, so a cursor that waited for storage reads on at its rate and not in a
        # burst.
        self._owed = min(self._owed + self.plan.rate * STEP_S, max(self.plan.rate * STEP_S, 1.0))
        cache, ledger_id = self.log.cache, self.log.ledger_id
        while self._owed >= 1 and self.next < self.log.end and not self._reading:
            last = min(self.log.end, self.next + min(int(self._owed), READ_ENTRIES_MAX)) - 1
            taken = cache.read_run(self.reader, ledger_id, self.next, last, READ_BYTES_MAX)
            if taken:
                self._deliver(taken)
            else:
                self._ask(last)

    def _ask(self, last: int) -> None:
        """Reads on from storage, up to the first entry that is cached."""
        log, first = self.log, self.next
        for entry_id in range(first + 1, last + 1):
            if log.cache.peek(log.ledger_id, entry_id) is not None:
                last = entry_id - 1
                break
        self._reading = True
        generation = self._generation

        def arrived(entries: list[Entry], error: BrokerError | None) -> None:
            assert error is None
            # A read that was begun before the cursor disconnected has no receiver any more.
            if generation == self._generation:
                self._reading = False
                self._deliver(entries)

        counts = log.simulation.choice.counts
        request = RangeRequest(
            self.reader,
            EntryRange(log.ledger_id, first, last),
            arrived,
            lambda: log.active.rank(self.name) if counts else None,
        )
        request.begin(log.context, log.storage_reads)

    def _deliver(self, entries: list[Entry]) -> None:
        simulation = self.log.simulation
        self.next = entries[-1].entry_id + 1
        self._owed -= len(entries)
        self.log.active.update(self.name, self._position())
        sent = self._keep_some_back(entries) if self.plan.replay_share else entries
        simulation.caches.mark_delivered(sent)
        simulation.outcome.consumed += len(entries)
        self._unacknowledged.append((self._now_s + self.plan.ack_delay_s, entries[-1].entry_id))

    def _keep_some_back(self, entries: list[Entry]) -> list[Entry]:
        """Chooses entries to redeliver later, as Key_Shared does; returns the others."""
        chosen = self.log.simulation.random.random(len(entries)) < self.plan.replay_share
        back = [entry for entry, yes in zip(entries, chosen, strict=True) if yes]
        if back:
            self.log.cache.listener.redelivery_changed(Redelivery.POSTPONED, self.reader, back)
            due = self._now_s + self.plan.replay_delay_s
            self._replays += [(due, entry.entry_id) for entry in back]
        return [entry for entry, yes in zip(entries, chosen, strict=True) if not yes]

    def _read_replays(self) -> None:
        simulation, cache, ledger_id = self.log.simulation, self.log.cache, self.log.ledger_id
        while self._replays and self._replays[0][0] <= self._now_s:
            entry_id = self._replays.popleft()[1]
            simulation.outcome.consumed += 1
            entry = cache.get(self.reader, ledger_id, entry_id, HitKind.REDELIVERY)
            if entry is None:
                cache.count_arrived(StorageRead.MISS, self.reader, [self.log.entry(entry_id)])
            else:
                simulation.caches.mark_delivered((entry,))
