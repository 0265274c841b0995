"""`hit-report`: counts hits, misses and their causes, and the cache's contents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from heapq import nlargest
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from broker.entry_cache.observe.cache_events import Op
from broker.recorder.record_reader import BrokerLifetime
from pipeline.jobs.plots import bars_plot, heat_map, lines_plot
from pipeline.jobs.report import Cell, Plot, Report, Table, bytes_text, percent
from pipeline.replays.reuse import MISS_CAUSES, Reuse, reuse_of
from pipeline.traces.record_frames import Record

_LINES = 8
"""Lines of a plot at most."""
POINTS = 300
"""Steps of a timeline."""
LIFETIME = ["broker", "start"]
"""Columns that identify a broker lifetime."""


def reads_by(rows: DataFrame, *keys: str) -> DataFrame:
    """Count reads by columns of an access record's events.

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


def cache_share(rows: DataFrame, span_us: tuple[int, int]) -> DataFrame:
    """Compute the mean bytes in the cache by topic.

    Inserts and evictions count with the time that is left of the span.

    One row per broker lifetime and topic: broker, start, topic, mean_bytes. `span_us`: first and last time.
    """
    begin, end = span_us
    sign = f.when(f.col("op") == Op.INSERT.value, 1.0).otherwise(-1.0)
    # An insert holds its bytes until the end of the span, and its eviction takes back the time after it.
    held = sign * f.col("bytes") * (f.lit(end) - f.col("ts")) / float(max(end - begin, 1))
    return (
        rows.where(f.col("op").isin(Op.INSERT.value, Op.EVICT.value))
        .groupBy(*LIFETIME, "topic")
        .agg(f.sum(held).alias("mean_bytes"))
    )


def cache_timeline(rows: DataFrame, span_us: tuple[int, int]) -> DataFrame:
    """Sum the bytes that the cache gained or lost by step.

    The span is divided into POINTS steps.

    One row per broker lifetime and step: broker, start, step, change.
    """
    step = _step_us(span_us)
    sign = f.when(f.col("op") == Op.INSERT.value, 1).otherwise(-1)
    return (
        rows.where(f.col("op").isin(Op.INSERT.value, Op.EVICT.value))
        .withColumn("step", ((f.col("ts") - f.lit(span_us[0])) / step).cast("int"))
        .groupBy(*LIFETIME, "step")
        .agg(f.sum(sign * f.col("bytes")).alias("change"))
    )


def _step_us(span_us: tuple[int, int]) -> int:
    return max((span_us[1] - span_us[0]) // POINTS, 1)


def hit_report(spark: SparkSession, record: Record, say: Callable[[str], None]) -> Report:
    """Return the report for an access record.

    `say` is called with each step.

    Tables: `by_topic` (one row per broker and topic), `by_subscription`, `by_minute`, `cache_share` (broker and topic),
    `reuse_time` and `reuse_distance` (bucket), `causes`, `causes_by_topic`.
    """
    report = Report("hit-report", "Hit report", record.checked.summary())
    say("reads by topic, subscription and minute")
    # One pass over the events; the tables by reader and by minute are sums of its result.
    partial = reads_by(record.rows, *LIFETIME, "topic", "sub", "minute").persist()
    by_reader = _with_names(_rolled(partial, *LIFETIME, "topic", "sub"), record)
    by_minute = [row.asDict() for row in _rolled(partial, "minute").orderBy("minute").collect()]
    # Both tables are collected by now, and the cached sums would stay in memory for the rest of the job.
    partial.unpersist()
    total = {name: sum(row[name] for row in by_minute) for name in ("hits", "misses", "coalesced")}
    reads = sum(total.values())
    ratio = percent(total["hits"] / reads) if reads else "no reads"
    report.text.append(f"hit ratio {ratio}: {reads:,} entries read, {total['misses']:,} from bookies")
    say("contents of the cache")
    shares = cache_share(record.rows, record.checked.span_us).join(
        record.topics, [*LIFETIME, "topic"], "left"
    )
    held = [row.asDict() for row in shares.orderBy(f.desc("mean_bytes")).collect()]
    timeline = [row.asDict() for row in cache_timeline(record.rows, record.checked.span_us).collect()]
    say("reuse of entries and causes of misses")
    reuse = reuse_of_lifetimes(spark, record.checked.lifetimes)
    _tables(report, by_reader, by_minute, held)
    _plots(report, by_minute, timeline, held, record)
    _add_reuse(report, record.checked.lifetimes, reuse)
    report.listed = {"by_topic": 10, "causes": 10}
    return report


def below_minimum(report: Report, minimum: float) -> list[str]:
    """Return a sentence if the hit ratio of all reads lies below a minimum."""
    rows = report.tables["by_topic"].rows
    sums = {name: sum(int(str(row[name])) for row in rows) for name in _COUNTS}
    if _ratio(sums) >= minimum:
        return []
    return [f"the hit ratio {percent(_ratio(sums))} is below --min-hit-ratio {minimum:g}"]


def _rolled(partial: DataFrame, *keys: str) -> DataFrame:
    sums = [f.sum(name).alias(name) for name in ("hits", "misses", "coalesced", "bytes")]
    rolled = partial.groupBy(*keys).agg(*sums)
    return rolled.withColumn(
        "hit_ratio", f.col("hits") / (f.col("hits") + f.col("misses") + f.col("coalesced"))
    )


def _with_names(rows: DataFrame, record: Record) -> list[dict[str, object]]:
    # The names join the sums and not the events, so few rows move.
    named = rows.join(record.topics, [*LIFETIME, "topic"], "left").join(
        record.readers, [*LIFETIME, "topic", "sub"], "left"
    )
    return [row.asDict() for row in named.orderBy(f.desc("misses"), "topic", "sub").collect()]


def _tables(
    report: Report,
    by_reader: Sequence[dict[str, object]],
    by_minute: Sequence[dict[str, object]],
    held: Sequence[dict[str, object]],
) -> None:
    topics: dict[tuple[object, object], dict[str, int]] = {}
    for row in by_reader:
        sums = topics.setdefault((row["broker"], row["topic_name"]), dict.fromkeys(_COUNTS, 0))
        for name in _COUNTS:
            sums[name] += int(str(row[name]))
    by_topic: list[dict[str, Cell]] = [
        {"topic": str(topic), "hit_ratio": _ratio(sums), **sums, "broker": str(broker)}
        for (broker, topic), sums in topics.items()
    ]
    by_topic.sort(key=lambda row: -int(str(row["misses"])))
    report.tables["by_topic"] = Table("By topic, most misses first", by_topic)
    readers: list[dict[str, Cell]] = [
        {
            "topic": str(row["topic_name"]),
            "subscription": str(row["sub_name"]),
            "hit_ratio": float(str(row["hit_ratio"])),
            **{name: int(str(row[name])) for name in _COUNTS},
            "broker": str(row["broker"]),
        }
        for row in by_reader
    ]
    report.tables["by_subscription"] = Table("By subscription, most misses first", readers)
    minutes: list[dict[str, Cell]] = [
        {
            "minute": str(row["minute"]),
            "hit_ratio": float(str(row["hit_ratio"])),
            **{name: int(str(row[name])) for name in _COUNTS},
        }
        for row in by_minute
    ]
    report.tables["by_minute"] = Table("By minute (UTC)", minutes)
    all_bytes = sum(float(str(row["mean_bytes"])) for row in held) or 1.0
    shares: list[dict[str, Cell]] = [
        {
            "topic": str(row["topic_name"]),
            "share": float(str(row["mean_bytes"])) / all_bytes,
            "mean_bytes": round(float(str(row["mean_bytes"]))),
            "broker": str(row["broker"]),
        }
        for row in held
    ]
    report.tables["cache_share"] = Table("Share of the cache by topic, mean over the record", shares)


_COUNTS = ("misses", "hits", "coalesced", "bytes")


def _ratio(sums: dict[str, int]) -> float:
    reads = sums["hits"] + sums["misses"] + sums["coalesced"]
    return sums["hits"] / reads if reads else 0.0


def _plots(
    report: Report,
    by_minute: Sequence[dict[str, object]],
    timeline: Sequence[dict[str, object]],
    held: Sequence[dict[str, object]],
    record: Record,
) -> None:
    if len(by_minute) > 1:
        xs = [_clock_s(row["minute"]) for row in by_minute]
        ys = [float(str(row["hit_ratio"])) for row in by_minute]
        svg = lines_plot({"hit ratio": (xs, ys)}, "UTC", "hit ratio", x_scale="time", y_scale="ratio")
        report.plots.append(Plot("Hit ratio by minute", svg))
    lines = {}
    lives = Counter(lifetime.broker for lifetime in record.checked.lifetimes)
    begin_s, step_s = record.checked.span_us[0] / 1e6, _step_us(record.checked.span_us) / 1e6
    for lifetime in record.checked.lifetimes:
        changes = np.zeros(POINTS + 2)
        for row in timeline:
            if (row["broker"], row["start"]) == (lifetime.broker, lifetime.start):
                # The span may not divide by POINTS, so the last events fall into a step or two behind it.
                changes[min(int(str(row["step"])), POINTS + 1)] += float(str(row["change"]))
        levels = np.cumsum(changes) / (1 << 20)
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
    for row in held:
        # Brokers may hold topics of one name, and a topic may move from one to another.
        name = str(row["topic_name"])
        top[name] = top.get(name, 0.0) + float(str(row["mean_bytes"])) / (1 << 20)
    if top:
        svg = bars_plot(dict(nlargest(15, top.items(), key=itemgetter(1))), "mean, of all brokers", "size")
        report.plots.append(Plot("Topics that fill the cache", svg))


def _lifetime_name(lifetime: BrokerLifetime, lives: int) -> str:
    """Return the broker, with the start of its life where it had several."""
    if lives == 1:
        return lifetime.broker
    began = datetime.strptime(lifetime.start, "%Y%m%dT%H%M%S.%f")
    return f"{lifetime.broker} from {began:%m-%d %H:%M:%S}"


def _clock_s(minute: object) -> float:
    """Return seconds since 1970 of a minute, which Spark gives as a naive time in UTC."""
    return datetime.fromisoformat(str(minute)).replace(tzinfo=UTC).timestamp()


def reuse_of_lifetimes(spark: SparkSession, lifetimes: Sequence[BrokerLifetime]) -> list[Reuse]:
    """Compute the reuse of each broker lifetime, as a Spark task each."""
    # One task each: reuse depends on the order of all events of a lifetime, so it cannot be split further.
    return spark.sparkContext.parallelize(list(lifetimes), len(lifetimes)).map(reuse_of).collect()


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
        names = lifetime.names.topics if lifetime.names is not None else {}
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
