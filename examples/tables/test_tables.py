"""Tests of the sinks, with the fixture `pulsar_spark` of Magnetar's pytest plugin: a broker and a Spark session.

Run them with `pytest examples/tables`, after `pip install 'WHEEL[client,spark]' deltalake 'pyiceberg[sql-sqlite]'`.
"""

from __future__ import annotations

from pathlib import Path

import pulsar
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import DataFrame
from tables import BatchSink, delta_sink, iceberg_sink

from magnetar.kit.spark import SparkUnderTest

ROWS = 900
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


def publish(url: str, topic: str, first: int, count: int) -> None:
    client = pulsar.Client(url, logger=QUIET)
    producer = client.create_producer(topic, batching_max_messages=50)
    for number in range(first, first + count):
        producer.send_async(b"%d" % number, None, partition_key=f"key-{number % 7}")
    producer.flush()
    client.close()


def run(stream: DataFrame, sink: BatchSink, checkpoint: Path) -> None:
    """Runs a query up to the present end of its topics."""
    writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def twice(sink: BatchSink) -> BatchSink:
    """Returns a sink that is called again for each batch, as after a crash after its commit."""

    def append(rows: DataFrame, batch: int) -> None:
        sink(rows, batch)
        sink(rows, batch)

    return append


def table_rows(stream: DataFrame) -> DataFrame:
    return stream.selectExpr(
        "cast(cast(value as string) as bigint) as number",
        "cast(__key as string) as key",
        "__publishTime as published",
    )


def test_delta_table_has_each_row_once(
    pulsar_spark: SparkUnderTest, pulsar_url: str, pulsar_topic: str, tmp_path: Path
) -> None:
    table = str(tmp_path / "table")
    options = pulsar_spark.options(pulsar_topic, startingOffsets="earliest", maxRowsPerTrigger="250")
    for first in (0, ROWS):
        publish(pulsar_url, pulsar_topic, first, ROWS)
        stream = table_rows(pulsar_spark.session.readStream.format("pulsar").options(**options).load())
        run(stream, twice(delta_sink(table, "numbers")), tmp_path / "checkpoint")
    found = DeltaTable(table).to_pyarrow_table()
    assert sorted(found["number"].to_pylist()) == list(range(2 * ROWS))
    assert len(DeltaTable(table).history()) >= 2 * ROWS / 250


def test_iceberg_table_has_each_row_once(
    pulsar_spark: SparkUnderTest, pulsar_url: str, pulsar_topic: str, tmp_path: Path
) -> None:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    catalog.create_namespace("events")
    options = pulsar_spark.options(pulsar_topic, startingOffsets="earliest", maxRowsPerTrigger="250")
    for first in (0, ROWS):
        publish(pulsar_url, pulsar_topic, first, ROWS)
        stream = table_rows(pulsar_spark.session.readStream.format("pulsar").options(**options).load())
        run(stream, twice(iceberg_sink(catalog, "events.numbers", "numbers")), tmp_path / "checkpoint")
    table = catalog.load_table("events.numbers")
    assert sorted(table.scan().to_arrow()["number"].to_pylist()) == list(range(2 * ROWS))
    assert len(table.snapshots()) >= 2 * ROWS / 250


def test_job_is_tested_by_rows_and_by_the_sink(
    pulsar_spark: SparkUnderTest, pulsar_url: str, pulsar_topic: str
) -> None:
    """A job of one's own: numbers in, their doubles out."""
    publish(pulsar_url, pulsar_topic, 0, 20)
    stream = table_rows(pulsar_spark.stream(pulsar_topic)).selectExpr("number * 2 as doubled")
    assert sorted(row.doubled for row in pulsar_spark.collect(stream)) == list(range(0, 40, 2))
    doubles = table_rows(pulsar_spark.read(pulsar_topic)).selectExpr("cast(number * 2 as string) as value")
    target = pulsar_spark.options(f"{pulsar_topic}-doubled")
    doubles.write.format("pulsar").options(**target).mode("append").save()
    written = pulsar_spark.read(f"{pulsar_topic}-doubled").collect()
    assert sorted(int(row.value) for row in written) == list(range(0, 40, 2))
