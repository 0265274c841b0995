"""Unexpected files are set aside with a reason, damaged ones raise: neither is read as it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from broker.recorder.errors import RecordError
from broker.recorder.record_reader import batches, events, find
from broker.recorder.schema import FACTS_KEY, part_name
from entry_cache.observe.cache_events import Op
from tests.broker.recorder.record_fakes import hit, new_writer, row, settings_row


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """Three files; answers their folder's root."""
    writer = new_writer(tmp_path, file_seconds=10)
    for number in range(3):
        rows = [hit(at, 1, reader=0, at_us=at * at) for at in range(2000)]
        writer.write([*([] if number else [settings_row()]), *rows], number * 10.0)
        writer.tick(number * 10.0 + 10.0)
    return tmp_path


def files(root: Path) -> list[Path]:
    return sorted(root.rglob("*.parquet"))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def foreign(path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), path)


def facts_of(path: Path) -> bytes:
    facts: bytes = pq.read_metadata(path).metadata[FACTS_KEY]
    return facts


def rewrite(path: Path, facts: bytes, *left_out: str) -> None:
    table = pq.read_table(path, partitioning=None).drop_columns(list(left_out))
    pq.write_table(table.replace_schema_metadata({FACTS_KEY: facts}), path)


def of_another_version(path: Path) -> None:
    rewrite(path, facts_of(path).replace(b'"version": 2', b'"version": 1'))


def with_damaged_facts(path: Path) -> None:
    rewrite(path, b"[]")


def with_facts_missing(path: Path) -> None:
    rewrite(path, b'{"version": 2}')


def of_other_columns(path: Path) -> None:
    rewrite(path, facts_of(path), "sub")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (empty, "not a whole Parquet file: .*0 bytes"),
        (cut, "not a whole Parquet file: .*magic bytes"),
        (foreign, "a Parquet file, but not of an access record"),
        (of_another_version, "it has version 1 of the format, this is for version 2"),
        (with_damaged_facts, "its metadata is damaged"),
        (with_facts_missing, "its metadata is damaged: .*clock_offset_us"),
        (of_other_columns, "its columns are not those of version 2 of the format"),
    ],
)
def test_reader_sets_a_bad_file_aside_with_the_reason(
    record: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    bad = files(record)[1]
    spoil(bad)
    found = find([record])
    ((path, said),) = [(aside.path, aside.reason) for aside in found.rejected]
    assert path == bad
    assert re.fullmatch(f"{reason}.*", said)
    (run,) = found.lifetimes
    assert len(run.files) == 2
    assert run.why_not_exact() == f"file 1 of it is missing, the next one there is {files(record)[2].name}"


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)


def test_reader_raises_at_damage_inside_a_file(record: Path) -> None:
    bad = files(record)[1]
    flip_a_bit(bad)
    found = find([record])
    assert found.rejected == []
    first, second, third = found.lifetimes[0].files
    assert second.path == bad
    for good in (first, third):
        assert sum(batch.num_rows for batch in batches(good)) == good.rows
    with pytest.raises(RecordError, match=f"{bad.name}: damaged"):
        list(batches(second))
    with pytest.raises(RecordError, match=f"{bad.name}: damaged"):
        list(events(found.lifetimes[0]))


def test_reader_finds_a_file_that_is_completed_while_the_folder_is_listed(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets its whole name after the first listing, so that one listing alone has it or both do."""
    *others, last = files(record)
    part = last.rename(last.with_name(part_name(last.name)))
    listed = Path.rglob

    def rglob(folder: Path, pattern: str) -> Iterator[Path]:
        found = list(listed(folder, pattern))
        if part.exists():
            part.rename(last)
        return iter(found)

    monkeypatch.setattr(Path, "rglob", rglob)
    found = find([record])
    assert [file.path for file in found.lifetimes[0].files] == [*others, last]
    assert found.rejected == []


def test_each_file_tells_the_lags_of_the_loop_while_it_was_written(tmp_path: Path) -> None:
    late_us = iter((250, 1000))
    writer = new_writer(tmp_path, loop_late_us=lambda: next(late_us), file_seconds=10)
    writer.write([settings_row(), hit(0, 1)], 0.0)
    writer.tick(10.0)
    writer.write([hit(1, 1)], 10.0)
    writer.close(20.0, None)
    (lifetime,) = find([tmp_path]).lifetimes
    assert [file.facts.loop_late_us for file in lifetime.files] == [250, 750]


def test_file_from_before_the_lags_of_the_loop_is_read(record: Path) -> None:
    """They have a key of their own: a reader from before them passes over it, and the other facts are as they were."""
    path = files(record)[0]
    assert b"loop_late_us" not in facts_of(path)
    rewrite(path, facts_of(path))
    (lifetime,) = find([record]).lifetimes
    assert [file.facts.loop_late_us for file in lifetime.files] == [None, 0, 0]


def test_reader_finds_a_single_file_by_name(record: Path) -> None:
    found = find([files(record)[0], record / "nowhere"])
    assert [file.path for file in found.lifetimes[0].files] == [files(record)[0]]
    assert [aside.reason for aside in found.rejected] == ["there is no such file"]


def test_reader_refuses_to_replay_a_lifetime_without_names(record: Path) -> None:
    next(record.rglob("_names-*")).unlink()
    (run,) = find([record]).lifetimes
    assert run.why_not_exact().startswith("its file of names is missing: _names-")


def test_reader_raises_when_an_id_has_no_name(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    writer.write([settings_row(), row(Op.HIT, reader=9, count=1)], 0.0)
    writer.close(0.0, None)
    (run,) = find([tmp_path]).lifetimes
    with pytest.raises(RecordError, match="has no line in the file of names"):
        list(events(run))


def test_reader_refuses_to_replay_a_sample_exactly(tmp_path: Path) -> None:
    writer = new_writer(tmp_path, sample=0.25)
    writer.write([settings_row()], 0.0)
    writer.close(0.0, None)
    (run,) = find([tmp_path]).lifetimes
    assert run.why_not_exact() == "it is a sample of 0.25 of the entries (entryCacheRecordSample)"
