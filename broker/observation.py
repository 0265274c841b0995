"""What the rooms have counted, as the values that a scrape asks for. Reads only; called between turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from broker.managed_ledger.pending_reads import PendingReadStats
from broker.metrics.snapshot import (
    BrokerStats,
    CacheStats,
    ConsumerStats,
    ProducerStats,
    SubscriptionStats,
    TopicStats,
)
from broker.service.consumer import Consumer
from broker.service.non_persistent_topic import NonPersistentSubscription, NonPersistentTopic
from broker.service.persistent_topic import PersistentTopic
from broker.service.shared_dispatcher import SharedDispatcher
from broker.service.subscription import Subscription
from broker.service.topic import Topic

if TYPE_CHECKING:
    from broker.broker_service import BrokerService

NS_PER_MS = 1_000_000


def observe_topics(service: BrokerService) -> Iterator[TopicStats]:
    for topic in list(service.registry.topics.values()):
        if isinstance(topic, PersistentTopic):
            yield _persistent(topic)
        elif isinstance(topic, NonPersistentTopic):
            yield _non_persistent(topic)


def _persistent(topic: PersistentTopic) -> TopicStats:
    ledger = topic.ledger
    log = ledger.stats
    subscriptions = [_subscription(one) for one in topic.subscriptions.values()]
    reads = ledger.cache.reads
    size = ledger.total_size
    entries = max(1, ledger.number_of_entries)
    stats = _common(topic, subscriptions)
    stats.backlog_size = max((one.backlog for one in subscriptions), default=0) * size // entries
    stats.storage_size = stats.storage_logical_size = size
    stats.entries_added = log.entries_added
    stats.entry_bytes_added = log.bytes_added
    stats.add_errors = log.add_errors
    stats.entries_read = log.entries_read
    stats.entry_bytes_read = log.bytes_read
    stats.read_errors = log.read_errors
    stats.cache_hits = reads.hit_entries
    stats.cache_misses = reads.miss_entries
    stats.write_latency = tuple(log.add_latency_buckets)
    stats.write_latency_sum_ms = log.add_latency_sum_ns / NS_PER_MS
    stats.entry_size = tuple(log.entry_size_buckets)
    return stats


def _non_persistent(topic: NonPersistentTopic) -> TopicStats:
    return _common(topic, [_fleeting(one) for one in topic.subscriptions.values()])


def _common(topic: Topic, subscriptions: list[SubscriptionStats]) -> TopicStats:
    return TopicStats(
        namespace=topic.name.namespace,
        topic=str(topic.name),
        producers=len(topic.access.producers),
        consumers=sum(one.consumers for one in subscriptions),
        subscriptions=subscriptions,
        msgs_in=topic.messages_in,
        bytes_in=topic.bytes_in,
        msgs_out=sum(one.msgs_out for one in subscriptions),
        bytes_out=sum(one.bytes_out for one in subscriptions),
        backlog=sum(one.backlog for one in subscriptions),
        producer_stats=[
            ProducerStats(
                name=producer.name,
                producer_id=producer.producer_id,
                msgs_in=producer.messages_in,
                bytes_in=producer.bytes_in,
            )
            for producer in topic.access.producers.values()
        ],
    )


def _subscription(subscription: Subscription) -> SubscriptionStats:
    consumers = subscription.consumers
    dispatcher = subscription.dispatcher
    shared = dispatcher if isinstance(dispatcher, SharedDispatcher) else None
    return SubscriptionStats(
        name=subscription.name,
        backlog=subscription.cursor.backlog,
        in_replay=0 if shared is None else len(shared.replay),
        unacked=0 if shared is None else shared.unacked,
        blocked=int(any(consumer.blocked for consumer in consumers)),
        consumers=len(consumers),
        msgs_out=subscription.retired_messages_out + sum(c.messages_out for c in consumers),
        bytes_out=subscription.retired_bytes_out + sum(c.bytes_out for c in consumers),
        msgs_acked=subscription.retired_acked + sum(c.acked_messages for c in consumers),
        msgs_redelivered=subscription.retired_redelivered + sum(c.messages_redelivered for c in consumers),
        last_flow_ms=max((c.last_consumed_flow_ms for c in consumers), default=0),
        consumer_stats=[_consumer(consumer) for consumer in consumers],
    )


def _fleeting(subscription: NonPersistentSubscription) -> SubscriptionStats:
    consumers = subscription.consumers
    return SubscriptionStats(
        name=subscription.name,
        consumers=len(consumers),
        msgs_out=sum(c.messages_out for c in consumers),
        bytes_out=sum(c.bytes_out for c in consumers),
        msgs_dropped=subscription.messages_dropped,
        consumer_stats=[_consumer(consumer) for consumer in consumers],
    )


def _consumer(consumer: Consumer) -> ConsumerStats:
    return ConsumerStats(
        name=consumer.name,
        consumer_id=consumer.consumer_id,
        msgs_out=consumer.messages_out,
        bytes_out=consumer.bytes_out,
        msgs_acked=consumer.acked_messages,
        msgs_redelivered=consumer.messages_redelivered,
        unacked=consumer.unacked,
        available_permits=consumer.permits,
        blocked=int(consumer.blocked),
    )


def observe_broker(service: BrokerService) -> BrokerStats:
    counters = service.net.counters
    return BrokerStats(
        cache=_cache(service),
        ledgers_open=sum(isinstance(topic, PersistentTopic) for topic in service.registry.topics.values()),
        connections_active=len(service.net.connections),
        connections_created=counters.created,
        connections_closed=counters.closed,
        topic_loads_ms=service.registry.load_times_ms,
    )


def _cache(service: BrokerService) -> CacheStats:
    caches = service.caches
    reads = caches.reads()
    limiter = service.ground.reads_limiter
    inflight = limiter.budget_bytes - limiter.remaining_bytes if limiter.enabled else -1
    return CacheStats(
        used_bytes=caches.used_bytes,
        max_bytes=caches.settings.size_bytes_max,
        entries=caches.entries,
        pinned_bytes=caches.pinned_bytes,
        queue_length=caches.queue_length,
        hits=reads.hit_entries,
        hit_bytes=reads.hit_bytes,
        misses=reads.miss_entries,
        miss_bytes=reads.miss_bytes,
        insertions=caches.inserted_entries,
        evictions={reason.value: count for reason, count in caches.stats.evicted_entries.items()},
        size_passes=caches.stats.size_evictions,
        requeues={
            "expected_reads": caches.queue.requeued_expected,
            "recently_accessed": caches.queue.requeued_accessed,
        },
        joined_reads=_joined(service),
        inflight_bytes=inflight,
        inflight_available_bytes=limiter.remaining_bytes if limiter.enabled else -1,
    )


def _joined(service: BrokerService) -> Mapping[str, int]:
    """Of the logs that are open; those of closed topics are no longer counted, so a window may begin anew."""
    total = {"entries_read": 0, "entries_notread": 0, "matched": 0, "missed": 0}
    for topic in service.registry.topics.values():
        if isinstance(topic, PersistentTopic):
            stats: PendingReadStats = topic.ledger.reads.stats
            total["entries_read"] += stats.read
            total["entries_notread"] += stats.not_read
            total["matched"] += stats.matched + stats.matched_included
            total["missed"] += stats.missed
    return total
