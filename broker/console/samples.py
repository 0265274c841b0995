"""Samples: the numbers of the whole broker at one moment, and the last hour of them. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import sub
from typing import Final

from broker.console.traffic import Counts, Levels
from broker.service.namespaces import Json

SECONDS_KEPT: Final = 300
"""Samples of one second that are kept: five minutes."""
TENS_KEPT: Final = 360
"""Samples of ten seconds that are kept: an hour."""

HISTORY: Final = (
    "atMs",
    "messagesIn",
    "bytesIn",
    "messagesOut",
    "bytesOut",
    "publishP50Ms",
    "publishP99Ms",
    "hitRatio",
    "cacheBytes",
    "backlog",
    "journalP50Ms",
    "journalP99Ms",
    "loopLagMs",
    "connections",
)
"""The numbers of a sample that the history keeps, under the names of the answer."""
NO_TRAFFIC: Final[Mapping[str, Json]] = {
    "messagesIn": 0.0,
    "bytesIn": 0.0,
    "messagesOut": 0.0,
    "bytesOut": 0.0,
    "publishP50Ms": None,
    "publishP99Ms": None,
    "hitRatio": None,
}
"""Rates before the second reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Counters and levels of the broker at one moment."""

    at_ns: int
    """Monotonic time."""
    at_ms: int
    """Milliseconds since 1970."""
    counts: Counts
    """Counters over all topics."""
    levels: Levels
    """Sums over all topics."""
    cache_bytes: int = 0
    """Bytes in the cache."""
    cache_max_bytes: int = 0
    """The cache's limit."""
    cache_entries: int = 0
    """Entries in the cache."""
    connections: int = 0
    """Open connections of clients."""
    loop_lag_ms: float = 0.0
    """Longest lag of the event loop in the last ten to twenty seconds."""
    journal_p50_ms: float | None = None
    """Median time of a write in the embedded bookie's journal; None where the broker does not know it."""
    journal_p99_ms: float | None = None
    """Its 99th percentile."""
    counted_ns: int = 0
    """Monotonic time at which messages and bytes were counted; a sample may repeat older sums."""
    walked_ns: int = 0
    """Monotonic time of the sums over all topics."""


class Interval:
    """Makes samples of the time between two readings."""

    def __init__(self, bounds_ms: Sequence[float]) -> None:
        """`bounds_ms` are those of `Counts.latencies`."""
        self._bounds_ms = bounds_ms
        self._counted: Reading | None = None
        self._traffic: dict[str, Json] = {**NO_TRAFFIC}

    def sample(self, now: Reading) -> dict[str, Json]:
        """Returns the sample from the reading of the last call to this one; the first one has no rates.

        Rates are repeated where the sums over all topics were not counted again since.
        """
        if self._counted is None:
            self._counted = now
        elif now.counted_ns > self._counted.counted_ns:
            self._traffic = self._between(self._counted, now)
            self._counted = now
        return {
            "atMs": now.at_ms,
            **self._traffic,
            "cacheBytes": now.cache_bytes,
            "backlog": now.levels.backlog,
            "journalP50Ms": now.journal_p50_ms,
            "journalP99Ms": now.journal_p99_ms,
            "loopLagMs": now.loop_lag_ms,
            "connections": now.connections,
            "hitRatioTotal": now.counts.hits / now.counts.reads if now.counts.reads else None,
            "cacheMaxBytes": now.cache_max_bytes,
            "cacheEntries": now.cache_entries,
            "topics": now.levels.topics,
            "producers": now.levels.producers,
            "consumers": now.levels.consumers,
            "subscriptions": now.levels.subscriptions,
            "storageBytes": now.levels.storage_bytes,
            "walkedSecondsAgo": (now.at_ns - now.walked_ns) / 1e9,
        }

    def _between(self, before: Reading, now: Reading) -> dict[str, Json]:
        seconds = (now.counted_ns - before.counted_ns) / 1e9
        old, new = before.counts, now.counts
        latencies = tuple(map(sub, new.latencies, old.latencies))
        reads = new.reads - old.reads
        return {
            "messagesIn": (new.messages_in - old.messages_in) / seconds,
            "bytesIn": (new.bytes_in - old.bytes_in) / seconds,
            "messagesOut": (new.messages_out - old.messages_out) / seconds,
            "bytesOut": (new.bytes_out - old.bytes_out) / seconds,
            "publishP50Ms": quantile(self._bounds_ms, latencies, 0.5),
            "publishP99Ms": quantile(self._bounds_ms, latencies, 0.99),
            "hitRatio": (new.hits - old.hits) / reads if reads > 0 else None,
        }


def quantile(bounds: Sequence[float], counts: Sequence[int], q: float) -> float | None:
    """Returns the value below which a share `q` of the counted values lies; None without values.

    Values are taken as spread evenly over their bucket; one above all bounds counts as the last bound.
    """
    total = sum(counts)
    if total <= 0:
        return None
    rank = q * total
    lower = 0.0
    seen = 0
    for bound, count in zip(bounds, counts, strict=False):  # There is one count more, for the rest.
        if count > 0 and seen + count >= rank:
            return lower + (bound - lower) * (rank - seen) / count
        seen += count
        lower = bound
    return lower


class History:
    """The last five minutes by seconds and the last hour by ten seconds, as rows of `HISTORY`."""

    def __init__(self) -> None:
        """Is empty."""
        self._seconds: deque[list[Json]] = deque(maxlen=SECONDS_KEPT)
        self._tens: deque[list[Json]] = deque(maxlen=TENS_KEPT)

    def add_second(self, sample: dict[str, Json]) -> None:
        """Keeps a sample of one second."""
        self._seconds.append([sample[name] for name in HISTORY])

    def add_ten(self, sample: dict[str, Json]) -> None:
        """Keeps a sample of ten seconds, and drops seconds of a page that was open before the last five minutes."""
        row = [sample[name] for name in HISTORY]
        self._tens.append(row)
        while self._seconds and _at_ms(self._seconds[0]) < _at_ms(row) - SECONDS_KEPT * 1000:
            self._seconds.popleft()

    def shown(self) -> dict[str, Json]:
        """Returns the event `history`."""
        return {"fields": [*HISTORY], "seconds": [*self._seconds], "tens": [*self._tens]}


def _at_ms(row: Sequence[Json]) -> int:
    return int(str(row[0]))
