"""A defect of a file is reported in one sentence, and the other files are read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from broker.recorder.errors import RecordError
from broker.recorder.record_file import SCHEMA, RecordFile
from broker.recorder.schema import FACTS_KEY, FileFacts
from entry_cache.observe.cache_events import BY_MARK_DELETE, COUNTS_READS, Op
from pipeline.traces.checking import Checked, apply_checks, check_file, find_files, no_record
from tests.broker.recorder.record_fakes import (
    OFFSET_US,
    SETTINGS_TEXT,
    append,
    hit,
    new_writer,
    row,
    settings_row,
)


def checked(*paths: Path) -> Checked:
    found = find_files(paths)
    apply_checks(found, [check_file(file.path) for file in found.files])
    return found


def record(folder: Path, rows: int = 3) -> Path:
    writer = new_writer(folder)
    writer.write([settings_row(), *[hit(at, 2, at_us=at) for at in range(rows)]], 0.0)
    writer.close(0.0, None)
    (path,) = folder.rglob("*.parquet")
    return path


def reasons(found: Checked) -> dict[str, str]:
    return {one.path.name: one.reason for one in found.rejected}


def facts(**changed: object) -> FileFacts:
    known = {"broker": "b-6650", "start": "20251121T210000.000000", "sequence": 0, "software": "test"}
    return FileFacts(**{**known, "clock_offset_us": OFFSET_US, "settings": SETTINGS_TEXT, **changed})  # type: ignore[arg-type]


def test_sound_record_is_read_completely(tmp_path: Path) -> None:
    record(tmp_path)
    found = checked(tmp_path)
    assert (found.rows, found.rejected, found.remarks) == (4, [], [])
    assert found.span_us == (OFFSET_US, OFFSET_US + 2)
    assert found.summary() == ["4 rows in 1 file, 1 lifetime of 1 broker"]


def test_bad_files_are_rejected_and_the_others_are_read(tmp_path: Path) -> None:
    good = record(tmp_path)
    whole = good.read_bytes()
    (tmp_path / "empty.parquet").write_bytes(b"")
    (tmp_path / "truncated.parquet").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "_half.parquet.part").write_bytes(whole[:100])
    pq.write_table(pa.table({"a": [1]}), tmp_path / "foreign.parquet")
    table = pq.read_table(good, partitioning=None)
    newer = facts().to_metadata()[FACTS_KEY].replace(b'"version": 2', b'"version": 3')
    pq.write_table(table.replace_schema_metadata({FACTS_KEY: newer}), tmp_path / "newer.parquet")
    damaged = bytearray(whole)
    damaged[40] ^= 0xFF
    (tmp_path / "damaged.parquet").write_bytes(damaged)
    shutil.copy(good, tmp_path / "copy.parquet")
    found = checked(tmp_path)
    said = reasons(found)
    assert said["truncated.parquet"].startswith("not a whole Parquet file: ")
    assert said["empty.parquet"].startswith("not a whole Parquet file: ")
    assert said["foreign.parquet"] == "a Parquet file, but not of an access record"
    assert said["_half.parquet.part"] == "it is being written, or its writer did not end it"
    assert "version 2" in said["newer.parquet"]
    # Three files have the same part of the lifetime; one of the sound ones stays.
    same = [one for one in found.rejected if "the same part of the same lifetime" in one.reason]
    assert len(same) == 2
    assert [file.path for file in found.files] == [good]
    assert found.rows == 4
    assert f"{len(found.rejected)} files rejected:" in found.summary()


def test_damaged_page_is_found_when_the_whole_file_is_read(tmp_path: Path) -> None:
    good = record(tmp_path, rows=5000)
    damaged = bytearray(good.read_bytes())
    damaged[60] ^= 0xFF
    good.write_bytes(damaged)
    found = checked(tmp_path)
    assert found.lifetimes == []
    (one,) = found.rejected
    assert one.reason.startswith("damaged: ")
    assert "\n" not in str(no_record(found, [tmp_path]))


def test_file_is_rejected_when_it_has_no_rows_or_unknown_events(tmp_path: Path) -> None:
    RecordFile(tmp_path, "without-000000.parquet").complete(facts())
    path = record(tmp_path / "other")
    table = pq.read_table(path, partitioning=None)
    op = pa.array([99] * table.num_rows, pa.int8())
    table = table.set_column(1, SCHEMA.field("op"), op)
    renamed = facts(start="20251121T210001.000000").to_metadata()[FACTS_KEY]
    pq.write_table(table.replace_schema_metadata({FACTS_KEY: renamed}), path)
    said = reasons(checked(tmp_path))
    assert said["without-000000.parquet"] == "it has no rows"
    assert "op 99" in said[path.name]


def test_clock_jumps_and_repeated_entries_become_remarks(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    rows = [settings_row(), append(0, [10] * 5, at_us=9_000_000), append(3, [10] * 5, at_us=1_000)]
    writer.write([*rows, row(Op.TICK, "", at_us=2_000, count=5)], 0.0)
    writer.close(0.0, None)
    found = checked(tmp_path)
    said = "\n".join(found.remarks)
    assert "the clock went back 1 times by more than a second" in said
    assert "2 entries were appended twice" in said
    assert found.rows == 4


@pytest.mark.parametrize("rows", [1, 2, 65_536])
def test_file_is_checked_alike_in_batches_of_any_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    writer = new_writer(tmp_path)
    events = [
        settings_row(),
        append(0, [10] * 5, at_us=9_000_000),
        append(0, [10] * 5, at_us=9_000_001, ledger=2),
        append(3, [10] * 5, at_us=1_000),
        hit(0, 3, at_us=1_001),
        append(4, [20] * 5, at_us=1_002, ledger=2),
    ]
    writer.write(events, 0.0)
    writer.close(0.0, None)
    (path,) = tmp_path.rglob("*.parquet")
    monkeypatch.setattr("broker.recorder.record_reader.BATCH_ROWS", rows)
    check = check_file(path)
    assert (check.rows, check.requests, check.hits, check.reads) == (6, 23, 3, 3)
    assert (check.steps_back, check.doubled) == (1, 3)
    assert (check.first_us, check.last_us) == (OFFSET_US, OFFSET_US + 9_000_001)
    assert (check.appended, check.appended_bytes) == (20, 250)


def test_missing_record_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="there is no "):
        find_files([tmp_path / "nowhere"])
    assert "no access record in " in str(no_record(find_files([tmp_path]), [tmp_path]))


def test_several_versions_of_the_software_become_a_remark(tmp_path: Path) -> None:
    path = record(tmp_path)
    table = pq.read_table(path, partitioning=None)
    other = facts(start="20251121T210001.000000", software="other").to_metadata()[FACTS_KEY]
    pq.write_table(table.replace_schema_metadata({FACTS_KEY: other}), tmp_path / "other.parquet")
    assert "recorded by several versions: other, test" in checked(tmp_path).remarks


def test_record_without_expected_reads_becomes_a_remark(tmp_path: Path) -> None:
    for name, detail in (("with", COUNTS_READS), ("without", BY_MARK_DELETE)):
        writer = new_writer(tmp_path / name)
        writer.write([settings_row(), row(Op.OPEN, ledger=0, detail=detail), hit(0, 2)], 0.0)
        writer.close(0.0, None)
    assert checked(tmp_path / "with").counts_reads
    assert checked(tmp_path / "with").remarks == []
    found = checked(tmp_path / "without")
    assert not found.counts_reads
    (remark,) = found.remarks
    assert "cacheEvictionByExpectedReadCount=false" in remark
    assert "record again" in remark
