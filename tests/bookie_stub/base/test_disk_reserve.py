"""DiskReserve: held while the disk has space, released when it is full."""

from __future__ import annotations

import errno
import os
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from bookie_stub.base.disk_reserve import BYTES_MAX, NAME, DiskReserve

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The free bytes that the disk reports, in its last item."""
    found = [1 << 30]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 32, 0, found[-1]))
    return found


def test_reserve_takes_its_space_on_disk(tmp_path: Path, free: list[int]) -> None:
    DiskReserve(tmp_path / "data").look()
    status = (tmp_path / "data" / NAME).stat()
    assert status.st_size == BYTES_MAX
    assert status.st_blocks * 512 >= BYTES_MAX


def test_reserve_is_released_once_the_disk_is_full(
    tmp_path: Path, free: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    reserve = DiskReserve(tmp_path)
    reserve.look()
    free.append(BYTES_MAX - 1)
    reserve.look()
    reserve.look()
    assert not reserve.held
    (record,) = caplog.records
    assert "is full: its reserve of 4096 KiB" in record.getMessage()


def test_reserve_comes_back_only_with_plenty_of_space(tmp_path: Path, free: list[int]) -> None:
    reserve = DiskReserve(tmp_path)
    free.append(BYTES_MAX * 2)
    reserve.look()
    assert not reserve.held
    free.append(BYTES_MAX * 9)
    reserve.look()
    assert reserve.held


def test_reserve_of_a_former_start_is_kept(tmp_path: Path, free: list[int]) -> None:
    DiskReserve(tmp_path).look()
    free.append(0)
    reserve = DiskReserve(tmp_path)
    assert reserve.held
    reserve.look()
    assert not reserve.held


def test_start_succeeds_without_the_space_for_a_reserve(
    tmp_path: Path, free: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
    reserve = DiskReserve(tmp_path)
    reserve.start()
    reserve.close()
    assert list(tmp_path.iterdir()) == []
    assert "there is no reserve" in caplog.text
