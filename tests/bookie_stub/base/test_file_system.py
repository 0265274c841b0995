"""Writing and syncing in one call, and what takes its place where the kernel or the disk does less than asked for."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bookie_stub.base.file_system import FileSystem

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


def test_what_is_written_and_synced_is_there(disk: Disk, descriptor: int) -> None:
    disk.write_and_sync(descriptor, BUFFERS, 2)
    assert content(descriptor) == b"\0\0onetwothree"


def test_a_file_system_that_knows_no_synced_writes(
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


def test_a_write_that_stops_short_goes_on(
    disk: Disk, descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwritev
    monkeypatch.setattr(
        os, "pwritev", lambda descriptor, buffers, offset, *_: real(descriptor, buffers[:1], offset)
    )
    disk.write_and_sync(descriptor, BUFFERS, 0)
    assert content(descriptor) == b"onetwothree"
    assert disk.syncs == 1


def test_a_sync_that_fails_is_not_tried_again(
    disk: Disk, descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pwritev(*_: object) -> int:
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(os, "pwritev", pwritev)
    with pytest.raises(OSError, match="broken"):
        disk.write_and_sync(descriptor, BUFFERS, 0)
    assert disk.syncs == 0
