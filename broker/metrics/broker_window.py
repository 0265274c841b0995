"""BrokerWindow: rates of the broker's own counters in a window, the difference of two readings by the time between them."""

from __future__ import annotations

from broker.metrics.broker_reading import BrokerReading
from entry_cache.cache_stats import ReadStats


class BrokerWindow:
    """The last whole window of the broker's own counters: cache rates, times to open a topic."""

    def __init__(self, started_ns: int) -> None:
        """The first window begins at `started_ns`."""
        self._rolled_ns = started_ns
        self._reads = ReadStats()
        self._size_evictions = 0
        self._loads_seen = 0
        self.hits_rate = 0.0
        """Entries per second read from the cache."""
        self.hits_throughput = 0.0
        """Their bytes per second."""
        self.misses_rate = 0.0
        """Entries per second read from storage."""
        self.misses_throughput = 0.0
        """Their bytes per second."""
        self.evictions = 0
        """Size checks of the window that found bytes to free."""
        self.topic_loads_ms: list[float] = []
        """Times to open the topics that were opened in the window, sorted."""

    def roll(self, now: BrokerReading, now_ns: int) -> None:
        """Closes the window. Does nothing when no time has passed since the last roll."""
        seconds = (now_ns - self._rolled_ns) / 1e9
        if seconds <= 0:
            return
        before = self._reads
        self.hits_rate = (now.reads.hit_entries - before.hit_entries) / seconds
        self.hits_throughput = (now.reads.hit_bytes - before.hit_bytes) / seconds
        self.misses_rate = (now.reads.miss_entries - before.miss_entries) / seconds
        self.misses_throughput = (now.reads.miss_bytes - before.miss_bytes) / seconds
        size_evictions = now.manager.stats.size_evictions
        self.evictions = size_evictions - self._size_evictions
        # Only the last times are kept; more topics than that may have been opened in the window.
        times = list(now.topic_loads_ms)
        new = min(now.topic_loads - self._loads_seen, len(times))
        self.topic_loads_ms = sorted(times[len(times) - new :])
        self._loads_seen = now.topic_loads
        self._rolled_ns = now_ns
        self._reads = now.reads
        self._size_evictions = size_evictions
