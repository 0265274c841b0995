"""Many ranges as columns: what goes to a task, without an object per topic on the driver."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pyspark_pulsar.cutting.protobuf_columns import Flags, Ints
from pyspark_pulsar.planning.position import Position, TopicRange


class RangeColumns(NamedTuple):
    """`starts` and `ends` have a row of ledger, entry and batch index per topic."""

    topics: Sequence[str]
    starts: Ints
    ends: Ints
    retained: Flags
    from_ms: Ints
    to_ms: Ints

    def __len__(self) -> int:
        return len(self.topics)

    def ranges(self) -> Iterator[TopicRange]:
        columns = zip(
            self.topics,
            self.starts.tolist(),
            self.ends.tolist(),
            self.retained.tolist(),
            self.from_ms.tolist(),
            self.to_ms.tolist(),
            strict=True,
        )
        for topic, start, end, retained, from_ms, to_ms in columns:
            yield TopicRange(topic, Position(*start), Position(*end), retained, from_ms, to_ms)

    def weights(self) -> Ints:
        """Entries: exact within one ledger, a guess across ledgers."""
        same = self.starts[:, 0] == self.ends[:, 0]
        return np.maximum(1, self.ends[:, 1] - np.where(same, self.starts[:, 1], -1))

    def into_tasks(self, tasks: int) -> list[RangeColumns]:
        """At most so many runs of about the same weight, in order."""
        weights = self.weights()
        before = np.cumsum(weights) - weights
        task_of = np.minimum(before * tasks // max(1, int(weights.sum())), tasks - 1)
        borders = np.searchsorted(task_of, np.arange(tasks + 1)).tolist()
        return [self._part(first, last) for first, last in itertools.pairwise(borders) if last > first]

    def _part(self, first: int, last: int) -> RangeColumns:
        return RangeColumns(
            self.topics[first:last],
            self.starts[first:last],
            self.ends[first:last],
            self.retained[first:last],
            self.from_ms[first:last],
            self.to_ms[first:last],
        )


def columns_of(ranges: Sequence[TopicRange]) -> RangeColumns:
    return RangeColumns(
        [one.topic for one in ranges],
        np.array([one.start for one in ranges], np.int64).reshape(-1, 3),
        np.array([one.end for one in ranges], np.int64).reshape(-1, 3),
        np.array([one.retained for one in ranges], np.bool_),
        np.array([one.from_ms for one in ranges], np.int64),
        np.array([one.to_ms for one in ranges], np.int64),
    )
