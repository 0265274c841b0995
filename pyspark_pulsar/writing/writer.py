"""Spark's interface for writing: in each task the rows of one partition, in the order in which they come.

Exactly once needs that a task that runs again gets the same rows in the same order: from a source that can be read again
and without a shuffle, or sorted within its partition. Otherwise a row gets another sequence id at the second attempt:
some rows would be stored twice and others dropped. docs/how-to/spark_source.md tells users.

Rows are durable when the task ends, before Spark commits. `commit` and `abort` therefore do nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

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
from pyspark_pulsar.python_worker import freeze_imports, one_sentence
from pyspark_pulsar.topic_names import full_topic_name
from pyspark_pulsar.writing.access_check import check_access
from pyspark_pulsar.writing.message_rows import TOPIC, check_metadata, message_rows
from pyspark_pulsar.writing.partition_router import PartitionRouter
from pyspark_pulsar.writing.publisher import Publisher, PublishSettings
from pyspark_pulsar.writing.topic_producer import EntrySettings
from pyspark_pulsar.writing.value_encoder import make_encoder

_SEQUENCE_BITS: Final = 32
"""Bits of a sequence id for the row's number; the batch's number is above them. 4,294,967,296 rows per task."""


@dataclass
class Written(WriterCommitMessage):
    """A task's result, pickled to the driver."""

    rows: int
    """Rows of the task, including those that an attempt before it had stored."""


class RowWriter:
    """Writes the rows of a task, for batch and stream writers. Pickled to the tasks; holds no connections."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Runs on the driver. OptionError for columns that cannot be written, or where nothing names a topic."""
        check_metadata(schema)
        self._options = options
        self._encoder = make_encoder(schema, options.schema)
        self._has_topic_column = TOPIC in schema.names
        if options.topic is None and not self._has_topic_column:
            raise OptionError(f"no topic is given: set the option topic, or write rows with a column {TOPIC}")

    def check_access(self) -> None:
        """Asks the broker, on the driver, for what the tasks will need. BrokerRefused, TlsRefused."""
        check_access(self._options.cluster, self._options.topic, self._encoder.pulsar_schema())

    @one_sentence()
    def write(self, batches: Iterator[pa.RecordBatch], producer_name: str, batch_number: int) -> Written:
        """Writes all rows and returns when they are stored. Runs in a task.

        `producer_name` and `batch_number` must be the same when the task runs again: sequence ids are built from the
        batch's and the row's number, and are compared per producer name.
        """
        freeze_imports()
        options = self._options
        if not options.exactly_once:
            # A unique name: with the stable one, a broker that deduplicates would drop rows that come in another order.
            producer_name += f"-{uuid.uuid4().hex[:8]}"
        settings = PublishSettings(
            EntrySettings(
                options.batch_messages_max, options.batch_bytes_max, compression_type(options.compression)
            ),
            exactly_once=options.exactly_once,
            timeout_s=options.send_timeout_s,
        )
        first_id = batch_number << _SEQUENCE_BITS
        row = 0
        with open_cluster(options.cluster) as cluster:
            router = PartitionRouter(cluster, options.batch_messages_max)
            publisher = Publisher(cluster, producer_name, settings, self._encoder.pulsar_schema())
            for batch in batches:
                parts = [
                    _Part(
                        topic,
                        part.rows if len(chosen) == part.rows.num_rows else part.rows.take(numbers(chosen)),
                        part.row_numbers[chosen],
                    )
                    for part in self._by_topic(batch, row, router)
                    for topic, chosen in router.route(part.topic, part.rows, part.row_numbers)
                ]
                row += batch.num_rows
                publisher.open([part.topic for part in parts])
                for part in parts:
                    payloads = self._encoder.encode(part.rows)
                    publisher.publish(
                        part.topic, message_rows(part.rows, payloads, first_id + part.row_numbers)
                    )
            publisher.finish()
        return Written(row)

    def _by_topic(self, batch: pa.RecordBatch, first_row: int, router: PartitionRouter) -> Iterator[_Part]:
        """Splits a batch by its rows' topics, not yet by partition; `first_row` is its first row's number."""
        row_numbers = np.arange(first_row, first_row + batch.num_rows, dtype=np.int64)
        if not batch.num_rows:
            return
        if self._options.topic is not None:
            router.learn([self._options.topic])
            yield _Part(self._options.topic, batch, row_numbers)
            return
        names = batch.column(batch.schema.get_field_index(TOPIC)).dictionary_encode()
        if names.null_count:
            raise OptionError(f"{TOPIC} is null in a row: filter such rows, or set the option topic")
        topics = [full_topic_name(name) for name in names.dictionary.to_pylist()]
        router.learn(topics)
        for number, topic in enumerate(topics):
            rows = np.flatnonzero(names.indices.to_numpy() == number)
            yield _Part(topic, batch.take(numbers(rows)), row_numbers[rows])


class _Part(NamedTuple):
    """Rows of a batch that go to one topic."""

    topic: str
    """Full name of a topic, or of a partition once the rows are routed."""
    rows: pa.RecordBatch
    """All columns, metadata included."""
    row_numbers: Ints
    """Number of each row in its task, from 0."""


class PulsarBatchWriter(DataSourceArrowWriter):
    """Writes a batch query. Created on the driver, pickled to the tasks."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._rows = RowWriter(options, schema)
        # Fixed when the job is planned, so a task that runs again has the same producer name. A job that is submitted
        # again has another one and writes all its rows again.
        self._job = uuid.uuid4().hex[:16]

    def check_access(self) -> None:
        """Asks the broker, on the driver, for what the tasks will need. BrokerRefused, TlsRefused."""
        self._rows.check_access()

    @one_sentence()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Writes the rows of one partition, in a task."""
        return self._rows.write(iterator, f"spark-{self._job}-{_task_partition()}", 0)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Does nothing: stored rows stay, because a log cannot be undone."""


class PulsarStreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream. Created on the driver for each micro-batch, pickled to the tasks."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._rows = RowWriter(options, schema)

    def check_access(self) -> None:
        """Asks the broker, on the driver, for what the tasks will need. BrokerRefused, TlsRefused."""
        self._rows.check_access()

    @one_sentence()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Writes the rows of one partition of a micro-batch, in a task."""
        # The id of the query and the batch's number are in the checkpoint, so both survive the driver.
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        assert query is not None
        assert batch is not None
        return self._rows.write(iterator, f"spark-{query}-{_task_partition()}", int(batch))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Does nothing: every row was stored before its task ended."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Does nothing: a query that is started again repeats the batch, and stored rows are not stored twice."""


def _task_partition() -> int:
    context = TaskContext.get()
    assert context is not None
    return int(context.partitionId())
