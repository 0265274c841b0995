"""RocksDB as both indexes need it: raw bytes, modest buffers, batches in slices, and opening again.

rocksdict holds the interpreter lock through a write and through its sync, so writes come in slices of
SLICE operations without sync, and what they left in the write-ahead log is synced by file descriptor,
outside the lock, before RocksDB is told to sync it. After an error of the disk RocksDB refuses all further
writes: the owner opens it again, what was not flushed is written once more.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bookie_stub.base.errors import BookieInUse, BookieStorageError
from bookie_stub.base.file_system import FileSystem

if TYPE_CHECKING:
    from rocksdict import Options, Rdict, RdictIter

SLICE = 256
"""Operations per write: about 0.3 ms."""
Put = tuple[bytes, bytes]
Pause = Callable[[], None]
"""Called between slices of work: lets other threads run."""
_TABLE_FORMAT = 5
"""Of the tables that are written: the newest one that BookKeeper 4.17's RocksDB reads."""
_WAL_NAME = re.compile(r"\d+\.log")


def no_pause() -> None:
    """For work that nobody else waits on the interpreter for: a start, a stop."""


class Rocks:
    """Reads from any thread; writes from one at a time."""

    def __init__(self, path: Path, *, buffer_bytes: int, file_system: FileSystem | None = None) -> None:
        """`file_system` syncs the write-ahead log; all other files are RocksDB's own affair."""
        self._path = path
        self._file_system = file_system or FileSystem()
        self._buffer_bytes = buffer_bytes
        self._failed = False
        self._db = self._open()

    def get(self, key: bytes) -> bytes | None:
        value: bytes | None = self._db.get(key)
        return value

    def items_from(self, key: bytes) -> Iterator[Put]:
        """In order of keys, from `key` on. Raises BookieStorageError where rows cannot be read."""
        return _rows(self._db, key, self._path)

    def floor(self, key: bytes) -> bytes | None:
        """The highest key that is not above `key`. Raises BookieStorageError where that cannot be read."""
        iterator = self._db.iter()
        iterator.seek_for_prev(key)
        _check(iterator, self._path)
        found: bytes | None = iterator.key() if iterator.valid() else None
        return found

    @property
    def sequence(self) -> int:
        """Grows by one with every change, and outlives the process."""
        return int(self._db.latest_sequence_number())

    def compact(self) -> None:
        """Rewrite all tables without what was deleted. The binding gives the interpreter's lock away meanwhile.

        Tables become one level, made beside the old ones: that needs room. RocksDB replaces them in one step, so a
        crash leaves the old ones or the new. Raises BookieStorageError.
        """
        try:
            if not self._failed:  # else the next write opens it anew
                from rocksdict import CompactOptions

                options = CompactOptions()
                # Else RocksDB's own compactions wait for this one, and then writes wait for them.
                options.set_exclusive_manual_compaction(False)
                self._db.compact_range(None, None, options)
        except Exception as error:  # rocksdict raises bare Exception for every failure of RocksDB
            raise BookieStorageError(f"{self._path}: {error}") from error

    def bytes_on_disk(self) -> int:
        total = 0
        for path in self._path.iterdir():
            with contextlib.suppress(FileNotFoundError):  # RocksDB removes files at any time
                total += path.stat().st_size
        return total

    def count_estimate(self) -> int:
        return int(self._db.property_int_value("rocksdb.estimate-num-keys") or 0)

    def write(
        self, puts: list[Put], *, deletes: list[bytes], ranges: list[Put], pause: Pause = no_pause
    ) -> None:
        """Ranges (from, up to but not including) and keys are deleted first, then `puts`; durable on return.

        Raises BookieStorageError; then the write may have happened in part and is to be repeated as a whole.
        """
        from rocksdict import WriteBatch  # loaded by then: the database is open

        try:
            if self._failed:
                self._reopen()
            batch = WriteBatch(raw_mode=True)
            for start, end in ranges:
                batch.delete_range(start, end)
            for key in deletes:
                batch.delete(key)
            for first in range(0, len(puts) or 1, SLICE):
                for key, value in puts[first : first + SLICE]:
                    batch.put(key, value)
                self._db.write(batch)
                pause()
                batch = WriteBatch(raw_mode=True)
            self._sync_log()
            self._db.flush_wal(True)
        except Exception as error:  # rocksdict raises bare Exception for every failure of RocksDB
            self._failed = True
            raise BookieStorageError(f"{self._path}: {error}") from error

    def close(self) -> None:
        self._db.close()

    def _reopen(self) -> None:
        with contextlib.suppress(Exception):  # the last attempt may have closed it and failed to open
            self._db.close()
        self._db = self._open()
        self._failed = False

    def _open(self) -> Rdict:
        from rocksdict import Rdict  # 15 ms: not for those who only want the formats

        self._path.mkdir(parents=True, exist_ok=True)
        try:
            return Rdict(str(self._path), options=_options(self._buffer_bytes))
        except Exception as error:  # rocksdict raises bare Exception for every failure of RocksDB
            if "lock" in str(error).lower():
                raise BookieInUse(f"{self._path} is open in another bookie: {error}") from None
            raise BookieStorageError(f"{self._path}: {error}") from error

    def _sync_log(self) -> None:
        logs = [path for path in self._path.iterdir() if _WAL_NAME.fullmatch(path.name)]
        newest = max(logs, key=lambda path: int(path.stem), default=None)
        if newest is None:
            return
        descriptor = self._file_system.open_to_read(newest)
        try:
            self._file_system.sync_data(descriptor)
        finally:
            self._file_system.close(descriptor)


def is_database(path: Path) -> bool:
    return (path / "CURRENT").exists()


@contextlib.contextmanager
def read_rows(path: Path) -> Iterator[Iterator[Put]]:
    """All rows of a database, in order, without changing a byte of it, whoever has it open.

    Of one that is open elsewhere it shows what was there at some moment. Raises BookieStorageError.
    """
    with _to_read(path) as db:
        yield _rows(db, b"", path)


def sequence_of(path: Path) -> int:
    """`Rocks.sequence` of a database that is not open. Raises BookieStorageError."""
    with _to_read(path) as db:
        return int(db.latest_sequence_number())


@contextlib.contextmanager
def _to_read(path: Path) -> Iterator[Rdict]:
    from rocksdict import AccessType, Rdict

    if not is_database(path):
        raise BookieStorageError(f"{path} is no RocksDB database")
    # The binding leaves a file of its own beside those that it opens, even when it only reads.
    with tempfile.TemporaryDirectory(prefix="index-") as directory:
        for file in path.iterdir():
            (Path(directory) / file.name).symlink_to(file.absolute())
        try:
            db = Rdict(directory, options=_options(1 << 20), access_type=AccessType.read_only(False))
        except Exception as error:  # rocksdict raises bare Exception for every failure of RocksDB
            raise BookieStorageError(f"{path}: {_without(directory, error)}") from error
        try:
            yield db
        except BookieStorageError as error:
            raise BookieStorageError(_without(directory, error)) from error
        finally:
            db.close()


def _without(directory: str, error: Exception) -> str:
    """RocksDB names its files; the folder of the links is of no use to anybody."""
    return str(error).replace(f"{directory}/", "")


def _rows(db: Rdict, start: bytes, path: Path) -> Iterator[Put]:
    items = db.items(from_key=start) if start else db.items()
    row = start, b""
    for row in cast("Iterator[Put]", items):  # raw mode: keys and values are bytes
        yield row
    last, _ = row
    # The binding ends at a damaged block as it does behind the last row: only an iterator's status tells them apart.
    iterator = db.iter()
    if last:
        iterator.seek(last)
    else:
        iterator.seek_to_first()
    while iterator.valid() and iterator.key() <= last:
        iterator.next()
    _check(iterator, path)


def _check(iterator: RdictIter, path: Path) -> None:
    try:
        iterator.status()
    except Exception as error:  # rocksdict raises bare Exception for every failure of RocksDB
        raise BookieStorageError(f"{path}: {error}") from error


def _options(buffer_bytes: int) -> Options:
    from rocksdict import BlockBasedOptions, Options

    tables = BlockBasedOptions()
    tables.set_format_version(_TABLE_FORMAT)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(tables)
    options.create_if_missing(True)
    options.set_write_buffer_size(buffer_bytes)
    options.set_max_write_buffer_number(4)
    options.set_keep_log_file_num(2)
    options.set_max_total_wal_size(16 * buffer_bytes)
    return options
