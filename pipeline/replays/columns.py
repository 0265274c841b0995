"""The rows of a run as numpy columns, in the order of the events: what a replay is made of and nothing else."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from broker.entry_cache.observe.cache_events import Op
from broker.recorder.record_reader import RunOfBroker, read_table

INPUTS: Final = (
    Op.APPEND,
    Op.FETCHED,
    Op.HIT,
    Op.MISS,
    Op.COALESCED,
    Op.ARRIVED,
    Op.FAILED,
    Op.DELIVER,
    Op.REPLAY,
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
"""What the cache was told; the rest is what it did."""


class Columns(NamedTuple):
    op: NDArray[np.int8]
    at_ns: NDArray[np.int64]
    topic: NDArray[np.int32]
    sub: NDArray[np.int32]
    ledger: NDArray[np.int64]
    entry: NDArray[np.int64]
    entries: NDArray[np.int32]
    bytes: NDArray[np.int64]
    detail: NDArray[np.int32]

    def take(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> Columns:
        return Columns(*[column[chosen] for column in self])  # type: ignore[arg-type]


def read_columns(run: RunOfBroker, ops: Collection[Op] = INPUTS) -> Columns:
    """Rows of these kinds. `detail` of SETTINGS is the number of the file, whose settings hold. RecordError where a
    file turns out to be damaged."""
    parts = []
    for number, file in enumerate(run.files):
        table = read_table(file)
        wanted = np.isin(table.column("op").to_numpy(), [op.value for op in ops])
        table = table.filter(pc.equal(wanted, True)) if not wanted.all() else table
        ops_read = table.column("op").to_numpy()
        detail = table.column("detail").to_numpy().copy()
        detail[ops_read == Op.SETTINGS] = number
        at_ns = (table.column("ts").to_numpy() - file.facts.clock_offset_us) * 1000
        topic, sub, ledger, entry, count, size = (
            table.column(name).to_numpy() for name in ("topic", "sub", "ledger", "entry", "count", "bytes")
        )
        parts.append(Columns(ops_read, at_ns, topic, sub, ledger, entry, count, size, detail))
    return Columns(*[np.concatenate(column) for column in zip(*parts, strict=True)])
