"""Reads the inputs of a cache in one broker lifetime, or those of a sample of its entries.

The files are read a batch at a time. A sample is drawn from each batch at once, so that the memory depends on the sample
and not on the record. Expected reads of entries are computed before, from the positions of all cursors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np

from broker.recorder.record_reader import BrokerLifetime
from broker.recorder.row_encoder import RUN_OPS, in_sample_alone
from broker.recorder.row_encoder import Columns as Batch
from broker.recorder.sampling import hash_limit, mixed
from entry_cache.observe.cache_events import HIT_MOVES, Op
from entry_cache.observe.replay import OUTPUTS
from entry_cache.reader import LOOKS_ONLY
from pipeline.machine_code import compiled
from pipeline.replays.accesses import Bools, Ints8, Ints64
from pipeline.replays.columns import RecordColumns, columns_of, read_batches
from pipeline.replays.readers import (
    CursorState,
    ReaderNumbers,
    cursor_state,
    expected_reads,
    number_readers,
    rows_of_open_topics,
)

INPUTS: Final = tuple(op for op in Op if op not in OUTPUTS)
"""Events that were inputs of the cache, such as reads and inserts. A replay repeats them and decides evictions itself."""
_ARRIVALS: Final = (Op.APPEND, Op.FETCHED)
_MOVES: Final = (Op.CURSOR_MOVED, Op.ACK)
_FAR: Final = 1000
"""A move over this many entries or more is kept without a look at each of them."""
_ANY: Final = -1
"""Stands for the entries passed by a move that every sample keeps."""
_MOVED, _ADDED, _OF_HIT = int(Op.CURSOR_MOVED), int(Op.CURSOR_ADDED), int(Op.HIT)
_HIT_MOVES = int(HIT_MOVES)
_HIGHEST_HASH: Final = np.uint64(2**64 - 1)
_OTHER, _RUN, _HIT, _MOVE = range(4)
MOVES_PER_ENTRY: Final = 8
"""The broker's objects follow cursors by the entries of a sample that is so many times larger.

The policy `magnetar` judges by the time until a reader comes, and measures a reader's speed by its moves. It takes a reader
that has not moved between two passes for a slow one. With the moves over sampled entries alone most readers stand still
from pass to pass, so wrong victims are chosen: a sample of 13 % gave hit ratios up to 9 points too low.
"""
_mixed = compiled(mixed)


class InputBatch(NamedTuple):
    """Some events of a broker lifetime."""

    number: int
    """The index of their file."""
    rows: Batch
    """The columns of the file, and two more.

    `expected`: the expected reads of the entries of an APPEND or a HIT.

    `passed`: of an ACK, a CURSOR_MOVED or a HIT that moves its cursor, how many entries of the ledger the cursor passes; -1
    if it comes from another ledger, moves back, or passes 1,000 entries or more.
    """
    came_bytes: int
    """Bytes that were appended or came from storage, before a sample was drawn."""


def moves_rate_of(object_rate: float) -> float:
    """Returns the `moves_rate` of a sample of the share `object_rate` that the broker's objects replay."""
    return min(MOVES_PER_ENTRY * object_rate, 1.0)


def read_inputs(
    lifetime: BrokerLifetime, rate: float = 1.0, moves_rate: float | None = None
) -> Iterator[InputBatch]:
    """Reads a broker lifetime, or the entries that a recorder with that rate would have recorded.

    `moves_rate`: see `fewer`; None = that of the broker's objects. Rows of topics that were closed are left out. RecordError
    for damaged files; ValueError for a rate outside of 0 to 1.
    """
    if not 0 < rate <= 1:
        raise ValueError(f"a sampling rate of {rate} is no share: give one above 0 and at most 1")
    moves_rate = moves_rate_of(rate) if moves_rate is None else moves_rate
    readers = number_readers(lifetime, INPUTS)
    state = cursor_state(readers, _looks_only(lifetime, readers))
    positions = {op: cursor_state(readers) for op in _MOVES}
    for number, rows in read_batches(lifetime, INPUTS):
        columns = columns_of(lifetime, number, rows)
        # Of all rows: a cursor also moves by reads of entries outside of the sample.
        rows["expected"] = expected_reads(columns, state).astype(np.int64)
        rows["passed"] = np.full(len(columns.op), _ANY, np.int64)
        for op, before in positions.items():
            _count_passed(columns, op.value, before, rows["passed"])
        stays = rows_of_open_topics(columns.op, columns.topic, state)
        if not stays.all():
            rows = {name: column[stays] for name, column in rows.items()}
        yield fewer(lifetime, InputBatch(number, rows, came_bytes(rows)), rate, moves_rate)


def fewer(lifetime: BrokerLifetime, batch: InputBatch, rate: float, moves_rate: float) -> InputBatch:
    """Returns the share `rate` of the entries in the whole record, of a batch that has as many or more.

    A cursor's moves stay if they pass entries of a sample with the share `moves_rate`. Machine code has no cursors, so there
    `rate` is enough; for the broker's objects see MOVES_PER_ENTRY.
    """
    if rate >= lifetime.files[batch.number].facts.sample:
        return batch
    rows = batch.rows
    kinds = np.full(256, _OTHER, np.int8)
    kinds[list(RUN_OPS)] = _RUN
    kinds[list(_MOVES)] = _MOVE
    kind = kinds[rows["op"]]
    # A hit moves its cursor without a row of its own.
    if moves_rate > rate:
        kind[(rows["op"] == _OF_HIT) & (rows["detail"] == _HIT_MOVES)] = _HIT
    stays, moves = _chosen(
        kind,
        rows["ledger"],
        rows["entry"],
        rows["count"].astype(np.int64),
        rows["passed"],
        hash_limit(rate),
        hash_limit(moves_rate) if moves_rate < 1 else _HIGHEST_HASH,
    )
    # First the rows without any entry of the sample, by machine code: the cut itself is ten times slower.
    cut = in_sample_alone(_with_moves(rows, stays, moves), rate)
    return batch._replace(rows=cut)


def came_bytes(rows: Batch) -> int:
    """Returns the bytes of entries that were appended or came from storage."""
    return int(rows["bytes"][np.isin(rows["op"], _ARRIVALS)].sum())


def bytes_rate(lifetime: BrokerLifetime, batches: Iterable[InputBatch], rate: float) -> float:
    """Returns the share of the bytes that batches of a sample have.

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


def _with_moves(rows: Batch, stays: Bools, moves: Bools) -> Batch:
    """Returns the rows that stay; after a hit in `moves` comes the move of its cursor."""
    times = stays.astype(np.int64) + moves
    taken = np.repeat(np.arange(len(times)), times)
    result = {name: column[taken] for name, column in rows.items()}
    at = np.cumsum(times)[moves] - 1
    result["op"][at] = Op.CURSOR_MOVED
    result["entry"][at] += result["count"][at]
    for name in ("count", "bytes", "detail", "expected", "more"):
        result[name][at] = 0
    return result


@compiled
def _chosen(
    kind: Ints8,
    ledger: Ints64,
    entry: Ints64,
    count: Ints64,
    passed: Ints64,
    limit: np.uint64,
    moves_limit: np.uint64,
) -> tuple[Bools, Bools]:
    """Returns the rows of a sample, and the hits that need a row for the move of their cursor.

    `limit`, `moves_limit`: the hashes of entries, and of entries that are passed, are below them.
    """
    stays = np.ones(len(kind), np.bool_)
    moves = np.zeros(len(kind), np.bool_)
    for i in range(len(kind)):
        if kind[i] == _MOVE:
            # A replay compares positions of cursors with those of sampled entries.
            if passed[i] != _ANY:
                stays[i] = _has_sampled(ledger[i], entry[i] - passed[i], entry[i], moves_limit)
        elif kind[i] != _OTHER:
            end = entry[i] + count[i]
            stays[i] = _has_sampled(ledger[i], entry[i], end, limit)
            # If its last entry is in the sample, the hit itself moves the cursor far enough.
            if kind[i] == _HIT and not _has_sampled(ledger[i], end - 1, end, limit):
                # Most begin at the cursor's place, but a reader may have skipped entries.
                moves[i] = passed[i] == _ANY or _has_sampled(ledger[i], end - passed[i], end, moves_limit)
    return stays, moves


@compiled
def _has_sampled(ledger: int, begin: int, end: int, limit: np.uint64) -> bool:
    for entry in range(begin, end):  # noqa: SIM110 - machine code has no generators
        if _mixed(np.uint64(ledger), np.uint64(entry)) < limit:
            return True
    return False


@compiled
def _count_passed(columns: RecordColumns, op: int, before: CursorState, passed: Ints64) -> None:
    """Writes the entries passed by each row of the kind `op`, for CURSOR_MOVED also by hits.

    `before`: the last positions, which it changes.
    """
    for i in range(len(columns.op)):
        kind = columns.op[i]
        hit = op == _MOVED and kind == _OF_HIT and columns.detail[i] == _HIT_MOVES
        added = op == _MOVED and kind == _ADDED
        if kind == op or hit or added:
            c = before.begins[columns.topic[i]] + columns.sub[i]
            ledger, entry = columns.ledger[i], columns.entry[i]
            if hit:
                entry += columns.entries[i]
            moved = entry - before.at_entry[c]
            if not added and before.at_ledger[c] == ledger and 0 <= moved < _FAR:
                passed[i] = moved
            before.at_ledger[c], before.at_entry[c] = ledger, entry
