"""Named places at which a bookie's process is killed: before, in the middle of and behind operations on its files.

A name is what the file is, what is done to it, and when. The product knows nothing of this: the points are a file
system that counts, put in the place of the real one by the process under test.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from mmap import mmap
from pathlib import Path

from bookie_stub.base.file_system import FileSystem

POINT, COUNT = "CRASH_POINT", "CRASH_COUNT"
"""Environment: the name, and how often the place is passed before."""

POINTS = (
    "journal.create.before",
    "journal.create.after",
    "journal.write.before",
    "journal.write.half",
    "journal.write.after",
    "journal.sync.after",
    "durable.write.before",
    "durable.write.half",
    "durable.write.after",
    "durable.sync.after",
    "journal.truncate.before",
    "journal.truncate.after",
    "journal.remove.before",
    "journal.remove.after",
    "last-id.replace.before",
    "last-id.replace.after",
    "log.create.after",
    "log.write.before",
    "log.write.half",
    "log.write.after",
    "log.sync.before",
    "log.sync.after",
    "tombstones.write.before",
    "tombstones.write.half",
    "tombstones.sync.before",
    "tombstones.sync.after",
    "locations.sync.before",
    "locations.sync.after",
    "ledgers.sync.before",
    "ledgers.sync.after",
    "inventory.sync.before",
    "inventory.replace.before",
    "inventory.replace.after",
    "mark.sync.after",
    "mark.replace.before",
    "mark.replace.after",
    "log.remove.before",
    "log.remove.after",
    "compacting.create.after",
    "compacting.write.half",
    "compacting.write.after",
    "compacting.sync.before",
    "compacting.sync.after",
    "compacting.rename.before",
    "compacting.rename.after",
    "compacted.link.before",
    "compacted.link.after",
    "compacted.remove.before",
    "compacted.remove.after",
)
OFTEN = ("journal.write", "journal.sync", "durable.write")
"""Passed with each group. So that something is acknowledged by then, the kill comes later there."""
_KINDS = {".txn": "journal", ".compacting": "compacting", ".compacted": "compacted"}
_NAMES = {
    "lastMark": "mark",
    "lastId": "last-id",
    "deleted": "tombstones",
    "inventory": "inventory",
    "durable": "durable",
}


def kind_of(path: Path) -> str:
    """`log` is an entry log; a RocksDB's write-ahead log is named by its database."""
    if path.parent.name in ("locations", "ledgers"):
        return path.parent.name
    name = path.name.removesuffix(".tmp")
    return _NAMES.get(name) or _KINDS.get(Path(name).suffix) or ("log" if name.endswith(".log") else "other")


class CrashPoints(FileSystem):
    def __init__(self, point: str, count: int) -> None:
        """Dies when `point` is passed for the `count`-th time, 1 the first."""
        self._point = point
        self._left = count
        self._kinds: dict[int, str] = {}

    @classmethod
    def from_environment(cls) -> FileSystem:
        point = os.environ.get(POINT)
        return FileSystem() if point is None else cls(point, int(os.environ[COUNT]))

    def _pass(self, point: str) -> None:
        if self._is_here(point):
            os.kill(os.getpid(), signal.SIGKILL)

    def _is_here(self, point: str) -> bool:
        if point != self._point:
            return False
        self._left -= 1
        return self._left == 0

    @contextmanager
    def _around(self, kind: str, operation: str) -> Iterator[None]:
        self._pass(f"{kind}.{operation}.before")
        yield
        self._pass(f"{kind}.{operation}.after")

    def create(self, path: Path) -> int:
        with self._around(kind_of(path), "create"):
            descriptor = super().create(path)
        self._kinds[descriptor] = kind_of(path)
        return descriptor

    def open_to_read(self, path: Path) -> int:
        descriptor = super().open_to_read(path)
        self._kinds[descriptor] = kind_of(path)
        return descriptor

    def open_past_cache(self, path: Path) -> int:
        descriptor = super().open_past_cache(path)
        self._kinds[descriptor] = kind_of(path)
        return descriptor

    def write_mapped(self, mapped: mmap, content: bytes, offset: int) -> None:
        """The only one that is mapped is `durable`."""
        if self._is_here("durable.write.half"):
            super().write_mapped(mapped, content[: len(content) // 2], offset)
            os.kill(os.getpid(), signal.SIGKILL)
        with self._around("durable", "write"):
            super().write_mapped(mapped, content, offset)

    def sync_mapped(self, mapped: mmap) -> None:
        with self._around("durable", "sync"):
            super().sync_mapped(mapped)

    def open_to_write(self, path: Path) -> int:
        descriptor = super().open_to_write(path)
        self._kinds[descriptor] = kind_of(path)
        return descriptor

    def write(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        kind = self._kinds[descriptor]
        if self._is_here(f"{kind}.write.half"):
            # One buffer may go past the page cache, which takes aligned memory alone.
            data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
            super().write(descriptor, (data[: len(data) // 2],), offset)
            os.kill(os.getpid(), signal.SIGKILL)
        with self._around(kind, "write"):
            super().write(descriptor, buffers, offset)

    def sync_data(self, descriptor: int) -> None:
        with self._around(self._kinds[descriptor], "sync"):
            super().sync_data(descriptor)

    def write_and_sync(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        self.write(descriptor, buffers, offset)
        self.sync_data(descriptor)

    def truncate(self, descriptor: int, length: int) -> None:
        with self._around(self._kinds[descriptor], "truncate"):
            super().truncate(descriptor, length)

    def rename(self, path: Path, new: Path) -> None:
        with self._around(kind_of(path), "rename"):
            super().rename(path, new)

    def link(self, path: Path, new: Path) -> None:
        with self._around(kind_of(path), "link"):
            super().link(path, new)

    def remove(self, path: Path) -> None:
        with self._around(kind_of(path), "remove"):
            super().remove(path)

    def replace(self, path: Path, content: bytes) -> None:
        with self._around(kind_of(path), "replace"):
            super().replace(path, content)
