"""Shares a micro-batch's limit among the backlogs of its topics: max-min fair.

Every topic may take up to the same level; topics with less backlog than the level are read to their end, and the rest
of their share raises the level for the others. Equal shares instead would waste the part of every topic that has
little to read, and shares in proportion to the backlog would delay quiet topics behind one that is far behind.
Pure functions over one numpy element per topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyspark_pulsar.cutting.protobuf_columns import Ints
from pyspark_pulsar.options import Limits

Floats = npt.NDArray[np.float64]
"""One number per topic."""


class Backlog(NamedTuple):
    """Unread entries of each topic, one array element per topic."""

    entries: Ints
    """Entries behind the begin of the batch."""
    bytes_per_entry: Floats
    """Estimated payload bytes of one entry."""
    rows_per_entry: Floats
    """Estimated messages of one entry."""


def fair_level(amounts: Floats, limit: float) -> float:
    """Returns the level at which the sum of `min(amount, level)` is `limit`; infinite if all amounts fit."""
    if amounts.sum() <= limit:
        return float("inf")
    ordered = np.sort(amounts)
    below = np.concatenate(([0.0], np.cumsum(ordered)[:-1]))
    # levels[i]: the level if the i smallest amounts are taken whole. The first that does not exceed its own amount holds.
    levels = (limit - below) / np.arange(len(ordered), 0, -1)
    return float(levels[np.flatnonzero(levels <= ordered)[0]])


def share(backlog: Backlog, limits: Limits, turn: int) -> Ints:
    """Returns the number of entries to read of each topic; every limit that is given holds.

    `turn` counts micro-batches. Where the limit is less than one entry per topic, it selects the topics that get one.
    """
    taken = backlog.entries.copy()
    for limit, weight in _weights(backlog, limits):
        taken = np.minimum(taken, _fill(backlog.entries, weight, limit, turn))
    # One entry may be larger than the limit: read it alone, or the stream would stop for ever.
    if not taken.any() and backlog.entries.any():
        waiting = np.flatnonzero(backlog.entries)
        taken[waiting[turn % len(waiting)]] = 1
    return taken


def _weights(backlog: Backlog, limits: Limits) -> Sequence[tuple[int, Floats]]:
    ones = np.ones(len(backlog.entries))
    every = (
        (limits.bytes_max, np.maximum(backlog.bytes_per_entry, 1.0)),
        (limits.entries_max, ones),
        (limits.rows_max, np.maximum(backlog.rows_per_entry, 1.0)),
    )
    return [(limit, weight) for limit, weight in every if limit is not None]


def _fill(entries: Ints, weight: Floats, limit: int, turn: int) -> Ints:
    amounts = entries * weight
    level = fair_level(amounts, limit)
    if level == float("inf"):
        return entries
    taken = np.minimum(entries, np.floor(level / weight).astype(np.int64))
    # Rounding down leaves a part of the limit: spend it on single entries, from another topic on in each batch.
    left = limit - float((taken * weight).sum())
    order: np.ndarray[Any, np.dtype[np.int64]] = np.roll(
        np.arange(len(entries)), -(turn % max(1, len(entries)))
    )
    more = order[(entries > taken)[order]]
    affordable = more[np.cumsum(weight[more]) <= left]
    taken[affordable] += 1
    return taken
