"""Files of the record: their end, their names while open, and their state after a crash or a full disk."""

from __future__ import annotations

import json
import logging
import random
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from broker.recorder.record_reader import BrokerLifetime, events, find
from broker.recorder.record_writer import RETRY_S
from broker.recorder.schema import file_name, part_name
from entry_cache.observe.cache_events import Op
from entry_cache.observe.recorded import Recorded
from tests.broker.recorder.record_fakes import (
    SETTINGS_TEXT,
    START,
    append,
    hit,
    new_writer,
    row,
    settings_row,
)

HOUR_US = 3_600_000_000
ROOT = Path(__file__).resolve().parents[3]


def only_run(folder: Path) -> BrokerLifetime:
    (run,) = find([folder]).lifetimes
    return run


def recorded(run: BrokerLifetime) -> list[Recorded]:
    return [event for batch in events(run) for event in batch]


def test_written_events_are_read_back(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    writer.write(
        [
            settings_row(at_us=1),
            row(Op.READER, "log", reader=1, who=("söme sub",), at_us=2),
            append(3, [10, 20], at_us=3, log="log"),
            row(Op.HIT, "log", at_us=4, reader=1, first=3, count=2, size=30, detail=1),
        ],
        0.0,
    )
    writer.close(0.0, {"hits": 2})
    run = only_run(tmp_path)
    assert run.why_not_exact() == ""
    assert recorded(run) == [
        Recorded(1000, Op.SETTINGS, "", "", 0, 0, 0, 0, 0, settings=SETTINGS_TEXT),
        Recorded(3000, Op.APPEND, "log", "", 1, 3, 1, 10, 0, more=True),
        Recorded(3000, Op.APPEND, "log", "", 1, 4, 1, 20, 0),
        Recorded(4000, Op.HIT, "log", "söme sub", 1, 3, 2, 30, 1),
    ]
    assert run.files[0].facts.totals == {"hits": 2}
    assert (writer.rows, writer.files, writer.bytes) == (4, 1, run.files[0].size_bytes)


def test_files_are_stored_by_broker_date_and_hour(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    writer.write([settings_row(), hit(0, 1, at_us=1)], 0.0)
    writer.write([hit(1, 1, at_us=3 * HOUR_US)], 1.0)
    writer.close(2.0, None)
    folders = [file.path.parent.relative_to(tmp_path).as_posix() for file in only_run(tmp_path).files]
    assert folders == ["broker=b-6650/date=2025-11-21/hour=21", "broker=b-6650/date=2025-11-22/hour=00"]


def test_file_ends_by_age_size_and_changed_settings(tmp_path: Path) -> None:
    writer = new_writer(tmp_path, file_seconds=10, file_bytes=100_000)
    other = json.dumps({**json.loads(SETTINGS_TEXT), "ttl_ns": 5})
    writer.write([settings_row(), hit(0, 1)], 0.0)
    writer.tick(9.0)
    assert writer.files == 0
    writer.tick(10.0)
    assert writer.files == 1
    writer.write([hit(1, 1), settings_row(other), hit(2, 1)], 11.0)
    assert writer.files == 2
    chance = random.Random(1)
    writer.write([hit(chance.randrange(2**40), 1) for _ in range(140_000)], 12.0)
    assert writer.files == 3
    writer.close(13.0, {"hits": 3})
    run = only_run(tmp_path)
    assert [file.facts.sequence for file in run.files] == [0, 1, 2, 3]
    assert [file.facts.settings for file in run.files] == [SETTINGS_TEXT, SETTINGS_TEXT, other, other]
    assert [file.facts.totals for file in run.files] == [None, None, None, {"hits": 3}]
    found = recorded(run)
    assert [event.op for event in found[:5]] == [Op.SETTINGS, Op.HIT, Op.HIT, Op.SETTINGS, Op.HIT]
    assert found[3].settings == other


def test_crash_leaves_whole_files_and_one_rejected_file(tmp_path: Path) -> None:
    writer = new_writer(tmp_path, file_seconds=10)
    writer.write([settings_row(), hit(0, 1)], 0.0)
    writer.tick(10.0)
    writer.write([hit(1, 1)], 11.0)
    found = find([tmp_path])  # As if the process had ended here.
    assert [(aside.path.name, aside.reason) for aside in found.rejected] == [
        (part_name(file_name(START, 1)), "it is being written, or its writer did not end it")
    ]
    (run,) = found.lifetimes
    assert run.why_not_exact() == ""
    assert [event.op for event in recorded(run)] == [Op.SETTINGS, Op.HIT]


def test_parquet_readers_of_the_folder_see_only_rows(tmp_path: Path) -> None:
    writer = new_writer(tmp_path, file_seconds=10)
    writer.write([settings_row(), hit(0, 1)], 0.0)
    writer.tick(10.0)
    writer.write([hit(1, 1)], 11.0)
    table = pq.read_table(tmp_path)
    assert table.num_rows == 2
    assert {"broker", "date", "hour"} < set(table.column_names)


# A disk that refuses


def full_disk(folder: Path, sequence: int) -> Path:
    """Makes the file's first bytes fail as on a full disk."""
    part = folder / "broker=b-6650/date=2025-11-21/hour=21" / part_name(file_name(START, sequence))
    part.parent.mkdir(parents=True, exist_ok=True)
    part.symlink_to("/dev/full")
    return part


def test_full_disk_drops_rows_and_logs_once_until_space_returns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "magnetar")
    full_disk(tmp_path, 0)
    writer = new_writer(tmp_path, file_seconds=10)
    writer.write([settings_row(), hit(0, 1)], 0.0)
    writer.tick(10.0)
    assert (writer.files, writer.errors, writer.lost) == (0, 1, 2)
    writer.write([hit(1, 1)], 11.0)
    assert (writer.errors, writer.lost) == (1, 3)
    full_disk(tmp_path, 0)
    writer.write([hit(2, 1)], 10.0 + RETRY_S)
    writer.tick(20.0 + RETRY_S)
    assert (writer.errors, writer.lost) == (2, 4)
    writer.write([hit(3, 1)], 20.0 + 2 * RETRY_S)
    writer.close(21.0 + 2 * RETRY_S, None)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "cannot write the access record" in said[0]
    assert "No space left" in said[0]
    assert said[1] == "the access record is written again"
    run = only_run(tmp_path)
    assert [event.first for event in recorded(run)] == [3]
    assert run.why_not_exact() == f"4 rows were dropped before the end of {file_name(START, 0)}"


SMALL_DISK = """
import random, resource, signal, sys
from pathlib import Path
from tests.broker.recorder.record_fakes import hit, new_writer, settings_row

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
writer = new_writer(Path(sys.argv[1]), file_seconds=10)
writer.write([settings_row()], 0.0)
for first in range(0, 300_000, 1000):
    writer.write([hit(random.randrange(2**40), 1) for _ in range(1000)], 1.0)
writer.close(2.0, None)
print(writer.rows, writer.lost, writer.errors, writer.files)
"""


def test_file_is_lost_when_the_disk_fills_in_the_middle(tmp_path: Path) -> None:
    """In a process of its own that may write no larger file than this."""
    command = [sys.executable, "-c", SMALL_DISK, str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout.split()) == (0, ["300001", "300001", "1", "0"]), ended.stderr
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [f"_names-{START}.jsonl"]


# Retention


def test_oldest_files_are_deleted_when_the_folder_is_too_large(tmp_path: Path) -> None:
    old = new_writer(tmp_path, start="20240101T000000.000000")
    old.write([settings_row(), hit(0, 1)], 0.0)
    old.close(0.0, None)
    (size,) = [path.stat().st_size for path in tmp_path.rglob("*.parquet")]
    crashed = new_writer(tmp_path, start="20240101T010000.000000")
    crashed.write([settings_row(), hit(0, 1)], 0.0)
    new = new_writer(tmp_path, file_seconds=10, kept_bytes=int(size * 2.5))
    new.write([settings_row(), hit(0, 1)], 0.0)
    new.tick(10.0)
    assert len(find([tmp_path]).lifetimes) == 2
    assert len(find([tmp_path]).rejected) == 1
    for number in range(2, 6):
        new.write([hit(number, 1, at_us=number * HOUR_US)], number * 10.0)
    new.close(70.0, None)
    assert find([tmp_path]).rejected == []
    run = only_run(tmp_path)
    assert [file.facts.sequence for file in run.files] == [3, 4]
    assert run.why_not_exact() == f"file 0 of it is missing, the next one there is {file_name(START, 3)}"
    assert [path.name for path in tmp_path.rglob("_names-*")] == [f"_names-{START}.jsonl"]
    hours = {path.name for path in tmp_path.rglob("hour=*")}
    assert hours == {file.path.parent.name for file in run.files}
