"""Plans a micro-batch: its end offset under the limits, and the ranges of its tasks.

Spark fixes the end offset first (`BatchAdmission.next_offsets`) and writes it to the checkpoint; only then it asks for the
tasks (`stream_tasks`). After a restart the tasks of an unfinished batch are planned again from the same two offsets.
`stream_tasks` must then give each task the same ranges in the same order: the sink numbers rows within a task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from pyspark_pulsar.client.cluster import Cluster, FirstEntry, ReaderStart
from pyspark_pulsar.cutting.protobuf_columns import Flags, Ints
from pyspark_pulsar.options import BatchLimits
from pyspark_pulsar.places import PlaceChoice
from pyspark_pulsar.planning.admission import share
from pyspark_pulsar.planning.known_sizes import KnownSizes
from pyspark_pulsar.planning.offsets import Offsets
from pyspark_pulsar.planning.range_columns import RangeColumns, columns_of
from pyspark_pulsar.planning.split import cut_entries_evenly, weight
from pyspark_pulsar.planning.topic_watch import TopicWatch
from pyspark_pulsar.position import FOREVER_MS, WHOLE, MessagePosition, TopicRange

PEEKS_MAX: Final = 500
"""Topics whose next entries are read on the driver together."""
_ENTRIES_UNKNOWN: Final = 1 << 20
"""Entries assumed in the rest of an older ledger; reading ends at the ledger's end anyhow."""


class BatchAdmission:
    """Chooses the end of the next micro-batch under the limits.

    Lives on the driver; the sizes of entries are lost with it and read again.
    """

    def __init__(self, cluster: Cluster, reader: str) -> None:
        self._cluster = cluster
        self._reader = reader
        self._turn = 0
        self._sizes = KnownSizes(cluster, reader)

    def next_offsets(self, start: Offsets, last: Offsets, limits: BatchLimits) -> Offsets:
        """Returns the end of the batch that begins at `start`; `last` holds the ends of the same topics."""
        waiting = start.is_before(last)
        if not limits.any or not waiting.any():
            return _furthest(start, last, waiting)
        if limits.rows_max is not None or limits.bytes_max is not None:
            return _moved(start, self._sizes.next_ends(start, last, np.flatnonzero(waiting), limits))
        assert limits.entries_max is not None
        # Entry ids are consecutive within a ledger, so a limit in entries alone needs no look at the entries.
        self._turn += 1
        begins, entries = self._count(start, last, waiting)
        return _advance(start, last, begins, entries, share(entries, limits.entries_max, self._turn))

    def _count(self, start: Offsets, last: Offsets, waiting: Flags) -> tuple[tuple[Ints, Ints], Ints]:
        """Returns (ledger, entry) of each topic's next entry, and the number of entries from there on.

        The number is exact in a topic's last ledger. A topic read only up to an earlier ledger is read from the broker to
        find its next entry; beyond `PEEKS_MAX` such topics the rest counts as empty until a later batch.
        """
        ledgers = start.ledgers.copy()
        nexts = start.entries + (start.batches == WHOLE)
        across = waiting & (start.ledgers != last.ledgers)
        order = np.flatnonzero(across)
        rows = np.roll(order, -(self._turn * PEEKS_MAX % max(1, len(order))))[:PEEKS_MAX]
        known = ~across
        for row, first in self._peek(start, rows).items():
            ledgers[row], nexts[row] = first.ledger, first.entry
            known[row] = True
        in_last = ledgers == last.ledgers
        # The length of an older ledger is unknown: no request returns it.
        entries = np.where(in_last, last.entries - nexts + 1, np.where(across, _ENTRIES_UNKNOWN, 0))
        entries = np.where(waiting & known, np.maximum(entries, 0), 0)
        return (ledgers, nexts), entries

    def _peek(self, start: Offsets, rows: Ints) -> dict[int, FirstEntry]:
        wanted = [ReaderStart(start.topics[row], start.position(row).first_entry()) for row in rows.tolist()]
        found = self._cluster.first_entries(wanted, self._reader) if wanted else []
        return {row: first for row, first in zip(rows.tolist(), found, strict=True) if first is not None}


def _furthest(start: Offsets, last: Offsets, waiting: Flags) -> Offsets:
    columns = (
        np.where(waiting, ends, begins)
        for begins, ends in zip(
            (start.ledgers, start.entries, start.batches),
            (last.ledgers, last.entries, last.batches),
            strict=True,
        )
    )
    return Offsets(start.identity, start.topics, *columns)


def _moved(start: Offsets, ends: Mapping[int, MessagePosition]) -> Offsets:
    """Returns `start` with the rows of `ends` moved there."""
    ledgers, entries, batches = start.ledgers.copy(), start.entries.copy(), start.batches.copy()
    for row, end in ends.items():
        ledgers[row], entries[row], batches[row] = end
    return Offsets(start.identity, start.topics, ledgers, entries, batches)


def _advance(start: Offsets, last: Offsets, begins: tuple[Ints, Ints], entries: Ints, taken: Ints) -> Offsets:
    moves = taken > 0
    ledgers, nexts = begins
    to_end = moves & (taken >= entries) & (ledgers == last.ledgers)
    ends = np.where(to_end, last.entries, nexts + taken - 1)
    return Offsets(
        start.identity,
        start.topics,
        np.where(moves, ledgers, start.ledgers),
        np.where(moves, ends, start.entries),
        np.where(moves, WHOLE, start.batches),
    )


def stream_tasks(
    start: Offsets, end: Offsets, watch: TopicWatch, choice: PlaceChoice, tasks: int
) -> list[RangeColumns]:
    """Returns the ranges between two offsets, for at most `tasks` tasks. Topics that did not move have none."""
    begin = start.aligned_to(end.topics)
    rows = np.flatnonzero(begin.is_before(end))
    topics = [end.topics[row] for row in rows.tolist()]
    times = np.array([choice.time_of(topic) or 0 for topic in topics], np.int64)
    columns = RangeColumns(
        topics,
        np.stack([begin.ledgers[rows], begin.entries[rows], begin.batches[rows]], axis=1),
        np.stack([end.ledgers[rows], end.entries[rows], end.batches[rows]], axis=1),
        watch.retained(begin, rows),
        times,
        np.full(len(rows), FOREVER_MS),
    )
    if len(rows) < 2 * tasks:
        columns = columns_of(_cut_large(list(columns.ranges()), tasks))
    return columns.into_tasks(tasks)


def _cut_large(ranges: Sequence[TopicRange], tasks: int) -> list[TopicRange]:
    total = sum(weight(one) for one in ranges)
    return [
        part
        for one in ranges
        for part in cut_entries_evenly(one, max(1, round(2 * tasks * weight(one) / max(1, total))))
    ]
