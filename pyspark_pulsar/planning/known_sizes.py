"""Knows rows and bytes of the entries that a stream reads next, for the limits of its micro-batches.

Spark fixes the end of a batch before its tasks read, and entries of one topic may hold one message or thousands. An
estimate would exceed a limit without bound, so the driver reads the entries up to the limit itself, and keeps their
sizes only (`client/entry_sizes.py`). Each entry is read once: sizes that were not used are kept for the next batch.

Cost: with maxRowsPerTrigger or maxBytesPerTrigger every entry crosses the network twice, to the driver and to a task.
docs/reference/benchmarks.md has the measured times.
"""

from __future__ import annotations

import bisect
import math
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from pyspark_pulsar.client.cluster import Cluster, ReaderStart
from pyspark_pulsar.client.entry_sizes import (
    NO_ENTRIES,
    PERMITS_MAX,
    EntrySizes,
    SizesWanted,
    joined,
    read_sizes,
)
from pyspark_pulsar.cutting.protobuf_columns import Ints
from pyspark_pulsar.errors import BrokerLost
from pyspark_pulsar.options import BatchLimits
from pyspark_pulsar.planning.admission import admit, is_full, used_parts
from pyspark_pulsar.planning.offsets import Offsets
from pyspark_pulsar.position import MessagePosition

TOPICS_TOGETHER: Final = 500
"""Topics whose entries are read together; more are added while they do not fill the limits."""
SCAN_S: Final = 2.0
"""Seconds after which no topics are added: a batch must not wait until hundreds of thousands are opened."""
_ROW_BYTES: Final = 1024.0
"""Bytes assumed of a message of a topic of which none was read. Decides the permits alone, never the end of a batch."""


class _Run(NamedTuple):
    """The known entries of one topic."""

    begin: MessagePosition
    """No entry between this position and the first of `sizes` is left out."""
    sizes: EntrySizes
    """The entries after `begin`."""


class KnownSizes:
    """Sizes of the next entries of a stream's topics. Lives on the driver; can be lost at any time."""

    def __init__(self, cluster: Cluster, reader: str) -> None:
        """`reader` is the prefix of the short-lived subscriptions that read the entries."""
        self._cluster = cluster
        self._reader = reader
        self._runs: dict[str, _Run] = {}
        self._row_bytes: dict[str, float] = {}
        """Mean bytes of a message among the entries of each topic that were read last."""
        self._turn_of = ""
        """The topic after which the next batch begins to choose."""

    def next_ends(
        self, start: Offsets, last: Offsets, rows: Ints, limits: BatchLimits
    ) -> dict[int, MessagePosition]:
        """Returns the end of the batch for each of the topics at `rows` that moves; at least one does.

        `rows` are the topics whose end in `last` is after `start`. BrokerLost where the broker sends none of their
        entries for the cluster's timeout.
        """
        scan = _Scan(start, last, limits, self._rotated(start, rows), set())
        self._keep(scan)
        began = time.monotonic()
        count = TOPICS_TOGETHER
        while True:
            self._fill(scan, scan.rows[:count])
            runs = [self._runs[start.topics[row]].sizes for row in scan.rows[:count]]
            used = np.array([_used(run, limits) for run in runs])
            waited = time.monotonic() - began
            something = bool(used.any() or scan.gone)
            if is_full(used, 1.0) or (something and (count >= len(scan.rows) or waited > SCAN_S)):
                break
            if waited > self._cluster.settings.timeout_s:
                raise BrokerLost(
                    f"{start.topics[scan.rows[0]]}: the broker sent no message after "
                    f"{start.position(scan.rows[0])} for {waited:.0f} s"
                )
            # Nothing came at all: the same topics are asked again. An end at `start` would end the query
            # ("available now") before everything is read.
            count += TOPICS_TOGETHER if something else 0
        self._turn_of = start.topics[scan.rows[0 if count >= len(scan.rows) else count - 1]]
        return self._admitted(scan, scan.rows[:count])

    def _rotated(self, start: Offsets, rows: Ints) -> list[int]:
        """Returns the rows in the order of their topics, from the one after the last turn's on."""
        first = bisect.bisect_right(start.topics, self._turn_of)
        rotated: list[int] = np.roll(rows, -int(np.searchsorted(rows, first))).tolist()
        return rotated

    def _keep(self, scan: _Scan) -> None:
        """Drops the sizes of entries before `start`, and of topics that have nothing to read."""
        kept: dict[str, _Run] = {}
        for row in scan.rows:
            topic, begin = scan.start.topics[row], scan.start.position(row)
            run = self._runs.get(topic)
            if run is None or begin < run.begin:
                # Unknown, or the stream went back before the first known entry.
                run = _Run(begin, NO_ENTRIES)
            ledger, entry = begin.first_entry()
            kept[topic] = _Run(begin, run.sizes.from_row(run.sizes.count_up_to((ledger, entry - 1))))
        self._runs = kept

    def _fill(self, scan: _Scan, rows: Sequence[int]) -> None:
        """Reads entries until the topics at `rows` fill the limits, in about equal parts, or have no more.

        A topic of which nothing comes now is left for a later batch.
        """
        ended: set[int] = set()
        level = 1 / len(rows)
        while True:
            used = np.array([_used(self._runs[scan.start.topics[row]].sizes, scan.limits) for row in rows])
            short = []
            more = 0
            for row, part in zip(rows, used.tolist(), strict=True):
                if row in ended or self._has_all(scan, row):
                    continue
                more += 1
                if part < level:
                    short.append((row, level - part))
            if short:
                ended |= self._read(scan, short)
            elif not more or level >= 1 or is_full(used, level):
                return
            else:
                # Topics that ended early leave a part of the limits to the others.
                level = min(1.0, level + max(1 - float(np.minimum(used, level).sum()), 0.01) / more)

    def _has_all(self, scan: _Scan, row: int) -> bool:
        sizes = self._runs[scan.start.topics[row]].sizes
        return bool(len(sizes)) and sizes.last() >= scan.last.position(row)

    def _read(self, scan: _Scan, short: Sequence[tuple[int, float]]) -> set[int]:
        """Reads the given part of the limits of each topic; returns the topics of which nothing came."""
        wanted = [self._wanted(scan, row, part) for row, part in short]
        ended = set()
        for (row, _), found in zip(short, read_sizes(self._cluster, wanted, self._reader), strict=True):
            topic = scan.start.topics[row]
            run = self._runs[topic]
            if len(found.sizes):
                self._runs[topic] = run._replace(sizes=joined([run.sizes, found.sizes]))
                self._row_bytes[topic] = float(found.sizes.bytes.sum() / found.sizes.rows.sum())
            else:
                ended.add(row)
            if found.is_gone and not len(run.sizes):
                scan.gone.add(row)
        return ended

    def _wanted(self, scan: _Scan, row: int, part: float) -> SizesWanted:
        topic, limits = scan.start.topics[row], scan.limits
        sizes = self._runs[topic].sizes
        after = sizes.last() if len(sizes) else scan.start.position(row)
        entries, rows, in_bytes = (
            math.inf if limit is None else max(1.0, part * limit)
            for limit in (limits.entries_max, limits.rows_max, limits.bytes_max)
        )
        row_bytes = max(1.0, self._row_bytes.get(topic, _ROW_BYTES))
        permits = min(PERMITS_MAX, math.ceil(min(rows, in_bytes / row_bytes, PERMITS_MAX)))
        start = ReaderStart(topic, after.first_entry())
        return SizesWanted(start, scan.last.position(row), permits, entries, rows, in_bytes)

    def _admitted(self, scan: _Scan, rows: Sequence[int]) -> dict[int, MessagePosition]:
        # A topic whose entries are gone moves to its end: its task finds the gap and reports the data loss.
        ends = {row: scan.last.position(row) for row in scan.gone}
        known = [row for row in rows if len(self._runs[scan.start.topics[row]].sizes)]
        if known:
            runs = [self._runs[scan.start.topics[row]].sizes for row in known]
            for row, run, taken in zip(known, runs, admit(runs, scan.limits), strict=True):
                if taken:
                    ends[row] = MessagePosition(int(run.ledgers[taken - 1]), int(run.entries[taken - 1]))
        return ends


class _Scan(NamedTuple):
    """The search for the end of one batch."""

    start: Offsets
    last: Offsets
    limits: BatchLimits
    rows: list[int]
    """The topics that wait, in the order of their turns."""
    gone: set[int]
    """Topics whose entries up to the end do not exist any more."""


def _used(run: EntrySizes, limits: BatchLimits) -> float:
    return float(used_parts(run, limits)[-1]) if len(run) else 0.0
