"""The file operations that make bytes durable, as one object that tests replace.

The journal, the entry logs, the marks and the other small files of a directory are written through a `FileSystem`, and
entry logs are read through it. A test passes a subclass that fails, waits or kills the process at an operation
(`tests/crash/crash_points.py`). RocksDB opens its files itself; only the sync of its write-ahead log comes here.

A descriptor is an int of the operating system. Every method raises the operating system's OSError.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Sequence
from mmap import mmap
from pathlib import Path

PAGE_BYTES = 4096
"""The largest unit in which disks are written."""
_PAST_CACHE: int = getattr(os, "O_DIRECT", 0)
"""Flag of open on Linux: writes go from the caller's memory to the disk, past the page cache. 0 elsewhere."""
_SYNC_THIS_WRITE: int = getattr(os, "RWF_DSYNC", 0)
"""Flag of pwritev on Linux 4.7 and later: what this one call writes is synced as fdatasync would. 0 elsewhere."""


class FileSystem:
    """The operations of the real file system."""

    def create(self, path: Path) -> int:
        """Opens a new, empty file for reading and writing. FileExistsError when there is one."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def open_to_read(self, path: Path) -> int:
        """Opens an existing file for reading."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def open_mapped(self, path: Path) -> mmap:
        """Maps a file that has at least one byte into memory.

        Bytes written to the map survive a kill of the process at once, and a power cut after `sync_mapped`.
        """
        with path.open("r+b") as file:
            return mmap(file.fileno(), 0)

    def write_mapped(self, mapped: mmap, content: bytes, offset: int) -> None:
        """Copies `content` into a mapped file, without a system call."""
        mapped[offset : offset + len(content)] = content

    def sync_mapped(self, mapped: mmap) -> None:
        """Makes what was written to a mapped file durable (msync)."""
        mapped.flush()

    def open_to_write(self, path: Path) -> int:
        """Opens an existing file for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def open_past_cache(self, path: Path) -> int:
        """Opens an existing file for writes past the page cache. OSError where the file system cannot.

        Offset, length and memory of each write are to be multiples of `PAGE_BYTES`, which suits every disk.
        """
        if not _PAST_CACHE:
            raise OSError(errno.EINVAL, "no writes past the page cache", str(path))
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC | _PAST_CACHE)

    def read(self, descriptor: int, size: int, offset: int) -> bytes:
        """Returns `size` bytes from `offset` on. Fewer come only at the end of the file."""
        return os.pread(descriptor, size, offset)

    def allocate(self, descriptor: int, offset: int, length: int) -> None:
        """Reserves disk blocks for `length` bytes, which read as zeros."""
        os.posix_fallocate(descriptor, offset, length)

    def write(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        """Writes all of `buffers`. After an error any part of them may be in the file."""
        total = sum(map(len, buffers))
        written = os.pwritev(descriptor, buffers, offset)
        if written < total:
            # The kernel may stop early, on a disk that is nearly full for one. Joining costs a copy, and is rare.
            rest = memoryview(b"".join(buffers))
            while written < total:
                written += os.pwrite(descriptor, rest[written:], offset + written)

    def sync_data(self, descriptor: int) -> None:
        """Makes the file's content durable (fdatasync).

        So is as much of its metadata as reading it needs, such as a new length.
        """
        os.fdatasync(descriptor)

    def write_and_sync(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        """Writes all of `buffers` and makes them durable.

        One system call (pwritev with RWF_DSYNC) where the kernel has it, otherwise `write` and `sync_data`. After an
        error nothing is tried again: a second sync of the same pages can succeed without having written them.
        """
        # Each system call gives the interpreter's lock away, and a busy event loop may keep it for milliseconds.
        # One call instead of two means one such wait less between every add and its answer.
        if _SYNC_THIS_WRITE:
            try:
                if os.pwritev(descriptor, buffers, offset, _SYNC_THIS_WRITE) == sum(map(len, buffers)):
                    return
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:  # this file system lacks the flag
                    raise
        self.write(descriptor, buffers, offset)
        self.sync_data(descriptor)

    def truncate(self, descriptor: int, length: int) -> None:
        """Cuts the file to `length` bytes."""
        os.ftruncate(descriptor, length)

    def close(self, descriptor: int) -> None:
        """Closes a descriptor; an error does not leave it open."""
        os.close(descriptor)

    def rename(self, path: Path, new: Path) -> None:
        """Renames a file and replaces one that has the name. The new name is durable after `sync_directory`."""
        path.rename(new)

    def link(self, path: Path, new: Path) -> None:
        """Gives a file a second name. FileExistsError when the name is taken."""
        os.link(path, new)

    def remove(self, path: Path) -> None:
        """Removes a file; a missing one is no error."""
        path.unlink(missing_ok=True)

    def share_taken(self, path: Path) -> float:
        """Returns the used share of the disk under `path`, 0 to 1.

        Blocks that the file system reserves for root count as used: this process cannot have them.
        """
        usage = shutil.disk_usage(path)
        return 1 - usage.free / usage.total

    def free_bytes(self, path: Path) -> int:
        """Returns the bytes of the disk under `path` that this process may still write."""
        return shutil.disk_usage(path).free

    def sync_directory(self, path: Path) -> None:
        """Makes the names in a directory durable (fsync of the directory).

        A file that was created, renamed, linked or removed in it may otherwise have its old name after a power cut.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def replace(self, path: Path, content: bytes) -> None:
        """Replaces a file atomically and durably. A crash leaves the old content or the new."""
        temporary = path.with_name(path.name + ".tmp")
        temporary.unlink(missing_ok=True)  # of a process that was killed here
        descriptor = self.create(temporary)
        try:
            self.write(descriptor, (content,), 0)
            # Sync before the rename: a power cut could otherwise leave the new name on an empty file.
            self.sync_data(descriptor)
        finally:
            self.close(descriptor)
        os.replace(temporary, path)
        self.sync_directory(path.parent)


def remove_quietly(file_system: FileSystem, path: Path) -> None:
    """Removes a file that has no further use, and ignores an error.

    A file that stays costs disk space; a later checkpoint or start tries again.
    """
    with contextlib.suppress(OSError):
        file_system.remove(path)
