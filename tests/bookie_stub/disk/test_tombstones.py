"""Tombstones: the ids kept, and the disk space and memory they take."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from collections.abc import Iterable
from pathlib import Path

import pytest

from bookie_stub.base.errors import BookieStorageError
from bookie_stub.base.file_system import FileSystem
from bookie_stub.disk import id_set
from bookie_stub.disk.id_set import IdSet
from bookie_stub.disk.tombstones import Tombstones


async def test_tombstones_of_neighbouring_ids_take_few_bytes(tmp_path: Path) -> None:
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


async def test_tombstones_change_from_array_to_bitmap(tmp_path: Path) -> None:
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


def test_tombstones_add_appends_only_the_new_ids(tmp_path: Path) -> None:
    path = tmp_path / "deleted"
    scattered = [number * 7_919 << 16 for number in range(10_000)]
    tombstones = Tombstones(path, FileSystem())
    tombstones.add(scattered)
    size = path.stat().st_size
    tombstones.add([5, 1 << 50])
    assert path.stat().st_size - size < 50
    found = Tombstones(path, FileSystem(), count_min=len(scattered) + 2)
    assert len(found) == len(scattered) + 2
    assert all(ledger in found for ledger in (*scattered, 5, 1 << 50))


def test_tombstones_drop_a_block_torn_by_a_crash(tmp_path: Path) -> None:
    """The block is cut at every byte. Ids that the inventory counted are never dropped."""
    path = tmp_path / "deleted"
    tombstones = Tombstones(path, FileSystem())
    tombstones.add([1, 2, 3])
    first = path.stat().st_size
    tombstones.add([7_000_000])
    content = path.read_bytes()
    for cut in range(first, len(content)):
        path.write_bytes(content[:cut])
        after = Tombstones(path, FileSystem(), count_min=3)
        assert len(after) == 3
        with pytest.raises(BookieStorageError, match=r"at [0-9]+: it is damaged"):
            Tombstones(path, FileSystem(), count_min=4)
    after.add([8_000_000])
    assert [each in Tombstones(path, FileSystem()) for each in (3, 7_000_000, 8_000_000)] == [
        True,
        False,
        True,
    ]


def test_tombstones_read_version_one_and_replace_it(tmp_path: Path) -> None:
    """Two ids of chunk 1 and one of chunk 2, as version 1 had them."""
    path = tmp_path / "deleted"
    parts = [b"MGDL\0\0\0\1"]
    for chunk, bits in ((1, 0b101), (2, 1 << 65_535)):
        packed = zlib.compress(bits.to_bytes(8192, "little"))
        parts += [struct.pack(">qi", chunk, len(packed)), packed]
    body = b"".join(parts)
    path.write_bytes(body + struct.pack(">I", zlib.crc32(body)))
    wanted = [65_536, 65_538, 3 * 65_536 - 1]
    tombstones = Tombstones(path, FileSystem(), count_min=3)
    assert all(ledger in tombstones for ledger in wanted)
    tombstones.add([9])
    assert path.read_bytes().startswith(b"MGDL\0\0\0\2")
    found = Tombstones(path, FileSystem(), count_min=4)
    assert all(ledger in found for ledger in (*wanted, 9))
    path.write_bytes(body + struct.pack(">I", zlib.crc32(body) ^ 1))
    with pytest.raises(BookieStorageError, match="index rebuild"):
        Tombstones(path, FileSystem())


def test_tombstones_join_many_blocks_with_the_first_add_after_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bookie_stub.disk.tombstones._BLOCKS_MAX", 5)
    path = tmp_path / "deleted"
    tombstones = Tombstones(path, FileSystem())
    for ledger in range(20):
        tombstones.add([ledger])
    size = path.stat().st_size
    Tombstones(path, FileSystem()).add([20])
    assert path.stat().st_size < size / 5
    assert len(Tombstones(path, FileSystem(), count_min=21)) == 21


@pytest.mark.parametrize("last", [501, 60_000], ids=["one id more", "a long range"])
def test_id_set_has_its_ids_while_a_chunk_becomes_a_bitmap(
    last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop looks at the ids while the checkpoint's thread adds some."""
    ids = IdSet()
    for number in range(0, 1000, 2):
        ids.add_range(number, number)
    seen: list[bool] = []
    real = id_set._bits_of

    def watched(lows: Iterable[int]) -> int:
        seen.append(all(number in ids for number in range(0, 1000, 2)))
        return real(lows)

    monkeypatch.setattr(id_set, "_bits_of", watched)
    ids.add_range(501, last)
    assert seen == [True]
    assert 501 in ids


def test_id_set_moves_no_id_under_a_reader() -> None:
    ids = IdSet()
    ids.add_range(100, 100)
    seen_by_a_reader = ids._arrays[0]
    ids.add_range(50, 50)
    assert list(seen_by_a_reader) == [100]
    assert list(ids) == [50, 100]
