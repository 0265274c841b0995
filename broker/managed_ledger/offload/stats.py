"""OffloadStats: counters of copies of ledgers and of reads from them, by namespace (Pulsar's LedgerOffloaderStats)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Final

from foundation.model.time_histogram import TimeHistogram
from foundation.units import NS_PER_MS, NS_PER_SECOND

LATENCY_BOUNDS_NS: Final = tuple(
    ms * NS_PER_MS for ms in (1, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 30_000)
)
WINDOW_NS: Final = 60 * NS_PER_SECOND
"""Over which the rates are computed, as in Pulsar."""
_Histograms = defaultdict[str, TimeHistogram]


def _histograms() -> _Histograms:
    return defaultdict(partial(TimeHistogram, LATENCY_BOUNDS_NS))


class OffloadStats:
    """Numbers by namespace, `tenant/namespace`."""

    def __init__(self) -> None:
        self.offloaded_bytes = Counter[str]()
        """Bytes of entries that were copied."""
        self.offload_errors = Counter[str]()
        """Copies that failed."""
        self.write_errors = Counter[str]()
        """Writes that the storage refused."""
        self.read_bytes = Counter[str]()
        """Bytes of entries that were read from copies."""
        self.read_errors = Counter[str]()
        """Reads from copies that failed."""
        self.deletes = Counter[tuple[str, str]]()
        """Deletions of copies, by namespace and `succeed` or `failed`."""
        self.write_latency: _Histograms = _histograms()
        """Of whole objects."""
        self.read_ledger_latency: _Histograms = _histograms()
        """Reads from the bookies for a copy."""
        self.read_index_latency: _Histograms = _histograms()
        """Reads of indexes."""
        self.read_data_latency: _Histograms = _histograms()
        """Range requests."""
        self.offload_rate: Mapping[str, float] = {}
        """Bytes per second that were copied in the last whole window."""
        self.read_rate: Mapping[str, float] = {}
        """The same of `read_bytes`."""
        self._window_ns = 0
        self._before = (Counter[str](), Counter[str]())

    def roll(self, now_ns: int) -> None:
        """Ends the window of the rates when its time is over."""
        span_ns = now_ns - self._window_ns
        if span_ns < WINDOW_NS:
            return
        copied, read = self._before
        span_s = span_ns / NS_PER_SECOND
        self.offload_rate = {key: (n - copied[key]) / span_s for key, n in self.offloaded_bytes.items()}
        self.read_rate = {key: (n - read[key]) / span_s for key, n in self.read_bytes.items()}
        self._window_ns = now_ns
        self._before = Counter(self.offloaded_bytes), Counter(self.read_bytes)


def namespace_of(ledger_name: str) -> str:
    """Returns the namespace in the name of a managed ledger."""
    return "/".join(ledger_name.split("/", 2)[:2])
