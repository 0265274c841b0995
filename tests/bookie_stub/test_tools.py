"""`magnetar bookie dump`, `check`, `index rebuild`, `compact`: what is printed about real files, whole and damaged."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookie_stub.config import CollectionSettings
from bookie_stub.entry_log import LogScan, log_ids
from bookie_stub.errors import BookieStorageError
from bookie_stub.journal_file import HEADER_BYTES, journal_ids
from bookie_stub.ledger_index import LedgerIndex
from bookie_stub.record import KEY, explicit_lac_record, fence_record
from bookie_stub.rocks import Rocks
from broker.errors import PersistenceError
from broker.ledger_client.digest import check as check_digest
from broker.ledger_client.digest import seal
from magnetar.bookie_command import main
from tests.bookie_stub.conftest import MASTER_KEY, Bench
from tests.bookie_stub.test_ledger_records import Cluster

KEY_TEXT = MASTER_KEY.hex()


def run(bench: Bench, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str], list[str]]:
    """Exit code, lines of output, lines of errors."""
    names = [
        f"{kind}Directories={bench.directory / place}"
        for kind, place in (("journal", "journal"), ("ledger", "ledgers"), ("index", "ledgers"))
    ]
    settings = [part for name in names for part in ("--set", name)]
    code = main([*words, *settings])
    out, errors = capsys.readouterr()
    return code, out.splitlines(), errors.splitlines()


async def add_signed(bench: Bench, ledger: int, entries: range, payload: bytes) -> None:
    """Entries with the digest that Pulsar's brokers make."""
    assert bench.bookie is not None
    for entry in entries:
        stored = signed(ledger, entry, payload)
        answered = bench.loop.create_future()
        record = len(stored).to_bytes(4, "big") + stored
        bench.bookie.add(
            ledger, entry, record, MASTER_KEY, False, lambda rc, _, done=answered: done.set_result(rc)
        )
        assert await answered == 0


def signed(ledger: int, entry: int, payload: bytes) -> bytes:
    return b"".join(seal(ledger, entry, entry - 1, (entry + 1) * len(payload), b"", payload))


@pytest.fixture
async def written(bench: Bench) -> Iterator[Bench]:
    """Two ledgers in logs, one of them fenced, more in the journal alone; the bookie is down, not cleanly."""
    bench.open(entry_log_bytes_max=20_000)
    await add_signed(bench, 1, range(30), b"a" * 200)
    await add_signed(bench, 2, range(30), b"b" * 300)
    assert (await bench.fence(2))[0] == 0
    await bench.checkpoint()
    bench.close()
    return bench


async def test_a_journal_as_text(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.open()
    await bench.add_all(7, range(2))
    assert (await bench.fence(8))[0] == 2
    assert bench.bookie is not None
    body = explicit_lac_record(7, KEY.pack(7, 1))[24:]
    answered = bench.loop.create_future()
    bench.bookie.write_lac(7, MASTER_KEY, body, lambda rc, _: answered.set_result(rc))
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


async def test_a_damaged_journal_says_where(written: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    directory = written.directory / "journal/current"
    (journal_id,) = journal_ids(directory)
    path = directory / f"{journal_id:x}.txn"
    flip(path, 600)
    _, lines, _ = run(written, capsys, "dump", "journal", str(path))
    assert any("DAMAGED: acknowledged records are missing" in line for line in lines)
    code, lines, _ = run(written, capsys, "check")
    assert code == 1
    assert any(line.startswith("damaged:") and "intact records follow" in line for line in lines)


async def test_logs_and_indexes_as_text(written: Bench, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_place_without_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump", "journal", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"magnetar bookie dump: {tmp_path}: no *.txn in it\n"
    assert main(["check", "--data", str(tmp_path)]) == 1
    assert "there is no" in capsys.readouterr().err


async def test_a_whole_bookie_passes(written: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, errors = run(written, capsys, "check")
    assert (code, lines) == (0, ["60 entries, 0 damaged; digest fits 60, not verifiable 0"])
    assert errors[-1].startswith("check ")
    assert not list(written.directory.rglob("rocksdict-config.json.*"))


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes((byte ^ 0x10,)))


@pytest.mark.parametrize("damage", ["bit of payload", "bit of digest", "bit of ids", "zeros", "cut", "gone"])
async def test_damage_is_listed_and_no_wrong_bytes_are_served(
    written: Bench, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    """Whatever the damage is to an entry: `check` names that entry, and a client sees an error or a digest that fails."""
    directory = written.directory / "ledgers/current"
    path = directory / "0.log"
    entries = list(LogScan(path))
    hit = entries[random.Random(damage).randrange(len(entries))]
    start = hit.offset + 4
    if damage == "bit of payload":
        flip(path, start + 40)
    elif damage == "bit of digest":
        flip(path, start + 33)
    elif damage == "bit of ids":
        flip(path, start + 14)
    elif damage == "zeros":
        with path.open("r+b") as file:
            file.seek(start - 4)
            file.write(bytes(4 + hit.size))
    elif damage == "cut":
        with path.open("r+b") as file:
            file.truncate(start + 20)
    else:
        path.unlink()
    lost = {"cut": entries[entries.index(hit) :], "gone": entries}.get(damage, [hit])
    code, lines, _ = run(written, capsys, "check")
    assert code == 1
    named = {tuple(map(int, re.findall(r"ledger (\d+) entry (\d+)", line)[0])) for line in lines[:-1]}
    assert named == {(each.ledger_id, each.entry_id) for each in lost}
    written.open(read_cache_bytes=0)
    for entry in entries:
        rc, payload = await written.read(entry.ledger_id, entry.entry_id)
        whole = b"a" * 200 if entry.ledger_id == 1 else b"b" * 300
        if entry in lost:
            assert rc == 101 or await digest_fails(written, entry.ledger_id, entry.entry_id)
        else:
            assert (rc, payload) == (0, whole)


async def digest_fails(bench: Bench, ledger: int, entry: int) -> bool:
    """Whether a client's own check refuses what the bookie answers."""
    assert bench.bookie is not None
    answered = bench.loop.create_future()
    bench.bookie.read(ledger, entry, lambda rc, found: answered.set_result((rc, found)))
    rc, found = await answered
    assert rc == 0
    try:
        check_digest(ledger, entry, found)
    except PersistenceError:
        return True
    return False


async def test_an_index_is_rebuilt(written: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """With rewritten entries and a deleted ledger; the rebuilt index is the lost one."""
    written.open(entry_log_bytes_max=20_000)
    await add_signed(written, 3, range(10), b"c" * 100)
    await add_signed(written, 1, range(4, 6), b"rewritten")
    assert written.bookie is not None
    written.bookie.delete_ledger(3)
    await written.checkpoint()
    written.close()
    _, before, _ = run(written, capsys, "dump", "index")
    _, ledgers, _ = run(written, capsys, "dump", "ledger")
    shutil.rmtree(written.directory / "ledgers/current/locations")
    code, lines, errors = run(written, capsys, "index", "rebuild")
    assert code == 0
    assert "entries of 2 ledgers" in lines[-1]
    assert "MB/s" in errors[-1]
    assert run(written, capsys, "dump", "index")[1] == before
    assert run(written, capsys, "dump", "ledger")[1] == ledgers
    written.open()
    assert await written.read(1, 4) == (0, b"rewritten")
    assert await written.read(2, 29) == (0, b"b" * 300)


async def test_a_lost_ledger_index_comes_back_fenced(
    written: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(written.directory / "ledgers/current/ledgers")
    assert run(written, capsys, "index", "rebuild")[0] == 0
    _, lines, _ = run(written, capsys, "dump", "ledger")
    assert lines[1:-1] == [f"  ledger {ledger}  key {KEY_TEXT}  fenced  entries 0-29" for ledger in (1, 2)]
    assert lines[-1] == "  storage flags  0x1"
    written.open()
    assert await written.add(1, 30) == 104
    assert await written.add(1, 30, recovery=True) == 0


async def test_a_rebuilt_ledger_index_forgets_no_limbo(
    written: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--ledgers` has the old rows; where these are gone, whatever may have been in limbo is."""
    written.open()
    assert (await written.fence(5))[0] == 2
    written.close()
    current = written.directory / "ledgers/current"
    index = LedgerIndex(current / "ledgers")
    rows, _ = index.load()
    index.write({1: rows[1]._replace(limbo=True)}, ())
    index.close()
    (current / "nothingLost").unlink()  # as the bookie does
    assert run(written, capsys, "index", "rebuild", "--ledgers")[0] == 0
    assert limbo_of(current) == {1: True, 2: False, 5: False}
    shutil.rmtree(current / "ledgers")
    code, printed, _ = run(written, capsys, "index", "rebuild")
    assert code == 0
    assert any("3 ledgers may have lost entries" in line for line in printed)
    assert limbo_of(current) == {1: True, 2: True, 5: True}
    written.open()
    assert (await written.read(1, 99))[0] == 107
    assert await written.read(1, 0) == (0, b"a" * 200)


def limbo_of(current: Path) -> dict[int, bool]:
    index = LedgerIndex(current / "ledgers")
    try:
        return {ledger_id: row.limbo for ledger_id, row in index.load()[0].items()}
    finally:
        index.close()


@pytest.mark.parametrize("journal", ["kept", "gone"])
async def test_a_ledger_index_that_is_lost_forgets_no_fence(
    written: Bench, capsys: pytest.CaptureFixture[str], journal: str
) -> None:
    """Of a ledger without entries the journal knows, or nobody: then the next start asks the cluster."""
    written.open()
    assert (await written.fence(5))[0] == 2
    await add_signed(written, 6, range(2), b"x")
    assert written.bookie is not None
    written.bookie.delete_ledger(6)
    written.close()
    current = written.directory / "ledgers/current"
    shutil.rmtree(current / "ledgers")
    if journal == "kept":  # one of BookKeeper's, whose fences bring no key
        content = (b"BKLG" + (6).to_bytes(4, "big")).ljust(HEADER_BYTES, b"\0") + fence_record(8)
        (written.directory / "journal/current/1.txn").write_bytes(content)
    if journal == "gone":
        (current / "lastMark").unlink()
        for path in (written.directory / "journal/current").glob("*.txn"):
            path.unlink()
    code, printed, _ = run(written, capsys, "index", "rebuild")
    assert code == 0
    assert any("may be forgotten" in line for line in printed)
    written.metadata = Cluster(1, 2, 5)
    written.open()
    assert await written.add(5, 0) == 104
    assert await written.add(6, 2) == 104
    assert await written.add(1, 30) == 104
    assert (await written.read(1, 99))[0] == 2  # nothing was lost but rows
    assert (await written.read(5, 0))[0] == (2 if journal == "kept" else 107)
    assert await written.add(8, 0) == (104 if journal == "kept" else 0)
    assert await written.add(9, 4) == 0
    assert await written.read(9, 0) == (2, b"")


async def test_entries_that_damage_hides_from_a_rebuild_are_unknown(
    written: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    (log,) = (written.directory / "ledgers/current").glob("*.log")
    content = bytearray(log.read_bytes())
    place = content.index(b"b" * 300) - 40
    content[place : place + 4] = (1 << 30).to_bytes(4, "big")
    log.write_bytes(content)
    code, printed, _ = run(written, capsys, "index", "rebuild")
    assert code == 0
    assert any("torn by a crash, or damaged" in line for line in printed)
    written.open()
    assert await written.read(1, 0) == (0, b"a" * 200)
    assert (await written.read(2, 5))[0] == 107


async def unfinished_log(bench: Bench) -> Path:
    """The log that was the current one at a kill: whole, and without a map. The bookie is down."""
    bench.open()
    await add_signed(bench, 1, range(10), b"a" * 200)
    await add_signed(bench, 2, range(10), b"b" * 300)
    await bench.checkpoint()
    (log,) = (bench.directory / "ledgers/current").glob("*.log")
    content = log.read_bytes()
    bench.close()
    log.write_bytes(content)
    return log


@pytest.mark.parametrize("locations", ["kept", "gone"])
async def test_damage_in_a_log_without_a_map_hides_no_entry(
    bench: Bench, capsys: pytest.CaptureFixture[str], locations: str
) -> None:
    """The old location index knows which ledgers it hides entries of; without it any may be hit."""
    log = await unfinished_log(bench)
    content = bytearray(log.read_bytes())
    place = content.index(b"b" * 300) - 40
    content[place : place + 4] = (1 << 30).to_bytes(4, "big")
    log.write_bytes(content)
    if locations == "gone":
        shutil.rmtree(log.parent / "locations")
    assert run(bench, capsys, "index", "rebuild")[0] == 0
    assert not (log.parent / "nothingLost").exists()
    assert limbo_of(log.parent) == {1: locations == "gone", 2: True}
    bench.open()
    assert await bench.read(1, 9) == (0, b"a" * 200)
    assert (await bench.read(2, 5))[0] == 107
    assert (await bench.read(2, -1))[0] == 107


async def test_a_torn_end_that_nobody_was_told_of_puts_nothing_in_limbo(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    log = await unfinished_log(bench)
    log.write_bytes(log.read_bytes() + (300).to_bytes(4, "big") + KEY.pack(2, 10))
    _, printed, _ = run(bench, capsys, "index", "rebuild")
    assert any("torn by a crash, or damaged" in line for line in printed)
    assert limbo_of(log.parent) == {1: False, 2: False}
    assert (log.parent / "nothingLost").exists()


async def test_limbo_that_a_rebuild_finds_outlives_the_ledger_index(
    written: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """`nothingLost` would say to the next rebuild that no ledger ever was in limbo."""
    current = written.directory / "ledgers/current"
    (log,) = current.glob("*.log")
    content = bytearray(log.read_bytes())
    place = content.index(b"b" * 300) - 40
    content[place : place + 4] = (1 << 30).to_bytes(4, "big")
    log.write_bytes(content)
    assert run(written, capsys, "index", "rebuild")[0] == 0
    log.unlink()
    shutil.rmtree(current / "ledgers")
    assert run(written, capsys, "index", "rebuild")[0] == 0
    assert limbo_of(current)[2]


async def test_a_ledger_index_that_is_half_made_is_not_believed(
    written: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No bookie starts on it, and the next rebuild begins again."""
    current = written.directory / "ledgers/current"
    shutil.rmtree(current / "ledgers")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("bookie_stub.index_rebuild._Scan.run", stop)
        with pytest.raises(KeyboardInterrupt):
            run(written, capsys, "index", "rebuild")
    assert (current / "ledgers/CURRENT").exists()
    with pytest.raises(BookieStorageError, match="index rebuild` was interrupted; run it again"):
        written.open()
    code, printed, _ = run(written, capsys, "index", "rebuild")
    assert code == 0
    assert "60 entries of 2 ledgers" in printed[-1]
    written.open()
    assert await written.read(1, 7) == (0, b"a" * 200)
    assert await written.add(2, 30) == 104


async def test_a_ledger_index_that_cannot_be_read_is_made_anew(
    written: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    current = written.directory / "ledgers/current"
    rocks = Rocks(current / "ledgers", buffer_bytes=1 << 20)
    rocks.write([((99).to_bytes(8, "big"), b"damage")], deletes=[], ranges=[])
    rocks.close()
    with pytest.raises(BookieStorageError, match="ledger index: field"):
        written.open()
    assert run(written, capsys, "index", "rebuild")[0] == 0
    written.metadata = Cluster(1, 2)
    written.open()
    assert await written.read(1, 7) == (0, b"a" * 200)
    assert await written.add(1, 30) == 104


async def test_a_rebuild_that_was_interrupted_is_run_again(
    written: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    current = written.directory / "ledgers/current"
    (current / "locations").rename(current / "locations.replaced")
    with pytest.raises(BookieStorageError, match="run it again"):
        written.open()
    assert run(written, capsys, "index", "rebuild")[0] == 0
    written.open()
    assert await written.read(1, 0) == (0, b"a" * 200)


async def test_a_running_bookie_is_left_alone(written: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    written.open()
    for words in (("index", "rebuild"), ("compact",)):
        code, _, errors = run(written, capsys, *words)
        assert code == 1
        assert "is open in another bookie" in errors[-1]


async def test_compaction_of_a_bookie_that_is_down(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bookie = bench.open(collection=CollectionSettings(minor_interval_s=0, major_interval_s=0))
    for ledger in range(10):
        await add_signed(bench, ledger, range(20), b"x" * 500)
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
