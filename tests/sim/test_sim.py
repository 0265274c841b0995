"""A short run of the simulation; that a seed is a history; and that it notices broken rules."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim.breakages import broken
from tests.sim.loop import Stuck
from tests.sim.metadata import Broken
from tests.sim.simulation import simulate

ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(25)
BEGIN_AT = {"old-answers-count": 500}
"""A rule that few histories need: from the beginning, finding the first one takes longer than all other tests here."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_invariant_is_broken(seed: int) -> None:
    simulate(seed)


def test_a_seed_is_a_history_in_any_process() -> None:
    program = "import sys; from tests.sim.__main__ import main; sys.exit(main(['--seed', '11']))"
    shown = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for salt in ("1", "2")
    ]
    assert shown[0] == shown[1]
    assert "dies" in shown[0]


@pytest.mark.parametrize(
    "rule",
    [
        "one-ack-less",
        "old-answers-count",
        "segment-not-stored",
        "no-fence-at-all",
        "one-no-is-enough",
        "an-error-is-a-no",
        "nothing-is-written-back",
        "any-recovery-closes",
        "a-bookie-twice",
        "a-lost-disk-says-no",
        "a-forgotten-ledger-is-new",
        "a-deleted-ledger-is-new",
    ],
)
def test_a_broken_rule_is_noticed(rule: str) -> None:
    """The others of `BREAKAGES` need more seeds than a test has time for, or are in `test_known_defects`."""
    begin = BEGIN_AT.get(rule, 0)
    with broken(rule), pytest.raises((Broken, Stuck)):
        simulate_all(range(begin, begin + 1000))


def simulate_all(seeds: range) -> None:
    for seed in seeds:
        simulate(seed)
