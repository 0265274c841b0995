"""JournalChain: with journals missing, cut, damaged or marked wrongly no acknowledged entry is answered as absent."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from bookie_stub.base.errors import BookieError
from bookie_stub.journal.durable_mark import read_durable_mark
from bookie_stub.journal.journal_chain import flaws_of
from bookie_stub.journal.journal_file import HEADER_BYTES, NO_MARK, JournalMark, header, journal_ids
from bookie_stub.journal.journal_reader import JournalReader
from bookie_stub.tools.check import check
from tests.bookie_stub.conftest import Bench
from tests.bookie_stub.files import cut, flip, zero

OK, NO_LEDGER, NO_ENTRY, IO_ERROR, FENCED, UNKNOWN = 0, 1, 2, 101, 104, 107
PAYLOAD = b"payload" * 150
ENTRIES = 43
"""So that the newest journal has four groups of the five that fit."""


async def killed(bench: Bench, name: str, **settings: object) -> Bench:
    """A copy of a bookie's files, as a kill leaves them: several journals, a fence at the end, nothing in entry logs."""
    bench.open(journal_bytes_max=20_000, journal_allocate_bytes=8192, **settings)
    for entry in range(ENTRIES):
        assert await bench.add(1, entry, PAYLOAD) == OK
    assert (await bench.fence(9))[0] == NO_ENTRY
    image = bench.directory.with_name(bench.directory.name + "-" + name)
    shutil.copytree(bench.directory, image)
    bench.close()
    return Bench(image)


def journals_of(bench: Bench) -> list[Path]:
    directory = bench.directory / "journal/current"
    return [directory / f"{each:x}.txn" for each in journal_ids(directory)]


def image_of(bench: Bench) -> Path:
    return bench.directory.with_name(bench.directory.name + "-image")


def end_of(path: Path) -> int:
    reader = JournalReader(path)
    for _ in reader:
        pass
    return reader.end


def newest(paths: list[Path]) -> Path:
    """Returns the newest journal that has records."""
    return max(path for path in paths if end_of(path) > HEADER_BYTES)


def checked(bench: Bench) -> list[str]:
    current = bench.directory / "ledgers/current"
    found = check([bench.directory / "journal/current"], [(current, current)], 5 << 20, lambda _: None)
    return found.damaged


def remove_all(paths: list[Path]) -> None:
    for path in paths:
        path.unlink()


DAMAGE: dict[str, tuple[Callable[[list[Path]], None], str]] = {
    "a flip in the last group of the first": (lambda all: flip(all[0], end_of(all[0]) - 1200), "{0} at"),
    "the first cut in its last group": (lambda all: cut(all[0], end_of(all[0]) - 3500), "{0} at"),
    "the first cut between two groups": (lambda all: cut(all[0], end_of(all[0]) - 4096), "{0} at"),
    "the first is gone": (lambda all: all[0].unlink(), "{0}, which {1.name} follows, is missing"),
    "one in the middle is gone": (lambda all: all[1].unlink(), "{1}, which {2.name} follows, is missing"),
    "the newest is gone": (
        lambda all: newest(all).unlink(),
        "the newest one that was written to, is missing",
    ),
    "all are gone": (remove_all, "is missing"),
    "a flip in the last group of all": (
        lambda all: flip(newest(all), end_of(newest(all)) - 4096 + 8),
        "records up to",
    ),
    "the last group of all is zeros": (
        lambda all: zero(newest(all), end_of(newest(all)) - 4096, 4096),
        "records up to",
    ),
    "the header of the first is zeros": (lambda all: zero(all[0], 0, HEADER_BYTES), "{0} at 0: its header"),
    "the header of the newest is zeros": (
        lambda all: zero(newest(all), 0, HEADER_BYTES),
        " at 0: its header",
    ),
    "the mark of our journals is flipped": (lambda all: flip(all[0], 9), "{0} at 8: its header"),
    "the version is flipped": (lambda all: flip(all[0], 7), "{0} at 8: its header"),
    "the first has 300 bytes": (lambda all: cut(all[0], 300), "{0} at 512"),
    "the newest has 300 bytes": (lambda all: cut(newest(all), 300), "records up to"),
    "the newest is empty": (lambda all: cut(newest(all), 0), "records up to"),
    "a padding that reaches over the next group": (lambda all: grow_padding(all[0]), "{0} at"),
}


def grow_padding(path: Path) -> None:
    """The length of the first padding record, by the size of a group."""
    content = bytearray(path.read_bytes())
    padding = content.index(b"MGRP", HEADER_BYTES) - 8
    (length,) = struct.unpack_from(">i", content, padding + 4)
    struct.pack_into(">i", content, padding + 4, length + 4096)
    path.write_bytes(content)


@pytest.mark.parametrize("what", DAMAGE)
async def test_start_refuses_a_damaged_journal_and_check_finds_it(bench: Bench, what: str) -> None:
    damage, text = DAMAGE[what]
    image = await killed(bench, "killed")
    journals = journals_of(image)
    assert len(journals) > 3
    assert checked(image) == []
    damage(journals)
    wanted = text.format(*journals)
    with pytest.raises(BookieError, match="skipReplayJournalInvalidRecord") as raised:
        image.open()
    assert wanted in str(raised.value)
    assert any(wanted in line for line in checked(image))
    image.open(skip_invalid_records=True)
    assert {(await image.read(1, entry))[0] for entry in range(ENTRIES)} <= {OK, UNKNOWN}
    assert await image.add(9, 1) in (FENCED, IO_ERROR)
    image.close()
    image.open()  # what was given up once is no damage any more
    image.close()


async def test_check_finds_no_damage_after_kills_and_stops(bench: Bench) -> None:
    image = await killed(bench, "first")
    for number in range(3):
        image.open(journal_bytes_max=20_000, journal_allocate_bytes=8192)
        assert await image.read(1, ENTRIES - 1) == (OK, PAYLOAD)
        assert await image.add(9, 0) == FENCED
        assert await image.add(2, number) == OK
        copy = Bench(image.directory.with_name(f"{image.directory.name}-{number}"))
        shutil.copytree(image.directory, copy.directory)
        image.close()
        assert checked(image) == checked(copy) == []
        image = copy


async def test_start_drops_a_torn_group_behind_the_durable_mark(bench: Bench) -> None:
    """No client was told of a group behind the durable mark, so its bytes prove nothing."""
    image = await killed(bench, "torn")
    path = newest(journals_of(image))
    whole = JournalReader(path)
    groups = list(whole)
    torn = bytearray(path.read_bytes().ljust(whole.end + 8192, b"\0"))
    torn[whole.end : whole.end + 4096] = torn[whole.end - 4096 : whole.end]
    path.write_bytes(torn)
    assert list(JournalReader(path)) == groups
    assert checked(image) == []
    image.open()
    assert await image.add(9, 0) == FENCED
    image.close()


@pytest.mark.parametrize("left", [1, 700, 4096, 9000])
async def test_start_serves_the_rest_of_a_cut_journal_and_answers_unknown_for_lost_entries(
    bench: Bench, left: int
) -> None:
    image = await killed(bench, "cut")
    path = newest(journals_of(image))
    cut(path, end_of(path) - 4096 - left)
    assert any("and it is cut" in line for line in checked(image))
    image.open()
    answers = [(await image.read(1, entry))[0] for entry in range(ENTRIES + 1)]
    assert set(answers) == {OK, UNKNOWN}
    assert answers == sorted(answers)
    assert await image.add(1, ENTRIES) == FENCED
    assert (await image.read(9, 0))[0] == UNKNOWN
    image.close()


async def test_start_accepts_a_gap_left_by_a_first_write_that_failed(bench: Bench) -> None:
    bench.open(journal_bytes_max=1)
    for entry in range(6):
        bench.file_system.fails = {"sync_data": 5} if entry == 3 else {}
        assert await bench.add(1, entry, b"%d" % entry) == (IO_ERROR if entry == 3 else OK)
    ids = journal_ids(bench.directory / "journal/current")
    assert [after - before for before, after in pairwise(ids)].count(2) == 1
    image = Bench(image_of(bench))
    shutil.copytree(bench.directory, image.directory)
    assert checked(image) == []
    image.open()
    assert [(await image.read(1, entry))[0] for entry in range(6)] == [OK, OK, OK, NO_ENTRY, OK, OK]
    image.close()


MARKS: dict[str, Callable[[JournalMark], bytes]] = {
    "far away": lambda mark: struct.pack(">qq", mark.journal_id + 1000, 512),
    "two journals on": lambda mark: struct.pack(">qq", mark.journal_id + 2, 512),
    "behind the end": lambda mark: struct.pack(">qq", mark.journal_id, 1 << 40),
    "too late": lambda mark: struct.pack(">qq", mark.journal_id, 512 + 8192),
    "negative": lambda mark: struct.pack(">qq", -5, -7),
    "zeros": lambda mark: bytes(16),
    "cut": lambda mark: struct.pack(">qq", *mark)[:7],
    "empty": lambda mark: b"",
}


@pytest.mark.parametrize("where", MARKS)
async def test_start_loses_no_entry_when_the_mark_is_wrong(bench: Bench, where: str) -> None:
    """The mark is refused or not believed, as one of ours has a checksum."""
    image = await killed(bench, "marked")
    first = journals_of(image)[0]
    path = image.directory / "ledgers/current/lastMark"
    path.write_bytes(MARKS[where](JournalMark(int(first.stem, 16), HEADER_BYTES)))
    if where not in ("too late", "two journals on", "zeros"):
        with pytest.raises(BookieError, match="lastMark"):
            image.open()
        assert any("lastMark" in line for line in checked(image))
        return
    image.open()
    assert {(await image.read(1, entry))[0] for entry in range(ENTRIES)} == {OK}
    assert await image.add(9, 0) == FENCED
    image.close()


@pytest.mark.parametrize("offset", [0, 7, 8, 15, 16, 19, 20, 23])
async def test_start_refuses_a_mark_with_a_flipped_bit(bench: Bench, offset: int) -> None:
    """With a flip in its magic it is a mark without a checksum, which is not believed."""
    bench.open()
    assert await bench.add(1, 0) == OK
    bench.reopen()
    assert await bench.add(1, 1) == OK
    image = Bench(image_of(bench))
    shutil.copytree(bench.directory, image.directory)
    path = image.directory / "ledgers/current/lastMark"
    flip(path, offset)
    if 16 <= offset < 20:
        image.open()
        assert [(await image.read(1, entry))[0] for entry in range(2)] == [OK, OK]
        image.close()
        return
    with pytest.raises(BookieError, match="without the file a start replays the journals"):
        image.open()
    assert any(str(path) in line for line in checked(image))
    path.unlink()
    image.open()
    assert [(await image.read(1, entry))[0] for entry in range(2)] == [OK, OK]
    image.close()


async def test_replay_keeps_entries_whose_key_was_in_a_damaged_group(bench: Bench) -> None:
    image = await killed(bench, "keyless")
    first = journals_of(image)[0]
    flip(first, HEADER_BYTES + 20)
    image.open(skip_invalid_records=True, integrity_checking=False)
    assert [(await image.read(1, entry))[0] for entry in range(ENTRIES)] == [NO_ENTRY] + [OK] * (ENTRIES - 1)
    assert await image.start_add(1, ENTRIES) == OK
    assert await image.start_add(1, ENTRIES + 1, key=b"other" * 4) != OK
    image.close()


async def test_replay_skips_entries_without_a_key_when_nothing_is_damaged(bench: Bench) -> None:
    bench.open()
    assert await bench.add(1, 0) == OK
    assert bench.bookie is not None
    bench.bookie.delete_ledger(1)
    assert await bench.add(2, 0) == OK
    image = Bench(image_of(bench))
    shutil.copytree(bench.directory, image.directory)
    image.open()
    assert (await image.read(1, 0))[0] == NO_LEDGER
    image.close()


async def test_start_refuses_a_txn_file_whose_name_is_no_id(bench: Bench) -> None:
    image = await killed(bench, "strays")
    stray = image.directory / "journal/current/hello.txn"
    stray.write_bytes(b"junk" * 300)
    with pytest.raises(BookieError, match=r"hello\.txn: a journal's name is"):
        image.open()
    assert any("hello.txn" in line for line in checked(image))
    stray.unlink()
    (image.directory / "ledgers/current/zz.log").write_bytes(b"junk" * 300)
    image.open()
    assert await image.read(1, 0) == (OK, PAYLOAD)
    image.close()


@pytest.mark.parametrize("name", ["DIRTY", "VERSION"])
@pytest.mark.parametrize("content", [b"\xff\xfe", b"journbl synced\n"])
async def test_start_refuses_a_damaged_dirty_file_or_cookie(bench: Bench, name: str, content: bytes) -> None:
    image = await killed(bench, "notes")
    path = image.directory / "ledgers/current" / name
    path.write_bytes(content)
    with pytest.raises(BookieError, match=name):
        image.open()


def test_durable_mark_survives_a_torn_write_by_its_older_copy(tmp_path: Path) -> None:
    """A torn write of one copy leaves the mark before it."""
    from bookie_stub.base.file_system import FileSystem
    from bookie_stub.journal.durable_mark import DurableMarkFile

    mark_file = DurableMarkFile(tmp_path, FileSystem())
    mark_file.open(NO_MARK)
    for number in range(1, 4):
        mark_file.write(JournalMark(7, number * 512), sync=number == 1)
        assert read_durable_mark(tmp_path) == JournalMark(7, number * 512)
    mark_file.close()
    path = tmp_path / "durable"
    whole = path.read_bytes()
    found = set()
    for offset in (3, 515):
        flip(path, offset)
        found.add(read_durable_mark(tmp_path))
        path.write_bytes(whole)
    assert found == {JournalMark(7, 1024), JournalMark(7, 1536)}
    path.write_bytes(bytes(len(whole)))
    with pytest.raises(BookieError, match="durable at 0"):
        read_durable_mark(tmp_path)


def test_chain_ignores_missing_journals_before_the_mark(tmp_path: Path) -> None:
    (tmp_path / "7.txn").write_bytes(header(7, JournalMark(6, 4096)))
    assert flaws_of(tmp_path, JournalMark(7, HEADER_BYTES)) == []
    (missing,) = flaws_of(tmp_path, JournalMark(5, HEADER_BYTES))[1:]
    assert "lastMark names" in missing
