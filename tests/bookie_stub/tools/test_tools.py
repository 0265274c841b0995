"""`magnetar bookie dump`, `check`, `index rebuild`, `compact`: what is printed about real files, whole and damaged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bookie_stub.base.record import KEY, explicit_lac_record
from bookie_stub.config.settings import CollectionSettings
from bookie_stub.disk.entry_log import log_ids
from bookie_stub.journal.journal_file import journal_ids
from magnetar.commands.bookie_command import main
from tests.bookie_stub.conftest import MASTER_KEY, Bench
from tests.bookie_stub.files import flip, run

KEY_TEXT = MASTER_KEY.hex()


async def test_dump_prints_a_journal(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.open()
    await bench.add_all(7, range(2))
    assert (await bench.fence(8))[0] == 2
    assert bench.bookie is not None
    body = explicit_lac_record(7, KEY.pack(7, 1))[24:]
    answered = bench.loop.create_future()
    bench.bookie.records.write_lac(7, MASTER_KEY, body, lambda rc, _: answered.set_result(rc))
    assert await answered == 0
    bench.bookie.delete_ledger(8)
    bench.close()
    code, lines, _ = run(bench, capsys, "dump", "journal")
    assert code == 0
    assert re.fullmatch(r"[0-9a-f]+\.txn: journal, version 6, groups with checksums, \d+ bytes", lines[0])
    told = [line.split(None, 1)[1] for line in lines[1:]]
    assert told == [
        f"master key    ledger 7  {KEY_TEXT}",
        "entry         ledger 7  entry 0  LAC -1  length 9  45 bytes",
        "entry         ledger 7  entry 1  LAC 0  length 9  45 bytes",
        f"master key    ledger 8  {KEY_TEXT}",
        "fence         ledger 8",
        "explicit LAC  ledger 7  1",
        "deleted       ledger 8",
        "end",
    ]
    assert lines[1].split()[0] == "512"
    code, lines, _ = run(bench, capsys, "dump", "journal", "--ledger", "8")
    assert len(lines) == 5


async def test_dump_prints_where_a_journal_is_damaged(
    written: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = written.directory / "journal/current"
    (journal_id,) = journal_ids(directory)
    path = directory / f"{journal_id:x}.txn"
    flip(path, 600)
    _, lines, _ = run(written, capsys, "dump", "journal", str(path))
    assert any("DAMAGED: acknowledged records are missing" in line for line in lines)
    code, lines, _ = run(written, capsys, "check")
    assert code == 1
    assert any(line.startswith("damaged:") and "intact records follow" in line for line in lines)


async def test_dump_prints_logs_and_indexes(written: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    _, lines, _ = run(written, capsys, "dump", "entrylog", str(written.directory / "ledgers/current/0.log"))
    assert lines[0] == "0.log: entry log, version 1, ledgers map of 2 at 18424, 18480 bytes"
    assert lines[1] == "        1024  entry         ledger 1  entry 0  LAC -1  length 200  236 bytes"
    assert lines[-2] == "         map  ledger 1  7200 bytes"
    _, lines, _ = run(written, capsys, "dump", "index", "--ledger", "2")
    assert lines[1] == "  ledger 2  entry 0  0.log at 8228"
    assert len(lines) == 31
    _, lines, _ = run(written, capsys, "dump", "ledger")
    assert lines[1:] == [
        f"  ledger 1  key {KEY_TEXT}  entries 0-29",
        f"  ledger 2  key {KEY_TEXT}  fenced  entries 0-29",
    ]


def test_dump_refuses_a_directory_without_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump", "journal", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"magnetar bookie dump: {tmp_path}: no *.txn in it\n"
    assert main(["check", "--data", str(tmp_path)]) == 1
    assert "there is no" in capsys.readouterr().err


async def test_check_passes_a_whole_bookie(written: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, errors = run(written, capsys, "check")
    assert (code, lines) == (0, ["60 entries, 0 damaged; digest fits 60, not verifiable 0"])
    assert errors[-1].startswith("check ")
    assert not list(written.directory.rglob("rocksdict-config.json.*"))


async def test_rebuild_and_compact_refuse_a_running_bookie(
    written: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    written.open()
    for words in (("index", "rebuild"), ("compact",)):
        code, _, errors = run(written, capsys, *words)
        assert code == 1
        assert "is open in another bookie" in errors[-1]


async def test_compact_works_on_a_bookie_that_is_down(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bookie = bench.open(collection=CollectionSettings(minor_interval_s=0, major_interval_s=0))
    for ledger in range(10):
        await bench.add_signed(ledger, range(20), b"x" * 500)
    await bench.checkpoint()
    for ledger in range(1, 10):
        bookie.delete_ledger(ledger)
    bench.close()
    code, lines, _ = run(bench, capsys, "compact")
    assert code == 0
    line = r"0 bytes freed with dead logs, 9\d{4} by compaction; 1 logs left; location index \d+ bytes, \d+ before"
    assert re.fullmatch(line, lines[-1])
    assert run(bench, capsys, "check")[0] == 0
    bench.open()
    assert (await bench.batch(0, 0, 100))[1] == [b"x" * 500] * 20
    assert len(log_ids(bench.directory / "ledgers/current")) == 1


@pytest.mark.parametrize("words", [("check",), ("compact",), ("index", "rebuild")])
def test_tools_make_no_missing_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    code = main([*words, "--data", str(tmp_path / "typo")])
    assert code != 0
    assert "there is no" in capsys.readouterr().err
    assert not (tmp_path / "typo").exists()


def test_dump_refuses_a_journal_without_an_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "zz.txn").write_bytes(b"junk" * 300)
    code = main(["dump", "journal", str(tmp_path / "zz.txn")])
    assert code != 0
    assert "zz.txn: a journal's name is its id" in capsys.readouterr().err
