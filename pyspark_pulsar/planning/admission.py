"""Shares a micro-batch's limits among its topics. Pure functions.

`share` counts entries: every topic may take up to the same level; topics with less backlog than the level are read to
their end, and the rest of their share raises the level for the others. Equal shares instead would waste the part of
every topic that has little to read, and shares in proportion to the backlog would delay quiet topics for one that is
further from its end.

`admit` does the same for limits of rows and bytes, over entries whose sizes are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pyspark_pulsar.client.entry_sizes import EntrySizes
from pyspark_pulsar.cutting.protobuf_columns import Ints
from pyspark_pulsar.options import BatchLimits

Floats = npt.NDArray[np.float64]
"""One number per topic, or per entry."""

_ROUNDING: Final = 1e-9
"""Sums of fractions of a limit may be so much below 1 and yet fill it."""


def fair_level(amounts: Floats, limit: float) -> float:
    """Returns the level at which the sum of `min(amount, level)` is `limit`; infinite if all amounts fit."""
    if amounts.sum() <= limit:
        return float("inf")
    ordered = np.sort(amounts)
    below = np.concatenate(([0.0], np.cumsum(ordered)[:-1]))
    # levels[i]: the level if the i smallest amounts are taken whole. The first that does not exceed its own amount holds.
    levels = (limit - below) / np.arange(len(ordered), 0, -1)
    return float(levels[np.flatnonzero(levels <= ordered)[0]])


def share(entries: Ints, limit: int, turn: int) -> Ints:
    """Returns the number of entries to read of each topic, `limit` in all at most.

    `entries` is the backlog of each topic. `turn` counts micro-batches; it selects the topics that get one entry more
    than the others.
    """
    level = fair_level(entries.astype(np.float64), limit)
    if level == float("inf"):
        return entries
    taken = np.minimum(entries, int(level))
    # Rounding down leaves a part of the limit: spend it on single entries, from another topic on in each batch.
    order: np.ndarray[Any, np.dtype[np.int64]] = np.roll(
        np.arange(len(entries)), -(turn % max(1, len(entries)))
    )
    more = order[(entries > taken)[order]][: limit - int(taken.sum())]
    taken[more] += 1
    return taken


def admit(runs: Sequence[EntrySizes], limits: BatchLimits) -> list[int]:
    """Returns the number of entries to read of each topic, whose next entries are `runs`; every limit holds.

    Entries are admitted in the order of the part of the limits that their topic has used with them, until the first
    that does not fit. The first entry of `runs[0]`, which must have one, is admitted before all others and even if it
    exceeds a limit alone: without that, one entry larger than the limit would stop the stream for ever, and a topic of
    large entries would wait as long as others have small ones. So the caller puts another topic first in each batch.
    """
    counts = [len(run) for run in runs]
    topic_of = np.repeat(np.arange(len(runs)), counts)
    keys = np.concatenate([used_parts(run, limits) for run in runs])
    keys[0] = 0.0
    order = np.lexsort((topic_of, keys))
    fits = np.ones(len(order), np.bool_)
    for name, limit in _given(limits):
        weights = np.concatenate([_weights(run, name) for run in runs])
        fits &= np.cumsum(weights[order]) <= limit
    # Sums only grow, so all entries that fit come before all that do not.
    admitted = max(1, int(fits.sum()))
    taken: list[int] = np.bincount(topic_of[order[:admitted]], minlength=len(runs)).tolist()
    return taken


def used_parts(run: EntrySizes, limits: BatchLimits) -> Floats:
    """Returns for each entry the part of the tightest limit that a topic has used with it and those before; 1 is all."""
    parts = [np.cumsum(_weights(run, name)) / limit for name, limit in _given(limits)]
    used: Floats = np.max(np.stack(parts), axis=0)
    return used


def is_full(used: Floats, level: float) -> bool:
    """Returns True if topics that may use up to `level` each fill the limits; `used` is the part that each could use."""
    return bool(np.minimum(used, level).sum() >= 1 - _ROUNDING)


def _given(limits: BatchLimits) -> list[tuple[str, int]]:
    every = (("entries", limits.entries_max), ("rows", limits.rows_max), ("bytes", limits.bytes_max))
    return [(name, limit) for name, limit in every if limit is not None]


def _weights(run: EntrySizes, name: str) -> Ints:
    # At least 1, so that entries without payload count too; a limit in bytes would never be reached otherwise.
    weights = {"entries": np.ones(len(run), np.int64), "rows": run.rows, "bytes": run.bytes}
    found: Ints = np.maximum(weights[name], 1)
    return found
