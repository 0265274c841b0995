"""`magnetar bookie index rebuild`: both indexes come back, and nothing that was acknowledged is answered as absent."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

import pytest

from bookie_stub.base.errors import BookieStorageError
from bookie_stub.base.record import KEY, fence_record
from bookie_stub.disk.ledger_index import LedgerIndex
from bookie_stub.disk.rocks import Rocks
from bookie_stub.journal.journal_file import HEADER_BYTES, journal_ids
from bookie_stub.tools.index_rebuild import rebuild
from tests.bookie_stub.conftest import MASTER_KEY, Bench
from tests.bookie_stub.files import cut, flip, forget_journals, limbo_of, run, zero
from tests.bookie_stub.ledgers.test_ledger_records import Cluster

KEY_TEXT = MASTER_KEY.hex()


async def test_rebuild_equals_the_lost_location_index(
    written: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ledgers have rewritten entries, and one is deleted; the rebuilt index equals the lost one."""
    written.open(entry_log_bytes_max=20_000)
    await written.add_signed(3, range(10), b"c" * 100)
    await written.add_signed(1, range(4, 6), b"rewritten")
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


async def test_rebuild_fences_every_ledger_of_a_lost_ledger_index(
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


async def test_rebuild_of_the_ledger_index_keeps_limbo(
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


@pytest.mark.parametrize("journal", ["kept", "gone"])
async def test_rebuild_of_a_lost_ledger_index_keeps_fences(
    written: Bench, capsys: pytest.CaptureFixture[str], journal: str
) -> None:
    """The journal knows a ledger without entries, or no file does; then the next start asks the cluster."""
    written.open()
    assert (await written.fence(5))[0] == 2
    await written.add_signed(6, range(2), b"x")
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
        (written.directory / "journal/current/durable").unlink()
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


def damage_size(log: Path, mark: bytes) -> None:
    """The size field of the first entry that has `mark` in it says 1 GiB: a scan ends there."""
    content = bytearray(log.read_bytes())
    place = content.index(mark) - 40
    content[place : place + 4] = (1 << 30).to_bytes(4, "big")
    log.write_bytes(content)


@pytest.mark.parametrize("locations", ["kept", "gone"])
@pytest.mark.parametrize("journal", ["kept", "gone"])
async def test_rebuild_keeps_entries_behind_damage(
    written: Bench, capsys: pytest.CaptureFixture[str], locations: str, journal: str
) -> None:
    """The old index finds them; without it the log's map says which ledger it may have lost; the journal has them all."""
    current = written.directory / "ledgers/current"
    (log,) = current.glob("*.log")
    damage_size(log, b"b" * 300)
    if locations == "gone":
        shutil.rmtree(current / "locations")
    if journal == "gone":
        forget_journals(written.directory)
    code, printed, _ = run(written, capsys, "index", "rebuild")
    assert code == 0
    assert any("no record that can be read" in line for line in printed)
    assert limbo_of(current) == {1: False, 2: locations == "gone"}
    written.open()
    assert await written.read(1, 0) == (0, b"a" * 200)
    assert (await written.read(1, 30))[0] == 2
    found = {rc for rc, _ in [await written.read(2, entry) for entry in range(30)]}
    wanted = {("kept", "gone"): {0, 101}, ("gone", "gone"): {107}}
    assert found == wanted.get((locations, journal), {0})


async def test_rebuild_keeps_the_rows_of_a_missing_log(
    written: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next rebuild keeps them too; a start logs the missing log, and `check` lists it."""
    current = written.directory / "ledgers/current"
    (log,) = current.glob("*.log")
    log.unlink()
    forget_journals(written.directory)
    for _ in range(2):
        code, printed, _ = run(written, capsys, "index", "rebuild")
        assert code == 0
        assert f"note: {log}: is missing" in printed
        assert any("60 entries are lost here" in line for line in printed)
    assert run(written, capsys, "check")[0] == 1
    written.open()
    for ledger in (1, 2):
        assert (await written.read(ledger, 0))[0] == 101
        assert (await written.read(ledger, -1))[0] == 101
        assert (await written.read(ledger, 30))[0] == 2


async def test_rebuild_serves_no_older_version_of_a_lost_entry(
    written: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    written.open()
    await written.add_signed(1, [4], b"rewritten")
    written.close()
    logs = sorted((written.directory / "ledgers/current").glob("*.log"))
    assert len(logs) == 2
    logs[1].unlink()
    forget_journals(written.directory)
    assert run(written, capsys, "index", "rebuild")[0] == 0
    written.open()
    assert (await written.read(1, 4))[0] == 101
    assert await written.read(1, 5) == (0, b"a" * 200)


@pytest.mark.parametrize("damaged", [True, False])
async def test_rebuild_restores_only_the_newest_version_from_journals(
    written: Bench, capsys: pytest.CaptureFixture[str], damaged: bool
) -> None:
    """Versions before a damaged place of the journals may be old, and are not used."""
    written.open()
    await written.add_signed(1, [4], b"rewritten")
    await written.add_signed(1, [30], b"later")
    written.close()
    current = written.directory / "ledgers/current"
    for log in current.glob("*.log"):
        log.unlink()
    journals = written.directory / "journal/current"
    if damaged:
        path = journals / f"{journal_ids(journals)[-1]:x}.txn"
        flip(path, path.read_bytes().index(b"rewritten"))
    assert run(written, capsys, "index", "rebuild")[0] == 0
    written.open()
    assert await written.read(1, 4) == ((101, b"") if damaged else (0, b"rewritten"))
    assert (await written.read(1, 5))[0] == (101 if damaged else 0)
    assert await written.read(1, 30) == (0, b"later")


async def killed(bench: Bench, tmp_path: Path) -> Bench:
    """The files of a bookie after a kill: the current log is whole, and without a map."""
    bench.open()
    await bench.add_signed(1, range(10), b"a" * 200)
    await bench.add_signed(2, range(10), b"b" * 300)
    await bench.checkpoint()
    image = tmp_path.with_name(tmp_path.name + "-killed")
    shutil.copytree(bench.directory, image)
    bench.close()
    return Bench(image)


@pytest.mark.parametrize("locations", ["kept", "gone"])
async def test_rebuild_hides_no_entry_when_a_log_without_a_map_is_damaged(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str], locations: str
) -> None:
    """Without the old location index any ledger may be hit."""
    after = await killed(bench, tmp_path)
    forget_journals(after.directory)
    (log,) = (after.directory / "ledgers/current").glob("*.log")
    damage_size(log, b"b" * 300)
    if locations == "gone":
        shutil.rmtree(log.parent / "locations")
    assert run(after, capsys, "index", "rebuild")[0] == 0
    assert (log.parent / "nothingLost").exists() == (locations == "kept")
    assert limbo_of(log.parent) == dict.fromkeys((1, 2), locations == "gone")
    after.open()
    assert await after.read(1, 9) == (0, b"a" * 200)
    assert (await after.read(2, 0))[0] == (101 if locations == "kept" else 107)
    assert (await after.read(2, 5))[0] == (0 if locations == "kept" else 107)
    assert (await after.read(2, -1))[0] == (0 if locations == "kept" else 107)
    after.close()


@pytest.mark.parametrize("locations", ["kept", "gone"])
async def test_rebuild_puts_no_ledger_in_limbo_for_a_torn_end(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str], locations: str
) -> None:
    after = await killed(bench, tmp_path)
    (log,) = (after.directory / "ledgers/current").glob("*.log")
    log.write_bytes(log.read_bytes() + (300).to_bytes(4, "big") + KEY.pack(2, 10))
    if locations == "gone":
        shutil.rmtree(log.parent / "locations")
    _, printed, _ = run(after, capsys, "index", "rebuild")
    assert any("torn by a crash, or damaged" in line for line in printed)
    assert limbo_of(log.parent) == {1: False, 2: False}
    assert (log.parent / "nothingLost").exists()


async def test_rebuild_without_an_inventory_puts_unproven_ledgers_in_limbo(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """BookKeeper's directories have none, and its last log has no map, so its end is unknown without the location index.
    What the cluster says is closed and is all here is beyond doubt."""
    after = await killed(bench, tmp_path)
    current = after.directory / "ledgers/current"
    (current / "inventory").unlink()
    shutil.rmtree(current / "locations")
    image = tmp_path.with_name(tmp_path.name + "-again")
    shutil.copytree(after.directory, image)
    assert run(after, capsys, "index", "rebuild")[0] == 0
    assert limbo_of(current) == {1: True, 2: True}
    current = image / "ledgers/current"

    def closed(ledger_ids: Collection[int]) -> Iterable[tuple[int, range]]:
        assert sorted(ledger_ids) == [1, 2]
        return {1: range(10), 2: range(11)}.items()

    done = rebuild(
        current,
        current,
        [image / "journal/current"],
        ledgers_too=False,
        share=(0, 1),
        entry_bytes_max=1 << 20,
        closed=closed,
        say=lambda _: None,
    )
    assert done.limbo == 1
    assert limbo_of(current) == {1: False, 2: True}


async def test_rebuild_reports_a_missing_log_by_the_inventory(
    written: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """The inventory lists it; logs that were collected as garbage are not reported."""
    current = written.directory / "ledgers/current"
    written.open(entry_log_bytes_max=20_000)
    await written.add_signed(5, range(3), b"x" * 20_000)
    await written.checkpoint()
    assert written.bookie is not None
    written.bookie.delete_ledger(5)
    await written.checkpoint()
    await written.until(lambda: not (current / "1.log").exists())
    written.close()
    shutil.rmtree(current / "locations")
    _, printed, _ = run(written, capsys, "index", "rebuild")
    assert not [line for line in printed if line.startswith("note")]
    assert limbo_of(current) == {1: False, 2: False}
    (current / "0.log").unlink()
    shutil.rmtree(current / "locations")
    _, printed, _ = run(written, capsys, "index", "rebuild")
    assert f"note: {current / '0.log'}: is missing" in printed
    assert limbo_of(current) == {1: True, 2: True}


@pytest.mark.parametrize("database", ["locations", "ledgers"])
@pytest.mark.parametrize("damage", ["a bit", "a cut", "zeros", "gone"])
async def test_start_refuses_an_index_whose_write_ahead_log_lost_rows(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str], database: str, damage: str
) -> None:
    """RocksDB itself takes them for never written."""
    bench.open()
    await bench.add_signed(1, range(5), b"a" * 200)
    await bench.checkpoint()
    assert (await bench.fence(2))[0] == 2
    await bench.add_signed(3, range(5), b"a" * 200)
    await bench.checkpoint()
    image = tmp_path.with_name(tmp_path.name + "-killed")
    shutil.copytree(bench.directory, image)
    bench.close()
    after = Bench(image)
    current = image / "ledgers/current"
    (wal,) = (current / database).glob("*.log")
    size = wal.stat().st_size
    if damage == "a bit":
        flip(wal, size - 20)
    elif damage == "a cut":
        cut(wal, size - 20)
    elif damage == "zeros":
        zero(wal, size // 2, size - size // 2)
    else:
        wal.unlink()
    code, printed, _ = run(after, capsys, "check")
    assert code == 1
    assert any(f"damaged: {current / database} has " in line for line in printed)
    with pytest.raises(BookieStorageError, match=r"its newest rows are lost.*index rebuild"):
        after.open()
    assert run(after, capsys, "index", "rebuild")[0] == 0
    after.metadata = Cluster(1, 2, 3)
    after.open()
    assert await after.read(3, 4) == (0, b"a" * 200)
    assert await after.add(2, 0) == 104
    after.close()


async def test_start_refuses_a_ledger_index_that_a_rebuild_left_incomplete(
    written: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No bookie starts on it, and the next rebuild begins again."""
    current = written.directory / "ledgers/current"
    shutil.rmtree(current / "ledgers")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("bookie_stub.tools.location_index_rebuild.LocationIndexRebuild.scan", stop)
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


async def test_rebuild_replaces_an_unreadable_ledger_index(
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


async def test_start_refuses_an_interrupted_rebuild_until_it_is_run_again(
    written: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    current = written.directory / "ledgers/current"
    (current / "locations").rename(current / "locations.replaced")
    with pytest.raises(BookieStorageError, match="run it again"):
        written.open()
    assert run(written, capsys, "index", "rebuild")[0] == 0
    written.open()
    assert await written.read(1, 0) == (0, b"a" * 200)
