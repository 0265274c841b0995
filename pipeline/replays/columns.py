"""Reads the events of a broker lifetime as numpy columns, in their order and a batch at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from broker.recorder.record_reader import BrokerLifetime, batches
from broker.recorder.row_encoder import Columns as Batch
from broker.recorder.schema import COLUMNS
from entry_cache.observe.cache_events import Op


class RecordColumns(NamedTuple):
    """One row per event on a run of entries; docs/reference/access_record.md has the meaning of each column."""

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

    def take(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> RecordColumns:
        """Returns the chosen rows, by truth value or by index."""
        return RecordColumns(*[column[chosen] for column in self])  # type: ignore[arg-type]


def read_batches(
    lifetime: BrokerLifetime, ops: Collection[Op], names: Sequence[str] = tuple(COLUMNS)
) -> Iterator[tuple[int, Batch]]:
    """Yields the events of these kinds with the number of their file. RecordError for a damaged file.

    `names`: the columns to read, `op` among them; they have the narrow types of the file.
    """
    wanted = np.zeros(256, np.bool_)
    wanted[[op.value for op in ops]] = True
    for number, file in enumerate(lifetime.files):
        for batch in batches(file, names):
            columns = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in names}
            chosen = wanted[columns["op"]]
            if not chosen.all():
                columns = {name: column[chosen] for name, column in columns.items()}
            yield number, columns


def columns_of(lifetime: BrokerLifetime, number: int, batch: Batch) -> RecordColumns:
    """Returns a batch of file `number` with the times and settings that the cache decided by.

    `detail` of a SETTINGS event becomes the number of its file, whose settings hold from there on.
    """
    op = batch["op"].astype(np.int8, copy=False)
    # Back to monotonic time, which the cache decided by; `ts` is wall-clock time in microseconds.
    at_ns = (batch["ts"] - lifetime.files[number].facts.clock_offset_us) * 1000
    detail = np.where(op == Op.SETTINGS, number, batch["detail"]).astype(np.int32)
    return RecordColumns(
        op,
        at_ns,
        batch["topic"].astype(np.int32, copy=False),
        batch["sub"].astype(np.int32, copy=False),
        batch["ledger"],
        batch["entry"],
        batch["count"].astype(np.int32, copy=False),
        batch["bytes"],
        detail,
    )


def joined(parts: Sequence[RecordColumns]) -> RecordColumns:
    """Returns the rows of all parts, of which there is at least one."""
    return RecordColumns(*[np.concatenate(column) for column in zip(*parts, strict=True)])
