"""`history`: follows the hit ratio over days, with runs that read only new files.

Each run adds the counts of the files that no run before has read (`history_runs`), and then tells the trend over all
days, the drops with the changes that came with them, and the thresholds that were not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f

from broker.recorder.errors import RecordError
from pipeline.jobs.history_runs import READS, JobRun, RunFolder, file_key
from pipeline.jobs.hit_report import LIFETIME, reads_by
from pipeline.jobs.plots import lines_plot
from pipeline.jobs.report import Cell, Plot, Report, Table, percent
from pipeline.jobs.trend import (
    DayCounts,
    Drop,
    Reader,
    causes_of_drop,
    changed_settings,
    days_before,
    is_drop,
    summed,
)
from pipeline.traces.checking import Checked, counted, find_files, no_record
from pipeline.traces.record_frames import read_record

KEEP_DAYS: Final = 90
"""Days of which the counts are kept, unless they are given."""
DROP: Final = 0.05
"""The lost hit ratio that is a drop, unless it is given."""
_LINES: Final = 8
_COUNTS: Final = ("hits", "misses", "coalesced", "bytes")


class Thresholds(NamedTuple):
    """The limits of a history."""

    keep_days: int = KEEP_DAYS
    """Counts of runs whose days are all older are removed."""
    drop: float = DROP
    """The lost hit ratio from which a day is a drop, 0 to 1."""
    hit_ratio_min: float | None = None
    """A lower hit ratio of the newest day fails the job; None = none."""
    drop_max: float | None = None
    """A deeper drop of the newest day fails the job; None = none."""


def history(
    started: Callable[[], SparkSession],
    paths: Sequence[Path],
    out: Path,
    limits: Thresholds,
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """Reads the new files below the paths, and returns the trend of all days.

    `started` returns a session. It is called for new files alone: the counts of earlier runs are read without Spark.
    RecordError where no run has read anything and there is no sound file; HistoryError for an unusable state. Tables:
    `days`, `days_by_broker`, `drops`, `runs`.
    """
    folder = RunFolder(out)
    with folder.locked():
        runs = folder.runs()
        known = {key for run in runs for key in run.files}
        found = find_files(paths)
        there = {file_key(file): file.path for file in found.files}
        new = [path for key, path in there.items() if key not in known]
        report = Report("history", "Hit ratio over days")
        report.text += [f"not read: {one.path}: {one.reason}" for one in found.rejected]
        if not runs and not new:
            # Before Spark starts, which takes seconds.
            raise no_record(found, paths)
        if new:
            runs += _run_if_sound(started, folder, new, say, report, first=not runs)
        else:
            report.text.append("no new files since the last run")
        newest = max((day for run in runs for day in run.days), default="")
        if newest:
            first = date.fromisoformat(newest) - timedelta(days=limits.keep_days)
            runs = folder.forget(runs, first.isoformat(), set(there))
        _tell(folder, runs, limits, report)
    return report


def _run_if_sound(
    started: Callable[[], SparkSession],
    folder: RunFolder,
    paths: Sequence[Path],
    say: Callable[[str], None],
    report: Report,
    *,
    first: bool,
) -> list[JobRun]:
    """Returns the new run; none where all new files are damaged and there were runs before."""
    try:
        return [_run(started(), folder, paths, say, report)]
    except RecordError as error:
        # The trend of what was read before is worth more than an end without a report.
        if first:
            raise
        report.text.append(f"not read: {error}")
        return []


def _run(
    spark: SparkSession, folder: RunFolder, paths: Sequence[Path], say: Callable[[str], None], report: Report
) -> JobRun:
    """Reads files and adds them as a run."""
    say(f"reading {counted(len(paths), 'new file')}")
    record = read_record(spark, paths)
    run_id, part = folder.begin()
    reads = reads_by(record.rows.withColumn("day", _day()), "day", *LIFETIME, "topic", "sub")
    named = (
        reads.join(record.topics, [*LIFETIME, "topic"], "left")
        .join(record.readers, [*LIFETIME, "topic", "sub"], "left")
        # Ids hold for one lifetime, names for all.
        .select("day", "broker", *_names(), *_COUNTS)
        .groupBy("day", "broker", "topic_name", "sub_name")
        .agg(*[f.sum(name).alias(name) for name in _COUNTS])
    )
    named.coalesce(1).write.parquet(str(part / READS))
    days = spark.read.parquet(str(part / READS)).select("day").distinct().collect()
    run = JobRun(
        id=run_id,
        files=[file_key(file) for file in record.checked.files],
        days=sorted(str(row["day"]) for row in days),
        settings=_settings_by_day(record.checked),
    )
    folder.finish(run, part)
    report.text += [*record.checked.summary(), f"run {run_id}"]
    return run


def _day() -> Column:
    # From the epoch by days: a timestamp would be written in the time zone of a cluster's session.
    days = f.floor(f.col("ts") / 86_400_000_000).cast("int")
    return f.date_add(f.lit("1970-01-01").cast("date"), days).cast("string")


def _names() -> list[Column]:
    return [f.coalesce(name, f.lit("?")).alias(name) for name in ("topic_name", "sub_name")]


def _settings_by_day(checked: Checked) -> list[tuple[str, str, str]]:
    found = {}
    for file in checked.files:
        for at_us in checked.file_spans_us[str(file.path)]:
            day = datetime.fromtimestamp(at_us / 1e6, UTC).date().isoformat()
            # The settings of the latest file of a day stand for it.
            found[day, file.facts.broker] = file.facts.settings
    return [(day, broker, text) for (day, broker), text in sorted(found.items())]


def _tell(folder: RunFolder, runs: Sequence[JobRun], limits: Thresholds, report: Report) -> None:
    paths = folder.reads_of(runs)
    rows: list[dict[str, Cell]] = [
        {"run": run.id, "files": len(run.files), "days": ", ".join(run.days), "counts_kept": run.has_reads}
        for run in runs
    ]
    runs_table = Table("Runs", rows[::-1])
    if not paths:
        report.tables["runs"] = runs_table
        report.text.append("no counts are kept: give more --keep-days")
        return
    # `partitioning=None`: otherwise pyarrow would add columns for a `name=value` in the path.
    reads = pa.concat_tables([pq.read_table(path, partitioning=None) for path in paths])
    by_broker = {
        (day, broker): counts for (day, broker), counts in sorted(_by(reads, "day", "broker").items())
    }
    if not by_broker:
        report.tables["runs"] = runs_table
        report.text.append("no entry was read from the cache or from bookies so far")
        if limits.hit_ratio_min is not None:
            report.failed = [
                f"no hit ratio to compare with --min-hit-ratio {limits.hit_ratio_min:g}: no entry was read"
            ]
        return
    by_day: dict[str, DayCounts] = {}
    for (day, _), counts in by_broker.items():
        by_day[day] = by_day.get(day, DayCounts()).plus(counts)
    settings = {(day, broker): text for run in runs for day, broker, text in run.settings}
    drops = [
        _drop(reads, by_day, settings, day) for day in sorted(by_day) if is_drop(by_day, day, limits.drop)
    ]
    _add_tables(report, by_day, by_broker, drops)
    report.tables["runs"] = runs_table
    _add_text(report, by_day, drops)
    report.failed = failures(by_day, limits)


def _by(reads: pa.Table, first: str, second: str) -> dict[tuple[str, str], DayCounts]:
    """Returns the counts by two columns of names."""
    names = ("hits", "misses", "coalesced")
    summed_up = reads.group_by([first, second]).aggregate([(name, "sum") for name in names])
    return {
        (str(row[first]), str(row[second])): DayCounts(*[int(row[f"{name}_sum"]) for name in names])
        for row in summed_up.to_pylist()
    }


def _drop(
    reads: pa.Table, by_day: Mapping[str, DayCounts], settings: Mapping[tuple[str, str], str], day: str
) -> Drop:
    earlier = days_before(sorted(by_day), day)
    before = _readers(reads, earlier)
    now = _readers(reads, [day])
    changed = changed_settings(
        _settings_on(settings, [one for one in settings_days(settings) if one < day]),
        _settings_on(settings, [day]),
    )
    return Drop(
        day,
        summed(by_day[one] for one in earlier).hit_ratio,
        by_day[day].hit_ratio,
        causes_of_drop(before, now, changed),
    )


def settings_days(settings: Mapping[tuple[str, str], str]) -> list[str]:
    """Returns the days of which settings are known, sorted."""
    return sorted({day for day, _ in settings})


def _settings_on(settings: Mapping[tuple[str, str], str], days: Sequence[str]) -> dict[str, str]:
    """Returns the latest settings of each broker within days."""
    return {broker: text for (day, broker), text in sorted(settings.items()) if day in days}


def _readers(reads: pa.Table, days: Sequence[str]) -> dict[Reader, DayCounts]:
    chosen = reads.filter(pc.is_in(reads.column("day"), pa.array(days, pa.string())))
    return _by(chosen, "topic_name", "sub_name")


def _add_tables(
    report: Report,
    by_day: Mapping[str, DayCounts],
    by_broker: Mapping[tuple[str, str], DayCounts],
    drops: Sequence[Drop],
) -> None:
    dropped = {drop.day: drop.depth for drop in drops}
    report.tables["days"] = Table(
        "By day (UTC)",
        [{**_cells("day", day, by_day[day]), "drop": day in dropped} for day in sorted(by_day)],
        shown=100,
    )
    brokers = sorted({broker for _, broker in by_broker})
    if len(brokers) > 1:
        rows = [
            {**_cells("day", day, counts), "broker": broker} for (day, broker), counts in by_broker.items()
        ]
        report.tables["days_by_broker"] = Table("By day and broker", rows)
    causes: list[dict[str, Cell]] = [
        {"day": drop.day, "hit_ratio": drop.now, "hit_ratio_before": drop.before, "change": cause}
        for drop in drops
        for cause in drop.causes or ("no setting, topic or subscription changed",)
    ]
    report.tables["drops"] = Table("Drops and the changes that came with them", causes)
    lines = {"all brokers": _line(by_day)} if len(by_day) > 1 else {}
    for broker in brokers[:_LINES] if len(brokers) > 1 and lines else ():
        lines[broker] = _line({day: counts for (day, one), counts in by_broker.items() if one == broker})
    if lines:
        svg = lines_plot(lines, "UTC", "hit ratio", x_scale="time", y_scale="ratio")
        note = f"The first {_LINES} of {len(brokers)} brokers." if len(brokers) > _LINES else ""
        report.plots.append(Plot("Hit ratio by day", svg, note))


def _line(by_day: Mapping[str, DayCounts]) -> tuple[list[float], list[float]]:
    days = sorted(by_day)
    seconds = [datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() for day in days]
    return seconds, [by_day[day].hit_ratio for day in days]


def _cells(name: str, value: str, counts: DayCounts) -> dict[str, Cell]:
    return {name: value, "hit_ratio": counts.hit_ratio, "reads": counts.reads, "misses": counts.misses}


def _add_text(report: Report, by_day: Mapping[str, DayCounts], drops: Sequence[Drop]) -> None:
    newest = max(by_day)
    report.text.append(
        f"{newest}: hit ratio {percent(by_day[newest].hit_ratio)} of {by_day[newest].reads:,} entries read; "
        f"{counted(len(by_day), 'day')}"
    )
    for drop in drops[-3:]:
        report.text.append(f"drop on {drop.day}: hit ratio {percent(drop.before)} -> {percent(drop.now)}")
        report.text += [f"  {cause}" for cause in drop.causes]
    report.listed = {"days": 14}


def failures(by_day: Mapping[str, DayCounts], limits: Thresholds) -> list[str]:
    """Returns a sentence per threshold that the newest day exceeds."""
    newest = max(by_day)
    now = by_day[newest]
    before = summed(by_day[one] for one in days_before(sorted(by_day), newest))
    found = []
    if limits.hit_ratio_min is not None and now.hit_ratio < limits.hit_ratio_min:
        found.append(
            f"the hit ratio of {newest}, {percent(now.hit_ratio)}, is below --min-hit-ratio {limits.hit_ratio_min:g}"
        )
    if limits.drop_max is not None and before.reads and before.hit_ratio - now.hit_ratio > limits.drop_max:
        found.append(
            f"the hit ratio of {newest}, {percent(now.hit_ratio)}, is more than --max-drop {limits.drop_max:g} below "
            f"{percent(before.hit_ratio)}, that of the days before"
        )
    return found
