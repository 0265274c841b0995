"""FileObjects: objects as plain files in one folder. Calls that wait for the disk run in threads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from foundation.objects.object_storage import NoSuchObject, ObjectStorageError, StoredObject

UNFINISHED: Final = ".part"
"""Ends the name of a file that is being written."""
T = TypeVar("T")


class FileObjects:
    """A folder of objects. A file has its name once all of its bytes are synced, so a reader never sees a part."""

    def __init__(self, folder: Path) -> None:
        """The folder must exist: one made below a mount point would hide that its file system is not mounted."""
        self._folder = folder

    @property
    def uri(self) -> str:
        """The folder as a URI."""
        return self._folder.absolute().as_uri()

    async def put(self, key: str, chunks: AsyncIterator[bytes], attributes: Mapping[str, str]) -> None:
        """Writes a file, syncs it and its folder. `attributes` are not kept."""
        path = self._path(key)
        part = path.with_name(path.name + UNFINISHED)
        file = await self._run(key, lambda: part.open("wb"))
        try:
            async for chunk in chunks:
                await self._run(key, lambda data=chunk: file.write(data))  # type: ignore[misc]
            await self._run(key, lambda: self._finish(file, part, path))
        except BaseException:
            file.close()
            with suppress(OSError):
                part.unlink()
            raise

    def _finish(self, file: BinaryIO, part: Path, path: Path) -> None:
        file.flush()
        os.fsync(file.fileno())
        file.close()
        part.replace(path)
        self._sync_folder()

    def _sync_folder(self) -> None:
        # Without it a power failure may lose the name of a synced file.
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """Returns bytes of a file. Raises NoSuchObject, in a folder without any file ObjectStorageError alone."""

        def read() -> bytes:
            with self._path(key).open("rb") as file:
                file.seek(start)
                return file.read(length)

        return await self._run(key, read)

    async def get(self, key: str) -> bytes:
        """Returns all bytes of a file. Raises NoSuchObject and ObjectStorageError."""
        return await self._run(key, self._path(key).read_bytes)

    async def delete(self, key: str) -> None:
        """Deletes a file and an unfinished one of its name. Raises ObjectStorageError."""
        path = self._path(key)

        def unlink() -> None:
            # In an open folder, so that a file without a folder is an error and a missing file is none.
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                for name in (path.name, path.name + UNFINISHED):
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=folder)
            finally:
                os.close(folder)

        await self._run(key, unlink)

    async def scan(self) -> AsyncIterator[StoredObject]:
        """Yields all files, unfinished ones too: without an owner they are left over as well."""
        for found in await self._run("", self._files):
            yield found

    def _files(self) -> list[StoredObject]:
        with os.scandir(self._folder) as found:
            files = [(one.name, one.stat()) for one in found if one.is_file()]
        return [
            StoredObject(name.removesuffix(UNFINISHED), stat.st_size, stat.st_mtime_ns // 1_000_000)
            for name, stat in files
        ]

    def _without(self, key: str) -> ObjectStorageError:
        """Returns the error of a missing file, by what its folder has."""
        try:
            with os.scandir(self._folder) as found:
                if next(found, None) is not None:
                    return NoSuchObject(f"{self.uri}/{key} does not exist")
        except FileNotFoundError:
            return ObjectStorageError(f"{self.uri} does not exist: make it for the first copy, or mount it")
        except OSError as error:
            return ObjectStorageError(f"{self.uri}: {error}")
        return ObjectStorageError(f"{self.uri} has no files at all: is it mounted?")

    def _path(self, key: str) -> Path:
        if "/" in key or key in ("", ".", ".."):
            raise ObjectStorageError(f"{key!r} is no name of an object")
        return self._folder / key

    async def _run(self, key: str, call: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(call)
        except FileNotFoundError as error:
            raise await asyncio.to_thread(self._without, key) from error
        except OSError as error:
            raise ObjectStorageError(f"{self.uri}/{key}: {error}") from error
