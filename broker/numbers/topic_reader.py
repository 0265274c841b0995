"""TopicReader: readings of all open topics from the counters of the service room.

Called for every scrape and window of topics, so it copies numbers and computes next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

from broker.numbers.columns import Row
from broker.numbers.readings import (
    BUFFERS,
    COMPACTIONS,
    CONSUMERS,
    PRODUCERS,
    SUBSCRIPTIONS,
    TOPICS,
    Chosen,
    CompactionSums,
    PartReading,
    SubscriptionSums,
    TopicReading,
    TopicSums,
)
from broker.service.compaction.topic_compaction import TopicCompaction
from broker.service.consumer import Consumer
from broker.service.policies.backlog_quota import AGE, SIZE
from broker.service.subscriptions.backlog.evictions import QuotaEvictions
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.dormant_topic import DormantTopic
from broker.service.topics.non_persistent_topic import NonPersistentTopic
from broker.service.topics.persistent_topic import PersistentTopic, transaction_buffer
from broker.service.topics.topic import Topic
from broker.service.topics.topic_registry import TopicRegistry
from foundation.model.topic_name import parse_topic_name
from foundation.units import NS_PER_US

_moving_then = itemgetter(
    *map(
        TOPICS.names.index,
        (
            "ledger.stats.entries_added",
            "ledger.stats.add_errors",
            "ledger.stats.entries_read",
            "ledger.stats.read_errors",
            "ledger.reads.miss_entries",
            "messages_in",
            "consumers",
            "subscriptions",
        ),
    )
)
_delivered_then = itemgetter(
    *map(SUBSCRIPTIONS.names.index, ("messages_out", "messages_redelivered", "expired.total", "consumers"))
)


class TopicReader:
    """Reads topics, and their producers and consumers where the settings ask for them."""

    def __init__(
        self, registry: TopicRegistry, write_quorum: int, *, consumers: bool, producers: bool
    ) -> None:
        """`write_quorum` is the number of bookies that keep each entry."""
        self._registry = registry
        self._write_quorum = write_quorum
        self._consumers = consumers
        self._producers = producers

    def ledger_names(self) -> dict[str, None]:
        """Returns the names of the managed ledgers of all open and dormant topics."""
        dormant = [parse_topic_name(name) for name, _ in self._registry.dormant]
        names = (*(topic.name for topic in self._registry.topics.values()), *dormant)
        return dict.fromkeys(name.ledger_name for name in names)

    def topics(self, passed_over: Callable[[Topic], None] | None = None) -> Iterator[TopicReading]:
        """Yields a reading of each topic that is open or dormant now.

        Goes over a copy of the registry, because the caller gives the loop a turn now and then, and topics are opened and
        unloaded meanwhile. `passed_over` is given each topic that was closed between the copy and its turn.
        """
        dormant, began_ns = self._registry.dormant, self._registry.now_ns()
        yield from self._read_all(list(self._registry.topics.values()), passed_over)
        for name, record in dormant:
            # One that has fallen asleep since was open above, and two series of one topic would spoil the scrape.
            if record.looked_ns <= began_ns and dormant.get(name) is record:
                yield self._dormant(name, record)

    def chosen(self, chosen: Chosen) -> Iterator[TopicReading]:
        """Yields a reading of each topic of these namespaces, and of these topics; goes over copies as `topics`.

        A dormant topic that is opened after the walk began and before its turn is left out. A table of the names of a
        namespace, made before the first reading, would find it and hold the loop: 25 to 35 ms for 100,000.
        """
        registry, dormant = self._registry, self._registry.dormant
        for namespace in chosen.namespaces:
            began_ns = registry.now_ns()
            yield from self._read_all(registry.open_in(namespace))
            for name in dormant.names(namespace):
                record = dormant.get(name)
                # As in `topics`. One that has been opened since the walk began is left out, as there.
                if record is not None and record.looked_ns <= began_ns:
                    yield self._dormant(name, record)
        for name in chosen.topics:
            if "/".join(name.split("/")[2:4]) not in chosen.namespaces:
                reading = self.read(name)
                if reading is not None:
                    yield reading

    def read(self, name: str) -> TopicReading | None:
        """Returns a reading of one topic, None unless it is open or dormant."""
        topic = self._registry.topics.get(name)
        if topic is not None:
            return self.read_topic(topic)
        record = self._registry.dormant.get(name)
        return None if record is None else self._dormant(name, record)

    def is_open(self, name: str) -> bool:
        """Returns True for a topic that is open, False for one that is dormant or neither."""
        return name in self._registry.topics

    def read_topic(self, topic: Topic) -> TopicReading:
        """Returns a reading of a topic that is open, or was closed in this turn of the loop."""
        if isinstance(topic, NonPersistentTopic):
            return self._non_persistent(topic)
        assert isinstance(topic, PersistentTopic)
        return self._persistent(topic)

    def _read_all(
        self, topics: Iterable[Topic], passed_over: Callable[[Topic], None] | None = None
    ) -> Iterator[TopicReading]:
        for topic in topics:
            if self._has_gone(topic):
                if passed_over is not None:
                    passed_over(topic)
                # The topic is dormant, perhaps open again.
                reading = self.read(str(topic.name))
                if reading is not None:
                    yield reading
            else:
                yield self.read_topic(topic)

    def _has_gone(self, topic: Topic) -> bool:
        """Returns True for a topic that was closed since the walk began: it may have been taken apart (`EndedTopics`)."""
        return topic.closed and self._registry.topics.get(str(topic.name)) is not topic

    def since(self, before: Mapping[str, TopicReading]) -> Iterator[TopicReading | None]:
        """Yields a reading of each topic for the end of a window that began with those in `before`.

        An idle topic yields its reading in `before` unchanged: it has no consumers, and none of the counters that windows
        compare has moved. One that is not there and has counted nothing yields None: a reading takes 4 KB, and most topics
        of a large broker are silent. Nothing happens to a dormant topic. Goes over a copy as `topics`.
        """
        for topic in list(self._registry.topics.values()):
            if self._has_gone(topic):
                continue
            if isinstance(topic, PersistentTopic):
                then = before.get(str(topic.name))
                if then is None:
                    yield self._persistent(topic) if _has_counted(topic) else None
                else:
                    yield then if _is_idle(topic, then) else self._persistent(topic)
            elif isinstance(topic, NonPersistentTopic):
                yield self._non_persistent(topic)

    def _persistent(self, topic: PersistentTopic) -> TopicReading:
        log, stats = topic.ledger, topic.ledger.stats
        entries, size = log.ledgers.entries, log.ledgers.size_bytes
        subscriptions = []
        slowest = backlog = consumers = 0
        before = topic.subscribing
        messages_out, bytes_out = before.messages_out_before, before.bytes_out_before
        for subscription in topic.subscriptions.values():
            connected = subscription.consumers
            sums = _sums_of(subscription, connected, topic.quotas.age_of(subscription.name))
            row = SUBSCRIPTIONS.read(subscription) + sums
            parts = self._consumer_rows(connected) if self._consumers else ()
            subscriptions.append(PartReading((subscription.name, 0), row, parts))
            slowest = max(slowest, sums.backlog)
            backlog += sums.backlog
            consumers += sums.consumers
            messages_out += sums.messages_out
            bytes_out += sums.bytes_out
        buffer, evictions = transaction_buffer(topic), topic.quotas.evictions
        return TopicReading(
            topic.name.namespace,
            str(topic.name),
            TOPICS.read(topic)
            + TopicSums(
                subscriptions=len(subscriptions),
                producers=len(topic.access.producers),
                consumers=consumers,
                messages_out=messages_out,
                bytes_out=bytes_out,
                backlog=backlog,
                # An estimate by the mean size of an entry: exact bytes would need a look at every ledger.
                backlog_size=size * slowest // entries if entries else 0,
                # With all copies, as `pulsar_storage_size` has them; the logical size counts one copy.
                storage_size=size * self._write_quorum,
                storage_logical_size=size,
                offloaded_size=topic.ledger.ledgers.offloaded_bytes,
                replica_bytes_added=stats.bytes_added * self._write_quorum,
                write_latency_sum_us=stats.add_latency_sum_ns // NS_PER_US,
            ),
            subscriptions,
            self._producer_rows(topic),
            # Copied: the log goes on counting in its own list, and the next window compares with these.
            tuple(stats.add_latency_buckets),
            tuple(stats.entry_size_buckets),
            (_quota(evictions, SIZE), _quota(evictions, AGE)),
            _compaction(topic.known_compaction),
            None if buffer is None else (*BUFFERS.read(buffer), len(buffer.open)),
        )

    def _non_persistent(self, topic: NonPersistentTopic) -> TopicReading:
        # Nothing is stored, so the numbers of backlog, storage and cache stay 0.
        subscriptions = []
        messages_out, bytes_out = topic.messages_out_before, topic.bytes_out_before
        for one in topic.subscriptions.values():
            sums = SubscriptionSums(
                consumers=len(one.consumers),
                messages_out=one.retired_messages_out + sum([c.messages_out for c in one.consumers]),
                bytes_out=one.retired_bytes_out + sum([c.bytes_out for c in one.consumers]),
                messages_dropped=one.messages_dropped,
            )
            row = SUBSCRIPTIONS.row(sums._asdict())
            parts = self._consumer_rows(one.consumers) if self._consumers else ()
            subscriptions.append(PartReading((one.name, 0), row, parts))
            messages_out += sums.messages_out
            bytes_out += sums.bytes_out
        numbers = {
            "subscriptions": len(subscriptions),
            "producers": len(topic.access.producers),
            "consumers": sum([len(one.consumers) for one in topic.subscriptions.values()]),
            "messages_in": topic.messages_in,
            "bytes_in": topic.bytes_in,
            "publish_rate_limited": topic.publish_rate_limited,
            "messages_out": messages_out,
            "bytes_out": bytes_out,
        }
        return TopicReading(
            topic.name.namespace,
            str(topic.name),
            TOPICS.row(numbers),
            subscriptions,
            self._producer_rows(topic),
        )

    def _dormant(self, text: str, record: DormantTopic) -> TopicReading:
        """Returns the levels of a dormant topic; its counters are 0, as after each opening."""
        registry, name = self._registry, parse_topic_name(text)
        policies, settings, wall_ms = registry.policies, registry.settings, registry.environment.wall_ms()
        size = record.size_bytes
        backlogs = [one.backlog for one in record.subscriptions]
        numbers = {
            "subscriptions": len(record.subscriptions),
            "backlog": record.backlog,
            # The estimate of an open topic.
            "backlog_size": size * max(backlogs) // record.entries if record.entries and backlogs else 0,
            "storage_size": size * self._write_quorum,
            "storage_logical_size": size,
            "offloaded_size": 0 if record.offload is None else record.offload.copied_bytes,
            "quotas.oldest_age_s": record.slowest.age_s(settings, wall_ms),
            "quotas.size.size_max": policies.backlog_quota(name, SIZE).size_max,
            "quotas.age.age_max_s": policies.backlog_quota(name, AGE).age_max_s,
        }
        return TopicReading(
            name.namespace,
            text,
            TOPICS.row(numbers),
            [
                PartReading(
                    (one.name, 0),
                    SUBSCRIPTIONS.row(
                        {
                            "backlog": one.backlog,
                            "backlog_no_delayed": one.backlog,
                            "backlog_age_seconds": waiting.age_s(settings, wall_ms)
                            if settings.subscription_ages
                            else -1,
                        }
                    ),
                )
                for one, waiting in record.by_subscription()
            ],
        )

    def _producer_rows(self, topic: Topic) -> Sequence[PartReading]:
        if not self._producers:
            return ()
        return [
            PartReading((one.name, one.producer_id), PRODUCERS.read(one))
            for one in topic.access.producers.values()
        ]

    def _consumer_rows(self, consumers: Sequence[Consumer]) -> list[PartReading]:
        return [
            PartReading((one.name, one.consumer_id), (*CONSUMERS.read(one), int(one.blocked)))
            for one in consumers
        ]


def _sums_of(
    subscription: Subscription, consumers: Sequence[Consumer], backlog_age_s: int
) -> SubscriptionSums:
    cursor, holes = subscription.cursor, subscription.holes
    backlog, delayed = cursor.backlog, subscription.delayed
    # Begins with the counts of consumers that have left.
    messages_out, bytes_out = subscription.retired_messages_out, subscription.retired_bytes_out
    redelivered, flow_ms = subscription.retired_redelivered, subscription.retired_flow_ms
    acked = unacked = blocked = 0
    for one in consumers:
        messages_out += one.messages_out
        bytes_out += one.bytes_out
        redelivered += one.messages_redelivered
        acked += one.acked_messages
        unacked += one.unacked
        blocked |= one.blocked
        flow_ms = max(flow_ms, one.last_consumed_flow_ms)
    return SubscriptionSums(
        len(consumers),
        backlog,
        delayed,
        backlog - delayed,
        0 if holes is None else holes.redelivered,
        0 if holes is None else holes.pending_redelivered,
        int(cursor.on_acknowledged is not None),
        0,
        messages_out,
        bytes_out,
        redelivered,
        acked,
        unacked,
        blocked,
        flow_ms,
        backlog_age_s,
    )


def _has_counted(topic: PersistentTopic) -> bool:
    """Returns True if a counter that windows compare has moved since the topic was opened; all begin at 0."""
    stats, misses = topic.ledger.stats, topic.ledger.reads.miss_entries
    # As in `_is_idle`, all others move with these.
    if topic.messages_in or stats.entries_added or stats.entries_read or misses:
        return True
    if stats.add_errors or stats.read_errors:
        return True
    for one in topic.subscriptions.values():
        if one.retired_messages_out or one.retired_redelivered or one.expired.total:
            return True
        if any(each.messages_out or each.acked_messages for each in one.consumers):
            return True
    return False


def _is_idle(topic: PersistentTopic, then: TopicReading) -> bool:
    """Returns True if a window between both would be all zero.

    It costs a fifth of a reading, and most topics of a large broker are idle.
    """
    stats, misses = topic.ledger.stats, topic.ledger.reads.miss_entries
    # All others move with these: bytes and latencies with entries and messages.
    moving = stats.entries_added, stats.add_errors, stats.entries_read, stats.read_errors, misses
    if (*moving, topic.messages_in, 0, len(topic.subscriptions)) != _moving_then(then.row):
        return False
    for one, reading in zip(topic.subscriptions.values(), then.subscriptions, strict=True):
        delivered = one.retired_messages_out, one.retired_redelivered, one.expired.total, len(one.consumers)
        if one.name != reading.key[0] or delivered != _delivered_then(reading.row):
            return False
    return True


def _quota(evictions: QuotaEvictions, kind: str) -> Row:
    return evictions.times.get(kind, 0), evictions.entries.get(kind, 0)


def _compaction(compaction: TopicCompaction | None) -> Row | None:
    if compaction is None:
        return None
    counts, current = compaction.counts, compaction.current
    if current is None and not counts.failed:
        return None
    seconds = max(counts.last_duration_ms, 1) / 1000
    return COMPACTIONS.read(compaction) + CompactionSums(
        read_throughput=counts.last_read_bytes / seconds,
        write_throughput=counts.last_written_bytes / seconds,
        entries=current.entries if current is not None else 0,
        size_bytes=current.size_bytes if current is not None else 0,
    )
