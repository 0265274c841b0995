"""Spark's interface for a batch query: the driver plans ranges once, the tasks read them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pyspark_pulsar.client.cluster import SchemaVersions, open_cluster
from pyspark_pulsar.columns.batch_builder import BatchBuilder
from pyspark_pulsar.columns.value_columns import ValueColumns
from pyspark_pulsar.options import SourceOptions
from pyspark_pulsar.planning.batch_plan import plan_batch
from pyspark_pulsar.planning.range_columns import RangeColumns
from pyspark_pulsar.planning.topics import choose_topics
from pyspark_pulsar.position import TopicRange
from pyspark_pulsar.python_worker import freeze_imports, one_sentence
from pyspark_pulsar.reading.range_reader import RangeReader, ReadSettings


class RangesPartition(InputPartition):
    """The ranges of one task. Pickled from the driver to its Python worker."""

    def __init__(self, columns: RangeColumns, token: bytes | None = None) -> None:
        """`token`: the newest one of a token file, since a stream's tasks are pickled with that of its begin."""
        self._columns = columns
        self.token = token
        """The token of the driver's file when the batch was planned; None without a file."""

    @property
    def ranges(self) -> list[TopicRange]:
        """The ranges in the order in which their rows come; built at each call."""
        return list(self._columns.ranges())


class PulsarBatchReader(DataSourceReader):
    """Reads a batch query. Pickled to the tasks; holds options only, no connections.

    It has no method `pushFilters`: Spark 4.3.0 keeps the ranges that were narrowed for one query, and reads only them in
    the other queries of the DataFrame, so rows would be lost.
    """

    def __init__(self, options: SourceOptions, schema: StructType, values: ValueColumns) -> None:
        self._options = options
        self._schema = schema
        self._values = values
        self._reader_name = f"{options.subscription_prefix}-{uuid.uuid4().hex[:10]}"

    @one_sentence()
    def partitions(self) -> Sequence[InputPartition]:
        """Plans the query on the driver. OptionError, BrokerLost, BrokerRefused."""
        with open_cluster(self._options.cluster) as cluster:
            topics = choose_topics(cluster, self._options.topics, wait=self._options.wait_for_topics)
            plan = cluster.retrying(lambda: plan_batch(cluster, topics, self._options, self._reader_name))
            return [RangesPartition(one) for one in plan]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one partition, in a task."""
        if isinstance(partition, RangesPartition):
            yield from read_ranges(
                partition.ranges, self._options, self._schema, self._values, self._reader_name
            )


def read_ranges(
    ranges: Sequence[TopicRange],
    options: SourceOptions,
    schema: StructType,
    values: ValueColumns,
    reader_name: str,
) -> Iterator[pa.RecordBatch]:
    """Yields Arrow batches of the ranges, in their order. Runs in a task, with connections of its own.

    DataLoss, BrokerLost, BrokerRefused, MalformedEntry.
    """
    freeze_imports()
    with one_sentence():
        arrow_schema = to_arrow_schema(schema, timezone="UTC")
        settings = ReadSettings(
            options.fail_on_data_loss,
            options.poll_timeout_s,
            f"{reader_name}-{uuid.uuid4().hex[:6]}",
            options.private_keys,
            options.discard_encrypted,
        )
        with open_cluster(options.cluster) as cluster:
            builder = BatchBuilder(arrow_schema, values, SchemaVersions(cluster))
            yield from RangeReader(cluster, ranges, builder, settings).batches()
