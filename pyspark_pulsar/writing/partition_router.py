"""Rows of a partitioned topic to its partitions: by key as Pulsar's Java client does, in runs where there is none.

The same row goes to the same partition each time, or a task that runs again would not find what it wrote before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from pyspark_pulsar.client.cluster import Cluster
from pyspark_pulsar.cutting.protobuf_columns import Ints
from pyspark_pulsar.writing.message_rows import KEY

_INT_MAX = 2**31 - 1


class PartitionRouter:
    def __init__(self, cluster: Cluster, run: int) -> None:
        """`run`: how many rows without a key go to one partition before the next one's turn."""
        self._cluster = cluster
        self._run = run
        self._counts: dict[str, int] = {}

    def learn(self, topics: Sequence[str]) -> None:
        """Ask for the partitions of topics that are new; what does not exist is made as the broker is set."""
        new = [topic for topic in dict.fromkeys(topics) if topic not in self._counts]
        if new:
            self._counts.update(zip(new, self._cluster.partitions(new, create=True), strict=True))

    def route(self, topic: str, batch: pa.RecordBatch, rows: Ints) -> Iterator[tuple[str, Ints]]:
        """Topics to write to, each with its rows of the batch. `rows`: the number of each row in its task."""
        count = self._counts[topic]
        if not count:
            yield topic, np.arange(batch.num_rows)
            return
        partitions = self._partitions(batch, rows, count)
        for number in np.unique(partitions).tolist():
            yield f"{topic}-partition-{number}", np.flatnonzero(partitions == number)

    def _partitions(self, batch: pa.RecordBatch, rows: Ints, count: int) -> Ints:
        turns: Ints = rows // self._run % count
        place = batch.schema.get_field_index(KEY)
        if place < 0:
            return turns
        keys = batch.column(place).dictionary_encode()
        hashes = np.array([*(java_hash(key) % count for key in keys.dictionary.to_pylist()), 0], np.int64)
        indices = keys.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return np.where(indices < 0, turns, hashes[indices])


def java_hash(key: bytes | str) -> int:
    """`String.hashCode` without its sign: what the Java client spreads keys by unless it is told otherwise."""
    text = key if isinstance(key, str) else key.decode(errors="replace")
    units = np.frombuffer(text.encode("utf-16-le"), np.uint16)
    value = 0
    for unit in units.tolist():
        value = (31 * value + unit) & 0xFFFF_FFFF
    return value & _INT_MAX
