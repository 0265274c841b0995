"""The few operations on files that durability and reads depend on, as one object, so that tests can make them fail.

Everything that the journal, the entry logs and the mark write goes through here, and what is read of the
entry logs. RocksDB has its own files and is not covered. Errors are the operating system's `OSError`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Sequence
from mmap import mmap
from pathlib import Path

_SYNC_THIS_WRITE: int = getattr(os, "RWF_DSYNC", 0)
"""Linux: syncs the range written as fdatasync does, with the file's length and whatever else its reading needs."""


class FileSystem:
    """The real one. A descriptor is an int of the operating system."""

    def create(self, path: Path) -> int:
        """A new, empty file; FileExistsError if there is one."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def open_to_read(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def open_mapped(self, path: Path) -> mmap:
        """A file that is not empty. What is written to it survives the process, and what is synced the machine."""
        with path.open("r+b") as file:
            return mmap(file.fileno(), 0)

    def write_mapped(self, mapped: mmap, content: bytes, offset: int) -> None:
        mapped[offset : offset + len(content)] = content

    def sync_mapped(self, mapped: mmap) -> None:
        mapped.flush()

    def open_to_write(self, path: Path) -> int:
        """A file that there is."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def read(self, descriptor: int, size: int, offset: int) -> bytes:
        """Fewer than `size` bytes at the end of the file only."""
        return os.pread(descriptor, size, offset)

    def allocate(self, descriptor: int, offset: int, length: int) -> None:
        """Reserve space that reads as zeros."""
        os.posix_fallocate(descriptor, offset, length)

    def write(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        """All of `buffers` or an error; after an error any part may have been written."""
        total = sum(map(len, buffers))
        written = os.pwritev(descriptor, buffers, offset)
        if written < total:
            rest = memoryview(b"".join(buffers))
            while written < total:
                written += os.pwrite(descriptor, rest[written:], offset + written)

    def sync_data(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def write_and_sync(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        """`write`, and then what it wrote is durable: one call where the kernel offers that, as the interpreter may
        be long in coming back after each."""
        if _SYNC_THIS_WRITE:
            try:
                if os.pwritev(descriptor, buffers, offset, _SYNC_THIS_WRITE) == sum(map(len, buffers)):
                    return
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:
                    raise
        self.write(descriptor, buffers, offset)
        self.sync_data(descriptor)

    def truncate(self, descriptor: int, length: int) -> None:
        os.ftruncate(descriptor, length)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def rename(self, path: Path, new: Path) -> None:
        path.rename(new)

    def link(self, path: Path, new: Path) -> None:
        """A second name for the same file; FileExistsError if the name is taken."""
        os.link(path, new)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def share_taken(self, path: Path) -> float:
        """Of the disk that holds `path`, by what a process may still take: 0 to 1."""
        usage = shutil.disk_usage(path)
        return 1 - usage.free / usage.total

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def replace(self, path: Path, content: bytes) -> None:
        """Atomically and durably: after a crash the file holds the old content or the new."""
        temporary = path.with_name(path.name + ".tmp")
        temporary.unlink(missing_ok=True)
        descriptor = self.create(temporary)
        try:
            self.write(descriptor, (content,), 0)
            self.sync_data(descriptor)
        finally:
            self.close(descriptor)
        os.replace(temporary, path)
        self.sync_directory(path.parent)


def remove_quietly(file_system: FileSystem, path: Path) -> None:
    """For files that nobody needs any more: a failure costs space and is tried again at the next start."""
    with contextlib.suppress(OSError):
        file_system.remove(path)
