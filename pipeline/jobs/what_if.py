"""`what-if`: replays the recorded requests under other settings.

Readers request entries at the recorded times; only the contents of the cache differ. The broker's own settings are replayed
too. The difference to the recorded reads is the model's error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from broker.config.policy_names import PIP430
from broker.entry_cache.settings import EntryCacheSettings
from pipeline.jobs.plots import lines_plot
from pipeline.jobs.report import Cell, Plot, Report, Table, percent, share, time_text
from pipeline.replays.grid import GridRow, Overrides, needs_objects, own_settings, replay_grid
from pipeline.replays.record_inputs import RecordInputs
from pipeline.replays.replay import BY_KERNEL
from pipeline.traces.checking import Checked

OWN = Overrides()
"""The broker's own settings."""
OBJECTS_REQUESTS = 1_000_000
"""Requests that the broker's own objects replay in about half a minute per setting."""


def what_if(
    spark: SparkSession,
    checked: Checked,
    wanted: Sequence[Overrides],
    *,
    rate: float = 1.0,
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """Return the hit ratio of each setting in `wanted`, beside the broker's own.

    `rate`: the share of the entries that is replayed, above 0 and at most 1. Table `what_if`: one row per setting.
    ValueError for settings that no cache has.
    """
    report = Report("what-if", "What if", checked.summary())
    _warn(checked, wanted, rate, say)
    others = [overrides for overrides in wanted if overrides != OWN]
    every = [OWN, *others]
    object_rate = rate if needs_objects(checked.lifetimes, every) else 0.0
    grid = replay_grid(RecordInputs(spark, checked.lifetimes, rate, object_rate), every, say=say)
    report.text += own_lines(checked, grid[0])
    rows = [row_of(row, grid[0]) for row in grid]
    report.tables["what_if"] = Table(
        "Settings side by side", rows, "The first line has the broker's own.", 500, range_of="ttl_ms"
    )
    lines = _lines(grid[1:])
    if any(len(xs) > 1 for xs, _ in lines.values()):
        report.plots.append(Plot("Hit ratio over size", _plot_of(lines)))
    report.listed = {"what_if": 40}
    return report


def _warn(checked: Checked, wanted: Sequence[Overrides], rate: float, say: Callable[[str], None]) -> None:
    own = own_settings(checked.lifetimes[0])
    slow = [overrides for overrides in wanted if overrides.applied_to(own).policy not in BY_KERNEL]
    if slow and checked.requests * rate > OBJECTS_REQUESTS:
        say(
            f"{len(slow)} settings have a policy without machine code and take minutes each: --sample 0.01 is faster"
        )


def own_lines(checked: Checked, model: GridRow) -> list[str]:
    """Return lines with the own settings' hit ratio, as recorded and by the model."""
    if any(lifetime.why_not_exact() for lifetime in checked.lifetimes):
        return [
            "the access record is not complete, so the model's error is not known; it gives the own settings "
            f"{percent(model.hit_ratio)}"
        ]
    ratio = checked.hits / checked.reads if checked.reads else 0.0
    error = 100 * abs(model.hit_ratio - ratio)
    sample = f" on {share(model.rate)} of the entries" if model.rate < 1 else ""
    return [
        f"own settings as recorded, exact: hit ratio {percent(ratio)} of {checked.reads:,} entries read",
        f"own settings by the model{sample}: {percent(model.hit_ratio)}; its error of {error:.2f} points is that of the "
        "other lines, too",
    ]


def policy_name(settings: EntryCacheSettings) -> str:
    """Return the policy with its profile, where it has profiles."""
    return f"{PIP430} {settings.profile}" if settings.policy == PIP430 else settings.policy


def row_of(row: GridRow, own: GridRow) -> dict[str, Cell]:
    """Return a row of a report's table.

    `saved_ratio` is the share of `own`'s bookie reads that it avoids.
    """
    settings = row.settings
    saved = 1 - row.misses / own.misses if own.misses else 0.0
    return {
        "size_bytes": settings.size_bytes_max,
        "hit_ratio": row.hit_ratio,
        "bookie_reads": row.misses,
        "saved_ratio": saved,
        "policy": policy_name(settings),
        "ttl_ms": settings.ttl_ns // 1_000_000,
        "peak_bytes": row.peak_bytes,
        "extensions": settings.requeues_max,
        "extend_accessed": settings.extend_recently_accessed,
        "by": row.by,
    }


def _plot_of(lines: dict[str, tuple[list[float], list[float]]]) -> str:
    return lines_plot(lines, "cache size", "hit ratio", x_scale="size", y_scale="ratio", log_x=True)


def _lines(grid: Sequence[GridRow]) -> dict[str, tuple[list[float], list[float]]]:
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for row in sorted(grid, key=lambda one: one.settings.size_bytes_max):
        settings = row.settings
        name = f"{policy_name(settings)}, {time_text(settings.ttl_ns / 1e6)}, {settings.requeues_max} ext."
        if settings.extend_recently_accessed:
            name += ", accessed"
        xs, ys = lines.setdefault(name, ([], []))
        xs.append(settings.size_bytes_max / (1 << 20))
        ys.append(row.hit_ratio)
    return lines
