"""`python -m tests.sim --seeds 200`: one line per batch of seeds, a summary, exit code 1 with the seed of each failure.

Each seed also has a history of sessions with the metadata store, see `tests/sim/sessions.py`, and a history of topics, see
`tests/sim/lives/history.py`, of three one with object storage and one with publish rates; the summary counts their
operations. `--sessions` leaves the others out, and so does `--tiers` for histories with object storage.
`--cluster` has histories of several brokers alone, see `tests/sim/cluster/history.py`.
`--seed N` shows the history of one seed; `--break RULE` breaks a rule on purpose, to see that it is noticed.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import time
from collections.abc import Sequence

from tests.sim.breakages import BREAKAGES
from tests.sim.cluster.breakages import CLUSTER_BREAKAGES
from tests.sim.cluster.history import ClusterCounts, simulate_cluster
from tests.sim.cluster.transactions import TRANSACTION_BREAKAGES
from tests.sim.lives.breakages import LIVES_BREAKAGES, RATE_BREAKAGES
from tests.sim.lives.counts import Counts
from tests.sim.lives.history import simulate_lives
from tests.sim.lives.life import KINDS, LIMITED_KINDS, TIERED_KINDS, Kind
from tests.sim.lives.tier_breakages import TIER_BREAKAGES
from tests.sim.loop import Stuck
from tests.sim.metadata import Broken
from tests.sim.session_breakages import SESSION_BREAKAGES
from tests.sim.sessions import SessionCounts, simulate_sessions
from tests.sim.simulation import Outcome, simulate

BATCH = 50
LIVES_KINDS = (LIMITED_KINDS, KINDS, TIERED_KINDS)
"""Kinds of topics in the histories of three seeds in a row."""
ALL_BREAKAGES = {
    **BREAKAGES,
    **LIVES_BREAKAGES,
    **RATE_BREAKAGES,
    **TIER_BREAKAGES,
    **SESSION_BREAKAGES,
    **CLUSTER_BREAKAGES,
    **TRANSACTION_BREAKAGES,
}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    logging.disable(logging.CRITICAL)  # bookies that fail are the point
    with ALL_BREAKAGES[arguments.rule]() if arguments.rule else contextlib.nullcontext():  # type: ignore[attr-defined]
        if arguments.seed is not None:
            if arguments.cluster:
                return _show_cluster(arguments.seed, transactions=arguments.transactions)
            return _show(arguments.seed)
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        if arguments.cluster:
            return _run_cluster(seeds, transactions=arguments.transactions)
        if arguments.tiers:
            return _run_tiers(seeds)
        return _run_sessions(seeds) if arguments.sessions else _run(seeds)


def _run(seeds: range) -> int:
    began = time.monotonic()
    failed: list[int] = []
    counts = Counts()
    sessions = SessionCounts()
    for start in range(seeds.start, seeds.stop, BATCH):
        batch = range(start, min(start + BATCH, seeds.stop))
        batch_began = time.monotonic()
        outcomes = [outcome for seed in batch if (outcome := _try(seed, failed)) is not None]
        for seed in batch:
            _try_sessions(seed, failed, sessions)
            _try_lives(seed, failed, counts, _kinds_of(seed))
        print(
            f"seeds {batch.start:5}-{batch.stop - 1:<5} {_sums(outcomes)}  {time.monotonic() - batch_began:5.1f} s",
            flush=True,
        )
    print(f"{len(seeds)} histories of topics: {counts.text()}")
    print(f"{len(seeds)} histories of sessions: {sessions.text()}")
    print(f"{len(seeds)} seeds in {time.monotonic() - began:.1f} s, {len(failed)} failed {failed or ''}")
    without_runs = not counts.runs_of_several
    if without_runs:
        print("FAILED: no run had more than one SEND")
    return 1 if failed or without_runs else 0


def _run_sessions(seeds: range) -> int:
    began = time.monotonic()
    failed: list[int] = []
    counts = SessionCounts()
    for seed in seeds:
        _try_sessions(seed, failed, counts)
    print(f"{len(seeds)} histories of sessions: {counts.text()}")
    print(f"{len(seeds)} seeds in {time.monotonic() - began:.1f} s, {len(failed)} failed {failed or ''}")
    return 1 if failed else 0


def _run_tiers(seeds: range) -> int:
    began = time.monotonic()
    failed: list[int] = []
    counts = Counts()
    for seed in seeds:
        _try_lives(seed, failed, counts, TIERED_KINDS)
    print(f"{len(seeds)} histories of topics with object storage: {counts.text()}")
    print(f"{len(seeds)} seeds in {time.monotonic() - began:.1f} s, {len(failed)} failed {failed or ''}")
    return 1 if failed or not counts.ledgers_moved else 0


def _run_cluster(seeds: range, *, transactions: bool) -> int:
    began = time.monotonic()
    failed: list[int] = []
    counts = ClusterCounts()
    for seed in seeds:
        try:
            counts.add(simulate_cluster(seed, transactions=transactions))
        except (Broken, Stuck, AssertionError) as error:
            failed.append(seed)
            print(f"seed {seed} FAILED, cluster: {error}", flush=True)
    print(f"{len(seeds)} histories of several brokers: {counts.text()}")
    print(f"{len(seeds)} seeds in {time.monotonic() - began:.1f} s, {len(failed)} failed {failed or ''}")
    if not counts.runs_of_several:
        print("FAILED: no run had more than one SEND")
    return 1 if failed or not counts.runs_of_several else 0


def _show_cluster(seed: int, *, transactions: bool) -> int:
    trace: list[str] = []
    try:
        text = simulate_cluster(seed, trace, transactions=transactions).text()
    except (Broken, Stuck, AssertionError) as error:
        print("\n".join(trace))
        print(f"seed {seed} FAILED: {error}")
        return 1
    print("\n".join(trace))
    print(f"seed {seed}: {text}")
    return 0


def _kinds_of(seed: int) -> tuple[Kind, ...]:
    return LIVES_KINDS[seed % len(LIVES_KINDS)]


def _try_sessions(seed: int, failed: list[int], counts: SessionCounts) -> None:
    try:
        counts.add(simulate_sessions(seed))
    except (Broken, Stuck, AssertionError) as error:
        failed.append(seed)
        print(f"seed {seed} FAILED, sessions: {error}", flush=True)


def _try(seed: int, failed: list[int]) -> Outcome | None:
    try:
        return simulate(seed)
    except (Broken, Stuck, AssertionError) as error:
        failed.append(seed)
        print(f"seed {seed} FAILED: {error}", flush=True)
        return None


def _try_lives(seed: int, failed: list[int], counts: Counts, kinds: tuple[Kind, ...]) -> None:
    try:
        counts.add(simulate_lives(seed, kinds=kinds))
    except Exception as error:  # noqa: BLE001  # A defect ends one history alone, and its seed is told.
        failed.append(seed)
        print(f"seed {seed} FAILED, topics: {type(error).__name__}: {error}", flush=True)


def _sums(outcomes: list[Outcome]) -> str:
    return (
        f"entries {sum(one.acked for one in outcomes):5} acknowledged"
        f" {sum(one.last_entry_id + 1 for one in outcomes):5} kept,"
        f" ensemble changes {sum(one.ensemble_changes for one in outcomes):3},"
        f" damaged copies {sum(one.damaged for one in outcomes):4},"
        f" recoveries {sum(one.recoveries for one in outcomes):3},"
        f" lost bookies {sum(one.moved.lost for one in outcomes):3}"
        f" with {sum(one.moved.copied for one in outcomes):5} entries copied by"
        f" {sum(one.moved.workers for one in outcomes):4} workers,"
        f" {sum(one.moved.moves for one in outcomes):3} ensembles moved,"
        f" {sum(one.moved.given_up for one in outcomes):4} copies given up,"
        f" messages {sum(one.messages for one in outcomes):6},"
        f" simulated {sum(one.simulated_s for one in outcomes):6.0f} s,"
    )


def _show(seed: int) -> int:
    trace: list[str] = []
    try:
        text = _sums([simulate(seed, trace)])
        trace.append("A history of sessions:")
        text += f"\nseed {seed}, sessions: {simulate_sessions(seed, trace).text()}"
        trace.append("A history of topics:")
        text += f"\nseed {seed}, topics: {simulate_lives(seed, trace, _kinds_of(seed)).text()}"
    except AssertionError as error:
        print("\n".join(trace))
        print(f"seed {seed} FAILED: {error}")
        return 1
    print("\n".join(trace))
    print(f"seed {seed}: {text}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.sim", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=200, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--seed", type=int, metavar="SEED", help="show the history of this one")
    parser.add_argument("--sessions", action="store_true", help="histories of sessions alone")
    parser.add_argument("--tiers", action="store_true", help="histories with object storage alone")
    parser.add_argument("--cluster", action="store_true", help="histories of several brokers alone")
    parser.add_argument(
        "--transactions", action="store_true", help="with --cluster: and of transactions over them"
    )
    parser.add_argument("--break", dest="rule", choices=ALL_BREAKAGES, help="break this rule on purpose")
    return parser


if __name__ == "__main__":
    sys.exit(main())
