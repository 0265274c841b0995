"""`hit-report`: who hit and who missed, when, why, and what the cache held."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from broker.entry_cache.observe.cache_events import Op
from broker.recorder.record_reader import RunOfBroker
from pipeline.jobs.answer import Answer, Cell, Plot, Table, as_text, mib, percent
from pipeline.jobs.plots import bars_plot, heat_map, lines_plot
from pipeline.replays.reuse import CAUSES, Reuse, reuse_of
from pipeline.traces.record_frames import Record

POINTS = 300
"""Of the timelines."""
RUN = ["broker", "start"]


def reads_by(rows: DataFrame, *keys: str) -> DataFrame:
    """Hits, misses and coalesced reads in entries, and the hit ratio, by columns of a record's rows; `minute` is one
    on top."""
    minute = (f.col("ts") / 60_000_000).cast("long") * 60
    return (
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
    """Mean bytes in the cache by topic, over the span: from what came in and what left, when."""
    begin, end = span_us
    sign = f.when(f.col("op") == Op.INSERT.value, 1.0).otherwise(-1.0)
    held = sign * f.col("bytes") * (f.lit(end) - f.col("ts")) / float(max(end - begin, 1))
    return (
        rows.where(f.col("op").isin(Op.INSERT.value, Op.EVICT.value))
        .groupBy(*RUN, "topic")
        .agg(f.sum(held).alias("mean_bytes"))
    )


def cache_timeline(rows: DataFrame, span_us: tuple[int, int]) -> DataFrame:
    """Bytes in the cache at the end of each of some hundred steps of the span, by broker."""
    step = _step_us(span_us)
    sign = f.when(f.col("op") == Op.INSERT.value, 1).otherwise(-1)
    return (
        rows.where(f.col("op").isin(Op.INSERT.value, Op.EVICT.value))
        .withColumn("step", ((f.col("ts") - f.lit(span_us[0])) / step).cast("int"))
        .groupBy(*RUN, "step")
        .agg(f.sum(sign * f.col("bytes")).alias("change"))
    )


def _step_us(span_us: tuple[int, int]) -> int:
    return max((span_us[1] - span_us[0]) // POINTS, 1)


def hit_report(spark: SparkSession, record: Record, say: Callable[[str], None]) -> Answer:
    answer = Answer("hit-report", "Hit report", record.checked.summary())
    say("reads by topic, subscription and minute")
    partial = reads_by(record.rows, *RUN, "topic", "sub", "minute").persist()
    by_reader = _with_names(_rolled(partial, *RUN, "topic", "sub"), record)
    by_minute = [row.asDict() for row in _rolled(partial, "minute").orderBy("minute").collect()]
    partial.unpersist()
    total = {name: sum(row[name] for row in by_minute) for name in ("hits", "misses", "coalesced")}
    reads = sum(total.values())
    ratio = percent(total["hits"] / reads) if reads else "no reads"
    answer.text.append(f"hit ratio {ratio}: {reads:,} entries read, {total['misses']:,} from bookies")
    say("what the cache held")
    shares = cache_share(record.rows, record.checked.span_us).join(record.topics, [*RUN, "topic"], "left")
    held = [row.asDict() for row in shares.orderBy(f.desc("mean_bytes")).collect()]
    timeline = [row.asDict() for row in cache_timeline(record.rows, record.checked.span_us).collect()]
    say("reuse of entries, and why reads missed")
    reuse = reuse_of_runs(spark, record.checked.runs)
    _tables(answer, by_reader, by_minute, held)
    _plots(answer, by_minute, timeline, held, record)
    _add_reuse(answer, record.checked.runs, reuse)
    answer.text += ["", *as_text(answer.tables["by_topic"].rows, 10)]
    answer.text += ["", *as_text(answer.tables["causes"].rows, 10)]
    return answer


def _rolled(partial: DataFrame, *keys: str) -> DataFrame:
    sums = [f.sum(name).alias(name) for name in ("hits", "misses", "coalesced", "bytes")]
    rolled = partial.groupBy(*keys).agg(*sums)
    return rolled.withColumn(
        "hit_ratio", f.col("hits") / (f.col("hits") + f.col("misses") + f.col("coalesced"))
    )


def _with_names(rows: DataFrame, record: Record) -> list[dict[str, object]]:
    named = rows.join(record.topics, [*RUN, "topic"], "left").join(
        record.readers, [*RUN, "topic", "sub"], "left"
    )
    return [row.asDict() for row in named.orderBy(f.desc("misses"), "topic", "sub").collect()]


def _tables(
    answer: Answer,
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
        {"topic": str(topic), "broker": str(broker), **sums, "hit_ratio": _ratio(sums)}
        for (broker, topic), sums in topics.items()
    ]
    by_topic.sort(key=lambda row: -int(str(row["misses"])))
    answer.tables["by_topic"] = Table("By topic, most misses first", by_topic)
    readers: list[dict[str, Cell]] = [
        {
            "topic": str(row["topic_name"]),
            "subscription": str(row["sub_name"]),
            "broker": str(row["broker"]),
            **{name: int(str(row[name])) for name in _COUNTS},
            "hit_ratio": float(str(row["hit_ratio"])),
        }
        for row in by_reader
    ]
    answer.tables["by_subscription"] = Table("By subscription, most misses first", readers)
    minutes: list[dict[str, Cell]] = [
        {
            "minute": str(row["minute"]),
            **{name: int(str(row[name])) for name in _COUNTS},
            "hit_ratio": float(str(row["hit_ratio"])),
        }
        for row in by_minute
    ]
    answer.tables["by_minute"] = Table("By minute (UTC)", minutes)
    all_bytes = sum(float(str(row["mean_bytes"])) for row in held) or 1.0
    shares: list[dict[str, Cell]] = [
        {
            "topic": str(row["topic_name"]),
            "broker": str(row["broker"]),
            "mean_bytes": round(float(str(row["mean_bytes"]))),
            "share": float(str(row["mean_bytes"])) / all_bytes,
        }
        for row in held
    ]
    answer.tables["cache_share"] = Table("Share of the cache by topic, mean over the record", shares)


_COUNTS = ("hits", "misses", "coalesced", "bytes")


def _ratio(sums: dict[str, int]) -> float:
    reads = sums["hits"] + sums["misses"] + sums["coalesced"]
    return sums["hits"] / reads if reads else 0.0


def _plots(
    answer: Answer,
    by_minute: Sequence[dict[str, object]],
    timeline: Sequence[dict[str, object]],
    held: Sequence[dict[str, object]],
    record: Record,
) -> None:
    if len(by_minute) > 1:
        xs = list(range(len(by_minute)))
        ys = [float(str(row["hit_ratio"])) for row in by_minute]
        answer.plots.append(Plot("Hit ratio by minute", lines_plot({"hit ratio": (xs, ys)}, "minute", "")))
    lines = {}
    step_s = _step_us(record.checked.span_us) / 1e6
    for run in record.checked.runs:
        changes = np.zeros(POINTS + 2)
        for row in timeline:
            if (row["broker"], row["start"]) == (run.broker, run.start):
                changes[min(int(str(row["step"])), POINTS + 1)] += float(str(row["change"]))
        levels = np.cumsum(changes) / (1 << 20)
        lines[f"{run.broker} {run.start}"] = ((np.arange(len(levels)) * step_s).tolist(), levels.tolist())
    answer.plots.append(
        Plot("Bytes in the cache", lines_plot(dict(list(lines.items())[:12]), "seconds", "MiB"))
    )
    top = {str(row["topic_name"]): float(str(row["mean_bytes"])) / (1 << 20) for row in held[:15]}
    if top:
        answer.plots.append(Plot("Topics that fill the cache", bars_plot(top, "MiB, mean")))


def reuse_of_runs(spark: SparkSession, runs: Sequence[RunOfBroker]) -> list[Reuse]:
    """One task per run; in the order of the runs."""
    return spark.sparkContext.parallelize(list(runs), len(runs)).map(reuse_of).collect()


def _add_reuse(answer: Answer, runs: Sequence[RunOfBroker], reuse: Sequence[Reuse]) -> None:
    counts = np.sum([one.reads for one in reuse], axis=0)
    times, distances = counts.sum(axis=1), counts.sum(axis=0)
    answer.tables["reuse_time"] = Table("Time since the entry was used before", _histogram(times, _time_name))
    answer.tables["reuse_distance"] = Table(
        "Bytes that came in since then (what a first-in-first-out cache needs)",
        _histogram(distances, _size_name),
    )
    used_times, used_sizes = np.flatnonzero(times), np.flatnonzero(distances)
    if len(used_times):
        shown = counts[used_times[0] : used_times[-1] + 1, used_sizes[0] : used_sizes[-1] + 1]
        x_names = [_size_name(at) for at in range(used_sizes[0], used_sizes[-1] + 1)]
        y_names = [_time_name(at) for at in range(used_times[0], used_times[-1] + 1)]
        svg = heat_map(shown, "bytes that came in between, below", "time in between, below", x_names, y_names)
        answer.plots.append(Plot("Reuse", svg, "The size and the time that a cache would need to have hit."))
    causes = np.sum([one.causes.sum(axis=0) for one in reuse], axis=0)
    cause_bytes = np.sum([one.cause_bytes.sum(axis=0) for one in reuse], axis=0)
    answer.tables["causes"] = Table(
        "Why entries were read from bookies",
        [
            {"cause": cause, "entries": int(causes[at]), "bytes": mib(int(cause_bytes[at]))}
            for at, cause in enumerate(CAUSES)
        ],
    )
    answer.tables["causes_by_topic"] = Table("The same by topic", _causes_by_topic(runs, reuse))


def _causes_by_topic(runs: Sequence[RunOfBroker], reuse: Sequence[Reuse]) -> list[dict[str, str | int]]:
    rows: list[dict[str, str | int]] = []
    for run, one in zip(runs, reuse, strict=True):
        names = run.names.topics if run.names is not None else {}
        for topic in np.flatnonzero(one.causes.sum(axis=1)).tolist():
            counts = {cause: int(one.causes[topic, at]) for at, cause in enumerate(CAUSES)}
            rows.append({"topic": names.get(topic, f"topic {topic}"), "broker": run.broker, **counts})
    return sorted(rows, key=lambda row: -sum(int(row[cause]) for cause in CAUSES))


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
    size = 1 << bucket
    for unit, exponent in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << exponent:
            return f"{size >> exponent} {unit}"
    return f"{size} B"
