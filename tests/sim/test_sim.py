"""A short run of the simulation; that a seed is a history; and that it notices broken rules."""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from protocol.ledger_metadata import LedgerMetadata, LedgerSegment, LedgerState, encode
from tests.sim.breakages import broken
from tests.sim.cluster.breakages import CLUSTER_BREAKAGES
from tests.sim.cluster.history import ClusterCounts, simulate_cluster
from tests.sim.cluster.transactions import TRANSACTION_BREAKAGES
from tests.sim.lives.breakages import LIVES_BREAKAGES, RATE_BREAKAGES
from tests.sim.lives.history import simulate_lives
from tests.sim.lives.life import KINDS, LIMITED_KINDS, TIERED_KINDS, Kind
from tests.sim.lives.tier_breakages import TIER_BREAKAGES
from tests.sim.loop import Stuck
from tests.sim.metadata import Broken, SharedState
from tests.sim.session_breakages import SESSION_BREAKAGES
from tests.sim.sessions import SessionCounts, simulate_sessions
from tests.sim.simulation import simulate
from tests.support.slow import slow_but

ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(25)
LIVES_SEEDS = (1, 4, 19, 103)
"""Seeds of topics; the last three found defects."""
LIVES_BEGIN_AT = {"deletes-without-export": 8, "beginnings-are-certain": 20}
LIVES_RULES = (
    "shadows-are-forgotten",
    "trims-what-is-needed",
    "retention-is-ignored",
    "trims-nothing-at-the-end",
    "expires-at-once",
    "expires-the-whole-topic",
    "policies-stay",
    "deletes-without-export",
    "moves-without-copy",
    "beginnings-are-certain",
    "horizon-passes-the-unread",
    "records-without-cursors",
)
QUICK_LIVES_RULES = ("trims-what-is-needed", "expires-at-once", "moves-without-copy")
QUICK_CLUSTER_RULES = ("topics-without-lease", "gives-up-before-topics-are-closed", "parts-are-free")
CLUSTER_BEGIN_AT = {"parts-are-given-up-at-once": 4, "divided-bundles-are-taken": 213}
BEGIN_AT = {
    "one-no-is-enough": 110,
    "confirmed-while-changing": 220,
    "copies-not-awaited": 400,
    "no-replication-lock": 470,
    "old-answers-count": 500,
    "a-lost-disk-says-no": 840,
    "a-forgotten-ledger-is-new": 10070,
}
"""Rules that few histories need: the search begins shortly before the first of them, and would take a minute from 0."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", SEEDS)
def test_simulated_histories_break_no_invariant(seed: int) -> None:
    simulate(seed)


@pytest.mark.parametrize("arguments", [["--seed", "11"], ["--cluster", "--seed", "7"]])
def test_seed_gives_the_same_history_in_any_process(arguments: list[str]) -> None:
    program = f"import sys; from tests.sim.__main__ import main; sys.exit(main({arguments}))"
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


OPEN = LedgerMetadata((LedgerSegment(("a", "b")),), ensemble_size=2, write_quorum=2, ack_quorum=2)
TAKEN = replace(OPEN, state=LedgerState.IN_RECOVERY)
CHANGED = (LedgerSegment(("a", "b")), LedgerSegment(("a", "c"), 3))


@pytest.mark.parametrize(
    "steps",
    [
        (OPEN, replace(TAKEN, segments=CHANGED)),
        (OPEN, TAKEN, replace(TAKEN, segments=CHANGED)),
        (OPEN, TAKEN, TAKEN),
        (OPEN, TAKEN, replace(OPEN, segments=CHANGED)),
        (OPEN, replace(OPEN, ack_quorum=1)),
        (
            OPEN,
            replace(OPEN, segments=CHANGED),
            replace(OPEN, segments=(LedgerSegment(("b", "c")), CHANGED[1])),
        ),
        (OPEN, replace(TAKEN, state=LedgerState.CLOSED, password=b"x")),
    ],
)
def test_witness_notices_forbidden_changes_of_metadata(steps: tuple[LedgerMetadata, ...]) -> None:
    state = SharedState(random.Random(0))
    for step in steps[:-1]:
        state.witness(encode(step))
    with pytest.raises(Broken):
        state.witness(encode(steps[-1]))


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
        "confirmed-while-changing",
        "damage-is-believed",
        "a-lost-disk-says-no",
        "a-forgotten-ledger-is-new",
        "a-deleted-ledger-is-new",
        "copies-not-awaited",
        "no-replication-lock",
    ],
)
def test_simulation_notices_a_disabled_rule(rule: str) -> None:
    """The others of `BREAKAGES` need more seeds than a test has time for, or are in `test_known_defects`."""
    begin = BEGIN_AT.get(rule, 0)
    with broken(rule), pytest.raises((Broken, Stuck)):
        simulate_all(range(begin, begin + 1000))


@pytest.mark.parametrize("seed", slow_but((1, 103), LIVES_SEEDS))
def test_simulated_topics_break_no_invariant(seed: int) -> None:
    counts = simulate_lives(seed)
    assert counts.runs_of_several > 0
    assert min(counts.confirmed, counts.trimmed, counts.compacted, counts.expired, counts.deleted) > 0
    assert counts.leaks_deleted >= 2


@pytest.mark.parametrize("rule", slow_but(QUICK_LIVES_RULES, LIVES_RULES))
def test_simulation_of_topics_notices_a_disabled_rule(rule: str) -> None:
    """The others of `LIVES_BREAKAGES` need more seeds than a test has time for."""
    begin = LIVES_BEGIN_AT.get(rule, 0)
    with LIVES_BREAKAGES[rule](), pytest.raises((Broken, Stuck)):  # type: ignore[attr-defined]
        simulate_all_lives(range(begin, begin + 20))


def simulate_all_lives(seeds: range, kinds: tuple[Kind, ...] = KINDS) -> None:
    for seed in seeds:
        simulate_lives(seed, kinds=kinds)


@pytest.mark.parametrize("seed", slow_but((0,), range(4)))
def test_simulated_topics_with_object_storage_break_no_invariant(seed: int) -> None:
    counts = simulate_lives(seed, kinds=TIERED_KINDS)
    assert min(counts.confirmed, counts.copies_made, counts.ledgers_moved, counts.deleted) > 0


@pytest.mark.parametrize("rule", slow_but(("copies-are-believed",), tuple(TIER_BREAKAGES)))
def test_simulation_with_object_storage_notices_a_disabled_rule(rule: str) -> None:
    with TIER_BREAKAGES[rule](), pytest.raises((Broken, Stuck)):  # type: ignore[attr-defined]
        simulate_all_lives(range(20), TIERED_KINDS)


@pytest.mark.parametrize("seed", slow_but((0,), range(3)))
def test_simulated_topics_with_publish_rates_break_no_invariant(seed: int) -> None:
    counts = simulate_lives(seed, kinds=LIMITED_KINDS)
    assert min(counts.confirmed, counts.rates_changed, counts.paused, counts.runs_of_several) > 0


@pytest.mark.parametrize("rule", RATE_BREAKAGES)
def test_simulation_with_publish_rates_notices_a_disabled_rule(rule: str) -> None:
    with RATE_BREAKAGES[rule](), pytest.raises((Broken, Stuck)):  # type: ignore[attr-defined]
        simulate_all_lives(range(20), LIMITED_KINDS)


def simulate_all(seeds: range) -> None:
    for seed in seeds:
        simulate(seed)


@pytest.mark.parametrize("seed", range(5))
def test_simulated_sessions_break_no_statement(seed: int) -> None:
    counts = simulate_sessions(seed)
    assert min(counts.changes, counts.starts, counts.positions, counts.cuts) > 0


def test_simulated_sessions_meet_each_fault() -> None:
    counts = SessionCounts()
    for seed in range(5):
        counts.add(simulate_sessions(seed))
    assert min(counts.unanswered, counts.expired, counts.frozen, counts.without_rights) > 0


@pytest.mark.parametrize("rule", SESSION_BREAKAGES)
def test_simulation_of_sessions_notices_a_disabled_rule(rule: str) -> None:
    with SESSION_BREAKAGES[rule](), pytest.raises(Broken):  # type: ignore[attr-defined]
        simulate_all_sessions(range(100))


def simulate_all_sessions(seeds: range) -> None:
    for seed in seeds:
        simulate_sessions(seed)


@pytest.mark.parametrize("seed", range(3))
def test_simulated_cluster_breaks_no_statement(seed: int) -> None:
    counts = simulate_cluster(seed)
    assert min(counts.confirmed, counts.runs_of_several, counts.takeovers, counts.unloaded) > 0


def test_simulated_clusters_meet_each_fault() -> None:
    counts = ClusterCounts()
    for seed in range(3):
        counts.add(simulate_cluster(seed))
    assert min(counts.killed, counts.stopped, counts.paused, counts.cut, counts.expired, counts.frozen) > 0
    assert min(counts.divided, counts.divided_for_balance) > 0


@pytest.mark.parametrize("rule", slow_but(QUICK_CLUSTER_RULES, tuple(CLUSTER_BREAKAGES)))
def test_simulation_of_a_cluster_notices_a_disabled_rule(rule: str) -> None:
    begin = CLUSTER_BEGIN_AT.get(rule, 0)
    with CLUSTER_BREAKAGES[rule](), pytest.raises((Broken, Stuck)):  # type: ignore[attr-defined]
        simulate_all_clusters(range(begin, begin + 200))


def simulate_all_clusters(seeds: range, *, transactions: bool = False) -> None:
    for seed in seeds:
        simulate_cluster(seed, transactions=transactions)


def test_simulated_transactions_over_brokers_are_there_wholly_or_not_at_all() -> None:
    counts = simulate_cluster(8, transactions=True)
    assert min(counts.committed, counts.takeovers) > 0


@pytest.mark.slow
@pytest.mark.parametrize("rule", TRANSACTION_BREAKAGES)
def test_simulation_of_transactions_over_brokers_notices_a_disabled_rule(rule: str) -> None:
    with TRANSACTION_BREAKAGES[rule](), pytest.raises((Broken, Stuck)):  # type: ignore[attr-defined]
        simulate_all_clusters(range(200), transactions=True)
