"""Reads the events of a broker lifetime as numpy columns, in their order."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from broker.entry_cache.observe.cache_events import Op
from broker.recorder.record_reader import BrokerLifetime, read_table

INPUTS: Final = (
    Op.APPEND,
    Op.FETCHED,
    Op.HIT,
    Op.MISS,
    Op.COALESCED,
    Op.ARRIVED,
    Op.FAILED,
    Op.DELIVER,
    Op.REDELIVERY,
    Op.CURSOR_ADDED,
    Op.CURSOR_MOVED,
    Op.CURSOR_LEFT,
    Op.ACK,
    Op.TICK,
    Op.SIZE_CHECK,
    Op.INVALIDATE,
    Op.OPEN,
    Op.CLOSE,
    Op.SETTINGS,
)
"""Events that were inputs of the cache.

All others are its decisions, which a replay takes anew.
"""


class Columns(NamedTuple):
    """One row per event on a run of entries.

    Docs/reference/access_record.md has the meaning of each column.
    """

    op: NDArray[np.int8]
    """A value of `Op`."""
    at_ns: NDArray[np.int64]
    """The broker's monotonic time."""
    topic: NDArray[np.int32]
    """Id of the topic; 0 = all topics."""
    sub: NDArray[np.int32]
    """Id of the reader within its topic; 0 = none."""
    ledger: NDArray[np.int64]
    """Ledger id."""
    entry: NDArray[np.int64]
    """Entry id of the first entry of the run."""
    entries: NDArray[np.int32]
    """Length of the run."""
    bytes: NDArray[np.int64]
    """Of the whole run."""
    detail: NDArray[np.int32]
    """Depends on `op`."""

    def take(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> Columns:
        """Return the chosen rows, by truth value or by index."""
        return Columns(*[column[chosen] for column in self])  # type: ignore[arg-type]


def read_columns(lifetime: BrokerLifetime, ops: Collection[Op] = INPUTS) -> Columns:
    """Return the events of these kinds. RecordError for a damaged file.

    `detail` of a SETTINGS event becomes the number of its file, whose settings hold from there on.
    """
    parts = []
    for number, file in enumerate(lifetime.files):
        table = read_table(file)
        wanted = np.isin(table.column("op").to_numpy(), [op.value for op in ops])
        table = table.filter(pc.equal(wanted, True)) if not wanted.all() else table
        ops_read = table.column("op").to_numpy()
        detail = table.column("detail").to_numpy().copy()
        detail[ops_read == Op.SETTINGS] = number
        # Back to monotonic time, which the cache decided by; `ts` is wall-clock time in microseconds.
        at_ns = (table.column("ts").to_numpy() - file.facts.clock_offset_us) * 1000
        topic, sub, ledger, entry, count, size = (
            table.column(name).to_numpy() for name in ("topic", "sub", "ledger", "entry", "count", "bytes")
        )
        parts.append(Columns(ops_read, at_ns, topic, sub, ledger, entry, count, size, detail))
    return Columns(*[np.concatenate(column) for column in zip(*parts, strict=True)])
