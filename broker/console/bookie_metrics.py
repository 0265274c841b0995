"""Reads the numbers of a bookie from the text of its `/metrics`, ours or Apache's. Pure.

Both use BookKeeper's names. A number that the text does not have is None: Apache's bookie does not count the entries that
its read cache evicted before their first use.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_JOURNAL: Final = "bookie_journal_JOURNAL_SYNC"
_HITS: Final = "bookie_read_cache_hits"
_MISSES: Final = "bookie_read_cache_misses"
_EVICTED: Final = "magnetar_read_cache_evicted_unserved"
_STATUS: Final = "bookie_SERVER_STATUS"
_DIRECTORIES: Final = "bookie_ledger_num_dirs"
_WRITABLE: Final = "bookie_ledger_writable_dirs"
_NAMES: Final = (_JOURNAL, _HITS, _MISSES, _EVICTED, _STATUS, _DIRECTORIES, _WRITABLE)
# A scrape has thousands of lines, and only these are looked at.
_LINE: Final = re.compile(rf"^({'|'.join(_NAMES)})(?:{{([^}}\n]*)}})? (\S+)", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class BookieMetrics:
    """The numbers of one scrape that the console shows."""

    read_only: bool | None
    """True while the bookie refuses new entries."""
    journal_p50_ms: float | None
    """Median time of the journal's syncs; of several journals that of the slowest."""
    journal_p99_ms: float | None
    """99th percentile."""
    hits: int | None
    """Entries served from the read cache since the start."""
    misses: int | None
    """Entries that a load was started for."""
    evicted_unserved: int | None
    """Entries read ahead and evicted before a reader came."""
    directories: int | None
    """Ledger directories."""
    writable_directories: int | None
    """Those that take new entries."""


def metrics_of(text: str) -> BookieMetrics:
    """Returns the numbers in the text of a scrape; lines that are no samples are left out."""
    sums: dict[str, float] = {}
    journals: dict[str, float] = {}
    for name, labels, value in _samples(text):
        if name == _JOURNAL:
            if labels.get("success") == "true":
                quantile = labels.get("quantile", "")
                journals[quantile] = max(value, journals.get(quantile, 0.0))
        else:
            # Apache's bookie has a line for each ledger directory.
            sums[name] = sums.get(name, 0.0) + value
    status = sums.get(_STATUS)
    return BookieMetrics(
        None if status is None else status == 0,
        journals.get("0.5"),
        journals.get("0.99"),
        *(_count(sums.get(name)) for name in (_HITS, _MISSES, _EVICTED, _DIRECTORIES, _WRITABLE)),
    )


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for name, labels, number in _LINE.findall(text):
        try:
            value = float(number)
        except ValueError:
            continue
        # A quantile without observations is NaN.
        if math.isfinite(value):
            yield name, dict(_LABEL.findall(labels)), value


def _count(value: float | None) -> int | None:
    return None if value is None else int(value)
