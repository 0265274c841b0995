"""A reading of the broker for tests: a real cache, and plain counters in place of the network and the record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

from broker.compose.cache_settings import EntryCacheSettings
from broker.managed_ledger.inflight_reads_limiter import InflightReadsLimiter
from broker.managed_ledger.offload.stats import OffloadStats
from broker.managed_ledger.stats import AckStateCuts, TimeSearches
from broker.metrics.broker_reading import BrokerReading
from broker.security.authentication.counts import AuthenticationCounts
from broker.service.lifecycle.deletion.deletions import Deletions
from broker.service.lifecycle.deletion.last_audit import LastAudit
from broker.service.topics.topic_registry import QUOTA_CHECK_BOUNDS_NS
from entry_cache.cache_stats import ReadStats
from entry_cache.compose import ComposedCache
from entry_cache.observe.expected_level import ExpectedLevel
from foundation.model.time_histogram import TimeHistogram
from protocol.broker_entry_metadata import ClockClamps
from tests.fakes.dormant import NONE_DORMANT


@dataclass
class Connections:
    """Counts of connections, as the network room keeps them."""

    created: int = 0
    closed: int = 0
    corrupt_sends: int = 0


@dataclass
class NoDeletions:
    """The counts of `Deletions`, without a registry."""

    resumed: int = 0
    oldest_age_s: float = 0.0


def reading_of(**fields: Any) -> BrokerReading:
    """Returns a reading in which everything is 0, but for the given fields."""
    reading = BrokerReading(
        cache=ComposedCache(EntryCacheSettings()),
        reads=ReadStats(),
        expected=ExpectedLevel(0, 0),
        limiter=InflightReadsLimiter(0, 0, 0),
        ack_cuts=AckStateCuts(),
        clock_clamps=ClockClamps(),
        time_searches=TimeSearches(),
        record=None,
        connections=Connections(),
        authentication=AuthenticationCounts(),
        connections_active=0,
        ledgers_open=0,
        bundles_owned=0,
        lookups_pending=0,
        coordinators={},
        deletions=cast("Deletions", NoDeletions()),
        last_audit=LastAudit(),
        quota_checks=TimeHistogram(QUOTA_CHECK_BOUNDS_NS),
        topic_loads=0,
        topic_loads_ms=(),
        dormant=NONE_DORMANT,
        offloads=OffloadStats(),
        loop_lag_s=0.0,
    )
    return replace(reading, **fields)


def reads(hits: int = 0, hit_bytes: int = 0, misses: int = 0) -> ReadStats:
    """Returns counts of reads."""
    stats = ReadStats()
    stats.hit_entries, stats.hit_bytes, stats.miss_entries = hits, hit_bytes, misses
    return stats
