"""How much of each topic's backlog goes into the next batch: a limit is shared like water, not cut into equal parts.

Every topic gets the same level; what a topic with little backlog does not need goes to the others. So small topics
are always read to their end, and one that is far behind takes what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyspark_pulsar.cutting.protobuf_columns import Ints
from pyspark_pulsar.options import Limits

Floats = npt.NDArray[np.float64]


class Backlog(NamedTuple):
    """Of each topic: entries that wait, and what an entry is about."""

    entries: Ints
    bytes_per_entry: Floats
    rows_per_entry: Floats


def water_level(amounts: Floats, limit: float) -> float:
    """The level at which `min(amount, level)` over all amounts adds up to `limit`; infinite if all fit."""
    if amounts.sum() <= limit:
        return float("inf")
    ordered = np.sort(amounts)
    below = np.concatenate(([0.0], np.cumsum(ordered)[:-1]))
    levels = (limit - below) / np.arange(len(ordered), 0, -1)
    return float(levels[np.flatnonzero(levels <= ordered)[0]])


def share(backlog: Backlog, limits: Limits, turn: int) -> Ints:
    """Entries to take of each topic. `turn` counts batches: where little is to be had, topics take turns.

    At least one entry is taken if any waits, or nothing would ever move.
    """
    taken = backlog.entries.copy()
    for limit, weight in _weights(backlog, limits):
        taken = np.minimum(taken, _fill(backlog.entries, weight, limit, turn))
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
    level = water_level(amounts, limit)
    if level == float("inf"):
        return entries
    taken = np.minimum(entries, np.floor(level / weight).astype(np.int64))
    # What rounding down left over buys single entries, beginning with another topic each time.
    left = limit - float((taken * weight).sum())
    order: np.ndarray[Any, np.dtype[np.int64]] = np.roll(
        np.arange(len(entries)), -(turn % max(1, len(entries)))
    )
    more = order[(entries > taken)[order]]
    affordable = more[np.cumsum(weight[more]) <= left]
    taken[affordable] += 1
    return taken
