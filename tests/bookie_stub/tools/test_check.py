"""`magnetar bookie check`: damage to each kind of file is found and named, and no client gets wrong bytes for it."""

from __future__ import annotations

import random
import re
import shutil
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from bookie_stub.base.errors import BookieError
from bookie_stub.disk.entry_log import LogScan
from bookie_stub.disk.rocks import Rocks
from bookie_stub.journal.journal_file import journal_ids
from bookie_stub.journal.journal_reader import JournalReader
from bookkeeper.client.digest import check as check_digest
from foundation.model.errors import PersistenceError
from tests.bookie_stub.conftest import Bench
from tests.bookie_stub.files import cut, flip, run, zero

CURRENT = "ledgers/current"
LEDGERS, ENTRIES, SIZE = (1, 2, 3), 30, 300


def payload_of(ledger: int) -> bytes:
    return b"%d" % ledger * SIZE


@pytest.fixture
async def killed(bench: Bench, tmp_path: Path) -> AsyncIterator[Bench]:
    """The files behind a kill: finished logs and one that grows, a deleted ledger, entries in the journal alone."""
    bench.open(entry_log_bytes_max=15_000)
    for ledger in LEDGERS:
        await bench.add_signed(ledger, range(ENTRIES), payload_of(ledger))
    await bench.add_signed(4, range(3), b"deleted")
    assert bench.bookie is not None
    bench.bookie.delete_ledger(4)
    await bench.checkpoint()
    assert (await bench.fence(2))[0] == 0
    for entry in range(ENTRIES, ENTRIES + 3):
        await bench.add_signed(3, [entry], payload_of(3))
    image = tmp_path.with_name(tmp_path.name + "-killed")
    await bench.until(lambda: (bench.directory / CURRENT / "lastMark").exists())
    shutil.copytree(bench.directory, image)
    bench.close()
    after = Bench(image)
    yield after
    after.close()


class Damage(NamedTuple):
    name: str
    do: Callable[[Path], str]
    """To the data directory. Returns a pattern of what `check` is to say."""


def entry_in(directory: Path, lot: random.Random, log: str) -> tuple[Path, int, int]:
    """An entry of a log: the file, the offset behind its size field, its size."""
    path = directory / CURRENT / log
    entry = lot.choice(list(LogScan(path)))
    return path, entry.offset + 4, entry.size


def in_entry(place: int) -> Callable[[Path], str]:
    def do(directory: Path) -> str:
        path, start, _ = entry_in(directory, random.Random(place), "0.log")
        flip(path, start + place)
        return rf"{path} at {start}: ledger \d entry \d+"

    return do


def sector_of(log: str) -> Callable[[Path], str]:
    def do(directory: Path) -> str:
        path = directory / CURRENT / log
        zero(path, 1536, 512)
        return rf"{path} at \d+: ledger \d entry \d+"

    return do


def log_cut(log: str, where: str) -> Callable[[Path], str]:
    def do(directory: Path) -> str:
        path = directory / CURRENT / log
        entries = list(LogScan(path))
        behind = entries[-1].offset + 4 + entries[-1].size
        offset = {
            "between records": entries[-2].offset,
            "in a record": entries[-2].offset + 9,
            "before its map": behind,
        }
        cut(path, offset[where])
        if where == "before its map":
            return rf"{path} at {behind}: its ledgers map is damaged or cut off"
        return rf"{path} at {entries[-2].offset + 4}: ledger \d entry \d+"

    return do


def removed(place: str) -> Callable[[Path], str]:
    def do(directory: Path) -> str:
        (directory / place).unlink()
        return rf"{directory / place}: is missing"

    return do


def log_header(offset: int, pattern: str) -> Callable[[Path], str]:
    def do(directory: Path) -> str:
        path = directory / CURRENT / "0.log"
        flip(path, offset)
        return rf"{path} at {pattern}"

    return do


def ledgers_map(directory: Path) -> str:
    path = directory / CURRENT / "0.log"
    flip(path, path.stat().st_size - 3)
    return rf"{path} at \d+"


def row_of(database: str, key: bytes, value: bytes, pattern: str) -> Callable[[Path], str]:
    def do(directory: Path) -> str:
        rocks = Rocks(directory / CURRENT / database, buffer_bytes=1 << 20)
        rocks.write([(key, value)], deletes=[], ranges=[])
        rocks.close()
        return pattern

    return do


def write_ahead_log(database: str) -> Callable[[Path], str]:
    def do(directory: Path) -> str:
        folder = directory / CURRENT / database
        (path,) = folder.glob("*.log")
        flip(path, path.stat().st_size // 2)
        return rf"{folder} has \d+ changes of \d+"

    return do


def table_file(database: str) -> Callable[[Path], str]:
    def do(directory: Path) -> str:
        folder = directory / CURRENT / database
        Rocks(folder, buffer_bytes=1 << 20).close()  # writes its rows to a table
        path = max(folder.glob("*.sst"))
        flip(path, 40)
        return rf"{folder}: .*{path.name} offset 0"

    return do


def journal(directory: Path, which: int = 0) -> Path:
    folder = directory / "journal/current"
    return folder / f"{journal_ids(folder)[which]:x}.txn"


def groups_of(path: Path) -> list[int]:
    return [at.start() - 12 for at in re.finditer(b"MGRP", path.read_bytes()) if at.start() > 512]


def journal_record(place: int) -> Callable[[Path], str]:
    """`place`: of the closing records of its groups."""

    def do(directory: Path) -> str:
        path = journal(directory)
        flip(path, groups_of(path)[place] - 20)
        return rf"{path}.* at \d+"

    return do


def journal_header(offset: int) -> Callable[[Path], str]:
    def do(directory: Path) -> str:
        flip(journal(directory), offset)
        return rf"{journal(directory)}"

    return do


def bit_of(place: str, offset: int, pattern: str) -> Callable[[Path], str]:
    def do(directory: Path) -> str:
        flip(directory / place, offset)
        return f"{directory / place} {pattern}"

    return do


def short(place: str, size: int, pattern: str) -> Callable[[Path], str]:
    def do(directory: Path) -> str:
        cut(directory / place, size)
        return f"{directory / place} {pattern}"

    return do


def no_tombstones(directory: Path) -> str:
    path = directory / CURRENT / "deleted"
    path.unlink()
    return f"{path} at 0: it is damaged"


MARK, COOKIE = f"{CURRENT}/lastMark", f"{CURRENT}/VERSION"
ENTRY_KEY = struct.pack(">qq", 1, 3)
NO_LOCATION = struct.pack(">q", 9 << 32 | 1028)
TABLE = (
    Damage("a bit of an entry's ledger", in_entry(5)),
    Damage("a bit of an entry's id", in_entry(15)),
    Damage("a bit of an entry's LAC", in_entry(20)),
    Damage("a bit of an entry's length", in_entry(30)),
    Damage("a bit of an entry's digest", in_entry(33)),
    Damage("a bit of an entry's payload", in_entry(50)),
    Damage("a bit of an entry's size", in_entry(-1)),
    Damage("the highest bit of an entry's size", in_entry(-4)),
    Damage("a sector of a finished log", sector_of("0.log")),
    Damage("a sector of the last log", sector_of("2.log")),
    Damage("a finished log cut between records", log_cut("0.log", "between records")),
    Damage("a finished log cut in a record", log_cut("0.log", "in a record")),
    Damage("a finished log cut before its map", log_cut("0.log", "before its map")),
    Damage("the last log cut between records", log_cut("2.log", "between records")),
    Damage("the last log cut in a record", log_cut("2.log", "in a record")),
    Damage("a finished log removed", removed(f"{CURRENT}/0.log")),
    Damage("the last log removed", removed(f"{CURRENT}/2.log")),
    Damage("a log's magic", log_header(1, "0: its header is damaged")),
    Damage("a log's version", log_header(7, "0: its header is damaged")),
    Damage("a log's offset of its map", log_header(14, r"\d+: its ledgers map is damaged")),
    Damage("a log's count of ledgers", log_header(19, r"\d+: its ledgers map is damaged")),
    Damage("a ledgers map", ledgers_map),
    Damage("a location without a log", row_of("locations", ENTRY_KEY, NO_LOCATION, "9.log at 1028: ledger 1 entry 3")),
    Damage("a ledger's row", row_of("ledgers", struct.pack(">q", 2), b"\x13", r"ledgers: ledger 2: ledger index")),
    Damage("rows of locations", write_ahead_log("locations")),
    Damage("rows of ledgers", write_ahead_log("ledgers")),
    Damage("a table of locations", table_file("locations")),
    Damage("a table of ledgers", table_file("ledgers")),
    Damage("a journal's first group", journal_record(0)),
    Damage("a journal's last group", journal_record(-1)),
    Damage("a journal's magic", journal_header(1)),
    Damage("a journal's version", journal_header(7)),
    Damage("a journal's mark", journal_header(9)),
    Damage("the mark's journal", bit_of(MARK, 7, "at 0: it does not fit")),
    Damage("the mark's offset", bit_of(MARK, 14, "at 0: it does not fit")),
    Damage("a cut mark", short(MARK, 10, "has 10 bytes")),
    Damage("the cookie's layout", bit_of(COOKIE, 0, "at 0")),
    Damage("the cookie's text", bit_of(COOKIE, 60, r"at \d+")),
    Damage("a cut cookie", short(COOKIE, 30, r"at \d+")),
    Damage("no cookie", removed(COOKIE)),
    Damage("the last log's id", bit_of(f"{CURRENT}/lastId", 0, "at 0")),
    Damage("tombstones", bit_of(f"{CURRENT}/deleted", 18, r"at \d+: it is damaged")),
    Damage("cut tombstones", short(f"{CURRENT}/deleted", 20, r"at \d+: it is damaged")),
    Damage("no tombstones", no_tombstones),
    Damage("the inventory", bit_of(f"{CURRENT}/inventory", 30, "at 0: it is damaged")),
    Damage("a cut inventory", short(f"{CURRENT}/inventory", 30, "at 0: it is damaged")),
)  # fmt: skip


@pytest.mark.parametrize("damage", TABLE, ids=[damage.name for damage in TABLE])
async def test_check_finds_damage_and_the_bookie_serves_no_wrong_bytes(
    killed: Bench, capsys: pytest.CaptureFixture[str], damage: Damage
) -> None:
    """The bookie does not start, or answers with the entry, an error, or bytes that the client's digest refuses."""
    assert run(killed, capsys, "check")[:2] == (
        0,
        ["90 entries, 0 damaged; digest fits 90, not verifiable 0"],
    )
    pattern = damage.do(killed.directory)
    code, lines, _ = run(killed, capsys, "check")
    assert code == 1
    assert [line for line in lines if line.startswith("damaged: ") and re.search(pattern, line)], lines
    try:
        killed.open(read_cache_bytes=0)
    except BookieError:
        return
    for ledger in LEDGERS:
        for entry in range(ENTRIES):
            assert await answer_is_honest(killed, ledger, entry), (ledger, entry)


async def answer_is_honest(bench: Bench, ledger: int, entry: int) -> bool:
    """Returns whether the answer is the entry as added, an error but "no entry", or bytes whose digest does not fit."""
    assert bench.bookie is not None
    answered = bench.loop.create_future()
    bench.bookie.read(ledger, entry, lambda rc, found: answered.set_result((rc, found)))
    rc, found = await answered
    if rc:
        return rc not in (1, 2)
    try:
        check_digest(ledger, entry, found)
    except PersistenceError:
        return True
    return bytes(found[36:]) == payload_of(ledger)


async def test_check_reports_no_damage_for_torn_ends(
    killed: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    log = killed.directory / CURRENT / "2.log"
    log.write_bytes(log.read_bytes() + (300).to_bytes(4, "big") + bytes(7) + b"torn")
    path = journal(killed.directory)
    reader = JournalReader(path)
    assert list(reader)
    content = path.read_bytes()
    path.write_bytes(content[: reader.end] + content[512:600] + content[reader.end + 88 :])
    code, lines, _ = run(killed, capsys, "check")
    assert code == 0
    assert any("torn by a crash" in line for line in lines)
