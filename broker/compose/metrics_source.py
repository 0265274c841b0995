"""Connects the metrics room to a broker: the settings of its scrapes, and the objects that it reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from broker.compose.broker_service import BrokerService
from broker.compose.room_settings import LateTier
from broker.managed_ledger.offload.stats import OffloadStats
from broker.metrics.broker_reading import BrokerReading
from broker.metrics.exposition import ExpositionSettings
from broker.metrics.network import NetworkSettings
from broker.metrics.scraper import Scraper
from broker.numbers.ended_sums import EndedSums, Walk
from broker.numbers.namespace_sums import NamespaceSums
from broker.numbers.readings import Chosen, TopicReading
from broker.numbers.topic_reader import TopicReader
from broker.security.authentication.counts import AuthenticationCounts
from broker.service.lifecycle.namespace_topics import find_owned_bundles
from broker.service.namespaces.bundles import OwnedBundles
from entry_cache.cache_stats import ReadStats
from entry_cache.observe.expected_level import ExpectedLevel, count_expected
from foundation.settings.settings import Settings
from foundation.value import Json

BUNDLES_AGE_NS: Final = 60_000_000_000
"""Age at which the number of owned bundles is counted again: a count may look at every topic."""


def scraper_of(broker: BrokerService) -> Scraper:
    """Returns the scraper of a broker; its windows begin now."""
    settings = broker.settings
    exposition = ExpositionSettings(
        cluster=settings.str("clusterName"),
        topic_level=settings.bool("exposeTopicLevelMetricsInPrometheus"),
        idle_topics=settings.bool("exposeIdleTopicsInPrometheus"),
        consumer_level=settings.bool("exposeConsumerLevelMetricsInPrometheus"),
        producer_level=settings.bool("exposeProducerLevelMetricsInPrometheus"),
        managed_ledger=settings.bool("exposeManagedLedgerMetricsInPrometheus"),
        split_partition=settings.bool("splitTopicAndPartitionLabelInPrometheus"),
        cache_subscriptions_max=settings.int("entryCacheSubscriptionMetricsMax"),
    )
    source = MetricsSource(
        broker,
        consumers=exposition.consumer_level,
        producers=exposition.producer_level,
        keeps_sums=not (exposition.topic_level and exposition.idle_topics),
    )
    return Scraper(exposition, broker.version, source, broker.environment.now_ns, network_settings(settings))


async def tell_load(broker: BrokerService, scraper: Scraper) -> None:
    """Lets the broker tell its load: at once where other brokers choose by it, else from the first request on."""
    ownership = broker.registry.ownership

    async def first() -> dict[str, Json]:
        # Late: a broker alone needs no part of a cluster.
        from broker.compose.load_meter import measure_load

        measure_load(broker, scraper.window_of)
        return await ownership.load_report()

    ownership.load_report = first
    if ownership.is_shared:
        await first()


def network_settings(settings: Settings) -> NetworkSettings:
    """Returns the network interfaces that count."""
    return NetworkSettings(
        names=settings.list("loadBalancerOverrideBrokerNics"),
        gbit_per_s=settings.optional_float("loadBalancerOverrideBrokerNicSpeedGbps") or 0.0,
    )


class MetricsSource:
    """The readings of one broker."""

    def __init__(
        self, broker: BrokerService, *, consumers: bool, producers: bool, keeps_sums: bool = False
    ) -> None:
        """`consumers`, `producers`: read each of them too; without, their readings stay empty.

        `keeps_sums`: a scrape does not print every topic, so it shall not read every topic either.
        """
        self._broker = broker
        self._topics = TopicReader(
            broker.registry,
            broker.environment.ledgers.settings.write_quorum,
            consumers=consumers,
            producers=producers,
        )
        self.sums = NamespaceSums(self._topics, broker.environment.changed) if keeps_sums else None
        """Sums over all topics, kept between scrapes."""
        self.ended = EndedSums(broker.registry, self._topics, self.sums)
        """Counters of closed topics, which sums over topics go on from."""
        self._reads = ReadStats()
        self._expected = ExpectedLevel(0, 0)
        self._bundles = 0
        self._bundles_due_ns = 0

    def topics(self, walk: Walk) -> Iterator[TopicReading]:
        """Yields a reading of each open topic; see `TopicReader.topics`."""
        return self._topics.topics(walk.passed_over)

    def chosen(self, chosen: Chosen) -> Iterator[TopicReading]:
        """Yields a reading of each chosen topic; see `TopicReader.chosen`."""
        return self._topics.chosen(chosen)

    def since(self, before: Mapping[str, TopicReading]) -> Iterator[TopicReading | None]:
        """Yields a reading of each topic for a window; see `TopicReader.since`."""
        return self._topics.since(before)

    def count_reads(self) -> Iterator[None]:
        """Sums the reads through all caches, which 100,000 topics make a walk of 25 ms."""
        reads = ReadStats()
        yield from self._broker.cache.manager.count_reads(reads)
        self._reads = reads

    def count_levels(self) -> Iterator[None]:
        """Counts the cached entries with expected reads, and the bundles that have open topics."""
        yield from self.count_reads()
        cache, now_ns = self._broker.cache, self._broker.environment.now_ns()
        expectations = cache.eviction_stats.expectations
        self._expected = yield from count_expected(cache.manager.caches, expectations, now_ns)
        if now_ns < self._bundles_due_ns:
            return
        self._bundles_due_ns = now_ns + BUNDLES_AGE_NS
        bundles = OwnedBundles()
        yield from find_owned_bundles(self._broker.registry, bundles)
        self._bundles = len(bundles)

    def broker(self) -> BrokerReading:
        """Returns the objects that count for the whole broker."""
        tier = self._broker.environment.open_tier
        made = tier.made if isinstance(tier, LateTier) else None
        offloads = OffloadStats() if made is None else made.stats
        offloads.roll(self._broker.environment.now_ns())
        net, registry, cache = self._broker.net, self._broker.registry, self._broker.cache
        return BrokerReading(
            cache=cache,
            reads=self._reads,
            expected=self._expected,
            limiter=self._broker.environment.reads_limiter,
            ack_cuts=self._broker.environment.ack_cuts,
            clock_clamps=self._broker.environment.clock_clamps,
            time_searches=self._broker.environment.time_searches,
            record=self._broker.recorder,
            connections=net.counters,
            authentication=AuthenticationCounts() if net.authenticator is None else net.authenticator.counts,
            connections_active=len(net.connections),
            ledgers_open=len(cache.manager.caches),
            bundles_owned=self._bundles,
            lookups_pending=net.lookups,
            coordinators={} if net.coordinators is None else net.coordinators.by_number,
            deletions=self._broker.deletions,
            last_audit=self._broker.last_audit,
            quota_checks=registry.quota_checks,
            topic_loads=registry.loads,
            topic_loads_ms=registry.load_times_ms,
            dormant=registry.dormant,
            cluster=registry.ownership.counts,
            offloads=offloads,
            loop_lag_s=self._broker.loop_watch.lag_s,
        )
