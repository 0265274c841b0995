"""`what-if`: replays the recorded requests under other settings.

Readers request entries at the recorded times; only the contents of the cache differ. The broker's own settings are replayed
too. The difference to the recorded reads is the model's error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import SparkSession

from entry_cache.settings import CacheSettings
from pipeline.jobs.grid_rows import OWN, own_lines, policy_name, present_lines, row_of
from pipeline.jobs.memory_curve import marks_of
from pipeline.jobs.plots import lines_plot
from pipeline.jobs.report import Cell, Plot, Report, Table, time_text
from pipeline.replays.grid import GridRow, Overrides, needs_objects, own_settings, replay_grid
from pipeline.replays.record_inputs import RecordInputs
from pipeline.replays.replay import BY_KERNEL
from pipeline.traces.checking import Checked

OBJECTS_REQUESTS = 1_000_000
"""Requests that the broker's own objects replay in about half a minute per setting."""
_PARTS: Final = 4
"""Parts of the name of a line."""


def what_if(
    spark: SparkSession,
    checked: Checked,
    wanted: Sequence[Overrides],
    *,
    rate: float = 1.0,
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """Returns the hit ratio of each setting in `wanted`, beside the broker's own.

    `rate`: the share of the entries that is replayed, above 0 and at most 1. Table `what_if`: one row per setting.
    ValueError for settings that no cache has.
    """
    report = Report("what-if", "What if", checked.summary())
    _warn(checked, wanted, rate, say)
    recorded = [own_settings(lifetime) for lifetime in checked.lifetimes]
    # The own settings have a row of their own, however they are named.
    others = [one for one in wanted if any(one.applied_to(own) != own for own in recorded)]
    every = [OWN, *others]
    object_rate = rate if needs_objects(checked.lifetimes, every) else 0.0
    grid = replay_grid(RecordInputs(spark, checked.lifetimes, rate, object_rate), every, say=say)
    report.text += [*own_lines(checked, grid[0]), *present_lines(grid[0])]
    rows: list[dict[str, Cell]] = [
        {"settings": "own" if row is grid[0] else "tried", **row_of(row, grid[0])} for row in grid
    ]
    report.tables["what_if"] = Table("Settings side by side", rows, shown=500, range_of="ttl_ms")
    # The own settings belong to a line if they were asked for.
    lines = _lines(grid if len(others) < len(wanted) else grid[1:])
    if any(len(xs) > 1 for xs, _ in lines.values()):
        report.plots.append(Plot("Hit ratio over size", _plot_of(lines, grid[0])))
    report.listed = {"what_if": 40}
    return report


def _warn(checked: Checked, wanted: Sequence[Overrides], rate: float, say: Callable[[str], None]) -> None:
    own = own_settings(checked.lifetimes[0])
    slow = [overrides for overrides in wanted if overrides.applied_to(own).policy not in BY_KERNEL]
    if slow and checked.requests * rate > OBJECTS_REQUESTS:
        say(
            f"{len(slow)} settings have a policy without machine code and take minutes each: --sample 0.01 is faster"
        )


def _plot_of(lines: dict[str, tuple[list[float], list[float]]], own: GridRow) -> str:
    marks = marks_of({"now": own})
    return lines_plot(
        lines, "cache size", "hit ratio", x_scale="size", y_scale="ratio", log_x=True, marks=marks
    )


def _lines(grid: Sequence[GridRow]) -> dict[str, tuple[list[float], list[float]]]:
    """Returns the points of each line by its name, which has the settings in which lines differ."""
    named = [(row, _name_parts(row.settings)) for row in sorted(grid, key=_size)]
    differing = [at for at in range(_PARTS) if len({parts[at] for _, parts in named}) > 1] or [0]
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for row, parts in named:
        xs, ys = lines.setdefault(", ".join(parts[at] for at in differing), ([], []))
        xs.append(row.settings.size_bytes_max / (1 << 20))
        ys.append(row.hit_ratio)
    return lines


def _size(row: GridRow) -> int:
    return row.settings.size_bytes_max


def _name_parts(settings: CacheSettings) -> tuple[str, str, str, str]:
    accessed = "" if settings.extend_recently_accessed else "not "
    return (
        policy_name(settings),
        time_text(settings.ttl_ns / 1e6),
        f"{settings.requeues_max} requeues",
        f"read entries {accessed}requeued",
    )
