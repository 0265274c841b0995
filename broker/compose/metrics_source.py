"""From the rooms' plain integers to what the metrics room renders: the only place that knows both.

Asked for every scrape and every window, so it copies numbers and computes next to nothing. Topics are yielded
one by one over a copy of the registry, because the scrape gives the loop a turn now and then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from broker.entry_cache.cache_stats import Reason
from broker.entry_cache.compose import ComposedCache
from broker.entry_cache.observe.expected_level import ExpectedLevel, count_expected
from broker.entry_cache.observe.pass_stats import TimeHistogram
from broker.entry_cache.observe.totals import inserted_entries
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.metrics.exposition import ExpositionSettings
from broker.metrics.scraper import Scraper
from broker.metrics.snapshot import (
    BrokerStats,
    CacheStats,
    ConsumerStats,
    Histogram,
    ProducerStats,
    RecordStats,
    SubscriptionStats,
    TopicStats,
)
from broker.net.connection_context import ConnectionContext
from broker.recorder.recorder import Recorder
from broker.service.consumer import Consumer
from broker.service.dispatch.shared_dispatcher import SharedDispatcher
from broker.service.non_persistent_topic import NonPersistentTopic
from broker.service.persistent_topic import PersistentTopic
from broker.service.subscription import Subscription
from broker.service.topic import Topic
from broker.service.topic_registry import TopicRegistry
from settings.settings import Settings

NS_PER_MS = 1e6
NS_PER_SECOND = 1e9


class BrokerRooms(Protocol):
    """The parts of the composed broker that count something."""

    settings: Settings
    registry: TopicRegistry
    cache: ComposedCache
    recorder: Recorder | None
    environment: ManagedLedgerEnvironment
    net: ConnectionContext
    version: str


def scraper_of(broker: BrokerRooms) -> Scraper:
    settings = broker.settings
    exposition = ExpositionSettings(
        cluster=settings.str("clusterName"),
        topic_level=settings.bool("exposeTopicLevelMetricsInPrometheus"),
        consumer_level=settings.bool("exposeConsumerLevelMetricsInPrometheus"),
        producer_level=settings.bool("exposeProducerLevelMetricsInPrometheus"),
        managed_ledger=settings.bool("exposeManagedLedgerMetricsInPrometheus"),
        split_partition=settings.bool("splitTopicAndPartitionLabelInPrometheus"),
        cache_subscriptions_max=settings.int("entryCacheSubscriptionMetricsMax"),
    )
    source = MetricsSource(broker, consumers=exposition.consumer_level, producers=exposition.producer_level)
    return Scraper(
        exposition,
        broker.version,
        source.topics,
        source.broker_stats,
        broker.environment.now_ns,
        source.count_levels,
    )


class MetricsSource:
    def __init__(self, broker: BrokerRooms, *, consumers: bool, producers: bool) -> None:
        self._broker = broker
        self._consumers = consumers
        self._producers = producers
        self._expected = ExpectedLevel(0, 0)

    def count_levels(self) -> Iterator[None]:
        """What takes a walk over the cache, in slices; `broker_stats` says it until the next walk."""
        cache, now_ns = self._broker.cache, self._broker.environment.now_ns()
        expectations = cache.eviction_stats.expectations
        self._expected = yield from count_expected(cache.manager.caches, expectations, now_ns)

    def topics(self) -> Iterator[TopicStats]:
        for topic in list(self._broker.registry.topics.values()):
            if isinstance(topic, PersistentTopic):
                yield self._persistent(topic)
            elif isinstance(topic, NonPersistentTopic):
                yield self._non_persistent(topic)

    def _persistent(self, topic: PersistentTopic) -> TopicStats:
        log, stats = topic.ledger, topic.ledger.stats
        entries, size = log.ledgers.entries, log.ledgers.size_bytes
        subscriptions = []
        slowest = backlog = consumers = msgs_out = bytes_out = 0
        for subscription in topic.subscriptions.values():
            one = self._subscription(subscription)
            subscriptions.append(one)
            slowest = max(slowest, one.backlog)
            backlog += one.backlog
            consumers += one.consumers
            msgs_out += one.msgs_out
            bytes_out += one.bytes_out
        return TopicStats(
            namespace=topic.name.namespace,
            topic=str(topic.name),
            producers=len(topic.access.producers),
            consumers=consumers,
            subscriptions=subscriptions,
            msgs_in=topic.messages_in,
            bytes_in=topic.bytes_in,
            msgs_out=msgs_out,
            bytes_out=bytes_out,
            backlog=backlog,
            backlog_size=size * slowest // entries if entries else 0,
            storage_size=size * self._broker.environment.ledgers.settings.write_quorum,
            storage_logical_size=size,
            entries_added=stats.entries_added,
            entry_bytes_added=stats.bytes_added,
            add_errors=stats.add_errors,
            entries_read=stats.entries_read,
            entry_bytes_read=stats.bytes_read,
            read_errors=stats.read_errors,
            cache_hits=log.cache.reads.hit_entries,
            cache_misses=log.cache.reads.miss_entries,
            cache_coalesced=log.cache.reads.coalesced_entries,
            write_latency=tuple(stats.add_latency_buckets),
            write_latency_sum_ms=stats.add_latency_sum_ns / NS_PER_MS,
            entry_size=tuple(stats.entry_size_buckets),
            producer_stats=self._producer_stats(topic) if self._producers else (),
        )

    def _subscription(self, subscription: Subscription) -> SubscriptionStats:
        consumers, dispatcher = subscription.consumers, subscription.dispatcher
        reads = subscription.cursor.reader.reads
        result = SubscriptionStats(
            name=subscription.name,
            backlog=subscription.cursor.backlog,
            in_replay=len(dispatcher.redelivery.queue) if isinstance(dispatcher, SharedDispatcher) else 0,
            consumers=len(consumers),
            msgs_out=subscription.retired_messages_out,
            bytes_out=subscription.retired_bytes_out,
            msgs_redelivered=subscription.retired_redelivered,
            cache_hits=reads.hit_entries,
            cache_misses=reads.miss_entries,
            cache_coalesced=reads.coalesced_entries,
            consumer_stats=self._consumer_stats(consumers) if self._consumers else (),
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

    def _non_persistent(self, topic: NonPersistentTopic) -> TopicStats:
        subscriptions = [
            SubscriptionStats(
                name=one.name,
                consumers=len(one.consumers),
                msgs_out=sum([consumer.messages_out for consumer in one.consumers]),
                bytes_out=sum([consumer.bytes_out for consumer in one.consumers]),
                msgs_dropped=one.messages_dropped,
                consumer_stats=self._consumer_stats(one.consumers) if self._consumers else (),
            )
            for one in topic.subscriptions.values()
        ]
        return TopicStats(
            namespace=topic.name.namespace,
            topic=str(topic.name),
            producers=len(topic.access.producers),
            consumers=sum([one.consumers for one in subscriptions]),
            subscriptions=subscriptions,
            msgs_in=topic.messages_in,
            bytes_in=topic.bytes_in,
            msgs_out=sum([one.msgs_out for one in subscriptions]),
            bytes_out=sum([one.bytes_out for one in subscriptions]),
            producer_stats=self._producer_stats(topic) if self._producers else (),
        )

    def _producer_stats(self, topic: Topic) -> list[ProducerStats]:
        return [
            ProducerStats(
                name=one.name, producer_id=one.producer_id, msgs_in=one.messages_in, bytes_in=one.bytes_in
            )
            for one in topic.access.producers.values()
        ]

    def _consumer_stats(self, consumers: Iterable[Consumer]) -> list[ConsumerStats]:
        return [
            ConsumerStats(
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

    def broker_stats(self) -> BrokerStats:
        net, registry = self._broker.net, self._broker.registry
        return BrokerStats(
            cache=self._cache_stats(),
            ledgers_open=sum(isinstance(topic, PersistentTopic) for topic in registry.topics.values()),
            connections_active=len(net.connections),
            connections_created=net.counters.created,
            connections_closed=net.counters.closed,
            record=self._record_stats(),
            topic_loads=registry.loads,
            topic_loads_ms=list(registry.load_times_ms),
        )

    def _cache_stats(self) -> CacheStats:
        caches, evictions = self._broker.cache.manager, self._broker.cache.eviction_stats
        reads, stats = caches.reads(), caches.stats
        passes = {reason.value: each for reason, each in evictions.passes.items()}
        limiter = self._broker.environment.reads_limiter
        return CacheStats(
            used_bytes=caches.used_bytes,
            max_bytes=caches.settings.size_bytes_max,
            entries=caches.entries,
            pinned_bytes=self._broker.cache.pinned_bytes,
            queue_length=len(caches.policy),
            tombstones=len(caches.policy) - caches.entries,
            expected_entries=self._expected.entries,
            expected_bytes=self._expected.size_bytes,
            duplicates=stats.refused_entries,
            hits=reads.hit_entries,
            hit_bytes=reads.hit_bytes,
            misses=reads.miss_entries,
            miss_bytes=reads.miss_bytes,
            coalesced=reads.coalesced_entries,
            coalesced_bytes=reads.coalesced_bytes,
            insertions=inserted_entries(caches),
            evictions=_by_name(stats.evicted_entries),
            evicted_bytes=_by_name(stats.evicted_bytes),
            evicted_expected=_by_name(evictions.evicted_expected_entries),
            evicted_expected_bytes=_by_name(evictions.evicted_expected_bytes),
            evicted_ages={reason: _histogram(each.age) for reason, each in passes.items()},
            evicted_idle={reason: _histogram(each.idle) for reason, each in passes.items()},
            passes={reason: each.passes for reason, each in passes.items()},
            visits={reason: each.visits for reason, each in passes.items()},
            pass_slices={trigger: _histogram(times) for trigger, times in evictions.slices.items()},
            size_passes=stats.size_evictions,
            requeues=dict(caches.policy.requeues),
            joined_reads=self._joined_reads(),
            inflight_bytes=limiter.budget_bytes - limiter.remaining_bytes if limiter.enabled else -1,
            inflight_available_bytes=limiter.remaining_bytes if limiter.enabled else -1,
            inflight_limit_bytes=limiter.budget_bytes if limiter.enabled else -1,
            reads_waiting=limiter.queued,
        )

    def _record_stats(self) -> RecordStats:
        recorder = self._broker.recorder
        if recorder is None:
            return RecordStats()
        return RecordStats(
            rows=recorder.rows,
            dropped=recorder.dropped,
            size_bytes=recorder.bytes,
            files=recorder.files,
            errors=recorder.errors,
        )

    def _joined_reads(self) -> dict[str, int]:
        stats = self._broker.cache.manager.stats.pending_reads
        overlaps = {f"matched_overlapping_miss_{side}": count for side, count in stats.overlapping.items()}
        return overlaps | {
            "entries_read": stats.read,
            "entries_notread": stats.not_read,
            "matched": stats.matched,
            "matched_included": stats.matched_included,
            "missed": stats.missed,
        }


def _by_name(counts: Mapping[Reason, int]) -> dict[str, int]:
    return {reason.value: count for reason, count in counts.items()}


def _histogram(times: TimeHistogram) -> Histogram:
    bounds = [bound / NS_PER_SECOND for bound in times.bounds_ns]
    return Histogram(bounds, list(times.counts), times.sum_ns / NS_PER_SECOND)
