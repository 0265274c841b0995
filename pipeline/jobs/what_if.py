"""`what-if`: the recorded requests under other settings, and how well the model repeats what was.

Readers ask when they asked; only what is cached is otherwise. The broker's own settings are replayed twice: as
recorded, which is exact on a complete record, and by the model, whose distance from it is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from broker.entry_cache.policies.names import PIP430
from broker.entry_cache.settings import EntryCacheSettings
from broker.recorder.record_reader import RunOfBroker
from pipeline.jobs.answer import Answer, Cell, Plot, Table, as_text, mib, percent
from pipeline.jobs.plots import lines_plot
from pipeline.replays.grid import Choice, GridRow, own_settings, replay_grid
from pipeline.replays.making import accesses_of
from pipeline.replays.objects import own_totals
from pipeline.replays.replay import BY_KERNEL, Outcome, replay_as_recorded
from pipeline.traces.checking import Checked

OWN = Choice()
OBJECTS_EVENTS = 2_000_000
"""More rows than these, and a policy without machine code takes long enough to be worth a word."""


def what_if(
    spark: SparkSession,
    checked: Checked,
    wanted: Sequence[Choice],
    *,
    rate: float = 1.0,
    say: Callable[[str], None] = lambda text: None,
) -> Answer:
    answer = Answer("what-if", "What if", checked.summary())
    _warn(checked, wanted, rate, say)
    exact = exactly(spark, checked.runs, say)
    grid = replay_grid(spark, checked.runs, [OWN, *wanted], rate=rate, say=say)
    answer.text += own_lines(exact, grid[0])
    rows = [row_of(row, grid[0]) for row in grid]
    answer.tables["what_if"] = Table(
        "Settings side by side", rows, "The first line has the broker's own.", 500
    )
    lines = _lines(grid[1:])
    if any(len(xs) > 1 for xs, _ in lines.values()):
        answer.plots.append(Plot("Hit ratio over size", lines_plot(lines, "MiB", "hit ratio", log_x=True)))
    answer.text += ["", *as_text(rows, 40)]
    return answer


def _warn(checked: Checked, wanted: Sequence[Choice], rate: float, say: Callable[[str], None]) -> None:
    own = own_settings(checked.runs[0])
    slow = [choice for choice in wanted if choice.of(own).policy not in BY_KERNEL]
    if slow and checked.rows * rate > OBJECTS_EVENTS:
        say(
            f"{len(slow)} settings have a policy without machine code and take minutes each: --sample 0.01 is faster"
        )


def exactly(
    spark: SparkSession, runs: Sequence[RunOfBroker], say: Callable[[str], None]
) -> list[Outcome | None]:
    """By run: the broker's own settings replayed as recorded; None where the record is not complete."""
    say("replaying the broker's own settings as recorded")
    return spark.sparkContext.parallelize(list(runs), len(runs)).map(_exactly).collect()


def _exactly(run: RunOfBroker) -> Outcome | None:
    if run.why_not_exact():
        return None
    settings = [EntryCacheSettings.from_text(file.facts.settings) for file in run.files]
    if all(one.policy in BY_KERNEL for one in settings):
        return replay_as_recorded(accesses_of(run))
    return own_totals(run)


def own_lines(exact: Sequence[Outcome | None], model: GridRow) -> list[str]:
    """What the broker's own settings gave, and how far the model is from it."""
    if any(outcome is None for outcome in exact):
        return [
            "the record is not complete, so its own settings cannot be replayed exactly; the model gives "
            f"{percent(model.hit_ratio)}"
        ]
    found = [outcome for outcome in exact if outcome is not None]
    reads, hits = sum(one.reads for one in found), sum(one.totals["hits"] for one in found)
    ratio = hits / reads if reads else 0.0
    return [
        f"own settings as recorded, exact: hit ratio {percent(ratio)} of {reads:,} entries read",
        f"own settings by the model: {percent(model.hit_ratio)}, which is how far the other lines are to be trusted",
    ]


def policy_name(settings: EntryCacheSettings) -> str:
    return f"{PIP430} {settings.profile}" if settings.policy == PIP430 else settings.policy


def row_of(row: GridRow, own: GridRow) -> dict[str, Cell]:
    settings = row.settings
    saved = 1 - row.misses / own.misses if own.misses else 0.0
    return {
        "policy": policy_name(settings),
        "size": mib(settings.size_bytes_max),
        "ttl_ms": settings.ttl_ns // 1_000_000,
        "extensions": settings.requeues_max,
        "extend_accessed": settings.extend_recently_accessed,
        "hit_ratio": row.hit_ratio,
        "bookie_reads": row.misses,
        "saved": percent(saved),
        "peak": mib(row.peak_bytes),
        "by": row.by,
    }


def _lines(grid: Sequence[GridRow]) -> dict[str, tuple[list[float], list[float]]]:
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for row in sorted(grid, key=lambda one: one.settings.size_bytes_max):
        settings = row.settings
        name = f"{policy_name(settings)}, {settings.ttl_ns / 1e6:g} ms, {settings.requeues_max} ext."
        if settings.extend_recently_accessed:
            name += ", accessed"
        xs, ys = lines.setdefault(name, ([], []))
        xs.append(settings.size_bytes_max / (1 << 20))
        ys.append(row.hit_ratio)
    return lines
