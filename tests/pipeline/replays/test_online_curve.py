"""The miss ratios that a running broker estimates, compared with replays of the record of the same events."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.compose.cache_settings import EntryCacheSettings
from broker.recorder.record_reader import events, find
from entry_cache.observe import miss_ratio
from entry_cache.observe.cache_events import Op
from entry_cache.observe.miss_ratio import ENTRIES_MAX, FACTORS, MissRatios
from entry_cache.observe.replay import Replay
from pipeline.replays.making import accesses_of
from pipeline.replays.replay import replay_with

SAMPLE = Path(__file__).parents[3] / "pipeline" / "sample"
WATCHED = {Op.INSERT, Op.HIT, Op.MISS, Op.COALESCED, Op.EVICT}
RATE = 1 / 4


def test_online_estimates_are_near_replays_of_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(miss_ratio, "PER_SECOND_MAX", 10**9)
    monkeypatch.setattr(miss_ratio, "SETTLE_NS", 10**18)
    lifetime = find([SAMPLE]).lifetimes[0]
    settings = EntryCacheSettings.from_text(lifetime.files[0].facts.settings)
    # Repeats the recorded broker, whose cursors the estimate asks for.
    replay = Replay(settings)
    ratios: MissRatios | None = None
    for batch in events(lifetime):
        for event in batch:
            if ratios is None:
                cached = int(ENTRIES_MAX / FACTORS[-1] / RATE)
                ratios = MissRatios(settings, cached, lambda log: replay.cursors.get(log), event.at_ns)
            if event.op in WATCHED:
                at_ns, op, log, reader, *run = event[:9]
                ratios.take((at_ns, op, log, 0, *run, (reader,), ()))  # type: ignore[arg-type]
            replay.feed([event])
    assert ratios is not None
    curve = ratios.curve()
    assert curve.rate == RATE
    assert curve.is_enough
    accesses = accesses_of(lifetime)
    exact = []
    for point in curve.points:
        totals = replay_with(accesses, replace(settings, size_bytes_max=point.size_bytes)).totals
        missed = totals["misses"] + totals["coalesced"]
        exact.append(missed / (missed + totals["hits"]))
        assert abs(point.miss_ratio - exact[-1]) <= 0.02 + 2 * point.standard_error
    assert exact[0] > exact[-1] + 0.2
