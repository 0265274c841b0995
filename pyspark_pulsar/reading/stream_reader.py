"""Spark's interface for a stream: one reader lives on the driver, plans micro-batches and moves the cursors.

Spark calls, per micro-batch: `latestOffset` (the end; then it writes the checkpoint), `partitions` (the tasks), in the
tasks `read`, and `commit`, which acknowledges the batch *before*: a cursor is always one batch late, so the unfinished
batch can be read again after a crash.

A killed driver loses nothing: the checkpoint has the last two offsets and the query's id, which names the subscription.
The new driver reads the ends of topics again and plans the unfinished batch from the same offsets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pyspark_pulsar.client.cluster import Cluster
from pyspark_pulsar.columns.value_columns import ValueColumns
from pyspark_pulsar.errors import DataLoss, OptionError
from pyspark_pulsar.options import BatchLimits, SourceOptions
from pyspark_pulsar.planning.batch_plan import start_positions
from pyspark_pulsar.planning.offset_files import OffsetFolder
from pyspark_pulsar.planning.offsets import Offsets, from_json, new_identity, task_limit, to_json
from pyspark_pulsar.planning.range_columns import RangeColumns, columns_of
from pyspark_pulsar.planning.stream_plan import BatchAdmission, stream_tasks
from pyspark_pulsar.planning.topic_watch import TopicWatch
from pyspark_pulsar.planning.topics import choose_topics
from pyspark_pulsar.position import WHOLE
from pyspark_pulsar.python_worker import one_sentence
from pyspark_pulsar.reading.batch_reader import RangesPartition, read_ranges
from pyspark_pulsar.topic_names import base_topic

log = logging.getLogger("pyspark_pulsar")

NEW_TOPICS_S: Final = 10.0
"""Seconds between two listings of topics and partitions."""

SparkOffset = dict[str, Any]
"""An offset as Spark keeps it; see `planning/offsets.py`."""


class PulsarStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream; all methods but `read` run on the driver, in one Python process per query.

    Pickled to the tasks while nothing is open yet: the object that holds connections is created at its first use.
    """

    def __init__(self, options: SourceOptions, schema: StructType, values: ValueColumns) -> None:
        self._options = options
        self._schema = schema
        self._values = values
        self._driver: StreamDriver | None = None

    def _open(self) -> StreamDriver:
        if self._driver is None:
            self._driver = StreamDriver(self._options)
        return self._driver

    @one_sentence()
    def initialOffset(self) -> SparkOffset:  # noqa: N802
        """Returns the begin of a query without a checkpoint: startingOffsets or startingTime."""
        driver = self._open()
        return driver.cluster.retrying(driver.initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Tells Spark that there is a limit; its kind does not matter, as `latestOffset` applies all three."""
        limits = self._options.limits
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        if limits.rows_max is not None:
            return ReadMaxRows(limits.rows_max)
        if limits.entries_max is not None:
            return ReadMaxFiles(limits.entries_max)
        return ReadAllAvailable()

    @one_sentence()
    def latestOffset(self, start: SparkOffset, limit: ReadLimit) -> SparkOffset:  # noqa: N802
        """Returns the end of the micro-batch that begins at `start`, within the limits of the options."""
        limits = (
            BatchLimits(None, None, None) if isinstance(limit, ReadAllAvailable) else self._options.limits
        )
        driver = self._open()
        return driver.cluster.retrying(lambda: driver.latest(start, limits))

    def reportLatestOffset(self) -> SparkOffset | None:  # noqa: N802
        """Returns the ends of all topics for the progress event, in which users see the lag; requests nothing."""
        return self._open().report()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Makes the stream end where its topics end at the first `latestOffset` from now on."""
        self._open().stop_at_present()

    @one_sentence()
    def partitions(self, start: SparkOffset, end: SparkOffset) -> Sequence[InputPartition]:
        """Returns the tasks between two offsets, at least one."""
        driver = self._open()
        tasks = driver.cluster.retrying(lambda: driver.tasks(start, end))
        # For an empty list Spark starts a task of its own all the same; a partition without ranges costs less.
        token = self._options.cluster.security.newest_token()
        return [RangesPartition(columns, token) for columns in tasks or [columns_of([])]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one partition, in a task; uses nothing of the driver's state."""
        if isinstance(partition, RangesPartition):
            name = f"{self._options.subscription_prefix}-task"
            options = self._options.with_token(partition.token)
            yield from read_ranges(partition.ranges, options, self._schema, self._values, name)

    @one_sentence()
    def commit(self, end: SparkOffset) -> None:
        """Acknowledges up to `end`; Spark calls it when the batch is complete and the next one begins."""
        self._open().commit(end)

    def stop(self) -> None:
        """Closes the connections; the subscription and its cursors remain for a restart."""
        if self._driver is not None:
            self._driver.close()
            self._driver = None


class StreamDriver:
    """Plans the micro-batches of one query. Not thread-safe: Spark makes one call at a time.

    Its state can be lost at any time; the offsets that Spark passes in contain all that must survive.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self.cluster = Cluster(options.cluster)
        """The connections of this driver; the caller repeats calls with `cluster.retrying`."""
        self._files = None if options.offsets_location is None else OffsetFolder(options.offsets_location)
        self._watch: TopicWatch | None = None
        self._admission: BatchAdmission | None = None
        self._stop_at: Offsets | None = None
        self._available_now = False
        self._listed_at = 0.0
        self._decoded: list[tuple[SparkOffset, Offsets]] = []

    def close(self) -> None:
        """Closes all connections."""
        self.cluster.close()

    def initial(self) -> SparkOffset:
        """Returns the first offset of a new query, with a new id. BrokerLost, BrokerRefused, OptionError."""
        identity = new_identity()
        topics = tuple(self._list_topics())
        self._options.start.check_names("startingOffsets", topics)
        reader = f"{self._options.subscription_prefix}-{identity}-start"
        newest = self.cluster.last_entries(topics, reader)
        starts = start_positions(self.cluster, topics, self._options.start, newest, reader)
        return self._encode(Offsets.at(identity, topics, starts))

    def latest(self, start: SparkOffset, limits: BatchLimits) -> SparkOffset:
        """Returns the end of the batch that begins at `start`. DataLoss where a topic was deleted."""
        begin = self._decode(start)
        is_first = self._watch is None
        watch = self._follow(begin)
        if self._available_now:
            if self._stop_at is None:
                watch.refresh(all_topics=True)
                self._stop_at = self._ends(begin, watch)
            # Ends are read once: a trigger "available now" must end however fast producers are.
            last = self._stop_at.aligned_to(watch.topics)
        else:
            self._drop(watch.refresh(), watch)
            last = self._ends(begin, watch)
        if is_first:
            # A new subscription begins with the oldest entry. Without this it would retain ledgers that a query with
            # startingOffsets=latest never reads.
            watch.acknowledge(begin)
        begin = begin.aligned_to(watch.topics)
        assert self._admission is not None
        return self._encode(self._admission.next_offsets(begin, last, limits))

    def report(self) -> SparkOffset | None:
        """Returns the ends of all topics as of the last refresh; None before the first batch."""
        if self._watch is None or not self._decoded:
            return None
        return self._encode(self._ends(self._decoded[-1][1], self._watch))

    def stop_at_present(self) -> None:
        """Makes `latest` stop at the ends that its next call finds.

        The ends cannot be read here: they need the subscription, whose name comes with the first offset.
        """
        self._available_now = True
        self._stop_at = None

    def tasks(self, start: SparkOffset, end: SparkOffset) -> list[RangeColumns]:
        """Returns the ranges of each task between two offsets."""
        begin, last = self._decode(start), self._decode(end)
        if self._watch is None:
            # After a restart Spark first repeats the unfinished batch, without a call of `latest` before it.
            self._follow(begin).refresh(all_topics=True)
        assert self._watch is not None
        tasks = task_limit(end, self._options.partitions_max)
        return stream_tasks(begin, last, self._watch, self._options.start, tasks)

    @one_sentence()
    def commit(self, end: SparkOffset) -> None:
        """Moves the subscription's cursors up to `end`."""
        if self._watch is not None:
            self._watch.acknowledge(self._decode(end))

    # Topics

    def _list_topics(self) -> list[str]:
        self._listed_at = time.monotonic()
        return choose_topics(self.cluster, self._options.topics, wait=self._options.wait_for_topics)

    def _follow(self, begin: Offsets) -> TopicWatch:
        """Returns the watch, with the topics listed again if the last listing is `NEW_TOPICS_S` old.

        The first call creates it, with the subscription that is named after the query's id.
        """
        if self._watch is None:
            name = self._options.subscription or f"{self._options.subscription_prefix}-{begin.identity}"
            self._watch = TopicWatch(self.cluster, name)
            self._admission = BatchAdmission(self.cluster, f"{name}-peek")
            # Before anything else: from here on the cursors keep what the query has still to read.
            self._watch.retain_from(begin)
        elif self._stop_at is not None or time.monotonic() - self._listed_at < NEW_TOPICS_S:
            return self._watch
        topics = self._list_topics()
        self._report_deleted(begin, topics)
        self._watch.follow(tuple(topics))
        return self._watch

    def _report_deleted(self, begin: Offsets, topics: Sequence[str]) -> None:
        there = set(topics)
        for row, topic in enumerate(begin.topics):
            if topic not in there:
                self._lost(begin, row)

    def _lost(self, begin: Offsets, row: int) -> None:
        topic, named = begin.topics[row], self._options.topics.names
        loss = DataLoss(topic, "topic deleted", str(begin.position(row)), "")
        if self._options.fail_on_data_loss:
            if named and topic not in named and base_topic(topic) not in named:
                raise OptionError(
                    f"the checkpoint belongs to a query that reads {topic}, which this one does not name: use another "
                    "checkpoint, name the topic too, or set failOnDataLoss=false to leave it out"
                )
            raise loss
        log.warning("%s", loss)

    def _drop(self, gone: Sequence[str], watch: TopicWatch) -> None:
        """Stops watching topics that were deleted since they were listed; the next listing reports them."""
        if gone:
            self._listed_at = 0.0
            missing = set(gone)
            watch.follow(tuple(topic for topic in watch.topics if topic not in missing))

    # Offsets

    def _ends(self, begin: Offsets, watch: TopicWatch) -> Offsets:
        whole = np.full(len(watch.topics), WHOLE, np.int64)
        return Offsets(begin.identity, watch.topics, watch.ledgers.copy(), watch.entries.copy(), whole)

    def _encode(self, offsets: Offsets) -> SparkOffset:
        # Equal positions get the JSON that Spark has, even one that names another limit of tasks than the option:
        # Spark would take a different JSON for new data and run an empty batch.
        for encoded, known in self._decoded:
            if known.identity == offsets.identity and known.same_as(offsets):
                return encoded
        encoded = to_json(offsets, self._options.partitions_max, self._files)
        self._remember(encoded, offsets)
        return encoded

    def _decode(self, encoded: SparkOffset) -> Offsets:
        for known, offsets in self._decoded:
            if known == encoded:
                return offsets
        offsets = from_json(encoded, self._files)
        self._remember(encoded, offsets)
        return offsets

    def _remember(self, encoded: SparkOffset, offsets: Offsets) -> None:
        # Spark passes the same offsets back several times per batch; coding those of 600,000 topics takes up to 0.5 s.
        self._decoded = [*self._decoded[-3:], (encoded, offsets)]
