"""How do Magnetar and other brokers compare under the official client?

`python -m bench [--only NAME ...] [--quick] [--peers PEERS | --against PYTHON] [--rounds N] [--json FILE]`

`--against` compares this tree with another build of Magnetar, named by the interpreter that has it installed. Runs
every workload of `workloads.py` against every peer, round by round, and prints a table: a row per figure, a column per
peer with the median of the rounds, a column with the ratio of the first peer to each other one, and the goal.
docs/reference/benchmarks.md explains the workloads. Magnetar runs with the cache policy `peers.CACHE_POLICY`.

Law: peers take turns within each round (A B A B), so that other load of the machine falls on all of them. A peer that
fails a workload is named with the reason, and the other measurements continue.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from bench.clients import WorkerError
from bench.peers import CACHE_POLICY, Magnetar, Peer, PeerError, peers_of
from bench.report import Rounds, median_of, table
from bench.workloads import FULL, QUICK, WORKLOADS, Numbers, Scale


def main(argv: list[str] | None = None) -> int:
    """Returns 0, 1 where a measurement failed, 2 where a peer is unknown."""
    arguments = _parser().parse_args(argv)
    scale = QUICK if arguments.quick else FULL
    if arguments.rounds:
        scale = replace(scale, rounds=arguments.rounds)
    chosen = [name for name in WORKLOADS if not arguments.only or name in arguments.only]
    rounds: Rounds = {}
    failures: list[str] = []
    began = time.monotonic()
    try:
        peers = peers_of(arguments.peers or ("magnetar" if arguments.against else "magnetar,pulsar-lite"))
        if arguments.against:
            peers.insert(1, Magnetar("against", python=arguments.against))
    except PeerError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    # As an exception, SIGTERM lets the `finally` below stop the brokers; by default they would go on.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        for peer in peers:
            peer.start()
        for workload in chosen:
            rounds[workload] = _measure(workload, peers, scale, failures)
    except PeerError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    finally:
        for peer in peers:
            peer.close()
    names = [peer.name for peer in peers]
    text = table(rounds, names)
    print(
        f"\n{text}\n\n{time.monotonic() - began:.0f} s, {_machine()}, magnetar's cache policy: {CACHE_POLICY}"
    )
    if arguments.quick:
        print(
            f"quick: {scale.topics} topics, a backlog of {scale.catch_up:,}, one round; the goals are for a full run"
        )
    for failure in failures:
        print(f"failed: {failure}")
    if arguments.json:
        _keep(arguments.json, rounds, names, arguments.quick, failures, text)
    return 1 if failures else 0


def _measure(workload: str, peers: list[Peer], scale: Scale, failures: list[str]) -> dict[str, list[Numbers]]:
    by_peer: dict[str, list[Numbers]] = {peer.name: [] for peer in peers}
    for turn in range(scale.rounds):
        for peer in peers:
            began = time.monotonic()
            try:
                numbers = WORKLOADS[workload](peer, scale)
            except (PeerError, WorkerError, OSError) as error:
                failures.append(f"{workload}, {peer.name}, round {turn + 1}: {error}")
                print(f"{workload:<14}{peer.name:<14}round {turn + 1}  FAILED: {error}", flush=True)
                continue
            by_peer[peer.name].append(numbers)
            shown = "  ".join(
                f"{name} {value:,.4g}" for name, value in numbers.items() if value or name == "lost"
            )
            print(
                f"{workload:<14}{peer.name:<14}round {turn + 1} {time.monotonic() - began:5.1f} s  {shown}",
                flush=True,
            )
    return by_peer


def _keep(path: Path, rounds: Rounds, peers: list[str], quick: bool, failures: list[str], text: str) -> None:
    kept = {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": _machine(),
        "quick": quick,
        "cache_policy": CACHE_POLICY,
        "peers": peers,
        "medians": {
            workload: {peer: median_of(each) for peer, each in by_peer.items()}
            for workload, by_peer in rounds.items()
        },
        "rounds": rounds,
        "failures": failures,
        "table": text.splitlines(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    print(f"kept in {path}")


def _machine() -> str:
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, load average {load:.1f} at the end"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench", description="Brokers side by side under one script.")
    names = ", ".join(WORKLOADS)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help=f"of {names}")
    parser.add_argument("--quick", action="store_true", help="less of everything, one round, under 2 minutes")
    parser.add_argument(
        "--peers",
        help="comma separated: magnetar, pulsar-lite, 'url=pulsar://host:port[;pid=N;metrics=URL;name=TEXT]'",
    )
    parser.add_argument(
        "--against",
        metavar="PYTHON",
        help="an interpreter with another build of Magnetar, e.g. OTHER/.venv/bin/python",
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="of each workload (3; with --quick 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep everything, e.g. in bench/results/")
    return parser


if __name__ == "__main__":
    sys.exit(main())
