"""Turns rounds into medians, and medians into a table with ratios.

Law: pure functions; the table's rows and the goals beside them are data.
"""

from __future__ import annotations

import statistics
from typing import NamedTuple

from bench.workloads import Numbers

Rounds = dict[str, dict[str, list[Numbers]]]
"""Workload -> peer -> the numbers of each round."""
SUMMED = ("lost", "doubled", "out_of_order", "failed")
"""Figures that count errors."""
UNKNOWN = "-"
"""Cell without a value."""
MS, COUNT = "{:.2f}", "{:,.0f}"


class Row(NamedTuple):
    """One line of the table: values of one workload, joined by ` · `, and the goal for them."""

    title: str
    """First cell."""
    workload: str
    """Key of `WORKLOADS`."""
    metrics: str
    """Keys of the workload's numbers, with spaces between."""
    form: str
    """Format of each value."""
    goal: str = ""
    """Text for the last column."""


ROWS = (
    Row("1 KiB unbatched, CPU µs/msg", "1k-unbatched", "cpu_us", "{:.1f}", "≤ 25"),
    Row("1 KiB batched, CPU µs/msg", "1k-batched", "cpu_us", "{:.1f}", "≤ 9"),
    Row("128 B unbatched, CPU µs/msg", "128-unbatched", "cpu_us", "{:.1f}", "≤ 22"),
    Row("128 B batched, CPU µs/msg", "128-batched", "cpu_us", "{:.1f}", "≤ 2"),
    Row("128 B, 10 in a batch, CPU µs/msg", "128-small-batches", "cpu_us", "{:.1f}"),
    Row("1 KiB at 1,000 a second on 1 connection, CPU µs/msg", "latency", "cpu_us", "{:.0f}"),
    Row("1 KiB at 5,000 a second on 1 connection, CPU µs/msg", "1k-5000-1", "cpu_us", "{:.0f}"),
    Row("1 KiB at 1,000 a second on 50 connections, CPU µs/msg", "1k-1000-50", "cpu_us", "{:.0f}"),
    Row("1 KiB at 5,000 a second on 50 connections, CPU µs/msg", "1k-5000-50", "cpu_us", "{:.0f}"),
    Row("128 B at 5,000 a second on 50 connections, CPU µs/msg", "128-5000-50", "cpu_us", "{:.0f}"),
    Row("1,000 topics, a 1 KiB message a second each, CPU µs/msg", "1000-topics", "cpu_us", "{:.0f}"),
    Row("1 KiB unbatched, msg/s", "1k-unbatched", "flow_per_s", COUNT),
    Row("1 KiB batched, msg/s", "1k-batched", "flow_per_s", COUNT),
    Row("128 B unbatched, msg/s", "128-unbatched", "flow_per_s", COUNT, "≥ 5,000"),
    Row("128 B batched, msg/s", "128-batched", "flow_per_s", COUNT, "≥ 25,000"),
    Row("1,000 msg/s: receipt p50 · p99, ms", "latency", "receipt_p50_ms receipt_p99_ms", MS, "≤ 0.8 · 2.5"),
    Row("publish to consume p50 · p99, ms", "latency", "to_consume_p50_ms to_consume_p99_ms", MS, "≤ 1 · 3"),
    Row("an fdatasync of the disk then p50 · p99, ms", "latency", "disk_p50_ms disk_p99_ms", MS),
    Row("10 subscriptions, deliveries/s", "fan-out", "deliveries_per_s", COUNT, "≥ 180,000"),
    Row("10 subscriptions, CPU µs/delivery", "fan-out", "cpu_us", "{:.1f}", "≤ 2"),
    Row(
        "catch-up after restart, 1 · 5 subscriptions, msg/s",
        "catch-up",
        "catch_up_one_per_s catch_up_five_per_s",
        COUNT,
        "≥ 120,000 · 280,000",
    ),
    Row("the same, CPU µs/msg", "catch-up", "cpu_us_one cpu_us_five", "{:.1f}"),
    Row("topics with producer and subscription: create, s", "topics", "create_s", MS, "≤ 2"),
    Row("/metrics then, ms", "topics", "scrape_ms", "{:.0f}", "≤ 50"),
    Row(
        "longest wait for a pong, scraping · creating, ms",
        "topics",
        "stall_scrape_ms stall_create_ms",
        "{:.0f}",
        "≤ 20",
    ),
    Row("start: port accepts · first message, s", "start", "accepts_s first_message_s", MS, "≤ 0.4"),
    Row("idle PSS, MiB", "start", "idle_pss_mib", "{:.0f}", "≤ 60"),
)
"""The table from top to bottom."""


def median_of(rounds: list[Numbers]) -> Numbers:
    """Returns the median of each figure; counts of errors are summed over the rounds instead."""
    names = {name for numbers in rounds for name in numbers}
    joined: Numbers = {}
    for name in sorted(names):
        values = [numbers[name] for numbers in rounds if name in numbers]
        joined[name] = sum(values) if name in SUMMED else statistics.median(values)
    return joined


def table(rounds: Rounds, peers: list[str]) -> str:
    """Returns Markdown; the ratio columns compare the first peer with each other one."""
    medians = {
        workload: {peer: median_of(each) for peer, each in by_peer.items()}
        for workload, by_peer in rounds.items()
    }
    first, others = peers[0], peers[1:]
    heads = ["", *peers, *(f"{first} / {other}" for other in others), "goal"]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for row in ROWS:
        by_peer = medians.get(row.workload)
        if by_peer:
            numbers = [by_peer.get(peer, {}) for peer in peers]
            ratios = [_ratios(row, numbers[0], other) for other in numbers[1:]]
            lines.append(_line([row.title, *(_values(row, each) for each in numbers), *ratios, row.goal]))
    errors = [_errors(medians, peer) for peer in peers]
    lines.append(_line(["lost · doubled · out of order · failed", *errors, *([""] * len(others)), "none"]))
    return "\n".join(lines)


def _values(row: Row, numbers: Numbers) -> str:
    return " · ".join(
        row.form.format(numbers[metric]) if metric in numbers else UNKNOWN for metric in row.metrics.split()
    )


def _ratios(row: Row, mine: Numbers, theirs: Numbers) -> str:
    return " · ".join(
        f"{mine[metric] / theirs[metric]:.2f}" if metric in mine and theirs.get(metric) else UNKNOWN
        for metric in row.metrics.split()
    )


def _errors(medians: dict[str, dict[str, Numbers]], peer: str) -> str:
    totals = [sum(by_peer.get(peer, {}).get(name, 0) for by_peer in medians.values()) for name in SUMMED]
    return " · ".join(f"{total:,.0f}" for total in totals)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
