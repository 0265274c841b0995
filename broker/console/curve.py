"""CurveSampling: the miss ratio curve of the running cache, sampled while somebody looks at it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from entry_cache.active_cursors import ActiveCursors
from entry_cache.compose import ComposedCache
from entry_cache.observe.miss_ratio import MissRatios
from foundation.value import Json

LINGER_NS: Final = 600_000_000_000
"""Time after the last request for which the sampling goes on, so that a page that is opened again finds its curve."""


class CurveSampling:
    """Begins with a request and ends some time after the last one."""

    def __init__(self, cache: ComposedCache, now_ns: Callable[[], int]) -> None:
        """`now_ns` is the clock of the cache."""
        self._cache = cache
        self._now_ns = now_ns
        self._ratios: MissRatios | None = None
        self._asked_ns = 0

    def shown(self) -> Json:
        """Returns the curve so far; begins the sampling if it does not run.

        `stopped` tells of a sampling that failed: the curve stays as it was, until `expire` has ended it.
        """
        manager, now_ns = self._cache.manager, self._now_ns()
        self._asked_ns = now_ns
        ratios = self._ratios
        if ratios is None:
            ratios = self._ratios = self._cache.sampling = MissRatios(
                manager.settings, manager.entries, self._cursors, now_ns
            )
            self._cache.decisions.watch(ratios.take)
        ratios.configure(manager.settings)
        curve = ratios.curve()
        failure = self._cache.decisions.watcher_failure
        until_ns = now_ns if failure is None else failure.at_ns
        return {
            "sinceSeconds": (until_ns - curve.since_ns) / 1e9,
            "stopped": None
            if failure is None
            else {"secondsAgo": (now_ns - failure.at_ns) / 1e9, "reason": failure.reason},
            "reads": curve.reads,
            "rate": curve.rate,
            "enough": curve.is_enough,
            "unknownShare": curve.unknown_share,
            "now": {"bytes": manager.settings.size_bytes_max, "measured": curve.measured},
            "points": [
                {
                    "bytes": point.size_bytes,
                    "missRatio": point.miss_ratio,
                    "standardError": point.standard_error,
                    "evictedExpected": point.evicted_expected,
                }
                for point in curve.points
            ],
            "note": curve.note,
        }

    def expire(self) -> None:
        """Ends the sampling when the last request is long ago."""
        if self._ratios is not None and self._now_ns() - self._asked_ns > LINGER_NS:
            self._ratios = self._cache.sampling = None
            self._cache.decisions.watch(None)

    def _cursors(self, log: str) -> ActiveCursors | None:
        cache = self._cache.manager.find(log)
        return None if cache is None else cache.cursors
