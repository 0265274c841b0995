"""`recommend`: which setting binds, the lines of broker.conf to change, and what they bring.

Each setting is first moved alone, far enough not to bind any more: the one that brings most is the one that binds. Then
all are moved together, and the cheapest combination within a hair of the best is recommended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from broker.entry_cache.settings import EntryCacheSettings
from broker.recorder.record_reader import RunOfBroker
from pipeline.jobs.answer import Answer, Cell, Plot, Table, as_text, mib, percent
from pipeline.jobs.bounds import BASELINE, SAMPLED_BASELINE, baseline_of
from pipeline.jobs.plots import bars_plot, lines_plot
from pipeline.jobs.what_if import OWN, exactly, own_lines, policy_name, row_of
from pipeline.replays.grid import NO_TTL_NS, Choice, GridRow, own_settings, replay_grid
from pipeline.traces.checking import Checked

SIZES: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Of the broker's own size."""
TTLS: Final = (1.0, 3.0, 10.0, 60.0)
NEAR: Final = 0.002
"""A hit ratio so little below the best is as good."""
WORTH: Final = 0.002
"""Less than this is not worth a change."""
EXTENSIONS: Final = 5
SPARE: Final = 1.1
"""How much more than what was needed is recommended."""
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Knob:
    key: str
    choice: Choice
    text: str


def recommend(
    spark: SparkSession,
    checked: Checked,
    *,
    rate: float = 1.0,
    say: Callable[[str], None] = lambda text: None,
) -> Answer:
    answer = Answer("recommend", "Recommendation", checked.summary())
    own = own_settings(checked.runs[0])
    if not own.size_bytes_max:
        answer.text.append("this broker had no cache: set managedLedgerCacheSizeMB above 0 and record again")
        return answer
    exact = exactly(spark, checked.runs, say)
    knobs, combinations = _knobs(own), _combinations(own)
    every = [OWN, *[knob.choice for knob in knobs], *combinations, _expected_reads_without_ttl(own)]
    grid = replay_grid(spark, checked.runs, every, rate=rate, say=say)
    present, moved = grid[0], grid[1 : 1 + len(knobs)]
    together = grid[1 + len(knobs) : -1]
    best = _trimmed(spark, checked, present, _cheapest(present, together), rate)
    say("what no setting can beat")
    baseline = _baseline(spark, checked.runs, best.settings.size_bytes_max, rate)
    answer.text += [*own_lines(exact, present), "", *_binding(knobs, moved, present), ""]
    answer.text += _advice(present, best)
    answer.text += ["", *_bounds(baseline, grid[-1] if checked.counts_reads else None, best)]
    _add_tables(answer, present, best, knobs, moved, together, baseline)
    return answer


def _knobs(own: EntryCacheSettings) -> list[Knob]:
    """Each alone, far enough."""
    times = "managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes"
    knobs = [
        Knob("managedLedgerCacheSizeMB", Choice(size_bytes=own.size_bytes_max * 32), "32 times the size"),
        Knob(
            "managedLedgerCacheEvictionTimeThresholdMillis",
            Choice(ttl_ns=max(own.ttl_ns * 60, 1_000_000_000)),
            "60 times the time to live",
        ),
    ]
    if own.policy == "pip430":
        more = max(own.requeues_max * 4, EXTENSIONS)
        knobs.append(Knob(times, Choice(requeues_max=more), f"{more} extensions"))
        other = not own.extend_recently_accessed
        key = "managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed"
        knobs.append(Knob(key, Choice(extend_recently_accessed=other), str(other).lower()))
    return knobs


def _combinations(own: EntryCacheSettings) -> list[Choice]:
    return [
        Choice(
            size_bytes=max(round(own.size_bytes_max * size / MIB), 1) * MIB, ttl_ns=round(own.ttl_ns * ttl)
        )
        for size in SIZES
        for ttl in TTLS
    ]


def _expected_reads_without_ttl(own: EntryCacheSettings) -> Choice:
    """The policy of PIP-430 that lets nothing go for its age."""
    return Choice("pip430", "4.2", own.size_bytes_max, NO_TTL_NS, EXTENSIONS, False)


def _cheapest(present: GridRow, grid: Sequence[GridRow]) -> GridRow:
    """The smallest cache, and of those the shortest time to live, that is as good as any."""
    top = max(row.hit_ratio for row in grid)
    if top - present.hit_ratio < WORTH:
        return present
    near = [row for row in grid if row.hit_ratio >= top - NEAR]
    return min(near, key=lambda row: (row.settings.size_bytes_max, row.settings.ttl_ns))


def _trimmed(spark: SparkSession, checked: Checked, present: GridRow, best: GridRow, rate: float) -> GridRow:
    """With a little more than the bytes that it needed, if that is as good."""
    size = -(-round(best.peak_bytes * SPARE) // MIB) * MIB
    if best is present or size >= best.settings.size_bytes_max:
        return best
    (less,) = replay_grid(spark, checked.runs, [best.choice._replace(size_bytes=size)], rate=rate)
    return less if less.hit_ratio >= best.hit_ratio - NEAR else best


def _binding(knobs: Sequence[Knob], moved: Sequence[GridRow], present: GridRow) -> list[str]:
    gains = sorted(
        zip([row.hit_ratio - present.hit_ratio for row in moved], knobs, strict=True), key=lambda one: -one[0]
    )
    gain, knob = gains[0]
    if gain < WORTH:
        return ["no setting binds: moving each alone changes the hit ratio by less than 0.2 points"]
    lines = [f"binding: {knob.key}; {knob.text}, alone, brings {100 * gain:+.2f} points"]
    return lines + [f"  {knob.key}: {knob.text}: {100 * other:+.2f} points" for other, knob in gains[1:]]


def _advice(present: GridRow, best: GridRow) -> list[str]:
    if best is present:
        return [f"keep the settings: hit ratio {percent(present.hit_ratio)}, peak {mib(present.peak_bytes)}"]
    lines = ["change in broker.conf:"]
    own, wanted = present.settings, best.settings
    if wanted.size_bytes_max != own.size_bytes_max:
        lines.append(f"managedLedgerCacheSizeMB={wanted.size_bytes_max // MIB}")
    if wanted.ttl_ns != own.ttl_ns:
        lines.append(f"managedLedgerCacheEvictionTimeThresholdMillis={wanted.ttl_ns // 1_000_000}")
    saved = 1 - best.misses / present.misses if present.misses else 0.0
    return [
        *lines,
        "",
        f"expected: hit ratio {percent(present.hit_ratio)} -> {percent(best.hit_ratio)}, "
        f"bookie reads {present.misses:,} -> {best.misses:,} ({percent(saved)} saved), "
        f"peak {mib(best.peak_bytes)}",
    ]


def _baseline(
    spark: SparkSession, runs: Sequence[RunOfBroker], size_bytes: int, rate: float
) -> dict[str, float]:
    """Hit ratio of reads by policy, over all runs."""
    policies = BASELINE if rate >= 1 else SAMPLED_BASELINE
    tasks = [(run, size_bytes, rate, policies) for run in runs]
    sums: dict[str, list[int]] = {}
    for found in spark.sparkContext.parallelize(tasks, len(tasks)).map(baseline_of).collect():
        for policy, hits, reads in found:
            one = sums.setdefault(policy, [0, 0])
            one[0] += hits
            one[1] += reads
    return {policy: hits / reads for policy, (hits, reads) in sums.items() if reads}


def _bounds(baseline: dict[str, float], no_ttl: GridRow | None, best: GridRow) -> list[str]:
    """`no_ttl`: None where the record does not count expected reads, so that it would be no bound."""
    size = mib(best.settings.size_bytes_max)
    lines = []
    if no_ttl is not None:
        lines.append(f"expected reads without a time to live, own size: {percent(no_ttl.hit_ratio)}")
    if "Belady" in baseline:
        lines.append(f"Belady's bound with {size}, no time to live: {percent(baseline['Belady'])}")
    return lines


def _add_tables(
    answer: Answer,
    present: GridRow,
    best: GridRow,
    knobs: Sequence[Knob],
    moved: Sequence[GridRow],
    grid: Sequence[GridRow],
    baseline: dict[str, float],
) -> None:
    before_after: list[dict[str, Cell]] = [
        {"": "before", **row_of(present, present)},
        {"": "after", **row_of(best, present)},
    ]
    answer.tables["before_after"] = Table("Before and after", before_after)
    alone = [
        {"setting": knob.key, "moved": knob.text, **row_of(row, present)}
        for knob, row in zip(knobs, moved, strict=True)
    ]
    answer.tables["alone"] = Table("Each setting moved alone", alone)
    answer.tables["combinations"] = Table(
        "Size and time to live together", [row_of(row, present) for row in grid]
    )
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for row in grid:
        xs, ys = lines.setdefault(f"{row.settings.ttl_ns / 1e6:g} ms", ([], []))
        xs.append(row.settings.size_bytes_max / MIB)
        ys.append(row.hit_ratio)
    marks = {"now": (present.settings.size_bytes_max / MIB, present.hit_ratio)}
    svg = lines_plot(lines, "MiB", "hit ratio", log_x=True, marks=marks)
    answer.plots.append(Plot(f"Hit ratio over size and time to live, {policy_name(present.settings)}", svg))
    others = {**baseline, policy_name(best.settings): best.hit_ratio}
    ranked = dict(sorted(others.items(), key=lambda one: -one[1]))
    rows: list[dict[str, Cell]] = [{"policy": name, "hit_ratio": ratio} for name, ratio in ranked.items()]
    note = "Without a time to live, all with the recommended size. A general cache keeps what was popular; a log has none."
    answer.tables["baseline"] = Table("Policies from elsewhere on the same reads", rows, note)
    answer.plots.append(Plot("Policies side by side", bars_plot(ranked, "hit ratio of reads"), note))
    answer.text += ["", *as_text(before_after)]
