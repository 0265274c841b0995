"""Reads the inputs of a cache in one broker lifetime, or those of a sample of its entries.

The files are read a batch at a time. A sample is drawn from each batch at once, so that the memory depends on the sample
and not on the record. Expected reads of entries are computed before, from the positions of all cursors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from broker.entry_cache.observe.cache_events import Op
from broker.recorder.record_reader import BrokerLifetime
from broker.recorder.row_encoder import RUN_OPS, in_sample_alone
from broker.recorder.row_encoder import Columns as Batch
from broker.recorder.sampling import hash_limit, mixed
from pipeline.machine_code import compiled
from pipeline.replays.accesses import LOOKS_ONLY, Bools, Ints32, Ints64
from pipeline.replays.columns import INPUTS, Columns, columns_of, joined, read_batches
from pipeline.replays.readers import (
    ReaderNumbers,
    cursor_state,
    expected_reads,
    number_readers,
    rows_of_open_topics,
)

_ARRIVALS = (Op.APPEND, Op.FETCHED)
_mixed = compiled(mixed)


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The inputs of a cache in one broker lifetime, in their order."""

    columns: Columns
    """Rows of topics that were open; a sample has the runs that it cut."""
    expected: Ints32
    """By row, the expected reads of the entries of an APPEND or a HIT (`readers.expected_reads`)."""
    readers: ReaderNumbers
    """The numbers of the readers."""
    rate: float
    """The share of the entries, above 0 and at most 1."""
    bytes_rate: float
    """The share of the bytes that were appended or came from storage.

    Equal to `rate` where the recorder drew the sample, because the other entries' sizes are unknown.
    """


def read_inputs(lifetime: BrokerLifetime, rate: float = 1.0) -> Inputs:
    """Read a broker lifetime, or the entries that a recorder with that rate would have recorded.

    RecordError for damaged files; ValueError for a rate outside of 0 to 1.
    """
    if not 0 < rate <= 1:
        raise ValueError(f"a sampling rate of {rate} is no share: give one above 0 and at most 1")
    recorded = lifetime.files[0].facts.sample
    readers = number_readers(lifetime, INPUTS)
    state = cursor_state(readers, _looks_only(lifetime, readers))
    parts, expected = [], []
    came_bytes = kept_bytes = 0
    for number, batch in read_batches(lifetime, INPUTS):
        columns = columns_of(lifetime, number, batch)
        # Of all rows: a cursor also moves by reads of entries outside of the sample.
        batch["expected"] = expected_reads(columns, state).astype(np.int64)
        stays = rows_of_open_topics(columns.op, columns.topic, state)
        if not stays.all():
            batch = {name: column[stays] for name, column in batch.items()}
        came_bytes += _came_bytes(batch)
        batch = cut(batch, rate) if rate < recorded else batch
        kept_bytes += _came_bytes(batch)
        parts.append(columns_of(lifetime, number, batch))
        expected.append(batch["expected"].astype(np.int32))
    share = min(rate, recorded)
    # The share of the bytes that were drawn, and not `rate`: few large entries make the two differ.
    drawn = recorded * kept_bytes / came_bytes if rate < recorded and kept_bytes else share
    return Inputs(joined(parts), np.concatenate(expected), readers, share, drawn)


def read_sample(lifetime: BrokerLifetime, rate: float, without: frozenset[Op]) -> Iterator[tuple[int, Batch]]:
    """Yield the rows of a sample with the number of their file, a batch at a time. RecordError for a damaged file."""
    for number, batch in read_batches(lifetime, [op for op in Op if op not in without]):
        yield number, cut(batch, rate) if rate < lifetime.files[0].facts.sample else batch


def cut(batch: Batch, rate: float) -> Batch:
    """Cut runs to their entries in the sample, as the recorder does; rows that are not about entries stay."""
    about = np.zeros(256, np.bool_)
    about[list(RUN_OPS)] = True
    counts = batch["count"].astype(np.int32, copy=False)
    chosen = _have_sampled(about[batch["op"]], batch["ledger"], batch["entry"], counts, hash_limit(rate))
    # First the rows without any entry of the sample, by machine code: the cut itself is ten times slower.
    return in_sample_alone({name: column[chosen] for name, column in batch.items()}, rate)


def _looks_only(lifetime: BrokerLifetime, readers: ReaderNumbers) -> list[int]:
    subs = lifetime.names.subs if lifetime.names is not None else {}
    looks = [(topic, sub) for (topic, sub), name in subs.items() if name == LOOKS_ONLY]
    # The file of names may have readers that no event mentions.
    return [
        int(readers.begins[topic]) + sub
        for topic, sub in looks
        if topic < readers.topics and sub < readers.begins[topic + 1] - readers.begins[topic]
    ]


def _came_bytes(batch: Batch) -> int:
    return int(batch["bytes"][np.isin(batch["op"], _ARRIVALS)].sum())


@compiled
def _have_sampled(about: Bools, ledger: Ints64, entry: Ints64, count: Ints32, limit: np.uint64) -> Bools:
    """Return True for rows that are not about entries, and for runs with an entry whose hash is below the limit."""
    found = np.ones(len(about), np.bool_)
    for i in range(len(about)):
        if about[i]:
            found[i] = False
            for x in range(entry[i], entry[i] + count[i]):
                if _mixed(np.uint64(ledger[i]), np.uint64(x)) < limit:
                    found[i] = True
                    break
    return found
