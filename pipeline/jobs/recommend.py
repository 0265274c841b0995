"""`recommend`: finds the lines of broker.conf to change, and their gain.

Each setting is first moved alone, so far that it no longer limits: the one with the largest gain is the binding one.
Then size and time to live are moved together, and the cheapest combination close to the best is recommended. The
policy `magnetar` is compared with the recorded one at the present settings, because its gain costs no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from entry_cache.policy_names import MAGNETAR, PIP430
from entry_cache.settings import CacheSettings
from foundation.units import MIB
from pipeline.jobs.bounds import BASELINE, SAMPLED_BASELINE, baseline_of
from pipeline.jobs.budget import POLICY_WORTH
from pipeline.jobs.fleet import add_brokers
from pipeline.jobs.grid_rows import (
    OWN,
    PEAK_NOTE,
    changed_keys,
    memory_line,
    own_lines,
    peak_text,
    policy_name,
    present_lines,
    row_of,
    settings_cells,
)
from pipeline.jobs.lateness import pace_lines
from pipeline.jobs.memory_curve import (
    NEAR,
    best_by_size,
    curve_sizes,
    curve_table,
    knee_lines,
    knee_of,
    marks_of,
    smallest_near_best,
    traffic_of,
)
from pipeline.jobs.plots import bars_plot, lines_plot
from pipeline.jobs.report import Cell, Plot, Report, Table, bytes_text, percent, time_text
from pipeline.jobs.what_if import OBJECTS_REQUESTS
from pipeline.replays.grid import (
    NO_TTL_NS,
    GridRow,
    Overrides,
    affordable_rate,
    needs_objects,
    replay_grid,
    usual_settings,
)
from pipeline.replays.record_inputs import RecordInputs
from pipeline.simulators.simulation import BELADY, SimulatorMissing, library_is_installed
from pipeline.traces.checking import Checked

TTLS: Final = (1.0, 3.0, 10.0, 60.0)
"""Multiples of the broker's own time to live."""
WORTH: Final = 0.002
"""A smaller gain in hit ratio is no reason to change a setting."""
EXTENSIONS: Final = 5
"""Requeues that are tried where the broker allows fewer."""
SPARE: Final = 1.1
"""The recommended size per byte that the replayed cache needed."""
BASELINE_REQUESTS: Final = 2_000_000
"""Requests on which the general policies are simulated at most; each takes ten times as long as a replay."""
_ALONE: Final = ("hit_ratio", "bookie_reads", "saved_ratio", "peak_bytes")
"""Columns of the table `alone` after the setting and its move."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting, moved alone."""

    key: str
    """Of broker.conf."""
    overrides: Overrides
    """The setting with its new value."""
    text: str
    """The move, for the report."""


def recommend(
    spark: SparkSession,
    checked: Checked,
    *,
    rate: float | None = None,
    price: float | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """Returns the recommendation for a checked access record.

    `rate`: the share of the entries that is replayed, above 0 and at most 1; None takes as many as a minute allows. `price`:
    of a GiB of memory for a month. `say` is called with each step.
    """
    report = Report("recommend", "Recommendation", checked.summary())
    own = usual_settings(checked.lifetimes)
    # Multiples of a size of 0 are 0, so there is nothing to compare.
    if not own.size_bytes_max:
        report.text.append("this broker had no cache: set managedLedgerCacheSizeMB above 0 and record again")
        return report
    knobs, combinations = _knobs(own), _combinations(own)
    # One grid for everything: each task reads its files once for all settings.
    every = [OWN, *[knob.overrides for knob in knobs], *combinations, _expected_reads_without_ttl(own)]
    rate = affordable_rate(checked.requests, checked.entry_bytes, own, every) if rate is None else rate
    policies_rate = min(rate, OBJECTS_REQUESTS / max(checked.requests, 1))
    object_rate = rate if needs_objects(checked.lifetimes, every) else policies_rate
    inputs = RecordInputs(spark, checked.lifetimes, rate, object_rate)
    grid = replay_grid(inputs, every, say=say)
    present, moved = grid[0], grid[1 : 1 + len(knobs)]
    together = grid[1 + len(knobs) : -1]
    # The sizes of the grid are powers of two, so the best one may be nearly twice what is needed.
    best = _trimmed(inputs, present, _cheapest(present, together))
    policies = _policies(inputs, checked, own, policies_rate, say)
    baseline = _baseline(inputs, checked, best.settings.size_bytes_max, say)
    report.text += [*own_lines(checked, present), *pace_lines(inputs, checked, say)]
    report.text += [*present_lines(present), ""]
    # First the change that costs no memory.
    report.text += [
        *_policy_advice(policies),
        *_binding(knobs, moved, present),
        "",
        *_advice(present, best),
        memory_line(best.settings, checked.entry_bytes),
        "",
    ]
    report.text += _bounds(baseline, grid[-1] if checked.counts_reads else None, best)
    _add_tables(report, present, best, knobs, moved, together)
    _add_policies(report, policies)
    _add_baseline(report, baseline, best)
    traffic = traffic_of(checked.recorded_s, len(present.brokers), price)
    curve = best_by_size(together)
    report.text += [*knee_lines(curve, traffic), *_choice(present, best, knee_of(curve))]
    report.tables["memory_curve"] = curve_table([curve], knee_of(curve), traffic)
    add_brokers(report, present, best, together)
    report.listed = {"before_after": 20}
    return report


def _knobs(own: CacheSettings) -> list[Knob]:
    """Returns each setting with a value at which it can hardly limit any more."""
    times = "managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes"
    knobs = [
        Knob("managedLedgerCacheSizeMB", Overrides(size_bytes=own.size_bytes_max * 32), "32 times the size"),
        Knob(
            "managedLedgerCacheEvictionTimeThresholdMillis",
            Overrides(ttl_ns=max(own.ttl_ns * 60, 1_000_000_000)),
            "60 times the time to live",
        ),
    ]
    if own.policy == PIP430:
        more = max(own.requeues_max * 4, EXTENSIONS)
        knobs.append(Knob(times, Overrides(requeues_max=more), f"{more} extensions"))
        other = not own.extend_recently_accessed
        key = "managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed"
        knobs.append(Knob(key, Overrides(extend_recently_accessed=other), str(other).lower()))
    return knobs


def _combinations(own: CacheSettings) -> list[Overrides]:
    sizes = curve_sizes(own.size_bytes_max)
    return [Overrides(size_bytes=size, ttl_ns=round(own.ttl_ns * ttl)) for size in sizes for ttl in TTLS]


def _expected_reads_without_ttl(own: CacheSettings) -> Overrides:
    """Returns PIP-430's policy without a time to live. It evicts for the size alone."""
    return Overrides(PIP430, "4.2", own.size_bytes_max, NO_TTL_NS, EXTENSIONS, False)


def _cheapest(present: GridRow, grid: Sequence[GridRow]) -> GridRow:
    """Returns the smallest cache near the best hit ratio.

    Among equal sizes it is the one with the shortest time to live.
    """
    top = max(row.hit_ratio for row in grid)
    # A change of settings has a cost of its own, so a gain below WORTH keeps what is there.
    if top - present.hit_ratio < WORTH:
        return present
    return smallest_near_best(grid)


def _trimmed(inputs: RecordInputs, present: GridRow, best: GridRow) -> GridRow:
    """Cuts the size to SPARE times the needed bytes, if the hit ratio stays."""
    size = -(-round(best.peak_bytes * SPARE) // MIB) * MIB
    # The peak of a replay is what the cache needed; more than that brings no hit and takes memory.
    if best is present or size >= best.settings.size_bytes_max:
        return best
    fewer = best.overrides._replace(size_bytes=size)
    (less,) = replay_grid(inputs, [fewer])
    return less if less.hit_ratio >= best.hit_ratio - NEAR else best


def _policies(
    inputs: RecordInputs,
    checked: Checked,
    own: CacheSettings,
    rate: float,
    say: Callable[[str], None],
) -> tuple[GridRow, GridRow] | None:
    """Replays the recorded policy and `magnetar` on the same entries, the share `rate` of all.

    None for a record of `magnetar`, and for one without the file of names, which the broker's objects need.
    """
    if own.policy == MAGNETAR or any(lifetime.names is None for lifetime in checked.lifetimes):
        return None
    # The broker's own objects replay `magnetar`, three hundred times slower than machine code.
    # Both policies on the same sample: beside the whole record, the sample's own error would look like a gain.
    say(f"replaying the policy {MAGNETAR}")
    recorded, magnetar = replay_grid(inputs, [OWN, Overrides(MAGNETAR)], rate=rate, say=say)
    return recorded, magnetar


def _policy_advice(policies: tuple[GridRow, GridRow] | None) -> list[str]:
    if policies is None:
        return []
    recorded, magnetar = policies
    gain = magnetar.hit_ratio - recorded.hit_ratio
    name = settings_cells(recorded)["policy"] or "as recorded"
    if gain <= POLICY_WORTH:
        return [
            f"keep the policy {name}: {MAGNETAR}, with the present settings, changes the hit ratio by "
            f"{100 * gain:+.2f} points",
            "",
        ]
    return [
        "without more memory, change in broker.conf:",
        f"entryCachePolicy={MAGNETAR}",
        "",
        f"expected: hit ratio {percent(recorded.hit_ratio)} ({name}) -> {percent(magnetar.hit_ratio)}",
        "",
        "or, with other sizes and times to live:",
        "",
    ]


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
        return [f"keep the settings: hit ratio {percent(present.hit_ratio)}, {peak_text(present)}"]
    saved = 1 - best.misses / present.misses if present.misses else 0.0
    return [
        "change in broker.conf:",
        *changed_keys(present, best),
        "",
        f"expected: hit ratio {percent(present.hit_ratio)} -> {percent(best.hit_ratio)}, "
        f"bookie reads {present.misses:,} -> {best.misses:,} ({percent(saved)} saved), "
        f"{peak_text(best)}",
    ]


def _baseline(
    inputs: RecordInputs, checked: Checked, size_bytes: int, say: Callable[[str], None]
) -> dict[str, float] | None:
    """Returns the hit ratio of reads by general policy, over all lifetimes. None without the library."""
    if not library_is_installed():
        return None
    say("simulating general policies")
    rate = min(inputs.rate, BASELINE_REQUESTS / max(checked.requests, 1))
    policies = BASELINE if rate >= 1 else SAMPLED_BASELINE
    task = partial(baseline_of, size_bytes=size_bytes, policies=policies)
    sums: dict[str, list[int]] = {}
    for policy, hits, reads in inputs.replayed([[task]] * len(inputs.lifetimes), rate, say):
        one = sums.setdefault(policy, [0, 0])
        one[0] += hits
        one[1] += reads
    return {policy: hits / reads for policy, (hits, reads) in sums.items() if reads}


def _choice(present: GridRow, best: GridRow, knee: GridRow | None) -> list[str]:
    """Returns a line that says which point of the curve is proposed, and why."""
    if best is present:
        return [f"proposed: the present settings, since no others bring {100 * WORTH:.1f} points"]
    size = best.settings.size_bytes_max
    text = f"proposed: {bytes_text(size)}, the smallest cache within {100 * NEAR:.1f} points of the best hit ratio"
    if knee is None or knee.settings.size_bytes_max >= size:
        return [text]
    knee_bytes = knee.settings.size_bytes_max
    return [
        f"{text}; the knee takes {percent(1 - knee_bytes / size)} less memory and hits "
        f"{100 * (best.hit_ratio - knee.hit_ratio):.2f} points less: --memory {knee_bytes >> 20}MiB proposes for it"
    ]


def _bounds(baseline: dict[str, float] | None, no_ttl: GridRow | None, best: GridRow) -> list[str]:
    """Returns a line per bound. `no_ttl`: None for an access record without expected reads, where it is no bound."""
    size = bytes_text(best.settings.size_bytes_max)
    lines = []
    if no_ttl is not None:
        lines.append(f"expected reads without a time to live, own size: {percent(no_ttl.hit_ratio)}")
    if baseline is None:
        lines.append(f"general policies and Belady's bound are left out: {SimulatorMissing()}")
    elif BELADY in baseline:
        lines.append(f"Belady's bound with {size}, no time to live: {percent(baseline[BELADY])}")
    return lines


def _add_tables(
    report: Report,
    present: GridRow,
    best: GridRow,
    knobs: Sequence[Knob],
    moved: Sequence[GridRow],
    grid: Sequence[GridRow],
) -> None:
    before_after: list[dict[str, Cell]] = [
        {"settings": "before", **row_of(present, present)},
        {"settings": "after", **row_of(best, present)},
    ]
    report.tables["before_after"] = Table("Before and after", before_after, f"A peak may be {PEAK_NOTE}.")
    # The first two columns say what differs from the present settings, and the others would repeat it.
    alone: list[dict[str, Cell]] = [
        {
            "setting": knob.key,
            "moved": knob.text,
            **{name: cell for name, cell in row_of(row, present).items() if name in _ALONE},
        }
        for knob, row in zip(knobs, moved, strict=True)
    ]
    report.tables["alone"] = Table("Each setting moved alone", alone)
    report.tables["combinations"] = Table(
        "Size and time to live together", [row_of(row, present) for row in grid], range_of="ttl_ms"
    )
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for row in grid:
        xs, ys = lines.setdefault(time_text(row.settings.ttl_ns / 1e6), ([], []))
        xs.append(row.settings.size_bytes_max / MIB)
        ys.append(row.hit_ratio)
    marks = marks_of({"now": present, "recommended": best, "knee": knee_of(best_by_size(grid))})
    svg = lines_plot(
        lines, "cache size", "hit ratio", x_scale="size", y_scale="ratio", log_x=True, marks=marks
    )
    report.plots.append(Plot(f"Hit ratio over size and time to live, {policy_name(present.settings)}", svg))


def _add_policies(report: Report, policies: tuple[GridRow, GridRow] | None) -> None:
    if policies is not None:
        recorded = policies[0]
        rows = [row_of(row, recorded) for row in policies]
        report.tables["policies"] = Table("The recorded policy and magnetar, same settings and entries", rows)


def _add_baseline(report: Report, baseline: dict[str, float] | None, best: GridRow) -> None:
    if baseline is None:
        return
    others = {**baseline, policy_name(best.settings): best.hit_ratio}
    ranked = dict(sorted(others.items(), key=lambda one: -one[1]))
    rows: list[dict[str, Cell]] = [{"policy": name, "hit_ratio": ratio} for name, ratio in ranked.items()]
    note = "Without a time to live, all with the recommended size. A general cache keeps what was popular; a log has none."
    report.tables["baseline"] = Table("Policies side by side", rows, note, shown=0)
    report.plots.append(Plot("Policies side by side", bars_plot(ranked, "hit ratio of reads", "ratio"), note))
