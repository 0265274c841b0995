"""The machine code counts what the broker's own objects count, on random records of thousands of steps."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from broker.compose.cache_settings import EntryCacheSettings
from pipeline.replays.inputs import read_inputs
from pipeline.replays.making import accesses_of
from pipeline.replays.objects import replay_objects
from pipeline.replays.replay import replay_with
from tests.pipeline.replays.random_records import RandomRecord

STEPS = 3000
MS = 1_000_000
POLICIES = (("pip430", "4.2"), ("pip430", "5.0"), ("fifo-ttl", "4.2"))


@settings(max_examples=25, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    seed=st.integers(0, 2**32),
    policy=st.sampled_from(POLICIES),
    size=st.sampled_from((0, 60, 300, 2000, 1_000_000)),
    ttl_ms=st.sampled_from((0, 5, 40, 300, 100_000)),
    requeues=st.integers(0, 5),
    accessed=st.booleans(),
    watermark=st.sampled_from((0.5, 0.9)),
)
def test_machine_code_counts_like_the_objects_on_random_records(
    seed: int,
    policy: tuple[str, str],
    size: int,
    ttl_ms: int,
    requeues: int,
    accessed: bool,
    watermark: float,
) -> None:
    record = RandomRecord(seed)
    record.steps(STEPS)
    wanted = EntryCacheSettings(
        size,
        watermark=watermark,
        ttl_ns=ttl_ms * MS,
        requeues_max=requeues,
        extend_recently_accessed=accessed,
        policy=policy[0],
        profile=policy[1],
    )
    with tempfile.TemporaryDirectory() as folder:
        lifetime = record.write(Path(folder))
        accesses = accesses_of(lifetime)
        ours = replay_with(accesses, wanted)
        (theirs,) = replay_objects(lifetime, read_inputs(lifetime), [wanted], accesses.tick_ns)
    assert ours.totals == {name: theirs.totals.get(name, 0) for name in ours.totals}
    assert (ours.peak_bytes, ours.new_misses) == (theirs.peak_bytes, theirs.new_misses)
    assert accesses.events > STEPS


@pytest.mark.parametrize("policy", POLICIES)
def test_machine_code_hits_about_as_often_as_the_objects_while_objects_of_entries_are_charged(
    policy: tuple[str, str], tmp_path: Path
) -> None:
    """The broker's size passes free a share and look again, so the two may stop at different entries."""
    record = RandomRecord(2)
    record.steps(STEPS)
    lifetime = record.write(tmp_path)
    accesses = accesses_of(lifetime)
    charged = EntryCacheSettings(
        60_000, ttl_ns=300 * MS, policy=policy[0], profile=policy[1], charges_overhead=True
    )
    ours = replay_with(accesses, charged)
    (theirs,) = replay_objects(lifetime, read_inputs(lifetime), [charged], accesses.tick_ns)
    bytes_alone = replay_with(accesses, replace(charged, charges_overhead=False))
    assert ours.hit_ratio == pytest.approx(theirs.hit_ratio, abs=0.01)
    assert bytes_alone.hit_ratio > ours.hit_ratio + 0.01
    assert ours.peak_bytes == pytest.approx(theirs.peak_bytes, rel=0.05)
    # The counters of bytes are those of entries alone, as an access record has them.
    for name in ("hit_bytes", "miss_bytes", "inserted_bytes"):
        assert ours.totals[name] == pytest.approx(theirs.totals[name], rel=0.05)
