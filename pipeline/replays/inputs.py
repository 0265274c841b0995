"""Reads the inputs of a cache in one broker lifetime, or those of a sample of its entries.

The files are read a batch at a time. A sample is drawn from each batch at once, so that the memory depends on the sample
and not on the record. Expected reads of entries are computed before, from the positions of all cursors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np

from broker.entry_cache.observe.cache_events import Op
from broker.entry_cache.observe.replay import OUTPUTS
from broker.entry_cache.reader import LOOKS_ONLY
from broker.recorder.record_reader import BrokerLifetime
from broker.recorder.row_encoder import RUN_OPS, in_sample_alone
from broker.recorder.row_encoder import Columns as Batch
from broker.recorder.sampling import hash_limit, mixed
from pipeline.machine_code import compiled
from pipeline.replays.accesses import Bools, Ints64
from pipeline.replays.columns import Columns, columns_of, read_batches
from pipeline.replays.readers import (
    CursorState,
    ReaderNumbers,
    cursor_state,
    expected_reads,
    number_readers,
    rows_of_open_topics,
)

INPUTS: Final = tuple(op for op in Op if op not in OUTPUTS)
"""Events that were inputs of the cache. All others are its decisions, which a replay takes anew."""
_ARRIVALS: Final = (Op.APPEND, Op.FETCHED)
_MOVES: Final = (Op.CURSOR_MOVED, Op.ACK)
_FAR: Final = 1000
"""A move over this many entries or more is kept without a look at each of them."""
_mixed = compiled(mixed)


class InputBatch(NamedTuple):
    """Some events of a broker lifetime."""

    number: int
    """The index of their file."""
    rows: Batch
    """The columns of the file, and `expected`: the expected reads of the entries of an APPEND or a HIT."""
    came_bytes: int
    """Bytes that were appended or came from storage, before a sample was drawn."""


def read_inputs(lifetime: BrokerLifetime, rate: float = 1.0) -> Iterator[InputBatch]:
    """Read a broker lifetime, or the entries that a recorder with that rate would have recorded.

    Rows of topics that were closed are left out. RecordError for damaged files; ValueError for a rate outside of 0 to 1.
    """
    if not 0 < rate <= 1:
        raise ValueError(f"a sampling rate of {rate} is no share: give one above 0 and at most 1")
    readers = number_readers(lifetime, INPUTS)
    state = cursor_state(readers, _looks_only(lifetime, readers))
    positions = {op: cursor_state(readers) for op in _MOVES}
    for number, rows in read_batches(lifetime, INPUTS):
        columns = columns_of(lifetime, number, rows)
        # Of all rows: a cursor also moves by reads of entries outside of the sample.
        rows["expected"] = expected_reads(columns, state).astype(np.int64)
        stays = rows_of_open_topics(columns.op, columns.topic, state)
        if rate < lifetime.files[number].facts.sample:
            for op, before in positions.items():
                stays &= _moves_over_sampled(columns, op.value, before, hash_limit(rate))
        if not stays.all():
            rows = {name: column[stays] for name, column in rows.items()}
        batch = InputBatch(number, rows, came_bytes(rows))
        yield fewer(lifetime, batch, rate)


def fewer(lifetime: BrokerLifetime, batch: InputBatch, rate: float) -> InputBatch:
    """Return the share `rate` of the entries in the whole record, of a batch that has as many or more."""
    if rate >= lifetime.files[batch.number].facts.sample:
        return batch
    rows = batch.rows
    about = np.zeros(256, np.bool_)
    about[list(RUN_OPS)] = True
    chosen = _have_sampled(
        about[rows["op"]], rows["ledger"], rows["entry"], rows["count"].astype(np.int64), hash_limit(rate)
    )
    # First the rows without any entry of the sample, by machine code: the cut itself is ten times slower.
    cut = in_sample_alone({name: column[chosen] for name, column in rows.items()}, rate)
    return batch._replace(rows=cut)


def came_bytes(rows: Batch) -> int:
    """Return the bytes of entries that were appended or came from storage."""
    return int(rows["bytes"][np.isin(rows["op"], _ARRIVALS)].sum())


def bytes_rate(lifetime: BrokerLifetime, batches: Iterable[InputBatch], rate: float) -> float:
    """Return the share of the bytes that batches of a sample have.

    Equal to the share of the entries where the recorder drew the sample, because the other entries' sizes are unknown.
    """
    recorded = lifetime.files[0].facts.sample
    if rate >= recorded:
        return recorded
    every = kept = 0
    for batch in batches:
        every += batch.came_bytes
        kept += came_bytes(batch.rows)
    # Not `rate`: few large entries make the two differ.
    return recorded * kept / every if kept else rate


def _looks_only(lifetime: BrokerLifetime, readers: ReaderNumbers) -> list[int]:
    subs = lifetime.names.subs if lifetime.names is not None else {}
    looks = [(topic, sub) for (topic, sub), name in subs.items() if name == LOOKS_ONLY]
    # The file of names may have readers that no event mentions.
    return [
        int(readers.begins[topic]) + sub
        for topic, sub in looks
        if topic < readers.topics and sub < readers.begins[topic + 1] - readers.begins[topic]
    ]


@compiled
def _have_sampled(about: Bools, ledger: Ints64, entry: Ints64, count: Ints64, limit: np.uint64) -> Bools:
    """Return True for rows that are not about entries, and for runs with an entry whose hash is below the limit."""
    found = np.ones(len(about), np.bool_)
    for i in range(len(about)):
        if about[i]:
            found[i] = _has_sampled(ledger[i], entry[i], entry[i] + count[i], limit)
    return found


@compiled
def _has_sampled(ledger: int, begin: int, end: int, limit: np.uint64) -> bool:
    for entry in range(begin, end):  # noqa: SIM110 - machine code has no generators
        if _mixed(np.uint64(ledger), np.uint64(entry)) < limit:
            return True
    return False


@compiled
def _moves_over_sampled(columns: Columns, op: int, before: CursorState, limit: np.uint64) -> Bools:
    """Return False for moves (`op`) of cursors over entries outside of the sample. `before`: their last positions.

    A replay compares positions of cursors with those of sampled entries, so a move that passes none of them changes nothing.
    A reader from storage moves with each of its reads: all moves of a record would be half of the rows of its sample.
    """
    stays = np.ones(len(columns.op), np.bool_)
    for i in range(len(columns.op)):
        if columns.op[i] == op:
            c = before.begins[columns.topic[i]] + columns.sub[i]
            ledger, entry = columns.ledger[i], columns.entry[i]
            moved = entry - before.at_entry[c]
            if before.at_ledger[c] == ledger and 0 <= moved < _FAR:
                stays[i] = _has_sampled(ledger, before.at_entry[c], entry, limit)
            before.at_ledger[c], before.at_entry[c] = ledger, entry
    return stays
