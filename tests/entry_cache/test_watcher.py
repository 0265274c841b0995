"""An observer of cache events that fails is left; inserts and reads go on."""

from __future__ import annotations

import pytest

from broker.compose.cache_settings import EntryCacheSettings
from entry_cache.compose import ComposedCache
from entry_cache.observe.cache_events import CacheEvent
from entry_cache.observe.decisions import Decisions
from tests.entry_cache.cache_fakes import new_run


class Failing:
    """Fails from a given event on."""

    def __init__(self, good: int) -> None:
        self.good = good
        self.calls = 0

    def take(self, row: CacheEvent) -> None:
        self.calls += 1
        if self.calls > self.good:
            raise ZeroDivisionError("by the test")


@pytest.mark.parametrize("good", [0, 1])
def test_failing_observer_is_left_and_logged_once(good: int, caplog: pytest.LogCaptureFixture) -> None:
    composed = ComposedCache(EntryCacheSettings(1 << 20), Decisions(0, lambda: 0))
    cache = composed.manager.open("log")
    observer = Failing(good)
    composed.decisions.watch(observer.take)
    assert cache.insert_run(new_run(0, 3), 1, 0) == 4
    reader = cache.reader("s")
    for _ in range(3):
        assert len(cache.read_run(reader, 1, 0, 3, 1 << 20)) == 4
    assert observer.calls == good + 1
    assert not composed.decisions.on, "nothing listens any more, so events cost nothing"
    failures = [line for line in caplog.records if "observer" in line.getMessage()]
    assert [line.exc_info is not None for line in failures] == [True]
