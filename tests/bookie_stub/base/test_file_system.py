"""FileSystem: a write with its sync is one call, with fallbacks where kernel or disk do less; writes past the page cache."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from mmap import mmap
from pathlib import Path

import pytest

from bookie_stub.base import file_system
from bookie_stub.base.file_system import PAGE_BYTES, FileSystem

BUFFERS = (b"one", memoryview(b"two"), b"three")
Buffers = Sequence[bytes | memoryview]


class Disk(FileSystem):
    def __init__(self) -> None:
        self.syncs = 0

    def sync_data(self, descriptor: int) -> None:
        self.syncs += 1
        super().sync_data(descriptor)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def descriptor(tmp_path: Path, disk: Disk) -> Iterator[int]:
    descriptor = disk.create(tmp_path / "file")
    yield descriptor
    disk.close(descriptor)


def content(descriptor: int) -> bytes:
    return os.pread(descriptor, 100, 0)


def test_write_and_sync_writes_all_buffers_at_the_offset(disk: Disk, descriptor: int) -> None:
    disk.write_and_sync(descriptor, BUFFERS, 2)
    assert content(descriptor) == b"\0\0onetwothree"


def test_write_and_sync_falls_back_to_fdatasync_without_the_kernel_flag(
    disk: Disk, descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwritev

    def pwritev(descriptor: int, buffers: Buffers, offset: int, flags: int = 0) -> int:
        if flags:
            raise OSError(errno.EOPNOTSUPP, "no such flag")
        return real(descriptor, buffers, offset)

    monkeypatch.setattr(os, "pwritev", pwritev)
    disk.write_and_sync(descriptor, BUFFERS, 0)
    assert content(descriptor) == b"onetwothree"
    assert disk.syncs == 1


def test_write_and_sync_writes_the_rest_when_the_kernel_stops_short(
    disk: Disk, descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwritev
    monkeypatch.setattr(
        os, "pwritev", lambda descriptor, buffers, offset, *_: real(descriptor, buffers[:1], offset)
    )
    disk.write_and_sync(descriptor, BUFFERS, 0)
    assert content(descriptor) == b"onetwothree"
    assert disk.syncs == 1


def test_write_and_sync_is_not_repeated_when_it_fails(
    disk: Disk, descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pwritev(*_: object) -> int:
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(os, "pwritev", pwritev)
    with pytest.raises(OSError, match="broken"):
        disk.write_and_sync(descriptor, BUFFERS, 0)
    assert disk.syncs == 0


def test_file_opened_past_the_cache_takes_whole_pages(disk: Disk, descriptor: int, tmp_path: Path) -> None:
    past_cache = disk.open_past_cache(tmp_path / "file")
    page = mmap(-1, PAGE_BYTES)
    page[:3] = b"one"
    disk.write_and_sync(past_cache, (memoryview(page),), PAGE_BYTES)
    disk.close(past_cache)
    assert os.pread(descriptor, 3, PAGE_BYTES) == b"one"
    assert os.fstat(descriptor).st_size == 2 * PAGE_BYTES


def test_opening_past_the_cache_fails_where_the_system_has_no_such_flag(
    disk: Disk, descriptor: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_system, "_PAST_CACHE", 0)
    with pytest.raises(OSError, match="past the page cache"):
        disk.open_past_cache(tmp_path / "file")
