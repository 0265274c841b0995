"""What Spark calls to write: in each task the rows of one partition, in the order in which they come.

Exactly once needs that a task that runs again gets the same rows in the same order: from a replayable source without
a shuffle, or sorted within its partition. See docs/spark_source.md.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pyspark_pulsar.client.cluster import open_cluster
from pyspark_pulsar.columns.arrow_spans import numbers
from pyspark_pulsar.cutting.compression import compression_type
from pyspark_pulsar.cutting.protobuf_columns import Ints
from pyspark_pulsar.errors import OptionError
from pyspark_pulsar.options import SinkOptions
from pyspark_pulsar.python_worker import freeze_imports
from pyspark_pulsar.topic_names import full_topic_name
from pyspark_pulsar.writing.message_rows import TOPIC, message_rows
from pyspark_pulsar.writing.partition_router import PartitionRouter
from pyspark_pulsar.writing.publisher import Publisher, PublishSettings
from pyspark_pulsar.writing.topic_producer import EntrySettings
from pyspark_pulsar.writing.value_encoder import make_encoder

SEQUENCE_BITS: Final = 32
"""A batch's number stands above the row's: 4,294,967,296 rows per partition and batch."""


@dataclass
class Written(WriterCommitMessage):
    rows: int


class RowWriter:
    """What the batch and the stream writer share; pickled to the tasks."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._encoder = make_encoder(schema, options.schema)
        self._has_topic_column = TOPIC in schema.names
        if options.topic is None and not self._has_topic_column:
            raise OptionError(f"nowhere to write to: give the option topic, or rows with a column {TOPIC}")

    def write(self, batches: Iterator[pa.RecordBatch], producer_name: str, batch_number: int) -> Written:
        freeze_imports()
        options = self._options
        if not options.exactly_once:
            # A name of its own, so that what the broker remembers of others is no concern.
            producer_name += f"-{uuid.uuid4().hex[:8]}"
        settings = PublishSettings(
            EntrySettings(
                options.batch_messages_max, options.batch_bytes_max, compression_type(options.compression)
            ),
            options.exactly_once,
            options.send_timeout_s,
        )
        row = 0
        with open_cluster(options.cluster) as cluster:
            router = PartitionRouter(cluster, options.batch_messages_max)
            publisher = Publisher(cluster, producer_name, settings, self._encoder.pulsar_schema())
            for batch in batches:
                first = (batch_number << SEQUENCE_BITS) + row
                row += batch.num_rows
                parts = [
                    (
                        topic,
                        part if len(rows) == part.num_rows else part.take(numbers(rows)),
                        sequence_ids[rows],
                    )
                    for topic, part, sequence_ids in self._by_topic(batch, first, router)
                    for topic, rows in router.route(
                        topic, part, sequence_ids - (batch_number << SEQUENCE_BITS)
                    )
                ]
                publisher.open([topic for topic, _, _ in parts])
                for topic, part, sequence_ids in parts:
                    payloads = self._encoder.encode(part)
                    publisher.publish(topic, message_rows(part, payloads, sequence_ids))
            publisher.finish()
        return Written(row)

    def _by_topic(
        self, batch: pa.RecordBatch, first: int, router: PartitionRouter
    ) -> Iterator[tuple[str, pa.RecordBatch, Ints]]:
        sequence_ids = np.arange(first, first + batch.num_rows, dtype=np.int64)
        if not batch.num_rows:
            return
        if self._options.topic is not None:
            router.learn([self._options.topic])
            yield self._options.topic, batch, sequence_ids
            return
        names = batch.column(batch.schema.get_field_index(TOPIC)).dictionary_encode()
        if names.null_count:
            raise OptionError(f"{TOPIC} is null in a row")
        topics = [full_topic_name(name) for name in names.dictionary.to_pylist()]
        router.learn(topics)
        for number, topic in enumerate(topics):
            rows = np.flatnonzero(names.indices.to_numpy() == number)
            yield topic, batch.take(numbers(rows)), sequence_ids[rows]


class PulsarBatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._rows = RowWriter(options, schema)
        # One job: its tasks run again under the same names.
        self._job = uuid.uuid4().hex[:16]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._rows.write(iterator, f"spark-{self._job}-{task_partition()}", 0)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """What was stored stays: a log has no undo."""


class PulsarStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._rows = RowWriter(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        assert query is not None
        assert batch is not None
        return self._rows.write(iterator, f"spark-{query}-{task_partition()}", int(batch))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Every row was confirmed before its task ended."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """The batch runs again when the query is started again; what is stored is not stored twice."""


def task_partition() -> int:
    context = TaskContext.get()
    assert context is not None
    return int(context.partitionId())
