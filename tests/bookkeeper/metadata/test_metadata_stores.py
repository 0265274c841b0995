"""The contract of MetadataStore, kept by all stores, and the durability of the SQLite store."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from bookkeeper.metadata import sqlite_checks
from bookkeeper.metadata.metadata_store import ABSENT, MetadataStore, Put, Versioned
from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from foundation.model.errors import BadVersion, MetadataError

ROOT = Path(__file__).parents[3]


async def test_get_returns_none_for_a_missing_key(store: MetadataStore) -> None:
    assert await store.get("/a") is None


async def test_put_counts_versions_from_zero(store: MetadataStore) -> None:
    assert await store.put("/a", b"1") == 0
    assert await store.put("/a", b"2") == 1
    assert await store.get("/a") == Versioned(b"2", 1)


async def test_put_with_the_wrong_version_changes_nothing(store: MetadataStore) -> None:
    await store.put("/a", b"1", ABSENT)
    for wrong in (ABSENT, 1, 7):
        with pytest.raises(BadVersion):
            await store.put("/a", b"2", wrong)
    assert await store.put("/a", b"3", 0) == 1
    with pytest.raises(BadVersion):
        await store.put("/b", b"1", 0)
    assert await store.get("/b") is None


async def test_deleted_key_starts_again_at_version_zero(store: MetadataStore) -> None:
    await store.put("/a", b"1")
    await store.put("/a", b"1")
    await store.delete("/a")
    assert await store.get("/a") is None
    assert await store.put("/a", b"2", ABSENT) == 0


async def test_delete_compares_the_version_and_accepts_a_missing_key(store: MetadataStore) -> None:
    await store.delete("/a")
    with pytest.raises(BadVersion):
        await store.delete("/a", 0)
    await store.put("/a", b"1")
    with pytest.raises(BadVersion):
        await store.delete("/a", 1)
    await store.delete("/a", 0)
    assert await store.get("/a") is None


async def test_children_returns_the_names_one_level_below(store: MetadataStore) -> None:
    for key in ("/x/a", "/x/a-b", "/x/a/1", "/x/a/2", "/x/a0", "/x/b/deep/er", "/x/ü", "/xy/no", "/w"):
        await store.put(key, b"v")
    assert await store.children("/x") == ["a", "a-b", "a0", "b", "ü"]
    assert await store.children("/x/a") == ["1", "2"]
    assert await store.children("/x/b") == ["deep"]
    assert await store.children("/nothing") == []
    assert await store.children("/x/a-b") == []


async def test_child_disappears_with_its_last_key(store: MetadataStore) -> None:
    await store.put("/x/a/1", b"v")
    await store.put("/x/a", b"v")
    await store.delete("/x/a/1")
    assert await store.children("/x") == ["a"]
    await store.delete("/x/a")
    assert await store.children("/x") == []
    assert await store.children("") == []


async def test_writes_are_applied_in_the_order_of_calls(store: MetadataStore) -> None:
    writes = [asyncio.ensure_future(store.put("/a", b"%d" % number)) for number in range(50)]
    assert await writes[-1] == 49
    assert await store.get("/a") == Versioned(b"49", 49)
    assert [await write for write in writes] == list(range(50))


async def test_refused_write_does_not_affect_other_writes(store: MetadataStore) -> None:
    outcomes = await asyncio.gather(
        store.put("/a", b"1"), store.put("/b", b"1", 5), store.put("/c", b"1"), return_exceptions=True
    )
    assert outcomes[0] == outcomes[2] == 0
    assert isinstance(outcomes[1], BadVersion)


async def test_put_all_writes_every_key(store: MetadataStore) -> None:
    await store.put("/a", b"1")
    assert await store.put_all([Put("/a", b"2", 0), Put("/deep/er/b", b"1", ABSENT)]) == [1, 0]
    assert await store.get("/a") == Versioned(b"2", 1)
    assert await store.get("/deep/er/b") == Versioned(b"1", 0)
    assert await store.children("/deep") == ["er"]


@pytest.mark.parametrize(("key", "expected"), [("/a", ABSENT), ("/a", 7), ("/other", 0)], ids=str)
@pytest.mark.parametrize("first", [True, False])
async def test_put_all_writes_nothing_when_one_version_mismatches(
    store: MetadataStore, key: str, expected: int, first: int
) -> None:
    await store.put("/a", b"1")
    await store.put("/deep/er", b"1")
    puts = [Put("/new/b", b"1", ABSENT), Put("/deep/er", b"2", 0)]
    puts.insert(0 if first else 2, Put(key, b"2", expected))
    with pytest.raises(BadVersion):
        await store.put_all(puts)
    assert await store.get("/new/b") is None
    assert await store.get("/deep/er") == Versioned(b"1", 0)
    assert await store.get("/a") == Versioned(b"1", 0)
    assert await store.put("/new/b", b"1", ABSENT) == 0


async def test_put_all_accepts_a_key_above_others(store: MetadataStore) -> None:
    await store.put("/x/a/1", b"v")
    puts = [Put("/x/a", b"1", ABSENT), Put("/x/b", b"1", ABSENT)]
    above, beside = await store.put_all(puts)
    assert await store.get("/x/a") == Versioned(b"1", above)
    assert await store.get("/x/b") == Versioned(b"1", beside)
    with pytest.raises(BadVersion):
        await store.put_all(puts)


async def test_put_all_keeps_its_place_among_other_writes(store: MetadataStore) -> None:
    writes = [store.put("/a", b"0"), store.put_all([Put("/b", b"1", ABSENT), Put("/a", b"1", 0)])]
    writes += [store.put("/a", b"2", 1), store.put_all([Put("/a", b"3", 2), Put("/b", b"2", 0)])]
    assert await asyncio.gather(*writes) == [0, [0, 1], 2, [3, 1]]


async def test_sqlite_keeps_values_over_a_close(tmp_path: Path) -> None:
    store = SqliteMetadataStore(tmp_path / "m.db")
    await store.put("/a/b", b"\0\xff")
    await store.put("/a/b", b"\0\xfe")
    await store.close()
    again = SqliteMetadataStore(tmp_path / "m.db")
    assert await again.get("/a/b") == Versioned(b"\0\xfe", 1)
    await again.close()


async def test_sqlite_refuses_writes_after_close(tmp_path: Path) -> None:
    store = SqliteMetadataStore(tmp_path / "m.db")
    pending = asyncio.ensure_future(store.put("/a", b"1"))
    await asyncio.sleep(0)
    await store.close()
    assert await pending == 0
    with pytest.raises(MetadataError):
        await store.put("/a", b"2")


async def test_sqlite_commits_many_waiting_writes_together(tmp_path: Path) -> None:
    store = SqliteMetadataStore(tmp_path / "m.db")
    commits: list[str] = []
    store._writer.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
    await asyncio.gather(*(store.put(f"/k/{number}", b"x") for number in range(500)))
    assert len(commits) <= 3
    await store.close()


async def test_sqlite_fails_and_recovers_when_the_disk_is_full(tmp_path: Path) -> None:
    store = SqliteMetadataStore(tmp_path / "m.db")
    await store.put("/a", b"1")
    pages = store._reader.execute("PRAGMA page_count").fetchone()[0]
    store._writer.execute(f"PRAGMA max_page_count={pages + 2}")
    big = asyncio.gather(
        *(store.put(f"/big/{number}", b"x" * 3000) for number in range(20)), return_exceptions=True
    )
    outcomes = await big
    assert any(isinstance(outcome, MetadataError) for outcome in outcomes)
    for number, outcome in enumerate(outcomes):
        assert (await store.get(f"/big/{number}") is None) == isinstance(outcome, MetadataError)
    store._writer.execute("PRAGMA max_page_count=1000000")
    assert await store.put("/a", b"2", 0) == 1
    assert await store.put("/big/0", b"x" * 3000) >= 0
    await store.close()


async def test_sqlite_that_waits_for_its_disk_does_not_hold_the_loop(tmp_path: Path) -> None:
    """Another connection has the file. Only the loop can end that, so a store that held the loop would fail."""
    store = SqliteMetadataStore(tmp_path / "m.db")
    other = sqlite3.connect(tmp_path / "m.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.ensure_future(store.put("/a", b"1"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not writing.done()
    other.execute("ROLLBACK")
    other.close()
    assert await writing == 0
    await store.close()


async def test_sqlite_names_the_file_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(MetadataError, match="missing"):
        SqliteMetadataStore(tmp_path / "missing" / "m.db")


CRASHING_WRITER = """
import asyncio, sys
from pathlib import Path
from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore

async def main():
    store = SqliteMetadataStore(Path(sys.argv[1]))
    number = 0
    while True:
        await asyncio.gather(*(store.put(f"/k/{number + n}", b"v") for n in range(10)))
        number += 10
        print(number, flush=True)

asyncio.run(main())
"""


def write_until_killed(path: Path) -> int:
    """Runs the writer, kills it, and returns the number of writes that it saw answered."""
    with subprocess.Popen(
        [sys.executable, "-c", CRASHING_WRITER, str(path)], stdout=subprocess.PIPE, cwd=ROOT, text=True
    ) as writer:
        assert writer.stdout is not None
        answered = next(number for line in writer.stdout if (number := int(line)) >= 300)
        writer.send_signal(signal.SIGKILL)
        return answered


async def test_sqlite_has_every_answered_write_after_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    answered = await asyncio.to_thread(write_until_killed, path)
    store = SqliteMetadataStore(path)
    kept = await store.children("/k")
    assert {str(number) for number in range(answered)} <= set(kept)
    assert len(kept) % 10 == 0, "a group was stored in part"
    await store.close()
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_record_that_an_earlier_version_has_written_meanwhile_does_not_look_damaged(
    tmp_path: Path,
) -> None:
    """An operator goes back to the version without checksums, and forwards again."""
    path = tmp_path / "store.sqlite"
    store = SqliteMetadataStore(path)
    await store.put("/a", b"1")
    await store.put("/b", b"1")
    await store.close()
    connection = sqlite3.connect(path)
    # The statement of that version.
    connection.execute("UPDATE node SET value = ?, version = version + 1 WHERE key = ?", (b"2", "/a"))
    connection.commit()
    connection.close()
    store = SqliteMetadataStore(path)
    assert await store.get("/a") == Versioned(b"2", 1)
    await store.put("/a", b"3", 1)
    await store.close()
    connection = sqlite3.connect(path)
    assert [crc is None for (crc,) in connection.execute("SELECT crc FROM node ORDER BY key")] == [False] * 2
    connection.close()


async def test_damage_of_a_large_file_is_found_behind_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store.sqlite"
    store = SqliteMetadataStore(path)
    await store.put("/a", b"1")
    await store.put("/b", b"1")
    await store.close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE node SET crc = crc + 1 WHERE key = '/a'")
    connection.commit()
    connection.close()
    with pytest.raises(MetadataError, match="1 records do not fit their checksums: '/a'"):
        SqliteMetadataStore(path)
    monkeypatch.setattr(sqlite_checks, "CHECKED_AT_START_BYTES_MAX", 0)
    store = SqliteMetadataStore(path)
    assert await store.get("/b") == Versioned(b"1", 0)
    with pytest.raises(MetadataError, match="/a does not fit its checksum"):
        await store.get("/a")
    async with asyncio.timeout(60):
        while "1 records do not fit their checksums: '/a'" not in caplog.text:  # noqa: ASYNC110 - a thread logs it
            await asyncio.sleep(0.01)
    await store.close()
