"""Streams hit ratios per topic and minute from the messages of `entryCacheCountsTopic`.

A hit is an entry read from the cache. An entry that came with another reader's storage read (coalesced) is a read and
not a hit. A minute is reported when messages of a later one show that it is over. A run that ends with the messages
that are present (`once`) also reports the minutes that are not over yet, which Spark keeps in its state.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.live.drop_watch import DropWatch, LiveDrop, Minute

_MESSAGE = (
    "at_ms long, interval_s long, broker string,"
    " topics array<struct<topic string, hits long, misses long, coalesced long>>"
)
_LATE = "10 seconds"
"""The largest distance between messages of several brokers about the same minute."""


def counts_of(spark: SparkSession, service_url: str, topic: str, starting: str) -> DataFrame:
    """Returns a stream with one row per topic and message: at, topic, hits, reads.

    `starting`: "earliest" or "latest", used while there is no checkpoint.
    """
    values = (
        spark.readStream.format("pulsar")
        .option("service.url", service_url)
        .option("topic", topic)
        .option("startingOffsets", starting)
        .option("columns", "value")
        .load()
    )
    return (
        values.select(F.from_json(F.col("value").cast("string"), _MESSAGE).alias("message"))
        .select("message.at_ms", F.explode("message.topics").alias("counts"))
        .select(
            F.timestamp_millis("at_ms").alias("at"),
            "counts.topic",
            "counts.hits",
            F.expr("counts.hits + counts.misses + counts.coalesced").alias("reads"),
        )
    )


def by_minute(counts: DataFrame) -> DataFrame:
    """Returns a stream with one row per topic and minute: minute, topic, hits, reads."""
    return (
        counts.withWatermark("at", _LATE)
        .groupBy(F.window("at", "1 minute"), "topic")
        .agg(F.sum("hits").alias("hits"), F.sum("reads").alias("reads"))
        .select(F.col("window.start").alias("minute"), "topic", "hits", "reads")
    )


def start(
    minutes: DataFrame,
    watch: DropWatch,
    checkpoint: str,
    *,
    out: str | None,
    once: bool,
    tell: Callable[[str], None],
) -> StreamingQuery:
    """Starts the stream, which calls `tell` with a line per minute and one per drop.

    `out`: folder for Parquet with one row per topic and minute. `once`: the stream reads the messages
    present now, then ends. Paths may have a scheme, since Spark writes there.
    """

    def take(batch: DataFrame, batch_id: int) -> None:
        # Three actions read the batch; without this each would read the messages again.
        batch.persist()
        if out is not None:
            # A batch that is repeated after a crash overwrites itself.
            batch.write.mode("overwrite").parquet(f"{out}/batch={batch_id}")
        _tell(batch, watch, tell, "")
        batch.unpersist()

    writer = minutes.writeStream.outputMode("append").option("checkpointLocation", checkpoint)
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime="5 seconds")
    return writer.foreachBatch(take).start()


def tell_open_minutes(
    spark: SparkSession, query: StreamingQuery, checkpoint: str, watch: DropWatch, tell: Callable[[str], None]
) -> None:
    """Tells the minutes that are not over, each marked "so far", after the end of a query with `once`.

    They are not written to `out`: the next start continues them, and writes each once, when it is over.
    """
    progress = query.lastProgress
    # Without a batch in this run there may be no state at all; and nothing is new since the minutes were told before.
    if progress is None or not sum(one["numRowsTotal"] for one in progress["stateOperators"]):
        return
    # Append mode gives a window only once the watermark has passed it; the state has the others. Its values are both
    # named `sum`; the cast renames them by their places, which are those of `agg` in `by_minute`.
    value = F.col("value").cast("struct<hits: long, reads: long>")
    state = spark.read.format("statestore").load(checkpoint).withColumn("value", value)
    minutes = state.select(
        F.col("key.window.start").alias("minute"),
        F.col("key.topic").alias("topic"),
        "value.hits",
        "value.reads",
    )
    _tell(minutes, watch, tell, " so far")


def _tell(minutes: DataFrame, watch: DropWatch, tell: Callable[[str], None], mark: str) -> None:
    for row in (
        minutes.groupBy("minute").agg(F.sum("hits"), F.sum("reads"), F.count("*")).orderBy("minute").collect()
    ):
        tell(_describe_minute(*row) + mark)
    # In order, because the moving average of `watch` follows the minutes. One partition at a time: a batch has a
    # row for each topic.
    for row in minutes.orderBy("minute").toLocalIterator():
        drop = watch.judge(Minute(int(row.minute.timestamp() * 1000), row.topic, row.hits, row.reads))
        if drop is not None:
            tell(_describe_drop(drop) + mark)


def _describe_minute(minute: datetime, hits: int, reads: int, topics: int) -> str:
    ratio = f"{hits / reads:.4f}" if reads else "-"
    return f"{minute:%Y-%m-%d %H:%M}  hit ratio {ratio}  {reads:,} reads of {topics:,} topic{'s' * (topics != 1)}"


def _describe_drop(drop: LiveDrop) -> str:
    at = datetime.fromtimestamp(drop.start_ms / 1000, UTC)
    return f"{at:%Y-%m-%d %H:%M}  ! {drop.topic}: hit ratio {drop.now:.4f} after {drop.before:.4f}"
