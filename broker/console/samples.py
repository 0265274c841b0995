"""Samples: the numbers of the whole broker at one moment, and the last hour of them. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import gt, sub
from typing import Final

from broker.console.traffic import COUNTED, RATES, TrafficCounts
from broker.managed_ledger.stats import ADD_LATENCY_BOUNDS_NS
from broker.numbers.windows import Histogram, quantile
from foundation.value import Json

SECONDS_KEPT: Final = 300
"""Samples of one second that are kept: five minutes."""
TENS_KEPT: Final = 360
"""Samples of ten seconds that are kept: an hour."""

HISTORY: Final = (
    "atMs",
    *RATES,
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
TOPIC_HISTORY: Final = (*HISTORY[: HISTORY.index("hitRatio") + 1], "backlog")
"""The numbers that the history of one topic keeps."""
NO_TRAFFIC: Final[Mapping[str, Json]] = dict.fromkeys(HISTORY[1 : HISTORY.index("hitRatio") + 1])
"""Rates before the second count."""
LATENCY_NS: Final = 60_000_000_000
"""The time before a count whose publish latencies are shown: a minute, as in Pulsar's summaries."""
BOUNDS_MS: Final = tuple(bound / 1e6 for bound in ADD_LATENCY_BOUNDS_NS)
"""Bounds of publish latencies in ms; a latency above them is shown as more than the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Counters and levels of the broker at one moment."""

    at_ns: int
    """Monotonic time."""
    at_ms: int
    """Milliseconds since 1970."""
    counts: TrafficCounts
    """Counters over all topics."""
    levels: Mapping[str, int]
    """Open topics, and sums over all of them, by their names in the answers."""
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


class Rates:
    """Makes rates of counters: each of the time since the count before, publish latencies of the last minute."""

    def __init__(self) -> None:
        """Has counted nothing."""
        # The counts of the last minute; the first one is older, so that they span all of it.
        self._minute: deque[tuple[int, tuple[int, ...]]] = deque()
        self._counts = TrafficCounts()

    def rates(self, at_ns: int, counts: TrafficCounts) -> dict[str, Json]:
        """Returns the rates at a count, which is newer than the one before; all are None at the first one."""
        minute, old = self._minute, self._counts
        if minute and any(map(gt, old.latencies, counts.latencies)):
            # The topic was closed and opened again, so its counters began anew.
            minute.clear()
        before_ns = minute[-1][0] if minute else None
        minute.append((at_ns, counts.latencies))
        while len(minute) > 2 and minute[1][0] <= at_ns - LATENCY_NS:
            minute.popleft()
        self._counts = counts
        if before_ns is None or at_ns <= before_ns:
            return {**NO_TRAFFIC}
        seconds = (at_ns - before_ns) / 1e9
        latencies = tuple(map(sub, counts.latencies, minute[0][1]))
        growth = dict(zip(COUNTED, map(sub, counts.numbers, old.numbers), strict=True))
        reads = growth["reads"]
        return {
            **{name: max(0, growth[name]) / seconds for name in RATES},
            "publishP50Ms": _latency_ms(latencies, 0.5),
            "publishP99Ms": _latency_ms(latencies, 0.99),
            "hitRatio": growth["hits"] / reads if reads > 0 else None,
        }


class Interval:
    """Makes samples of the time between two readings."""

    def __init__(self) -> None:
        """Has read nothing."""
        self._rates = Rates()
        self._counted_ns = 0
        self._window_s: float | None = None
        self._traffic: dict[str, Json] = {**NO_TRAFFIC}

    def sample(self, now: Reading) -> dict[str, Json]:
        """Returns the sample from the reading of the last call to this one; the first one has no rates.

        Rates are repeated where the sums over all topics were not counted again since.
        """
        if now.counted_ns > self._counted_ns:
            self._traffic = self._rates.rates(now.counted_ns, now.counts)
            self._window_s = (now.counted_ns - self._counted_ns) / 1e9 if self._counted_ns else None
            self._counted_ns = now.counted_ns
        hits, reads = now.counts.numbers[len(RATES) :]
        return {
            "atMs": now.at_ms,
            **self._traffic,
            "cacheBytes": now.cache_bytes,
            **now.levels,
            "journalP50Ms": now.journal_p50_ms,
            "journalP99Ms": now.journal_p99_ms,
            "loopLagMs": now.loop_lag_ms,
            "connections": now.connections,
            "hitRatioTotal": hits / reads if reads else None,
            "cacheMaxBytes": now.cache_max_bytes,
            "cacheEntries": now.cache_entries,
            "windowSeconds": self._window_s,
            "countedSecondsAgo": (now.at_ns - now.counted_ns) / 1e9,
        }


def _latency_ms(counts: Sequence[int], q: float) -> float | None:
    """Returns the latency below which a share `q` of the entries lies; None without entries."""
    return quantile(Histogram(BOUNDS_MS, counts, 0.0), q) if any(counts) else None


class History:
    """The last five minutes by seconds and the last hour by ten seconds, as rows of some fields."""

    def __init__(self, fields: Sequence[str] = HISTORY) -> None:
        """Is empty; the first one of `fields` is `atMs`."""
        self._fields = fields
        self._seconds: deque[list[Json]] = deque(maxlen=SECONDS_KEPT)
        self._tens: deque[list[Json]] = deque(maxlen=TENS_KEPT)

    def add_second(self, sample: dict[str, Json]) -> None:
        """Keeps a sample of one second."""
        self._seconds.append([sample[name] for name in self._fields])

    def add_ten(self, sample: dict[str, Json]) -> None:
        """Keeps a sample of ten seconds, and drops seconds of a page that was open before the last five minutes."""
        row = [sample[name] for name in self._fields]
        self._tens.append(row)
        while self._seconds and _at_ms(self._seconds[0]) < _at_ms(row) - SECONDS_KEPT * 1000:
            self._seconds.popleft()

    @property
    def newest_ten(self) -> list[Json]:
        """The newest row of ten seconds; [] before the first one. Each event has it: no page can make it of seconds."""
        return self._tens[-1] if self._tens else []

    def shown(self) -> dict[str, Json]:
        """Returns the event `history`."""
        return {"fields": [*self._fields], "seconds": [*self._seconds], "tens": [*self._tens]}


def _at_ms(row: Sequence[Json]) -> int:
    return int(str(row[0]))
