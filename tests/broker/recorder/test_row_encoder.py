"""Rows become columns: runs of one size, ids for names, whole microseconds, sampled entries only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from broker.recorder.names import NamesRead, NamesWriter
from broker.recorder.row_encoder import Columns, RowEncoder
from broker.recorder.sampling import in_sample
from entry_cache.observe.cache_events import Op
from tests.broker.recorder.record_fakes import append, hit, row


@pytest.fixture
def names(tmp_path: Path) -> NamesWriter:
    return NamesWriter(tmp_path / "names.jsonl")


def shown(columns: Columns, *chosen: str) -> list[tuple[int, ...]]:
    return list(zip(*(columns[name].tolist() for name in chosen), strict=True))


def entries_of(columns: Columns) -> set[tuple[int, int]]:
    return {
        (ledger, entry)
        for ledger, first, count in shown(columns, "ledger", "entry", "count")
        for entry in range(first, first + count)
    }


def test_encoder_splits_runs_by_entry_size(names: NamesWriter) -> None:
    columns = RowEncoder(names, 0, 1).encode(
        [append(5, [10, 10, 10]), append(8, [10, 10, 20, 10]), hit(5, 7)]
    )
    assert shown(columns, "op", "entry", "count", "bytes", "more") == [
        (Op.APPEND, 5, 3, 30, 0),
        (Op.APPEND, 8, 2, 20, 1),
        (Op.APPEND, 10, 1, 20, 1),
        (Op.APPEND, 11, 1, 10, 0),
        (Op.HIT, 5, 7, 70, 0),
    ]


def test_encoder_writes_wall_clock_microseconds(names: NamesWriter) -> None:
    columns = RowEncoder(names, 1_000_000, 1).encode([hit(0, 1, at_us=7), hit(0, 1, at_us=5)])
    assert columns["ts"].tolist() == [1_000_007, 1_000_005]


def test_encoder_caps_values_at_the_column_maximum(names: NamesWriter) -> None:
    columns = RowEncoder(names, 0, 1).encode([row(Op.TICK, "", ledger=0, count=2**63 - 1)])
    assert columns["count"].tolist() == [2**31 - 1]


def test_ids_keep_their_names_when_a_topic_reopens(names: NamesWriter, tmp_path: Path) -> None:
    """The cache numbers readers anew, in the order in which they come."""
    encoder = RowEncoder(names, 0, 1)
    first = encoder.encode(
        [
            row(Op.READER, reader=1, who=("a",)),
            row(Op.READER, reader=2, who=("b",)),
            hit(0, 1, reader=1),
            hit(0, 1, reader=2),
            row(Op.CLOSE),
            row(Op.READER, reader=1, who=("b",)),
            row(Op.READER, reader=2, who=("c",)),
            hit(0, 1, reader=1),
        ]
    )
    second = encoder.encode([hit(0, 1, reader=2), hit(0, 1, reader=0)])
    names.flush()
    read = NamesRead(tmp_path / "names.jsonl")
    subs = [*shown(first, "topic", "sub"), *shown(second, "topic", "sub")]
    assert [read.subs.get((topic, sub), "") for topic, sub in subs] == ["a", "b", "", "b", "c", ""]
    assert {read.topics[topic] for topic, _ in subs} == {"t"}
    assert Op.READER not in first["op"]


def test_names_are_written_again_after_a_failed_write(tmp_path: Path) -> None:
    path = tmp_path / "names.jsonl"
    names = NamesWriter(path)
    assert names.topics["one"] == 1
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        names.flush()
    path.rmdir()
    path.write_text('{"topic": 1, "na')  # What a full disk may leave.
    assert names.topics["two"] == 2
    names.flush()
    read = NamesRead(path)
    assert (read.topics, read.bad_lines) == ({0: "", 1: "one", 2: "two"}, 1)


# Sampling


def many(sample: float, names: NamesWriter) -> Columns:
    rows = [
        append(first, [10] * 50, at_us=first, ledger=ledger)
        for ledger in (1, 2)
        for first in range(0, 5000, 50)
    ]
    return RowEncoder(names, 0, sample).encode(rows)


def test_sample_keeps_its_share_of_the_entries(names: NamesWriter) -> None:
    columns = many(0.1, names)
    assert 0.08 < columns["count"].sum() / 10_000 < 0.12
    assert columns["bytes"].tolist() == (columns["count"] * 10).tolist()


def test_smaller_sample_is_part_of_a_larger_one(names: NamesWriter) -> None:
    small, large = entries_of(many(0.05, names)), entries_of(many(0.3, names))
    assert small
    assert small < large


def test_encoder_cuts_a_run_to_the_sampled_entries(names: NamesWriter) -> None:
    rows = [
        hit(0, 100),
        row(Op.TICK, "", ledger=0),
        row(Op.ACK, first=50),
        hit(50, 100),
        append(0, [10] * 99 + [20]),
    ]
    columns = RowEncoder(names, 0, 0.5).encode(rows)
    ids = np.arange(150)
    chosen = {int(entry) for entry in ids[in_sample(np.ones(150, np.int64), ids, 0.5)]}
    by_op: dict[int, set[int]] = {}
    for op, entry, count in shown(columns, "op", "entry", "count"):
        by_op.setdefault(op, set()).update(range(entry, entry + count))
    assert by_op[Op.HIT] == chosen
    assert by_op[Op.APPEND] == {entry for entry in chosen if entry < 100}
    ops = columns["op"].tolist()
    at = ops.index(Op.TICK)
    assert ops[at + 1] == Op.ACK
    assert set(ops[:at]) == set(ops[at + 2 : -1]) & {Op.HIT} == {Op.HIT}
    assert not columns["more"].any()


def test_encoder_drops_rows_without_sampled_entries(names: NamesWriter) -> None:
    ids = np.arange(1000)
    outside = int(ids[~in_sample(np.ones(1000, np.int64), ids, 0.01)][0])
    columns = RowEncoder(names, 0, 0.01).encode([hit(outside, 1)])
    assert columns["op"].tolist() == []
