"""Objects as files: written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from foundation.objects.file_objects import UNFINISHED, FileObjects
from foundation.objects.object_storage import NoSuchObject, ObjectStorageError
from foundation.objects.opening import open_objects


async def chunks(*data: bytes) -> AsyncIterator[bytes]:
    for one in data:
        yield one


async def keys(objects: FileObjects) -> list[str]:
    return sorted([one.key async for one in objects.scan()])


async def test_an_object_is_read_back_whole_and_in_ranges(tmp_path: Path) -> None:
    objects = FileObjects(tmp_path)
    await objects.put("a", chunks(b"0123", b"", b"456789"), {})
    assert await objects.get("a") == b"0123456789"
    assert await objects.get_range("a", 3, 4) == b"3456"
    assert await objects.get_range("a", 8, 9) == b"89"
    assert [(one.key, one.size_bytes) async for one in objects.scan()] == [("a", 10)]


async def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"some"
        raise ValueError("the ledger is gone")

    objects = FileObjects(tmp_path)
    with pytest.raises(ValueError, match="the ledger is gone"):
        await objects.put("a", failing(), {})
    assert await keys(objects) == []


async def test_file_of_a_killed_writer_is_listed_and_deleted(tmp_path: Path) -> None:
    objects = FileObjects(tmp_path)
    (tmp_path / f"a{UNFINISHED}").write_bytes(b"half")
    with pytest.raises(NoSuchObject):
        await objects.get("a")
    assert await keys(objects) == ["a"]
    await objects.delete("a")
    await objects.delete("a")
    assert await keys(objects) == []


async def test_a_name_stays_in_its_folder(tmp_path: Path) -> None:
    objects = FileObjects(tmp_path)
    for key in ("../a", "a/b", "..", ""):
        with pytest.raises(ObjectStorageError):
            await objects.get(key)


async def test_an_error_of_the_disk_names_the_object(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    objects = FileObjects(tmp_path / "file")
    with pytest.raises(ObjectStorageError, match="file/a"):
        await objects.put("a", chunks(b"x"), {})


@pytest.mark.parametrize("uri", ["", "file:///", "file://", "/tmp/a", "s3://", "http://x/y", "hdfs://a/b"])
def test_another_uri_is_refused(uri: str) -> None:
    with pytest.raises(ObjectStorageError, match="is expected"):
        open_objects(uri)


def test_a_folder_with_a_space_is_opened(tmp_path: Path) -> None:
    assert open_objects((tmp_path / "a b").as_uri()).uri == (tmp_path / "a b").as_uri()


async def test_an_empty_folder_is_away_and_has_lost_nothing(tmp_path: Path) -> None:
    """So is the place of a file system that is not mounted."""
    objects = FileObjects(tmp_path)
    for read in (objects.get("a"), objects.get_range("a", 0, 1)):
        with pytest.raises(ObjectStorageError, match="is it mounted") as found:
            await read
        assert not isinstance(found.value, NoSuchObject)
    assert await keys(objects) == []
    await objects.delete("a")
    await objects.put("a", chunks(b"all"), {})
    assert await objects.get("a") == b"all"


CALLS: Final[Mapping[str, Callable[[FileObjects], Awaitable[object]]]] = {
    "put": lambda objects: objects.put("a", chunks(b"all"), {}),
    "get": lambda objects: objects.get("a"),
    "get_range": lambda objects: objects.get_range("a", 0, 1),
    "delete": lambda objects: objects.delete("a"),
    "scan": keys,
}


@pytest.mark.parametrize("call", CALLS)
async def test_a_missing_folder_is_an_error_and_is_not_made(tmp_path: Path, call: str) -> None:
    """Files that are written below a mount point hide those of the file system that is mounted there later."""
    folder = tmp_path / "mount" / "objects"
    with pytest.raises(ObjectStorageError, match="objects does not exist: make it for the first") as found:
        await CALLS[call](FileObjects(folder))
    assert not isinstance(found.value, NoSuchObject)
    assert os.listdir(tmp_path) == []
