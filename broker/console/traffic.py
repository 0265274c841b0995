"""Traffic: sums over all open topics, with no count on the way of a message.

A full walk looks at every topic; `look` only at the topics that had clients at the last full walk. Both run in slices. The
walks set their own pace: the time until the next one is a multiple of the processor time that the last one took, so that
100,000 topics cost the same share of a core as ten, and their sums are older.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import add, sub
from typing import Final, NamedTuple

from broker.managed_ledger.stats import ADD_LATENCY_BOUNDS_NS
from broker.service.topics.non_persistent_topic import NonPersistentTopic
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import Topic

TOPICS_PER_SLICE: Final = 1_000
"""Topics between two pauses: 2 ms."""
NO_LATENCIES: Final = (0,) * (len(ADD_LATENCY_BOUNDS_NS) + 1)
"""Latency buckets without an entry."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters over all topics since the broker's start; they only grow."""

    messages_in: int = 0
    """Messages published."""
    bytes_in: int = 0
    """Their bytes."""
    messages_out: int = 0
    """Messages sent to consumers."""
    bytes_out: int = 0
    """Their bytes."""
    hits: int = 0
    """Entries that cursors have read from the cache."""
    reads: int = 0
    """Entries that cursors have read at all."""
    latencies: tuple[int, ...] = NO_LATENCIES
    """Entries by the time from their add to its confirmation; bounds as in `ADD_LATENCY_BOUNDS_NS`."""


@dataclass(frozen=True, slots=True)
class Levels:
    """Sums over all topics at one moment."""

    topics: int = 0
    """Open topics."""
    producers: int = 0
    """Connected producers."""
    consumers: int = 0
    """Connected consumers."""
    subscriptions: int = 0
    """Subscriptions."""
    backlog: int = 0
    """Entries that are not acknowledged, over all subscriptions."""
    storage_bytes: int = 0
    """Bytes of all stored entries, each counted once."""


class TopicCounts(NamedTuple):
    """The counters of one topic."""

    numbers: tuple[int, ...]
    """The counters of `SUMMED`, in this order."""
    entries: int
    """Entries stored; tells whether the latencies have changed."""
    latencies: tuple[int, ...]
    """Entries by their time to confirmation."""


SUMMED: Final = ("messages_in", "bytes_in", "messages_out", "bytes_out", "hits", "reads")
"""The fields of `Counts` that are summed over the topics."""
NOTHING: Final = TopicCounts((0,) * len(SUMMED), 0, NO_LATENCIES)
"""The counters of a topic that has just been opened."""


def counts_of(topic: Topic, before: TopicCounts = NOTHING) -> TopicCounts:
    """Returns the topic's counters; the latencies are those of `before` while no entry was added."""
    messages_out = bytes_out = hits = reads = entries = 0
    latencies = NO_LATENCIES
    if isinstance(topic, PersistentTopic):
        messages_out = topic.subscribing.messages_out_before
        bytes_out = topic.subscribing.bytes_out_before
        for subscription in topic.subscriptions.values():
            messages_out += subscription.retired_messages_out
            bytes_out += subscription.retired_bytes_out
            for consumer in subscription.consumers:
                messages_out += consumer.messages_out
                bytes_out += consumer.bytes_out
        cache = topic.ledger.cache.cursor_reads
        hits, reads = cache.hit_entries, cache.entries
        stats = topic.ledger.stats
        entries = stats.entries_added
        # Most topics have added nothing since, so their ten buckets need no copy.
        latencies = before.latencies if before.entries == entries else tuple(stats.add_latency_buckets)
    elif isinstance(topic, NonPersistentTopic):
        for volatile in topic.subscriptions.values():
            for consumer in volatile.consumers:
                messages_out += consumer.messages_out
                bytes_out += consumer.bytes_out
    numbers = (topic.messages_in, topic.bytes_in, messages_out, bytes_out, hits, reads)
    return TopicCounts(numbers, entries, latencies)


def whole_counts_of(topic: Topic) -> Counts:
    """Returns the topic's counters in the form of their sums."""
    numbers, _, latencies = counts_of(topic)
    return Counts(**dict(zip(SUMMED, numbers, strict=True)), latencies=latencies)


class _Walk(NamedTuple):
    """The topics that had counted anything, as one walk found them."""

    counts: dict[Topic, TopicCounts]
    """Their counters; a topic that is missing had counted nothing."""
    at_ns: int
    """Monotonic time of its begin."""


class Traffic:
    """The sums, brought up to date by walks."""

    def __init__(self, topics: Mapping[str, Topic]) -> None:
        """`topics` are the open ones, by name; they are looked at when a walk begins."""
        self.counts = Counts()
        """Counters as of the last walk or look."""
        self.levels = Levels()
        """Sums as of the last full walk."""
        self._topics = topics
        self._older = self._newer = _Walk({}, 0)
        # Sums that looks have found since the last walk.
        self._looked = _Walk({}, 0)
        self._busy: list[Topic] = []

    @property
    def counted_ns(self) -> int:
        """Monotonic time of the last walk or look; 0 before the first one."""
        return max(self._newer.at_ns, self._looked.at_ns)

    @property
    def walked_ns(self) -> int:
        """Monotonic time of the last walk; 0 before the first one."""
        return self._newer.at_ns

    def walk(self, now_ns: int) -> Iterator[None]:
        """Looks at every topic. Yields between slices; the sums change when it ends."""
        found: dict[Topic, TopicCounts] = {}
        busy: list[Topic] = []
        growth = _Growth()
        topics = list(self._topics.values())
        producers = consumers = subscriptions = backlog = storage_bytes = 0
        for number, topic in enumerate(topics, 1):
            producers += (publishing := len(topic.access.producers))
            receiving = 0
            if isinstance(topic, PersistentTopic):
                storage_bytes += topic.ledger.ledgers.size_bytes
                for subscription in topic.subscriptions.values():
                    backlog += subscription.cursor.backlog
                    receiving += len(subscription.consumers)
            else:
                receiving = sum([len(one.consumers) for one in topic.subscriptions.values()])
            subscriptions += len(topic.subscriptions)
            consumers += receiving
            before = self._known(topic)
            now = counts_of(topic, before)
            if any(now.numbers):
                found[topic] = now
                growth.add(before, now)
            if publishing or receiving:
                busy.append(topic)
            if number % TOPICS_PER_SLICE == 0:
                yield
        self._older, self._newer, self._looked = self._newer, _Walk(found, now_ns), _Walk({}, 0)
        self._busy = busy
        self.counts = growth.on(self.counts)
        self.levels = Levels(len(topics), producers, consumers, subscriptions, backlog, storage_bytes)

    def look(self, now_ns: int) -> Iterator[None]:
        """Looks at the topics that had clients at the last full walk; otherwise as `walk`, without levels."""
        growth = _Growth()
        looked = dict(self._looked.counts)
        for number, topic in enumerate(self._busy, 1):
            before = self._known(topic)
            now = counts_of(topic, before)
            if now != before:
                growth.add(before, now)
                looked[topic] = now
            if number % TOPICS_PER_SLICE == 0:
                yield
        self._looked = _Walk(looked, now_ns)
        self.counts = growth.on(self.counts)

    def rates(self, topic: Topic) -> tuple[float, ...]:
        """Returns the topic's growth per second in the last interval, in the order of `SUMMED`."""
        before, after = self._interval()
        seconds = (after.at_ns - before.at_ns) / 1e9
        if seconds <= 0 or not before.at_ns:
            return NOTHING.numbers
        then = before.counts.get(topic, NOTHING)
        now = after.counts.get(topic, then)
        return tuple([grown(a, b) / seconds for a, b in zip(then.numbers, now.numbers, strict=True)])

    @property
    def interval_s(self) -> float:
        """The length of the interval of `rates`, in seconds; 0 before there is one."""
        before, after = self._interval()
        return (after.at_ns - before.at_ns) / 1e9 if before.at_ns else 0.0

    def _interval(self) -> tuple[_Walk, _Walk]:
        if self._looked.at_ns:
            return self._newer, self._looked
        return self._older, self._newer

    def _known(self, topic: Topic) -> TopicCounts:
        return self._looked.counts.get(topic) or self._newer.counts.get(topic, NOTHING)


def grown(before: int, now: int) -> int:
    """Returns the growth of a counter; one that fell began again and counts from 0."""
    return now - before if now >= before else now


class _Growth:
    """Adds up what topics have counted since the last look."""

    def __init__(self) -> None:
        self._numbers = [0] * len(SUMMED)
        self._latencies = NO_LATENCIES

    def add(self, before: TopicCounts, now: TopicCounts) -> None:
        """Adds the difference."""
        for place, (earlier, later) in enumerate(zip(before.numbers, now.numbers, strict=True)):
            self._numbers[place] += grown(earlier, later)
        if now.entries != before.entries:
            self._latencies = tuple(map(add, self._latencies, map(sub, now.latencies, before.latencies)))

    def on(self, counts: Counts) -> Counts:
        """Returns the counters with the growth."""
        summed = {name: getattr(counts, name) + n for name, n in zip(SUMMED, self._numbers, strict=True)}
        return Counts(**summed, latencies=tuple(map(add, counts.latencies, self._latencies)))
