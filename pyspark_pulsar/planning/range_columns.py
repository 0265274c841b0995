"""Many ranges as columns, which is how they travel to a task.

The driver plans up to 600,000 topics per micro-batch in numpy. Objects per topic would have to be built and pickled one
by one; six columns pickle as a list of names and five arrays.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pyspark_pulsar.cutting.protobuf_columns import Flags, Ints
from pyspark_pulsar.planning.split import LAST_ENTRY, LEDGER_ENTRIES
from pyspark_pulsar.position import MessagePosition, TopicRange


class RangeColumns(NamedTuple):
    """The fields of `TopicRange` as columns, one row per range. Pickled to a task."""

    topics: Sequence[str]
    """Full names, sorted."""
    starts: Ints
    """Two-dimensional: ledger, entry, batch index."""
    ends: Ints
    """Two-dimensional like `starts`."""
    retained: Flags
    """True for ranges that need no check for trimmed ledgers."""
    from_ms: Ints
    """Lowest publish time, in ms."""
    to_ms: Ints
    """Highest publish time, in ms, included."""

    def __len__(self) -> int:
        return len(self.topics)

    def ranges(self) -> Iterator[TopicRange]:
        """Yields one object per range; called in the task, which reads only its own share of the topics."""
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
            yield TopicRange(topic, MessagePosition(*start), MessagePosition(*end), retained, from_ms, to_ms)

    def weights(self) -> Ints:
        """Returns the `weight` of each range."""
        same = self.starts[:, 0] == self.ends[:, 0]
        entries = np.maximum(1, self.ends[:, 1] - np.where(same, self.starts[:, 1], -1))
        # Sums of LAST_ENTRY would not fit into 64 bits.
        return np.where(self.ends[:, 1] >= LAST_ENTRY, LEDGER_ENTRIES, entries)

    def into_tasks(self, tasks: int) -> list[RangeColumns]:
        """Cuts the rows into at most `tasks` consecutive groups of about the same weight."""
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
    """Builds columns from ranges, in their order."""
    return RangeColumns(
        [one.topic for one in ranges],
        np.array([one.start for one in ranges], np.int64).reshape(-1, 3),
        np.array([one.end for one in ranges], np.int64).reshape(-1, 3),
        np.array([one.retained for one in ranges], np.bool_),
        np.array([one.from_ms for one in ranges], np.int64),
        np.array([one.to_ms for one in ranges], np.int64),
    )
