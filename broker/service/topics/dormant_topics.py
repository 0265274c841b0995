"""DormantTopics: the records of a broker's dormant topics, the moments at which they are due, and the records to be made."""

from __future__ import annotations

import gc
import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, repeat, takewhile
from typing import Final

from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.managed_ledger_info import managed_ledger_key
from broker.managed_ledger.settings import OffloadRules
from broker.service.policies.effective_policies import EffectivePolicies
from broker.service.settings import ServiceSettings
from broker.service.topics.dormant_due import due_ns_of, settings_that_count, used_at_ns_of
from broker.service.topics.dormant_topic import NEVER, DormantTopic, record_of
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.loop.clock import CallLater
from foundation.loop.slices import Slice, in_slices
from foundation.model.topic_name import PERSISTENT, TopicName, parse_topic_name
from foundation.units import NS_PER_SECOND

FROZEN_AT_ONCE: Final = 2_000
"""Records after which the collector's young generations are looked through and frozen: 1 to 3 ms."""
OPENED: Final = 4
"""An opened topic counts for so many records. With clients a topic has some 50 objects, and a full pass over 30,000 objects
takes 20 ms."""
DUE_PER_SECOND: Final = 20_000
"""Topics that are planned for one second; others follow in the next ones. Fewer than these can be opened in a second, and
one dict of 600,000 would hold the loop for 50 ms when it grows."""
SHELF_MAX: Final = 2_000
"""Records of the first shelf; later ones are spread over the others."""
SHELVES: Final = 64
"""The others, 1,600 records each where there are 100,000."""
RETRY_NS: Final = 60 * NS_PER_SECOND
"""Time until a topic that could not be opened is tried again."""
CLOSED_PER_RUN: Final = 20_000
"""Closed topics whose records one run of the filling makes at most: to take more names out would hold the loop."""
FAILED_PER_RUN: Final = 1_000
"""Topics that one run of the filling tries again at most: each may wait for a bookie that does not answer."""


class DormantRecords:
    """The records of one namespace by full name, in shelves that are copied one at a time.

    A walk over 100,000 names needs a copy, because topics come and go meanwhile. One copy of all names is a list whose names
    the passes of Python's garbage collector look at for as long as it is young: 20 to 30 ms each. Copies of shelves are
    small and short-lived. A small namespace has one shelf, since 64 of them would weigh more than its records.
    """

    __slots__ = ("_first", "_others", "backlog", "change", "count")

    def __init__(self) -> None:
        self._first: dict[str, DormantTopic] = {}
        self._others: list[dict[str, DormantTopic]] = []
        self.count = 0
        """Number of the records."""
        self.backlog = 0
        """Sum of their backlogs."""
        self.change = 0
        """Number of the last change of the broker's records that was one of these."""

    def get(self, name: str) -> DormantTopic | None:
        """Returns the topic's record, None for one that has none here."""
        return self._first.get(name) or (
            self._others[hash(name) % SHELVES].get(name) if self._others else None
        )

    def add(self, name: str, record: DormantTopic) -> None:
        """Adds the record of a topic that has none."""
        if len(self._first) < SHELF_MAX:
            self._first[name] = record
        else:
            if not self._others:
                self._others = [{} for _ in range(SHELVES)]
            self._others[hash(name) % SHELVES][name] = record
        self.count += 1
        self.backlog += record.backlog

    def pop(self, name: str) -> DormantTopic | None:
        """Removes and returns the topic's record, None for one that has none here."""
        record = self._first.pop(name, None)
        if record is None and self._others:
            record = self._others[hash(name) % SHELVES].pop(name, None)
        if record is not None:
            self.count -= 1
            self.backlog -= record.backlog
        return record

    def names(self) -> Iterator[str]:
        """Yields the names; records may be added and removed between two of them. One that stays comes once."""
        for shelf in self.shelves():
            yield from [*shelf]

    def shelves(self) -> Iterator[dict[str, DormantTopic]]:
        """Yields the shelves."""
        yield self._first
        yield from self._others


class MissingRecords:
    """Names of topics that are neither open nor dormant; the filling makes their records, or opens them.

    One that has been deleted may be among them: the filling finds nothing of it.
    """

    __slots__ = ("_closed", "_failed")

    def __init__(self) -> None:
        """Has none."""
        self._closed: dict[str, None] = {}
        # With the time of the failure, which rises.
        self._failed: dict[str, int] = {}

    def __len__(self) -> int:
        """Returns their number."""
        return len(self._closed) + len(self._failed)

    def add(self, name: str) -> None:
        """Adds a topic that was closed, to be filled at once."""
        if name not in self._failed:
            self._closed[name] = None

    def add_failed(self, name: str, now_ns: int) -> None:
        """Adds a topic that could not be opened, closed or read, to be filled after RETRY_NS."""
        self.discard(name)
        self._failed[name] = now_ns

    def discard(self, name: str) -> None:
        """Removes a topic that was opened or deleted."""
        self._closed.pop(name, None)
        self._failed.pop(name, None)

    def take(self, now_ns: int) -> list[str]:
        """Takes topics that are to be filled now, as many as one run does."""
        ripe = takewhile(lambda name: self._failed[name] + RETRY_NS <= now_ns, self._failed)
        found = [*islice(self._closed, CLOSED_PER_RUN), *islice(ripe, FAILED_PER_RUN)]
        for name in found:
            self.discard(name)
        return found

    def clear(self) -> None:
        """Forgets all: topics do not fall asleep any more."""
        self._closed.clear()
        self._failed.clear()


class DormantTopics:
    """The records of a broker, and a heap of the seconds in which something of them falls due."""

    def __init__(
        self,
        policies: EffectivePolicies,
        environment: ManagedLedgerEnvironment,
        call_later: CallLater,
        offload_rules: Callable[[TopicName], OffloadRules],
    ) -> None:
        """Has no record. `call_later` starts the slices of plans. `offload_rules`: those in force for a topic."""
        self._policies, self._environment, self._call_later = policies, environment, call_later
        self._offload_rules = offload_rules
        self._of_namespace: dict[str, DormantRecords] = {}
        # The topics of each second in a dict of their own: one that goes or is planned anew is taken out, so nothing is ever
        # made anew, which would hold the loop.
        self._due: dict[int, dict[str, None]] = {}
        self._seconds: list[int] = []
        self._to_plan: deque[Iterator[str]] = deque()
        """Names of topics to be planned anew; the first ones are under way."""
        self.count = 0
        """Number of the records."""
        self.backlog = self.size_bytes = self.subscriptions = 0
        """Sums over the records, kept so that the console need not walk over all of them."""
        self._not_frozen = 0
        self._changes = 0
        """Records that were ever added or dropped."""
        self.reading: set[str] = set()
        """Topics whose records are being read from the store; one that is opened or deleted meanwhile leaves it."""
        self.missing = MissingRecords()
        """Topics that were closed without a record, or that the filling could not open."""
        self.filled_parts: set[str] = set()
        """Parts of the topics, by the names of `TopicOwnership.bundle_of`, whose records are made or being made."""
        self.filled = False
        """True once every topic on disk that this broker owns is open or has a record; False before, and where topics do
        not fall asleep."""

    def __iter__(self) -> Iterator[tuple[str, DormantTopic]]:
        """Iterates over full names and records; topics may come and go between two of them."""
        for namespace in [*self._of_namespace]:
            for name in self.names(namespace):
                record = self.get(name)
                if record is not None:
                    yield name, record

    @property
    def filling(self) -> bool:
        """True while topics on disk that this broker owns lack their records: sums over topics are too small until then."""
        return bool(self._policies.settings.dormant_after_s) and (not self.filled or bool(self.missing))

    @property
    def levels(self) -> dict[str, tuple[int, int]]:
        """By namespace, the number of its records and the sum of their backlogs."""
        return {
            namespace: (records.count, records.backlog) for namespace, records in self._of_namespace.items()
        }

    def get(self, name: str) -> DormantTopic | None:
        """Returns the record of the topic with this full name, None for a topic that is not dormant."""
        records = self._of_namespace.get(_namespace_of(name))
        return None if records is None else records.get(name)

    def names(self, namespace: str) -> Iterator[str]:
        """Yields the full names of a namespace's dormant topics; topics may come and go between two of them."""
        records = self._of_namespace.get(namespace)
        return iter(()) if records is None else records.names()

    def last_changes(self) -> dict[str, int]:
        """Returns a number for each namespace with dormant topics: another one as soon as others are dormant there."""
        return {namespace: records.change for namespace, records in self._of_namespace.items()}

    async def close(self, topic: PersistentTopic, oldest_ms: int) -> None:
        """Closes a topic and keeps its record. Raises MetadataError; there is no record then."""
        await topic.close()
        self.add(topic.name, await record_of(topic, oldest_ms))

    def add(self, name: TopicName, record: DormantTopic) -> None:
        """Adds the record of a topic that has none."""
        has_copies = record.offload is not None and record.offload.copied_bytes > 0
        if not has_copies and not self._offload_rules(name).place.driver:
            record.offload = None
        records = self._of_namespace.get(name.namespace)
        if records is None:
            records = self._of_namespace[name.namespace] = DormantRecords()
        records.add(str(name), record)
        self.missing.discard(str(name))
        self._count(records, record, 1)
        self._environment.changed.note(name.ledger_name)
        self.plan(str(name))
        self.note_long_lived(1)

    def note_long_lived(self, count: int) -> None:
        """Freezes what lives long once there is enough of it: `count` new records, or OPENED for a topic."""
        self._not_frozen += count
        if self._not_frozen >= FROZEN_AT_ONCE:
            self._not_frozen = 0
            # Both come by the thousand. A pass over 50,000 young objects that all stay holds the loop for 27 ms, and later
            # passes would look at all of them again: a full one at 100,000 topics with clients for 3 s. What is frozen in
            # a cycle stays for ever, so what lives shorter, a connection or a closed topic, is kept out of cycles.
            gc.collect(1)
            gc.freeze()

    def drop(self, name: str) -> None:
        """Forgets the record of a topic that was opened or deleted, if there is one."""
        self.reading.discard(name)
        self.missing.discard(name)
        namespace = _namespace_of(name)
        records = self._of_namespace.get(namespace)
        if records is not None and (record := records.pop(name)) is not None:
            self._count(records, record, -1)
            self._take_from_plan(name, record)
            self._environment.changed.note(parse_topic_name(name).ledger_name)
            if not records.count:
                del self._of_namespace[namespace]

    def note_missing(self, name: str, *, failed: bool) -> None:
        """Has the filling make the record of a topic that is closed now, unless it has one.

        `failed`: it could not be opened, closed or read, and is tried again after a while.
        """
        if (
            self._policies.settings.dormant_after_s
            and name.startswith(f"{PERSISTENT}://")
            and self.get(name) is None
        ):
            if failed:
                self.missing.add_failed(name, self._environment.now_ns())
            else:
                self.missing.add(name)

    async def is_confirmed(self, name: TopicName) -> bool:
        """Returns True for a dormant topic that the store has, which a read has not shown; otherwise drops its record.

        A follower of ZooKeeper may not have the topic yet that another broker has made anew. Raises MetadataError.
        """
        record = self.get(str(name))
        if record is None:
            return False
        metadata = self._environment.metadata
        await metadata.sync()
        if await metadata.get(managed_ledger_key(name.ledger_name)) is not None:
            return True
        # One that was opened or made meanwhile has none, or another one.
        if self.get(str(name)) is record:
            self.drop(str(name))
        return False

    async def forget_part(self, part: str, namespace: str, has: Callable[[str], bool]) -> None:
        """Forgets the records of a part that another broker may own next: they would hide what it does. In slices."""
        self.filled_parts.discard(part)
        # Those that are being read would come later.
        self.reading -= {name for name in self.reading if has(name)}
        async for name in in_slices(self.names(namespace), self._environment.now_ns):
            if has(name):
                self.drop(name)

    def _count(self, records: DormantRecords, record: DormantTopic, sign: int) -> None:
        self._changes += 1
        records.change = self._changes
        self.count += sign
        self.backlog += sign * record.backlog
        self.size_bytes += sign * record.size_bytes
        self.subscriptions += sign * len(record.subscriptions)

    async def forget_all(self) -> None:
        """Forgets all records, in slices: freeing 600,000 at once would hold the loop for 0.4 s."""
        tables: list[dict[str, DormantTopic] | dict[str, None]] = [
            *chain.from_iterable(records.shelves() for records in self._of_namespace.values()),
            *self._due.values(),
        ]
        self._of_namespace, self._due = {}, {}
        self._seconds.clear()
        self.reading.clear()
        self.count = self.backlog = self.size_bytes = self.subscriptions = 0
        items = chain.from_iterable(repeat(table, len(table)) for table in tables)
        async for table in in_slices(items, self._environment.now_ns):
            table.popitem()

    def plan(self, name: str, not_before_ns: int = 0) -> None:
        """Computes anew when the topic is due, by the policies of now; ignores a topic that is not dormant."""
        record = self.get(name)
        if record is None:
            return
        environment = self._environment
        now_ns, wall_ms = environment.now_ns(), environment.wall_ms()
        topic = parse_topic_name(name)
        rules = self._offload_rules(topic)
        record.used_at_ns = used_at_ns_of(topic, record, self._policies, now_ns)
        due_ns = due_ns_of(topic, record, self._policies, rules, now_ns, wall_ms)
        if due_ns != NEVER:
            due_ns = max(due_ns, not_before_ns)
        former_ns = record.due_ns
        # The two clocks are read one after the other, so the same moment comes out a little different each time.
        if due_ns == former_ns or (
            NEVER not in (due_ns, former_ns) and abs(due_ns - former_ns) < NS_PER_SECOND
        ):
            return
        self._take_from_plan(name, record)
        record.due_ns = due_ns
        if due_ns != NEVER:
            second = _second_of(due_ns)
            while len(self._due.get(second, ())) >= DUE_PER_SECOND:
                second += 1
                record.due_ns = second * NS_PER_SECOND
            of_second = self._due.get(second)
            if of_second is None:
                of_second = self._due[second] = {}
                heapq.heappush(self._seconds, second)
            of_second[name] = None

    def reconfigure(
        self, before: tuple[ServiceSettings, OffloadRules], after: tuple[ServiceSettings, OffloadRules]
    ) -> None:
        """Plans all topics anew where a setting has changed that a moment follows from; `after` is in force already."""
        if settings_that_count(*before) != settings_that_count(*after):
            self.plan_all(name for name, _ in self)

    def plan_all(self, names: Iterable[str]) -> None:
        """Plans these topics anew in slices: their policies have changed. Iterates over the names when their turn comes."""
        self._to_plan.append(iter(names))
        # One slice in a turn of the loop, however many namespaces have changed: theirs would add up.
        if len(self._to_plan) == 1:
            self._plan_slice()

    def _plan_slice(self) -> None:
        part = Slice(self._environment.now_ns)
        try:
            while self._to_plan:
                for name in self._to_plan[0]:
                    self.plan(name)
                    if part.is_over():
                        return
                self._to_plan.popleft()
        finally:
            # Also after a defect: the other topics are planned.
            if self._to_plan:
                self._call_later(0, self._plan_slice)

    def take_due(self, now_ns: int, most: int) -> list[str]:
        """Takes the names of up to `most` topics that are due; each is due again only when it is planned again."""
        found: list[str] = []
        while self._seconds and self._seconds[0] * NS_PER_SECOND <= now_ns and len(found) < most:
            of_second = self._due[self._seconds[0]]
            while of_second and len(found) < most:
                name, _ = of_second.popitem()
                record = self.get(name)
                assert record is not None, f"{name} is planned and has no record"
                record.due_ns = NEVER
                found.append(name)
            if not of_second:
                del self._due[heapq.heappop(self._seconds)]
        return found

    def _take_from_plan(self, name: str, record: DormantTopic) -> None:
        if record.due_ns != NEVER:
            # A second that has become empty stays until it comes, and topics may be planned for it again.
            del self._due[_second_of(record.due_ns)][name]


def _second_of(due_ns: int) -> int:
    """Returns the first whole second that is not before the moment: nothing is done too early."""
    return -(-due_ns // NS_PER_SECOND)


def _namespace_of(name: str) -> str:
    _, _, tenant, namespace, _ = name.split("/", 4)
    return f"{tenant}/{namespace}"
