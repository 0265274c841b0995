"""`hit-report`: counts hits, misses and their causes, and the cache's contents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from heapq import nlargest
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from broker.recorder.record_reader import BrokerLifetime
from entry_cache.observe.cache_events import Op
from pipeline.jobs.lateness import Pace, loop_share
from pipeline.jobs.plots import bars_plot, heat_map, lines_plot
from pipeline.jobs.report import Cell, Plot, Report, Table, TableRow, bytes_text, percent
from pipeline.replays.record_counts import BYTES, COALESCED, HITS, MISSES, RecordCounts, count_record, step_us
from pipeline.replays.reuse import MISS_CAUSES, Reuse
from pipeline.task_progress import collected
from pipeline.traces.checking import Checked

_LINES = 8
"""Lines of a plot at most."""
LIFETIME = ["broker", "start"]
"""Columns that identify a broker lifetime."""


def reads_by(rows: DataFrame, *keys: str) -> DataFrame:
    """Counts reads by columns of an access record's events.

    `minute` may be one of them.

    One row per combination of the keys: the keys, hits, misses, coalesced (in entries), bytes, hit_ratio.
    """
    minute = (f.col("ts") / 60_000_000).cast("long") * 60
    return (
        # ARRIVED and not MISS: a miss is the request, which may bring fewer entries than it asked for, or none.
        rows.where(f.col("op").isin(Op.HIT.value, Op.ARRIVED.value))
        .withColumn("minute", f.timestamp_seconds(minute))
        .groupBy(*keys)
        .agg(
            _entries(f.col("op") == Op.HIT.value).alias("hits"),
            _entries((f.col("op") == Op.ARRIVED.value) & (f.col("detail") == Op.MISS.value)).alias("misses"),
            _entries((f.col("op") == Op.ARRIVED.value) & (f.col("detail") == Op.COALESCED.value)).alias(
                "coalesced"
            ),
            f.sum("bytes").alias("bytes"),
        )
        .withColumn("hit_ratio", f.col("hits") / (f.col("hits") + f.col("misses") + f.col("coalesced")))
    )


def _entries(condition: Column) -> Column:
    return f.sum(f.when(condition, f.col("count").cast("long")).otherwise(f.lit(0).cast("long")))


def hit_report(spark: SparkSession, checked: Checked, say: Callable[[str], None]) -> Report:
    """Returns the report for a checked access record.

    `say` is called with each step.

    Tables: `by_topic` (one row per broker and topic), `by_subscription`, `by_minute`, `cache_share` (broker and topic),
    `reuse_time` and `reuse_distance` (bucket), `causes`, `causes_by_topic`.
    """
    report = Report("hit-report", "Hit report", checked.summary())
    say("reads, contents of the cache, reuse of entries and causes of misses")
    span_us = checked.span_us
    # One task each: reuse depends on the order of all events of a lifetime, so it cannot be split further.
    tasks = spark.sparkContext.parallelize(checked.lifetimes, len(checked.lifetimes))
    counts = collected(spark, tasks.map(partial(count_record, span_us=span_us)), say)
    by_minute = _by_minute(counts, span_us)
    total = {name: sum(int(str(row[name])) for row in by_minute) for name in _COUNTS}
    reads = total["hits"] + total["misses"] + total["coalesced"]
    ratio = percent(_ratio(total)) if reads else "no reads"
    report.text.append(f"hit ratio {ratio}: {reads:,} entries read, {total['misses']:,} from bookies")
    report.text += Pace(np.zeros(0, np.int64), loop_share(checked.lifetimes, checked)).lines()
    shares = _shares(checked.lifetimes, counts)
    _add_reads(report, _by_reader(checked.lifetimes, counts), by_minute)
    report.tables["cache_share"] = Table("Share of the cache by topic, mean over the record", shares)
    _add_plots(report, by_minute, checked, counts)
    _add_reuse(report, checked.lifetimes, [one.reuse for one in counts])
    report.listed = {"by_topic": 10, "causes": 10}
    return report


def below_minimum(report: Report, minimum: float) -> list[str]:
    """Returns a sentence if the hit ratio of all reads lies below a minimum."""
    rows = report.tables["by_topic"].rows
    sums = {name: sum(int(str(row[name])) for row in rows) for name in _COUNTS}
    if _ratio(sums) >= minimum:
        return []
    return [f"the hit ratio {percent(_ratio(sums))} is below --min-hit-ratio {minimum:g}"]


def _cells(counts: Sequence[int]) -> dict[str, Cell]:
    sums = {
        "misses": counts[MISSES],
        "hits": counts[HITS],
        "coalesced": counts[COALESCED],
        "bytes": counts[BYTES],
    }
    return {"hit_ratio": _ratio(sums), **sums}


def _by_minute(counts: Sequence[RecordCounts], span_us: tuple[int, int]) -> list[TableRow]:
    """Returns a row per minute with a read, over all lifetimes."""
    sums = np.sum([one.by_minute for one in counts], axis=0)
    first = span_us[0] // 60_000_000
    return [
        {
            "minute": str(datetime.fromtimestamp((first + at) * 60, UTC).replace(tzinfo=None)),
            **_cells(sums[at].tolist()),
        }
        for at in np.flatnonzero(sums.any(axis=1)).tolist()
    ]


def _by_reader(lifetimes: Sequence[BrokerLifetime], counts: Sequence[RecordCounts]) -> list[TableRow]:
    """Returns a row per lifetime and reader, most misses first."""
    rows = []
    for lifetime, one in zip(lifetimes, counts, strict=True):
        topics, subs = _names(lifetime)
        for (topic, sub), reads in zip(one.readers.tolist(), one.by_reader.tolist(), strict=True):
            names: dict[str, Cell] = {
                "topic": topics.get(topic, f"topic {topic}"),
                "subscription": subs.get((topic, sub), f"subscription {sub}"),
            }
            rows.append((-reads[MISSES], topic, sub, {**names, **_cells(reads), "broker": lifetime.broker}))
    return [row for *_, row in sorted(rows, key=lambda row: row[:3])]


def _names(lifetime: BrokerLifetime) -> tuple[Mapping[int, str], Mapping[tuple[int, int], str]]:
    """Returns the names of topics and subscriptions; none where the file of names is missing."""
    return (lifetime.names.topics, lifetime.names.subs) if lifetime.names is not None else ({}, {})


def _shares(lifetimes: Sequence[BrokerLifetime], counts: Sequence[RecordCounts]) -> list[TableRow]:
    """Returns a row per lifetime and topic, most bytes first."""
    all_bytes = sum(float(one.mean_bytes.sum()) for one in counts) or 1.0
    rows = []
    for lifetime, one in zip(lifetimes, counts, strict=True):
        topics, _ = _names(lifetime)
        for topic, mean_bytes in zip(one.topics.tolist(), one.mean_bytes.tolist(), strict=True):
            cells: dict[str, Cell] = {
                "topic": topics.get(topic, f"topic {topic}"),
                "share": mean_bytes / all_bytes,
                "mean_bytes": round(mean_bytes),
                "broker": lifetime.broker,
            }
            rows.append((-mean_bytes, cells))
    return [cells for _, cells in sorted(rows, key=lambda row: row[0])]


def _add_reads(report: Report, by_reader: Sequence[TableRow], by_minute: Sequence[TableRow]) -> None:
    topics: dict[tuple[object, object], dict[str, int]] = {}
    for row in by_reader:
        sums = topics.setdefault((row["broker"], row["topic"]), dict.fromkeys(_COUNTS, 0))
        for name in _COUNTS:
            sums[name] += int(str(row[name]))
    by_topic: list[dict[str, Cell]] = [
        {"topic": str(topic), "hit_ratio": _ratio(sums), **sums, "broker": str(broker)}
        for (broker, topic), sums in topics.items()
    ]
    by_topic.sort(key=lambda row: -int(str(row["misses"])))
    report.tables["by_topic"] = Table("By topic, most misses first", by_topic)
    report.tables["by_subscription"] = Table("By subscription, most misses first", by_reader)
    report.tables["by_minute"] = Table("By minute (UTC)", by_minute)


_COUNTS = ("misses", "hits", "coalesced", "bytes")


def _ratio(sums: dict[str, int]) -> float:
    reads = sums["hits"] + sums["misses"] + sums["coalesced"]
    return sums["hits"] / reads if reads else 0.0


def _add_plots(
    report: Report, by_minute: Sequence[TableRow], checked: Checked, counts: Sequence[RecordCounts]
) -> None:
    if len(by_minute) > 1:
        xs = [_clock_s(row["minute"]) for row in by_minute]
        ys = [float(str(row["hit_ratio"])) for row in by_minute]
        svg = lines_plot({"hit ratio": (xs, ys)}, "UTC", "hit ratio", x_scale="time", y_scale="ratio")
        report.plots.append(Plot("Hit ratio by minute", svg))
    lines = {}
    lives = Counter(lifetime.broker for lifetime in checked.lifetimes)
    begin_s, step_s = checked.span_us[0] / 1e6, step_us(checked.span_us) / 1e6
    for lifetime, one in zip(checked.lifetimes, counts, strict=True):
        levels = np.cumsum(one.changes) / (1 << 20)
        lines[_lifetime_name(lifetime, lives[lifetime.broker])] = (
            (begin_s + np.arange(len(levels)) * step_s).tolist(),
            levels.tolist(),
        )
    # More than eight lines cannot be told apart; the fullest caches say most.
    fullest = sorted(lines.items(), key=lambda one: -max(one[1][1]))[:_LINES]
    svg = lines_plot(dict(fullest), "UTC", "cached", x_scale="time", y_scale="size")
    left = len(lines) - len(fullest)
    note = f"The fullest {_LINES} caches; {left} more are left out." if left else ""
    report.plots.append(Plot("Bytes in the cache", svg, note))
    top: dict[str, float] = {}
    for held in report.tables["cache_share"].rows:
        # Brokers may hold topics of one name, and a topic may move from one to another.
        name = str(held["topic"])
        top[name] = top.get(name, 0.0) + float(str(held["mean_bytes"])) / (1 << 20)
    if top:
        svg = bars_plot(dict(nlargest(15, top.items(), key=itemgetter(1))), "mean, of all brokers", "size")
        report.plots.append(Plot("Topics that fill the cache", svg))


def _lifetime_name(lifetime: BrokerLifetime, lives: int) -> str:
    """Returns the broker, with the start of its life where it had several."""
    if lives == 1:
        return lifetime.broker
    began = datetime.strptime(lifetime.start, "%Y%m%dT%H%M%S.%f")
    return f"{lifetime.broker} from {began:%m-%d %H:%M:%S}"


def _clock_s(minute: object) -> float:
    """Returns seconds since 1970 of a minute of the table `by_minute`."""
    return datetime.fromisoformat(str(minute)).replace(tzinfo=UTC).timestamp()


def _add_reuse(report: Report, lifetimes: Sequence[BrokerLifetime], reuse: Sequence[Reuse]) -> None:
    counts = np.sum([one.reads for one in reuse], axis=0)
    times, distances = counts.sum(axis=1), counts.sum(axis=0)
    report.tables["reuse_time"] = Table("Time since the entry was used before", _histogram(times, _time_name))
    report.tables["reuse_distance"] = Table(
        "Bytes that came in since then (what a first-in-first-out cache needs)",
        _histogram(distances, _size_name),
    )
    used_times, used_sizes = np.flatnonzero(times), np.flatnonzero(distances)
    if len(used_times):
        shown = counts[used_times[0] : used_times[-1] + 1, used_sizes[0] : used_sizes[-1] + 1]
        x_names = [_size_name(at) for at in range(used_sizes[0], used_sizes[-1] + 1)]
        y_names = [_time_name(at) for at in range(used_times[0], used_times[-1] + 1)]
        svg = heat_map(shown, "bytes that came in between, below", "time in between, below", x_names, y_names)
        report.plots.append(Plot("Reuse", svg, "The size and the time that a cache would need to have hit."))
    causes = np.sum([one.causes.sum(axis=0) for one in reuse], axis=0)
    cause_bytes = np.sum([one.cause_bytes.sum(axis=0) for one in reuse], axis=0)
    report.tables["causes"] = Table(
        "Why entries were read from bookies",
        [
            {"cause": cause, "entries": int(causes[at]), "bytes": int(cause_bytes[at])}
            for at, cause in enumerate(MISS_CAUSES)
        ],
    )
    report.tables["causes_by_topic"] = Table("The same by topic", _causes_by_topic(lifetimes, reuse))


def _causes_by_topic(
    lifetimes: Sequence[BrokerLifetime], reuse: Sequence[Reuse]
) -> list[dict[str, str | int]]:
    rows: list[dict[str, str | int]] = []
    for lifetime, one in zip(lifetimes, reuse, strict=True):
        names, _ = _names(lifetime)
        for topic in np.flatnonzero(one.causes.sum(axis=1)).tolist():
            counts = {cause: int(one.causes[topic, at]) for at, cause in enumerate(MISS_CAUSES)}
            rows.append({"topic": names.get(topic, f"topic {topic}"), "broker": lifetime.broker, **counts})
    return sorted(rows, key=lambda row: -sum(int(row[cause]) for cause in MISS_CAUSES))


def _histogram(counts: NDArray[np.int64], name: Callable[[int], str]) -> list[dict[str, str | int | float]]:
    used = np.flatnonzero(counts)
    if not len(used):
        return []
    total, below = int(counts.sum()), 0
    rows: list[dict[str, str | int | float]] = []
    for at in range(used[0], used[-1] + 1):
        below += int(counts[at])
        rows.append({"below": name(at), "entries": int(counts[at]), "part_so_far": below / total})
    return rows


def _time_name(bucket: int) -> str:
    us = 1 << bucket
    return f"{us} µs" if us < 1000 else f"{us / 1000:.3g} ms" if us < 1_000_000 else f"{us / 1e6:.4g} s"


def _size_name(bucket: int) -> str:
    return bytes_text(1 << bucket)
