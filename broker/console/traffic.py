"""Traffic: sums over all open and dormant topics, with no count on the way of a message.

A round reads the topics that have changed since the last one and replaces their share in the sums, so that silent topics
cost nothing, however many there are (`ChangedLedgers` has the notes of changes). The first round reads all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import add, sub
from typing import Final, NamedTuple

from broker.managed_ledger.stats import ADD_LATENCY_BOUNDS_NS, ChangedLedgers
from broker.service.topics.dormant_topic import DormantTopic
from broker.service.topics.dormant_topics import DormantTopics
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import Topic
from foundation.model.topic_name import TopicName

TOPICS_PER_SLICE: Final = 500
"""Topics between two pauses: 2 to 4 ms."""
SHARED_LEVELS_MAX: Final = 1_000
"""Levels that are remembered so that topics with equal ones, as silent topics have, share one object."""
NO_LATENCIES: Final = (0,) * (len(ADD_LATENCY_BOUNDS_NS) + 1)
"""Latency buckets without an entry."""
RATES: Final = ("messagesIn", "bytesIn", "messagesOut", "bytesOut")
"""Counters that are shown as rates, by their names in the answers."""
COUNTED: Final = (*RATES, "hits", "reads")
"""All counters of a topic; `reads` are all entries that cursors have read, `hits` those from the cache."""


def _backlog(topic: Topic) -> int:
    if not isinstance(topic, PersistentTopic):
        return 0
    return sum([one.cursor.backlog for one in topic.subscriptions.values()])


SUMMED: Final[Mapping[str, Callable[[Topic], int]]] = {
    # Entries that are not acknowledged, over all subscriptions.
    "backlog": _backlog,
    # Each stored entry once.
    "storageBytes": lambda topic: (
        topic.ledger.ledgers.size_bytes if isinstance(topic, PersistentTopic) else 0
    ),
    "producers": lambda topic: len(topic.access.producers),
    "subscriptions": lambda topic: len(topic.subscriptions),
    "consumers": lambda topic: sum([len(one.consumers) for one in topic.subscriptions.values()]),
}
"""Levels of a topic that are summed over all topics, by their names in the answers; `_read` has them, too."""
LEVELS: Final[Mapping[str, Callable[[Topic], float | None]]] = {
    **SUMMED,
    "cachedBytes": lambda topic: topic.ledger.cache.size_bytes if isinstance(topic, PersistentTopic) else 0,
    # Hits divided by all reads of cursors since the topic was opened; None before the first read.
    "hitRatio": lambda topic: (
        topic.ledger.cache.cursor_reads.hit_ratio if isinstance(topic, PersistentTopic) else None
    ),
}
"""All levels of a topic."""


def dormant_levels(record: DormantTopic) -> dict[str, float | None]:
    """Returns all levels of a dormant topic, by the names of `LEVELS`."""
    levels: dict[str, float | None] = dict.fromkeys(LEVELS, 0)
    levels["backlog"] = record.backlog
    levels["storageBytes"], levels["subscriptions"] = record.size_bytes, len(record.subscriptions)
    levels["hitRatio"] = None
    return levels


class TrafficCounts(NamedTuple):
    """The counters of one topic since it was opened, or of all topics since the broker's start."""

    numbers: tuple[int, ...] = (0,) * len(COUNTED)
    """In the order of `COUNTED`."""
    entries: int = 0
    """Entries stored by one topic; tells whether the latencies have changed."""
    latencies: tuple[int, ...] = NO_LATENCIES
    """Entries by the time from their add to its confirmation; bounds as in `ADD_LATENCY_BOUNDS_NS`."""


NOTHING: Final = TrafficCounts()
"""The counters of a topic that has just been opened."""
_BACKLOG, _STORED, _PRODUCERS, _SUBSCRIPTIONS, _CONSUMERS, _OPEN = range(len(SUMMED) + 1)
_NO_LEVELS: Final = (0,) * (len(SUMMED) + 1)


def counts_of(topic: Topic) -> TrafficCounts:
    """Returns the topic's counters."""
    return _read(topic, NOTHING)[0]


def _read(topic: Topic, before: TrafficCounts) -> tuple[TrafficCounts, tuple[int, ...]]:
    """Returns the counters, and the levels of `SUMMED` with 1 for an open topic.

    The latencies are those of `before` while no entry was added.
    """
    messages_out = bytes_out = hits = reads = entries = consumers = backlog = stored = 0
    latencies = NO_LATENCIES
    if isinstance(topic, PersistentTopic):
        messages_out = topic.subscribing.messages_out_before
        bytes_out = topic.subscribing.bytes_out_before
        for subscription in topic.subscriptions.values():
            backlog += subscription.cursor.backlog
            messages_out += subscription.retired_messages_out
            bytes_out += subscription.retired_bytes_out
        cache = topic.ledger.cache.cursor_reads
        hits, reads = cache.hit_entries, cache.entries
        stats = topic.ledger.stats
        entries, stored = stats.entries_added, topic.ledger.ledgers.size_bytes
        # Most topics have added nothing since, so their ten buckets need no copy.
        latencies = before.latencies if before.entries == entries else tuple(stats.add_latency_buckets)
    for one in topic.subscriptions.values():
        for consumer in one.consumers:
            consumers += 1
            messages_out += consumer.messages_out
            bytes_out += consumer.bytes_out
    numbers = (topic.messages_in, topic.bytes_in, messages_out, bytes_out, hits, reads)
    levels = (backlog, stored, len(topic.access.producers), len(topic.subscriptions), consumers, 1)
    return TrafficCounts(numbers, entries, latencies), levels


class _Known(NamedTuple):
    """One topic in the sums, as it was last read."""

    topic: Topic | None = None
    """The topic whose counters these are; None for one that had counted nothing."""
    counts: TrafficCounts = NOTHING
    levels: tuple[int, ...] = _NO_LEVELS
    """Those of `SUMMED`, and 1."""


_UNKNOWN: Final = _Known()


class Traffic:
    """The sums, brought up to date by rounds."""

    def __init__(self, topics: Mapping[str, Topic], dormant: DormantTopics, changed: ChangedLedgers) -> None:
        """`topics` are the open ones, by name. The first round reads all of them, later ones those in `changed`."""
        self.counts = NOTHING
        """Counters as of the last round."""
        self.counted_ns = 0
        """Monotonic time of the last round; 0 before the first one."""
        self.interval_s = 0.0
        """The time between the last two rounds, which `rates` are of; 0 before there are two."""
        self.dormant = dormant
        """The dormant topics."""
        self._topics = topics
        self._changes = changed.follow()
        self._changes.add(dict.fromkeys(topic.name.ledger_name for topic in topics.values()))
        # By the name of the managed ledger, as `changed` has it: another text would be an object of 85 bytes for each topic.
        self._known: dict[str, _Known] = {}
        self._shared: dict[tuple[int, ...], _Known] = {}
        # Levels of the open topics: of all, and by namespace.
        self._all = _NO_LEVELS
        self._of_namespace: dict[str, tuple[int, ...]] = {}
        # Of the topics that have counted anything: between the last two rounds, and since the last one.
        self._growth: dict[Topic, tuple[int, ...]] = {}
        self._growing: dict[Topic, tuple[int, ...]] = {}

    @property
    def levels(self) -> Mapping[str, int]:
        """Open and dormant topics, and the sums of `SUMMED`, as of the last `read_changes`."""
        sums, dormant = [*self._all], self.dormant
        sums[_BACKLOG] += dormant.backlog
        sums[_STORED] += dormant.size_bytes
        sums[_SUBSCRIPTIONS] += dormant.subscriptions
        return {"topics": sums.pop() + dormant.count, **dict(zip(SUMMED, sums, strict=True))}

    def update(self, now_ns: int) -> Iterator[None]:
        """Ends a round: reads the topics that have changed, in slices, then renews the rates."""
        yield from self.read_changes()
        self.interval_s = (now_ns - self.counted_ns) / 1e9 if self.counted_ns else 0.0
        self.counted_ns = now_ns
        self._growth, self._growing = self._growing, {}

    def read_changes(self) -> Iterator[None]:
        """Reads the topics that have changed. Yields between slices."""
        for number, name in enumerate(self._changes.take(), 1):
            self._renew(name)
            if number % TOPICS_PER_SLICE == 0:
                yield

    def _renew(self, ledger_name: str) -> None:
        """Replaces the share of a topic in the sums; one that is not open has none."""
        name = TopicName.of_ledger_name(ledger_name)
        topic = self._topics.get(str(name))
        before = self._known.get(ledger_name, _UNKNOWN)
        if topic is None:
            self._known.pop(ledger_name, None)
            self._add(name.namespace, before.levels, _NO_LEVELS)
            return
        # A topic that was opened anew counts from 0.
        then = before.counts if before.topic is topic else NOTHING
        now, levels = _read(topic, then)
        if now != then:
            grew = tuple(map(grown, then.numbers, now.numbers))
            self._growing[topic] = tuple(map(add, self._growing.get(topic, NOTHING.numbers), grew))
            self.counts = _with_growth(self.counts, grew, then, now)
        self._known[ledger_name] = _Known(topic, now, levels) if any(now.numbers) else self._silent(levels)
        self._add(name.namespace, before.levels, levels)

    def _silent(self, levels: tuple[int, ...]) -> _Known:
        if len(self._shared) >= SHARED_LEVELS_MAX:
            self._shared.clear()
        return self._shared.setdefault(levels, _Known(levels=levels))

    def _add(self, namespace: str, before: tuple[int, ...], now: tuple[int, ...]) -> None:
        if before == now:
            return
        change = tuple(map(sub, now, before))
        self._all = tuple(map(add, self._all, change))
        sums = tuple(map(add, self._of_namespace.get(namespace, _NO_LEVELS), change))
        if sums[_OPEN]:
            self._of_namespace[namespace] = sums
        else:
            self._of_namespace.pop(namespace, None)

    def rates(self, topic: Topic) -> tuple[float, ...]:
        """Returns the topic's growth per second in the last interval, in the order of `COUNTED`."""
        growth = self._growth.get(topic)
        return NOTHING.numbers if growth is None else self._per_second(growth)

    def _per_second(self, growth: tuple[int, ...]) -> tuple[float, ...]:
        return tuple([number / self.interval_s for number in growth]) if self.interval_s else NOTHING.numbers

    def by_namespace(self) -> dict[str, dict[str, float]]:
        """Returns topics, rates and backlog of the namespaces that have topics, as of the last `read_changes`."""
        growth: dict[str, tuple[int, ...]] = {}
        for topic, grew in self._growth.items():
            namespace = topic.name.namespace
            growth[namespace] = tuple(map(add, growth.get(namespace, NOTHING.numbers), grew))
        dormant = self.dormant.levels
        rows = {}
        for namespace in {**self._of_namespace, **dormant}:
            levels = self._of_namespace.get(namespace, _NO_LEVELS)
            records, backlog = dormant.get(namespace, (0, 0))
            rates = self._per_second(growth.get(namespace, NOTHING.numbers))
            rows[namespace] = {
                "topics": levels[_OPEN] + records,
                # More is counted than shown.
                **dict(zip(RATES, rates, strict=False)),
                "backlog": levels[_BACKLOG] + backlog,
            }
        return rows


def grown(before: int, now: int) -> int:
    """Returns the growth of a counter; one that fell began again and counts from 0."""
    return now - before if now >= before else now


def _with_growth(
    total: TrafficCounts, grew: tuple[int, ...], before: TrafficCounts, now: TrafficCounts
) -> TrafficCounts:
    numbers = tuple(map(add, total.numbers, grew))
    if now.entries == before.entries:
        return TrafficCounts(numbers, 0, total.latencies)
    latencies = map(sub, now.latencies, before.latencies)
    return TrafficCounts(numbers, 0, tuple(map(add, total.latencies, latencies)))
