"""The bench's own arithmetic: integrity, percentiles, medians, the table, and what a peer's name means."""

from __future__ import annotations

import os

import pytest

from bench import processes
from bench.integrity import Checker, Verdict
from bench.peers import AddressPeer, Magnetar, PeerError, address_of, peers_of
from bench.report import median_of, table
from bench.workloads import at_percent


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        ([0, 1, 2, 3], Verdict(0, 0, 0)),
        ([0, 1, 3], Verdict(1, 0, 0)),
        ([0, 1, 1, 2, 3], Verdict(0, 1, 0)),
        ([0, 2, 1, 3], Verdict(0, 0, 1)),
        ([3, 0, 1, 2], Verdict(0, 0, 3)),
        ([0, 1, 2, 3, 9], Verdict(0, 1, 0)),
        ([0, 1, 2, 0, 1, 2, 3], Verdict(0, 3, 0)),
        ([], Verdict(4, 0, 0)),
    ],
)
def test_checker_counts_lost_doubled_and_out_of_order(seen: list[int], verdict: Verdict) -> None:
    checker = Checker(4)
    for number in seen:
        checker.see(number)
    assert checker.verdict() == verdict
    assert checker.complete() == (verdict.lost == 0)


def test_at_percent_returns_a_measured_value() -> None:
    assert at_percent(list(range(1, 101)), 50) == 50
    assert at_percent(list(range(1, 101)), 99) == 99
    assert (at_percent([7], 99), at_percent([], 99)) == (7, 0)


def test_median_of_sums_errors_instead() -> None:
    rounds = [{"cpu_us": 1.0, "lost": 2}, {"cpu_us": 9.0, "lost": 3}, {"cpu_us": 2.0, "lost": 0}]
    assert median_of(rounds) == {"cpu_us": 2.0, "lost": 5}


def test_table_shows_values_ratios_and_gaps() -> None:
    rounds = {
        "1k-unbatched": {
            "a": [{"cpu_us": 10.0, "flow_per_s": 1000.0, "lost": 0}],
            "b": [{"cpu_us": 40.0, "lost": 7}],
        }
    }
    lines = table(rounds, ["a", "b"]).splitlines()
    assert lines[0] == "|  | a | b | a / b | goal |"
    assert "| 1 KiB unbatched, CPU µs/msg | 10.0 | 40.0 | 0.25 | ≤ 25 |" in lines
    assert "| 1 KiB unbatched, msg/s | 1,000 | - | - |  |" in lines
    assert lines[-1].startswith("| lost · doubled · out of order · failed | 0 · 0 · 0 · 0 | 7 · 0 · 0 · 0 |")


def test_peers_of_understands_names_and_addresses() -> None:
    mine, other = peers_of("magnetar, url=pulsar://h:7;pid=5;name=java;metrics=http://h:8/metrics")
    assert isinstance(mine, Magnetar)
    assert isinstance(other, AddressPeer)
    assert (other.name, other.url, other.pid, other.metrics_url) == (
        "java",
        "pulsar://h:7",
        5,
        "http://h:8/metrics",
    )
    assert address_of(other.url) == ("h", 7)
    mine.close()


@pytest.mark.parametrize("text", ["kafka", "url=pulsar://h;color=red", "pid=5"])
def test_peers_of_refuses_unknown_peers(text: str) -> None:
    with pytest.raises(PeerError, match="allowed are"):
        peers_of(text)


def test_processes_measure_cpu_and_memory_of_this_process() -> None:
    me = os.getpid()
    before = processes.cpu_s(me)
    while processes.cpu_s(me) < before + 0.02:
        sum(range(10_000))
    used = processes.memory(me)
    assert 0 < used.pss <= used.rss
    assert processes.tree(me)[0] == me
    assert processes.cpu_s(2**22 + 1) == 0.0
