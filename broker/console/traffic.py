"""Traffic: sums over all open and dormant topics, with no count on the way of a message.

A full walk looks at every topic; `look` only at the topics that had clients at the last full walk. Both run in slices. The
walks set their own pace: the time until the next one is a multiple of the processor time that the last one took, so that
100,000 topics cost the same share of a core as ten, and their sums are older.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import add, sub
from typing import Final, NamedTuple

from broker.managed_ledger.stats import ADD_LATENCY_BOUNDS_NS
from broker.service.topics.dormant_topic import DormantTopic
from broker.service.topics.dormant_topics import DormantTopics
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import Topic

TOPICS_PER_SLICE: Final = 1_000
"""Topics between two pauses: 2 ms."""
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
_BACKLOG, _STORED, _PRODUCERS, _SUBSCRIPTIONS, _CONSUMERS = range(len(SUMMED))


def counts_of(topic: Topic) -> TrafficCounts:
    """Returns the topic's counters."""
    return _read(topic, NOTHING)[0]


def _read(topic: Topic, before: TrafficCounts) -> tuple[TrafficCounts, tuple[int, ...]]:
    """Returns the counters and the levels of `SUMMED`; the latencies are those of `before` while no entry was added."""
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
    levels = (backlog, stored, len(topic.access.producers), len(topic.subscriptions), consumers)
    return TrafficCounts(numbers, entries, latencies), levels


class _Walk(NamedTuple):
    """The topics that had counted anything, as one walk found them."""

    counts: dict[Topic, TrafficCounts]
    """Their counters; a topic that is missing had counted nothing."""
    at_ns: int
    """Monotonic time of its begin."""


class Traffic:
    """The sums, brought up to date by walks."""

    def __init__(self, topics: Mapping[str, Topic], dormant: DormantTopics) -> None:
        """`topics` are the open ones, by name; they are looked at when a walk begins, and so are `dormant` ones."""
        self.counts = TrafficCounts()
        """Counters as of the last walk or look."""
        self.levels: Mapping[str, int] = {}
        """Open and dormant topics, and the sums of `SUMMED`, as of the last full walk; empty before it."""
        self.dormant = dormant
        """The dormant topics."""
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
        found: dict[Topic, TrafficCounts] = {}
        busy: list[Topic] = []
        topics = list(self._topics.values())
        sums = [0] * len(SUMMED)
        for number, (topic, levels) in enumerate(self._count(topics, found), 1):
            sums = list(map(add, sums, levels))
            if levels[_PRODUCERS] or levels[_CONSUMERS]:
                busy.append(topic)
            if number % TOPICS_PER_SLICE == 0:
                yield
        dormant = self.dormant
        sums[_BACKLOG] += dormant.backlog
        sums[_STORED] += dormant.size_bytes
        sums[_SUBSCRIPTIONS] += dormant.subscriptions
        self._older, self._newer, self._looked = self._newer, _Walk(found, now_ns), _Walk({}, 0)
        self._busy = busy
        self.levels = {"topics": len(topics) + dormant.count, **dict(zip(SUMMED, sums, strict=True))}

    def look(self, now_ns: int) -> Iterator[None]:
        """Looks at the topics that had clients at the last full walk; otherwise as `walk`, without levels."""
        looked = dict(self._looked.counts)
        for number, _ in enumerate(self._count(self._busy, looked), 1):
            if number % TOPICS_PER_SLICE == 0:
                yield
        self._looked = _Walk(looked, now_ns)

    def _count(
        self, topics: Iterable[Topic], found: dict[Topic, TrafficCounts]
    ) -> Iterator[tuple[Topic, tuple[int, ...]]]:
        """Yields each topic with its levels when its counters are in `found`; the sums have their growth at the end."""
        total = self.counts
        for topic in topics:
            before = self._known(topic)
            now, levels = _read(topic, before)
            if any(now.numbers):
                found[topic] = now
                if now != before:
                    total = _with_growth(total, before, now)
            yield topic, levels
        self.counts = total

    def rates(self, topic: Topic) -> tuple[float, ...]:
        """Returns the topic's growth per second in the last interval, in the order of `COUNTED`."""
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

    def _known(self, topic: Topic) -> TrafficCounts:
        return self._looked.counts.get(topic) or self._newer.counts.get(topic, NOTHING)


def grown(before: int, now: int) -> int:
    """Returns the growth of a counter; one that fell began again and counts from 0."""
    return now - before if now >= before else now


def _with_growth(total: TrafficCounts, before: TrafficCounts, now: TrafficCounts) -> TrafficCounts:
    numbers = tuple(map(add, total.numbers, map(grown, before.numbers, now.numbers)))
    if now.entries == before.entries:
        return TrafficCounts(numbers, 0, total.latencies)
    growth = map(sub, now.latencies, before.latencies)
    return TrafficCounts(numbers, 0, tuple(map(add, total.latencies, growth)))
