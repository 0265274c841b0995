"""Which groups the journal writes past the page cache, and what it does where the file system refuses that."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from bookie_stub.journal.journal_channel import FILL_BYTES, PAST_CACHE_BYTES_MAX
from protocol.bookie_frame import RC_OK
from tests.bookie_stub.conftest import Bench, FaultyFileSystem
from tests.bookie_stub.files import crash


class WatchedFileSystem(FaultyFileSystem):
    """Notes each group that goes past the cache, and the offsets of the zeros that were written for them."""

    def __init__(self) -> None:
        super().__init__()
        self.past_cache: set[int] = set()
        self.groups: list[bool] = []
        self.filled: list[int] = []
        self.refuses_fills = False

    def open_past_cache(self, path: Path) -> int:
        descriptor = super().open_past_cache(path)
        self.past_cache.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        self.past_cache.discard(descriptor)
        super().close(descriptor)

    def write(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        if descriptor in self.past_cache and self.refuses_fills:
            raise OSError(errno.EINVAL, "larger units are wanted")
        super().write(descriptor, buffers, offset)
        if descriptor in self.past_cache and len(buffers[0]) == FILL_BYTES:
            self.filled.append(offset)

    def write_and_sync(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        self.groups.append(descriptor in self.past_cache)
        super().write_and_sync(descriptor, buffers, offset)


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[tuple[Bench, WatchedFileSystem]]:
    bench = Bench(tmp_path)
    bench.file_system = disk = WatchedFileSystem()
    yield bench, disk
    if bench.bookie is not None:
        bench.close()


async def test_small_groups_after_the_first_go_past_the_cache(
    watched: tuple[Bench, WatchedFileSystem],
) -> None:
    bench, disk = watched
    bench.open()
    for entry in range(3):
        assert await bench.add(1, entry) == RC_OK
    assert disk.groups == [False, True, True]


async def test_large_group_goes_through_the_cache(watched: tuple[Bench, WatchedFileSystem]) -> None:
    bench, disk = watched
    bench.open()
    for entry, size in enumerate((1, 1, PAST_CACHE_BYTES_MAX, 1)):
        assert await bench.add(1, entry, b"x" * size) == RC_OK
    assert disk.groups == [False, True, False, True]


async def test_blocks_are_filled_again_when_small_groups_have_used_them(
    watched: tuple[Bench, WatchedFileSystem],
) -> None:
    bench, disk = watched
    bench.open()
    count = 2 * FILL_BYTES // (PAST_CACHE_BYTES_MAX // 2)
    for entry in range(count):
        assert await bench.add(1, entry, b"x" * (PAST_CACHE_BYTES_MAX // 2)) == RC_OK
    assert len(disk.filled) == 3
    assert disk.groups == [False] + [True] * (count - 1)


async def test_entries_of_both_ways_are_read_back_after_a_crash(
    watched: tuple[Bench, WatchedFileSystem], tmp_path: Path
) -> None:
    bench, disk = watched
    bench.open()
    sizes = (10, 20, PAST_CACHE_BYTES_MAX, 5000, 3 * PAST_CACHE_BYTES_MAX, 30)
    for entry, size in enumerate(sizes):
        assert await bench.add(1, entry, b"x" * size) == RC_OK
    assert set(disk.groups) == {True, False}
    after = crash(bench, tmp_path)
    for entry, size in enumerate(sizes):
        assert await after.read(1, entry) == (RC_OK, b"x" * size)
    after.close()


async def test_all_groups_go_through_the_cache_where_the_file_system_has_no_other_way(
    watched: tuple[Bench, WatchedFileSystem],
) -> None:
    bench, disk = watched
    disk.fails["open_past_cache"] = errno.EINVAL
    bench.open()
    assert [await bench.add(1, entry) for entry in range(3)] == [RC_OK] * 3
    assert disk.groups == [False] * 3


async def test_all_groups_go_through_the_cache_when_the_zeros_are_refused(
    watched: tuple[Bench, WatchedFileSystem],
) -> None:
    bench, disk = watched
    disk.refuses_fills = True
    bench.open()
    assert [await bench.add(1, entry) for entry in range(3)] == [RC_OK] * 3
    assert disk.groups == [False] * 3
    assert not disk.past_cache
