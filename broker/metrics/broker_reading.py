"""BrokerReading: the objects that count for the whole broker, as one scrape or window finds them.

Nothing is copied: the families of `broker_families.py` name fields of these objects ("manager.used_bytes"), and `value_at`
follows such a name. So a new count of a room needs one line there and none here. Objects of rooms at the same level are
`object`, because imports go down only and names are followed at run time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from broker.managed_ledger.inflight_reads_limiter import InflightReadsLimiter
from broker.managed_ledger.offload.stats import OffloadStats
from broker.managed_ledger.stats import AckStateCuts, TimeSearches
from broker.security.authentication.counts import AuthenticationCounts
from broker.service.lifecycle.deletion.deletions import Deletions
from broker.service.lifecycle.deletion.last_audit import LastAudit
from broker.service.topics.dormant_topics import DormantTopics
from broker.service.topics.topic_ownership import OwnershipCounts
from broker.service.transactions.coordinator import Coordinator
from entry_cache.cache_stats import ReadStats
from entry_cache.compose import ComposedCache
from entry_cache.entry_cache_manager import EntryCacheManager
from entry_cache.observe.curve import Point
from entry_cache.observe.eviction_stats import EvictionStats
from entry_cache.observe.expected_level import ExpectedLevel
from foundation.model.time_histogram import TimeHistogram
from protocol.broker_entry_metadata import ClockClamps


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReading:
    """The counting objects. Only `reads` is a sum made for this reading, so that a window can keep it."""

    cache: ComposedCache
    """The entry cache and everything that observes it."""
    reads: ReadStats
    """Reads through all caches, removed caches included."""
    expected: ExpectedLevel
    """Cached entries with expected reads, counted by a walk before the scrape."""
    limiter: InflightReadsLimiter
    """The budget of reads in flight."""
    ack_cuts: AckStateCuts
    """Writes of cursors that could not store every acknowledgement."""
    clock_clamps: ClockClamps
    """Entries whose timestamp is later than the clock."""
    time_searches: TimeSearches
    """Searches by time, and the entries that they have read."""
    record: object | None
    """The recorder's counters; None while nothing is recorded."""
    connections: object
    """Counters of client connections since the start."""
    authentication: AuthenticationCounts
    """Outcomes of authentication since the start."""
    connections_active: int
    """Client connections that are open."""
    ledgers_open: int
    """Open managed ledgers: those of topics, and the logs of transactions."""
    bundles_owned: int
    """Bundles of namespaces that have open topics, counted by a walk at most a minute ago."""
    lookups_pending: int
    """Lookups of topics that are not yet answered."""
    coordinators: Mapping[int, Coordinator]
    """Transaction coordinators by number; none with `transactionCoordinatorEnabled=false`."""
    last_audit: LastAudit
    """Findings of the last audit of leaks."""
    deletions: Deletions
    """Deletions of topics, namespaces and tenants."""
    quota_checks: TimeHistogram
    """Durations of the comparisons of all backlogs with their quotas."""
    topic_loads: int
    """Topics opened since the start."""
    topic_loads_ms: Sequence[float]
    """Times to open the last of them, in the order in which they were opened."""
    dormant: DormantTopics
    """The topics that are dormant."""
    cluster: OwnershipCounts
    """This broker's place among those that share its metadata store."""
    offloads: OffloadStats
    """Copies of ledgers in other storage, and reads from them."""
    loop_lag_s: float
    """Longest time for which one callback held the event loop in the last ten to twenty seconds."""

    @property
    def manager(self) -> EntryCacheManager:
        """The caches of all managed ledgers."""
        return self.cache.manager

    @property
    def evictions(self) -> EvictionStats:
        """The passes, and the ages of evicted entries."""
        return self.cache.eviction_stats

    @property
    def policies(self) -> Mapping[str, int]:
        """Maps the name of the active policy to 1."""
        return {self.manager.settings.policy: 1}

    @property
    def curve(self) -> Mapping[str, Point]:
        """The miss ratios of other sizes, by their share of the present size; empty while nobody looks at the curve."""
        sampling, size_bytes = self.cache.sampling, self.manager.settings.size_bytes_max
        if sampling is None or not size_bytes:
            return {}
        return {f"{point.size_bytes / size_bytes:.2g}": point for point in sampling.curve().points}

    @property
    def evicted_entries(self) -> int:
        """Entries removed from the cache for any reason."""
        return sum(self.manager.stats.evicted_entries.values())

    @property
    def inflight_bytes(self) -> int:
        """Bytes being read; -1 without a limit, as in Pulsar."""
        return self.limiter.budget_bytes - self.limiter.remaining_bytes if self.limiter.enabled else -1

    @property
    def inflight_available_bytes(self) -> int:
        """Bytes that further reads may request at once; -1 without a limit."""
        return self.limiter.remaining_bytes if self.limiter.enabled else -1

    @property
    def inflight_limit_bytes(self) -> int:
        """The limit itself; -1 without one."""
        return self.limiter.budget_bytes if self.limiter.enabled else -1


def value_at(found: object, *names: str) -> object:
    """Returns the value that a chain of field names and keys leads to from an object.

    `*` in the chain stands for every value of a mapping, and the result is a mapping then. None counts as 0.
    Raises AttributeError or KeyError for a name that does not exist.
    """
    for place, name in enumerate(names):
        if found is None:
            return 0
        if isinstance(found, Mapping):
            if name == "*":
                return {key: value_at(value, *names[place + 1 :]) for key, value in found.items()}
            found = found[name]
        else:
            found = getattr(found, name)
    return found
