"""Assigns rows to the partitions of a topic: by key as Pulsar's Java client does, otherwise in turn.

Law: the partition follows from the row's key or its number in the task alone. A task that runs again must write each row
to the same partition as before, because deduplication holds per partition. The turns of the Java client, which begin at
a random partition and depend on time, would store rows twice.
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
    """Partition counts of the topics of one task, each requested once."""

    def __init__(self, cluster: Cluster, rows_per_turn: int) -> None:
        """`rows_per_turn` consecutive rows without a key go to one partition, so that entries are full."""
        self._cluster = cluster
        self._rows_per_turn = rows_per_turn
        self._counts: dict[str, int] = {}

    def learn(self, topics: Sequence[str]) -> None:
        """Requests the partition counts of new topics; the broker may create missing topics. BrokerRefused."""
        new = [topic for topic in dict.fromkeys(topics) if topic not in self._counts]
        if new:
            self._counts.update(zip(new, self._cluster.partitions(new, create=True), strict=True))

    def route(self, topic: str, batch: pa.RecordBatch, rows: Ints) -> Iterator[tuple[str, Ints]]:
        """Yields the topics to write to, each with the indexes of its rows in `batch`.

        `rows` holds each row's number in its task. The topic must be learned.
        """
        count = self._counts[topic]
        if not count:
            yield topic, np.arange(batch.num_rows)
            return
        partitions = self._partitions(batch, rows, count)
        for number in np.unique(partitions).tolist():
            yield f"{topic}-partition-{number}", np.flatnonzero(partitions == number)

    def _partitions(self, batch: pa.RecordBatch, rows: Ints, count: int) -> Ints:
        turns: Ints = rows // self._rows_per_turn % count
        place = batch.schema.get_field_index(KEY)
        if place < 0:
            return turns
        # The hash is a loop over characters in Python: compute it once per distinct key.
        keys = batch.column(place).dictionary_encode()
        hashes = np.array([*(java_hash(key) % count for key in keys.dictionary.to_pylist()), 0], np.int64)
        # The additional 0 in `hashes` is the target of index -1, a null key, which `np.where` then replaces.
        indices = keys.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return np.where(indices < 0, turns, hashes[indices])


def java_hash(key: bytes | str) -> int:
    """Returns Java's `String.hashCode` without its sign bit: the Java client's default hash of keys (JavaStringHash)."""
    text = key if isinstance(key, str) else key.decode(errors="replace")
    units = np.frombuffer(text.encode("utf-16-le"), np.uint16)
    value = 0
    for unit in units.tolist():
        value = (31 * value + unit) & 0xFFFF_FFFF
    return value & _INT_MAX
