"""The file of deleted ledgers: what it keeps, what it takes of disk and memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from bookie_stub.errors import BookieStorageError
from bookie_stub.file_system import FileSystem
from bookie_stub.tombstones import Tombstones


async def test_many_tombstones_are_few_bytes(tmp_path: Path) -> None:
    path = tmp_path / "deleted"
    wanted = {*range(100_000), *range(200_000, 300_000, 3), 2**62 + 5}
    Tombstones(path, FileSystem()).add(wanted)
    found = Tombstones(path, FileSystem())
    assert len(found) == len(wanted)
    assert all(ledger in found for ledger in wanted)
    assert not any(ledger in found for ledger in (100_000, 200_001, 2**62 + 4, 2**62))
    assert path.stat().st_size < 10_000
    found.add([100_000])
    assert 100_000 in Tombstones(path, FileSystem())
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(BookieStorageError, match="index rebuild"):
        Tombstones(path, FileSystem())


async def test_tombstones_of_scattered_ids_take_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "deleted"
    scattered = [number << 40 | 65_534 - number for number in range(1, 1001)]
    tracemalloc.start()
    try:
        tombstones = Tombstones(path, FileSystem())
        tombstones.add(scattered)
        found = Tombstones(path, FileSystem())
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < 2 * len(scattered) * 1024
    for each in (tombstones, found):
        assert len(each) == len(scattered)
        assert all(ledger in each and ledger + 1 not in each for ledger in scattered)


async def test_tombstones_go_from_few_to_many(tmp_path: Path) -> None:
    path = tmp_path / "deleted"
    tombstones = Tombstones(path, FileSystem())
    assert tombstones.highest == -1
    places = [number * 131 % 65_536 for number in range(1200)]
    for count in (1, 499, 500, 501, 1200):
        tombstones.add(places[:count])
        for each in (tombstones, Tombstones(path, FileSystem())):
            assert [ledger for ledger in range(65_536 + 10) if ledger in each] == sorted(places[:count])
            assert (len(each), each.highest) == (count, max(places[:count]))
    tombstones.add([2**40, 2**40 - 1])
    assert Tombstones(path, FileSystem()).highest == 2**40
