"""`recommend --memory` and `recommend --reads`: finds the best settings within a budget, the policy included.

A grid of policies, sizes and times to live is replayed. Machine code replays more entries than the broker's objects do, so a
policy of the objects that is chosen is compared with the recorded one again, on the same entries. A budget of memory is the
size of each broker's cache, and the best hit ratio within it is chosen. A budget of reads is the rate of entries that all
brokers together read from bookies, and the smallest cache that keeps it is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from entry_cache.policy_names import MAGNETAR, PIP430
from entry_cache.settings import CacheSettings
from foundation.units import MIB
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
    RecordedTraffic,
    best_by_size,
    curve_plot,
    curve_sizes,
    curve_table,
    curves_of,
    knee_lines,
    knee_of,
    marks_of,
    smallest_near_best,
    traffic_of,
    whole_mib,
)
from pipeline.jobs.report import Report, Table, bytes_text, percent
from pipeline.replays.grid import (
    OBJECT_REPLAYS,
    GridRow,
    Overrides,
    affordable_rate,
    replay_grid,
    usual_settings,
)
from pipeline.replays.record_inputs import RecordInputs
from pipeline.replays.replay import BY_KERNEL
from pipeline.traces.checking import Checked, counted

POLICY_WORTH: Final = 0.03
"""A smaller gain is no reason to change the policy.

The replay of `magnetar` may be wrong by this much.

In a cache of half the demand, `magnetar` serves some of several equal readers, and a size that is 0.3 % off moves its
replayed hit ratio by up to three points. It moves most if the entries of the topics differ in size: the bytes that one
reader loses are then worth another number of entries to the reader that gains them. The error of a sample of
OBJECTS_REQUESTS requests is a tenth of that.
"""
_PARTS: Final = (0.25, 0.5, 0.75, 1.0)
"""Sizes in budgets of memory, beside those of the curve."""
_TTLS: Final = (1.0, 3.0, 10.0, 60.0)
"""Multiples of the own time to live."""
_OBJECT_TTLS: Final = (1.0, 10.0)
"""The same for a policy without machine code."""
_OBJECT_PARTS: Final = (0.5, 1.0)
"""Sizes in budgets for such a policy in a large record."""
_OBJECT_MULTIPLES: Final = (1.0, 4.0, 16.0)
"""The same in own sizes, in place of those of the curve."""
_BETWEEN: Final = 6
"""Sizes that are tried between the smallest that keeps the rate of reads and the next smaller one."""


class Budget(NamedTuple):
    """The limit that a recommendation keeps; one of the first two is given."""

    memory_bytes: int | None = None
    """The largest cache of each broker, a multiple of 1 MiB."""
    reads_per_s: float | None = None
    """The most entries that all brokers together may read from bookies in a second."""
    price: float | None = None
    """Of one GiB of memory for a month."""


class _Search(NamedTuple):
    """A search within one access record."""

    inputs: RecordInputs
    own: CacheSettings
    kernel_rate: float
    """The share of the entries that machine code replays."""
    object_rate: float
    """The share that the broker's objects replay."""
    traffic: RecordedTraffic
    say: Callable[[str], None]

    def replay(self, wanted: Sequence[Overrides]) -> list[GridRow]:
        """Returns a row per set of overrides, in their order, each policy on its share of the entries."""
        rows: dict[int, GridRow] = {}
        for by_kernel, rate in ((True, self.kernel_rate), (False, self.object_rate)):
            numbers = [at for at, one in enumerate(wanted) if _has_kernel(one, self.own) is by_kernel]
            if numbers:
                found = replay_grid(self.inputs, [wanted[at] for at in numbers], rate=rate, say=self.say)
                rows.update(zip(numbers, found, strict=True))
        return [rows[at] for at in range(len(wanted))]

    def per_second(self, row: GridRow) -> float:
        """Returns the bookie reads of a row in a second."""
        return self.traffic.per_second(row.misses)


def recommend_within(
    spark: SparkSession,
    checked: Checked,
    budget: Budget,
    *,
    rate: float | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """Returns the recommendation within a budget.

    `rate`: the share of the entries that is replayed; None takes as many as a minute allows. Tables: `before_after`,
    `memory_curve` (size), `combinations` (setting), `brokers`.
    """
    report = Report("recommend", "Recommendation within a budget", checked.summary())
    own = usual_settings(checked.lifetimes)
    wanted = _wanted(own, checked, budget)
    kernel_rate, object_rate = (
        _share(checked, own, [one for one in wanted if _has_kernel(one, own) is by_kernel], rate)
        for by_kernel in (True, False)
    )
    brokers = len({lifetime.broker for lifetime in checked.lifetimes})
    traffic = traffic_of(checked.recorded_s, brokers, budget.price)
    inputs_rate = max(kernel_rate, object_rate)
    # The chosen settings are replayed again, alone and so on more entries (`_confirmed`).
    again_rate = _share(checked, own, [one for one in wanted if not _has_kernel(one, own)][:1], rate)
    inputs = RecordInputs(spark, checked.lifetimes, inputs_rate, min(again_rate, inputs_rate))
    search = _Search(inputs, own, kernel_rate, object_rate, traffic, say)
    present, *grid = search.replay([OWN, *wanted])
    best = _within(search, present, grid, budget)
    confirmed_present, confirmed = _confirmed(search, checked, present, best, rate)
    report.text += [*own_lines(checked, confirmed_present), *pace_lines(inputs, checked, say)]
    report.text += [*present_lines(present), ""]
    report.text += _advice(search, budget, confirmed_present, confirmed, best is None)
    report.text.append(memory_line((confirmed or confirmed_present).settings, checked.entry_bytes))
    if best is not None and budget.memory_bytes is not None:
        report.text += tie_lines(_fitting(grid, budget), best)
    _add_curve(report, search, present, grid, confirmed or present, budget)
    _add_brokers(report, present, grid, best or present, budget)
    report.tables["combinations"] = Table(
        "All settings that were tried",
        [row_of(row, present) for row in sorted(grid, key=_best_first)],
        range_of="ttl_ms",
    )
    report.listed = {"before_after": 20, "memory_curve": 20}
    return report


def _has_kernel(overrides: Overrides, own: CacheSettings) -> bool:
    return overrides.applied_to(own).policy in BY_KERNEL


def _share(checked: Checked, own: CacheSettings, wanted: Sequence[Overrides], rate: float | None) -> float:
    """Returns the given share of the entries, or the one that a minute allows for these settings."""
    if rate is not None or not wanted:
        return rate or 0.0
    return affordable_rate(checked.requests, checked.entry_bytes, own, wanted)


def _wanted(own: CacheSettings, checked: Checked, budget: Budget) -> list[Overrides]:
    """Returns policies, sizes and times to live to replay."""
    policies = [own.policy, PIP430]
    # The broker's objects replay `magnetar`, and need the names of topics and readers.
    if all(lifetime.names is not None for lifetime in checked.lifetimes):
        policies.append(MAGNETAR)
    found: list[Overrides] = []
    for policy in dict.fromkeys(policies):
        by_kernel = policy in BY_KERNEL
        ttls = _TTLS if by_kernel else _OBJECT_TTLS
        one = _settings_of(policy, _sizes(own, budget, few=False), ttls, own)
        # Small caches need a large sample, which the objects take too long to replay for every size.
        replays = round(_share(checked, own, one, None) * checked.requests * len(one))
        if not by_kernel and replays > OBJECT_REPLAYS:
            one = _settings_of(policy, _sizes(own, budget, few=True), ttls, own)
        found += one
    return found


def _settings_of(
    policy: str, sizes: Sequence[int], ttls: Sequence[float], own: CacheSettings
) -> list[Overrides]:
    return [
        Overrides(policy, size_bytes=size, ttl_ns=round(own.ttl_ns * ttl)) for size in sizes for ttl in ttls
    ]


def _sizes(own: CacheSettings, budget: Budget, *, few: bool) -> list[int]:
    """Returns the sizes to replay, each once, the smallest first."""
    own_bytes = max(own.size_bytes_max, MIB)
    curve = [whole_mib(own_bytes * size) for size in _OBJECT_MULTIPLES] if few else curve_sizes(own_bytes)
    parts = _OBJECT_PARTS if few else _PARTS
    return sorted({*curve, *(whole_mib((budget.memory_bytes or own_bytes) * part) for part in parts)})


def _best_first(row: GridRow) -> tuple[object, ...]:
    settings = row.settings
    return -row.hit_ratio, settings.size_bytes_max, settings.policy, settings.ttl_ns


def _within(search: _Search, present: GridRow, grid: Sequence[GridRow], budget: Budget) -> GridRow | None:
    """Returns the best row within the budget; None if no settings keep a rate of reads."""
    if budget.memory_bytes is not None:
        return _trimmed(search, best_of_policies(_fitting(grid, budget)))
    limit = budget.reads_per_s or 0.0
    # Brokers with different sizes have no size together, so there is none to keep.
    kept = [] if settings_cells(present)["size_bytes"] is None else [present]
    found = smallest_within_reads([*kept, *grid], search.own.policy, search.traffic, limit)
    if found is None or found is present:
        return found
    return _refined(search, grid, found, limit)


def best_of_policies(rows: Sequence[GridRow]) -> GridRow:
    """Returns the smallest cache near the best hit ratio.

    A tie goes to the default policy: another one must bring more than POLICY_WORTH.
    """
    best = smallest_near_best(rows)
    default = [row for row in rows if row.settings.policy == PIP430]
    kept = smallest_near_best(default) if default else best
    return best if best.hit_ratio - kept.hit_ratio > POLICY_WORTH else kept


def tie_lines(rows: Sequence[GridRow], chosen: GridRow) -> list[str]:
    """Returns a line if another policy than the chosen one is better by less than the error of its replay."""
    best = smallest_near_best(rows)
    if best.settings.policy == chosen.settings.policy or best.hit_ratio <= chosen.hit_ratio:
        return []
    return [
        f"a tie: {policy_name(best.settings)} has {percent(best.hit_ratio)} with "
        f"{bytes_text(best.settings.size_bytes_max)}, which is no more than {100 * POLICY_WORTH:.0f} points better, the "
        f"error of such a comparison; ties go to the default policy, {PIP430}"
    ]


def _fitting(rows: Sequence[GridRow], budget: Budget) -> list[GridRow]:
    """Returns the rows within a budget of memory; all for another budget."""
    limit = budget.memory_bytes
    return [row for row in rows if limit is None or row.settings.size_bytes_max <= limit]


def smallest_within_reads(
    rows: Sequence[GridRow], own_policy: str, traffic: RecordedTraffic, limit: float
) -> GridRow | None:
    """Returns the smallest cache whose bookie reads stay within a rate.

    Of equal sizes the recorded policy comes first, then the shortest time to live near the best hit ratio.
    """
    fitting = [row for row in rows if traffic.per_second(row.misses) <= limit]
    if not fitting:
        return None
    size = min(row.settings.size_bytes_max for row in fitting)
    smallest = [row for row in fitting if row.settings.size_bytes_max == size]
    return smallest_near_best([row for row in smallest if row.settings.policy == own_policy] or smallest)


def _refined(search: _Search, grid: Sequence[GridRow], found: GridRow, limit: float) -> GridRow:
    """Tries sizes between the found one and the next smaller one, with every time to live that the found one allows.

    In a cache that is full, a longer time to live keeps entries that were read instead of those that will be.
    """
    size = found.settings.size_bytes_max
    below = max(
        (row.settings.size_bytes_max for row in grid if row.settings.size_bytes_max < size), default=0
    )
    steps = {whole_mib(below + (size - below) * step / _BETWEEN) for step in range(1, _BETWEEN)}
    fitting = [
        row
        for row in grid
        if row.settings.size_bytes_max == size
        and row.settings.policy == found.settings.policy
        and search.per_second(row) <= limit
    ]
    between = [
        row.overrides._replace(size_bytes=one)
        for row in fitting
        for one in sorted(steps)
        if below < one < size
    ]
    if not between:
        return found
    rows = [*search.replay(between), found]
    return smallest_within_reads(rows, search.own.policy, search.traffic, limit) or found


def _trimmed(search: _Search, best: GridRow) -> GridRow:
    """Cuts the size to the bytes that the replayed cache needed, if it does not fill the budget."""
    size = whole_mib(best.peak_bytes * 1.1 + MIB / 2)
    if size >= best.settings.size_bytes_max:
        return best
    (less,) = search.replay([best.overrides._replace(size_bytes=size)])
    return less if less.hit_ratio >= best.hit_ratio - 0.002 else best


def _confirmed(
    search: _Search, checked: Checked, present: GridRow, best: GridRow | None, rate: float | None
) -> tuple[GridRow, GridRow | None]:
    """Replays the present and the chosen settings on the same entries, on as many as a minute allows."""
    if best is None or best is present:
        return present, best
    both = [OWN, best.overrides]
    share = max(_share(checked, search.own, both, rate), best.rate)
    if share <= best.rate == present.rate:
        return present, best
    search.say("replaying the present and the chosen settings again, on the same entries")
    again = replay_grid(search.inputs, both, rate=share, say=search.say)
    return again[0], again[1]


def _advice(
    search: _Search, budget: Budget, present: GridRow, best: GridRow | None, unreachable: bool
) -> list[str]:
    if unreachable or best is None:
        return [
            f"no settings that were tried keep bookie reads at {budget.reads_per_s:,.0f}/s: see the table memory_curve "
            "for the fewest; entries that were never cached are read from bookies in any case"
        ]
    head = (
        f"within {bytes_text(budget.memory_bytes)} of cache on each broker:"
        if budget.memory_bytes is not None
        else f"for at most {budget.reads_per_s:,.0f} bookie reads/s:"
    )
    lines = changed_keys(present, best)
    saved = f"{percent(1 - best.misses / present.misses)} saved" if present.misses else "none before"
    cost = search.traffic.cost(best.settings.size_bytes_max)
    text = [head, *(lines or ["keep the settings"]), ""]
    text.append(
        f"expected: hit ratio {percent(present.hit_ratio)} -> {percent(best.hit_ratio)}, bookie reads "
        f"{search.per_second(present):,.1f}/s -> {search.per_second(best):,.1f}/s ({saved}), "
        f"{peak_text(best)}"
    )
    if best.by != "kernel" and present.by == "kernel":
        text.append(
            f"the replay of this policy may be wrong by {100 * POLICY_WORTH:.0f} points where the cache holds "
            "half of what is read"
        )
    if cost is not None:
        text.append(
            f"cost: {cost:,.3g} a month for {bytes_text(best.settings.size_bytes_max)} on "
            f"{counted(search.traffic.brokers, 'broker')}"
        )
    return text


def _add_curve(
    report: Report,
    search: _Search,
    present: GridRow,
    grid: Sequence[GridRow],
    best: GridRow,
    budget: Budget,
) -> None:
    rows = [
        {"settings": name, **row_of(row, present)} for name, row in (("before", present), ("after", best))
    ]
    report.tables["before_after"] = Table("Before and after", rows, f"A peak may be {PEAK_NOTE}.")
    curves = curves_of(grid)
    # The sizes of the curve and the recorded policy alone: the knee is the same whatever the budget is.
    sizes = curve_sizes(max(search.own.size_bytes_max, MIB))
    own = [row for row in grid if row.settings.policy == search.own.policy]
    curve = best_by_size([row for row in own if row.settings.size_bytes_max in sizes])
    knee = knee_of(curve)
    report.text += knee_lines(curve, search.traffic)
    report.tables["memory_curve"] = curve_table(curves.values(), knee, search.traffic)
    marks = marks_of({"now": present, "recommended": best, "knee": knee})
    report.plots.append(curve_plot(curves, marks, budget.memory_bytes))


def _add_brokers(
    report: Report, present: GridRow, grid: Sequence[GridRow], best: GridRow, budget: Budget
) -> None:
    add_brokers(report, present, best, _fitting(grid, budget))
