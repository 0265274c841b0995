"""TopicReader: readings of all open topics from the counters of the service room.

Called for every scrape and window of topics, so it copies numbers and computes next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from broker.metrics.readings import (
    NO_EVICTIONS,
    CompactionReading,
    ConsumerReading,
    ProducerReading,
    QuotaReading,
    SubscriptionReading,
    TopicReading,
    TransactionsReading,
)
from broker.service.compaction.topic_compaction import TopicCompaction
from broker.service.consumer import Consumer
from broker.service.policies.backlog_quota import AGE, SIZE
from broker.service.subscriptions.backlog.evictions import Evictions
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.non_persistent_topic import NonPersistentTopic
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import Topic
from broker.service.topics.topic_registry import TopicRegistry
from broker.service.transactions.transaction_buffer import TransactionBuffer

NS_PER_US: Final = 1000
"""Nanoseconds in a microsecond."""
NO_READINGS: Final[Mapping[str, TopicReading]] = MappingProxyType({})
"""Readings of before, where there are none."""


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

    def topics(self, before: Mapping[str, TopicReading] = NO_READINGS) -> Iterator[TopicReading]:
        """Yields a reading of each topic that is open now; for an idle topic that of `before`, with its levels of then.

        A topic is idle without consumers, and while none of the counters that windows compare has moved. Goes over a copy
        of the registry, because the caller gives the loop a turn now and then, and topics are opened and unloaded
        meanwhile.
        """
        for topic in list(self._registry.topics.values()):
            if isinstance(topic, PersistentTopic):
                then = before.get(str(topic.name))
                yield then if then is not None and _is_idle(topic, then) else self._persistent(topic)
            elif isinstance(topic, NonPersistentTopic):
                yield self._non_persistent(topic)

    def _persistent(self, topic: PersistentTopic) -> TopicReading:
        log, stats = topic.ledger, topic.ledger.stats
        entries, size = log.ledgers.entries, log.ledgers.size_bytes
        subscriptions = []
        # Summed in this loop, not by the reading: a scrape asks for each of them once, and there are many topics.
        slowest = backlog = consumers = msgs_out = bytes_out = 0
        for subscription in topic.subscriptions.values():
            one = self._subscription(subscription)
            subscriptions.append(one)
            slowest = max(slowest, one.backlog)
            backlog += one.backlog
            consumers += one.consumers
            msgs_out += one.msgs_out
            bytes_out += one.bytes_out
        return TopicReading(
            namespace=topic.name.namespace,
            topic=str(topic.name),
            producers=len(topic.access.producers),
            consumers=consumers,
            subscriptions=subscriptions,
            msgs_in=topic.messages_in,
            bytes_in=topic.bytes_in,
            publish_rate_limited=topic.publish_rate_limited,
            msgs_out=msgs_out,
            bytes_out=bytes_out,
            backlog=backlog,
            # An estimate by the mean size of an entry: exact bytes would need a look at every ledger.
            backlog_size=size * slowest // entries if entries else 0,
            backlog_quota_bytes=topic.quotas.size.size_max,
            backlog_quota_seconds=topic.quotas.age.age_max_s,
            backlog_age_seconds=topic.quotas.oldest_age_s,
            # With all copies, as `pulsar_storage_size` has them; the logical size counts one copy.
            size_quota=_quota(topic.quotas.evictions, SIZE),
            time_quota=_quota(topic.quotas.evictions, AGE),
            storage_size=size * self._write_quorum,
            storage_logical_size=size,
            delayed_index_bytes=topic.delays.entries.size_bytes,
            entries_added=stats.entries_added,
            entry_bytes_added=stats.bytes_added,
            replica_bytes_added=stats.bytes_added * self._write_quorum,
            add_errors=stats.add_errors,
            entries_read=stats.entries_read,
            entry_bytes_read=stats.bytes_read,
            read_errors=stats.read_errors,
            cache_hits=log.cache.reads.hit_entries,
            cache_misses=log.cache.reads.miss_entries,
            cache_coalesced=log.cache.reads.coalesced_entries,
            # Copied: the log goes on counting in its own list, and the next window compares with these.
            write_latency=tuple(stats.add_latency_buckets),
            write_latency_sum_us=stats.add_latency_sum_ns // NS_PER_US,
            entry_size=tuple(stats.entry_size_buckets),
            producer_readings=self._producer_stats(topic) if self._producers else (),
            compaction=_compaction(topic.compaction),
            transactions=_transactions(topic.transactions.buffer),
        )

    def _subscription(self, subscription: Subscription) -> SubscriptionReading:
        consumers = subscription.consumers
        reads = subscription.cursor.reader.reads
        # Begins with the counts of consumers that have left; those of the connected ones are added below.
        result = SubscriptionReading(
            name=subscription.name,
            backlog=subscription.cursor.backlog,
            delayed=subscription.delayed,
            delayed_index_bytes=subscription.delayed_index_bytes,
            in_replay=subscription.waiting_for_redelivery,
            expired=subscription.expired.total,
            last_expired_ms=subscription.expired.last_ms,
            holes_redelivered=subscription.holes.redelivered if subscription.holes is not None else 0,
            acks_in_memory=subscription.cursor.store.left_out,
            awaits_acks=int(subscription.cursor.on_acknowledged is not None),
            consumers=len(consumers),
            msgs_out=subscription.retired_messages_out,
            bytes_out=subscription.retired_bytes_out,
            msgs_redelivered=subscription.retired_redelivered,
            last_flow_ms=subscription.retired_flow_ms,
            cache_hits=reads.hit_entries,
            cache_misses=reads.miss_entries,
            cache_coalesced=reads.coalesced_entries,
            consumer_readings=self._consumer_stats(consumers) if self._consumers else (),
        )
        for one in consumers:
            result.unacked += one.unacked
            result.blocked |= one.blocked
            result.msgs_out += one.messages_out
            result.bytes_out += one.bytes_out
            result.msgs_redelivered += one.messages_redelivered
            result.msgs_acked += one.acked_messages
            result.last_flow_ms = max(result.last_flow_ms, one.last_consumed_flow_ms)
        return result

    def _non_persistent(self, topic: NonPersistentTopic) -> TopicReading:
        # Nothing is stored, so the fields of backlog, storage and cache stay 0.
        subscriptions = [
            SubscriptionReading(
                name=one.name,
                consumers=len(one.consumers),
                msgs_out=one.retired_messages_out
                + sum([consumer.messages_out for consumer in one.consumers]),
                bytes_out=one.retired_bytes_out + sum([consumer.bytes_out for consumer in one.consumers]),
                msgs_dropped=one.messages_dropped,
                consumer_readings=self._consumer_stats(one.consumers) if self._consumers else (),
            )
            for one in topic.subscriptions.values()
        ]
        return TopicReading(
            namespace=topic.name.namespace,
            topic=str(topic.name),
            producers=len(topic.access.producers),
            consumers=sum([one.consumers for one in subscriptions]),
            subscriptions=subscriptions,
            msgs_in=topic.messages_in,
            bytes_in=topic.bytes_in,
            publish_rate_limited=topic.publish_rate_limited,
            msgs_out=topic.messages_out_before + sum([one.msgs_out for one in subscriptions]),
            bytes_out=topic.bytes_out_before + sum([one.bytes_out for one in subscriptions]),
            producer_readings=self._producer_stats(topic) if self._producers else (),
        )

    def _producer_stats(self, topic: Topic) -> list[ProducerReading]:
        return [
            ProducerReading(
                name=one.name, producer_id=one.producer_id, msgs_in=one.messages_in, bytes_in=one.bytes_in
            )
            for one in topic.access.producers.values()
        ]

    def _consumer_stats(self, consumers: Iterable[Consumer]) -> list[ConsumerReading]:
        return [
            ConsumerReading(
                name=one.name,
                consumer_id=one.consumer_id,
                msgs_out=one.messages_out,
                bytes_out=one.bytes_out,
                msgs_acked=one.acked_messages,
                msgs_redelivered=one.messages_redelivered,
                unacked=one.unacked,
                available_permits=one.permits,
                blocked=int(one.blocked),
            )
            for one in consumers
        ]


def _is_idle(topic: PersistentTopic, then: TopicReading) -> bool:
    """Returns True if a window between both would be all zero.

    It costs a fifth of a reading, and most topics of a large broker are idle. Other counters move with those compared here:
    bytes and latencies with entries and messages.
    """
    stats, subscriptions = topic.ledger.stats, topic.subscriptions
    if (
        then.consumers
        or topic.messages_in != then.msgs_in
        or stats.entries_added != then.entries_added
        or stats.add_errors != then.add_errors
        or stats.entries_read != then.entries_read
        or stats.read_errors != then.read_errors
        or topic.ledger.cache.reads.miss_entries != then.cache_misses
        or len(subscriptions) != len(then.subscriptions)
    ):
        return False
    for one, reading in zip(subscriptions.values(), then.subscriptions, strict=True):
        if (
            one.consumers
            or one.name != reading.name
            or one.retired_messages_out != reading.msgs_out
            or one.retired_redelivered != reading.msgs_redelivered
            or one.expired.total != reading.expired
        ):
            return False
    return True


def _quota(evictions: Evictions, kind: str) -> QuotaReading:
    times = evictions.times[kind]
    return QuotaReading(evictions=times, evicted_entries=evictions.entries[kind]) if times else NO_EVICTIONS


def _transactions(buffer: TransactionBuffer | None) -> TransactionsReading | None:
    if buffer is None:
        return None
    return TransactionsReading(active=len(buffer.open), committed=buffer.commits, aborted=buffer.aborts)


def _compaction(compaction: TopicCompaction) -> CompactionReading | None:
    counts, current = compaction.counts, compaction.current
    if current is None and not counts.failed:
        return None
    seconds = max(counts.last_duration_ms, 1) / 1000
    return CompactionReading(
        removed=counts.removed,
        succeeded=counts.succeeded,
        failed=counts.failed,
        duration_ms=counts.last_duration_ms,
        read_throughput=counts.last_read_bytes / seconds,
        write_throughput=counts.last_written_bytes / seconds,
        entries=current.entries if current is not None else 0,
        size_bytes=current.size_bytes if current is not None else 0,
    )
