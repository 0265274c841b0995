"""Rocks: RocksDB as both indexes need it. Keys and values are bytes.

Three properties of the binding (rocksdict) shape this file:

* it holds the interpreter's lock during a write and its sync. So a batch is written in slices of SLICE operations without
  a sync; then the write-ahead log is synced through its file descriptor, which gives the lock away; and when RocksDB is
  told to sync at the end, nothing is left to do.
* it ends an iteration at a damaged block as it does after the last row. Only an iterator's status tells them apart, so
  every iteration ends with a look at it; otherwise damage would read as "no such ledger".
* it raises bare `Exception` for every error of RocksDB, which is turned into BookieStorageError here.

After an error of the disk RocksDB refuses all further writes until it is opened again. `write` does that, and its caller
repeats the write as a whole.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bookie_stub.base.errors import BookieInUse, BookieStorageError
from bookie_stub.base.file_system import FileSystem

if TYPE_CHECKING:
    from rocksdict import Options, Rdict, RdictIter

SLICE = 256
"""Operations per write: about 0.3 ms with the interpreter's lock held."""
Put = tuple[bytes, bytes]
"""A key and its value."""
Pause = Callable[[], None]
"""Called between two slices of work; it may sleep, so that other threads get the interpreter."""
_TABLE_FORMAT = 5
"""The newest format of tables that BookKeeper 4.17's RocksDB reads."""
_LOCKED = re.compile(r"While lock file|lock hold by")
"""In RocksDB's text when another process, or this one, has the database open."""
_OPENINGS_MAX = 20
"""Attempts at opening a database whose files another process replaces meanwhile."""
_REBUILD = "; run `magnetar bookie index rebuild` with this bookie's settings"
_BUFFER_SHARE_MAX = 1 / 256
"""Largest share of a small disk that a memtable may have."""
_MANIFEST_BYTES = 64 << 10
"""Bytes that RocksDB reserves for its list of files, by default 4 MiB."""
_WAL_NAME = re.compile(r"\d+\.log")


def no_pause() -> None:
    """Does nothing: the pause of work that delays no other thread, such as a start and a stop."""


class Rocks:
    """One open database. Any thread reads; one thread writes at a time."""

    def __init__(self, path: Path, *, buffer_bytes: int, file_system: FileSystem | None = None) -> None:
        """Opens the database, or makes it. Raises BookieInUse and BookieStorageError.

        `file_system` syncs the write-ahead log; RocksDB handles all other files itself. `buffer_bytes` is the size of a
        memtable.
        """
        self._path = path
        self._file_system = file_system or FileSystem()
        path.mkdir(parents=True, exist_ok=True)
        # An open writes the memtable of its write-ahead log out, and reserves as much for the next log.
        self._buffer_bytes = min(buffer_bytes, int(shutil.disk_usage(path).total * _BUFFER_SHARE_MAX))
        self._failed = False
        self._db = self._open()

    def get(self, key: bytes) -> bytes | None:
        """Returns the value of a key, None without one."""
        value: bytes | None = self._db.get(key)
        return value

    def items_from(self, key: bytes) -> Iterator[Put]:
        """Yields rows in the order of their keys, from `key` on. BookieStorageError where a row cannot be read."""
        return _rows(self._db, key, self._path)

    def floor(self, key: bytes) -> bytes | None:
        """Returns the highest key up to `key`, None without one. BookieStorageError where it cannot be read."""
        iterator = self._db.iter()
        iterator.seek_for_prev(key)
        # An iterator at a damaged block is as invalid as one at the end; the status tells them apart.
        _check(iterator, self._path)
        found: bytes | None = iterator.key() if iterator.valid() else None
        return found

    @property
    def sequence(self) -> int:
        """RocksDB's sequence number, which outlives the process.

        It grows by one with every row that is put or deleted.
        """
        return int(self._db.latest_sequence_number())

    def compact(self) -> None:
        """Rewrites all tables without deleted rows.

        The binding gives the interpreter's lock away meanwhile.
        The new tables are made beside the old ones, so it needs free space for both. RocksDB replaces them in one step:
        a crash leaves the old tables or the new. BookieStorageError.
        """
        try:
            if not self._failed:  # a failed database is opened again by the next write
                from rocksdict import CompactOptions

                options = CompactOptions()
                # With an exclusive one RocksDB's own compactions wait for this one, and writes then wait for them.
                options.set_exclusive_manual_compaction(False)
                self._db.compact_range(None, None, options)
        except Exception as error:  # rocksdict raises bare Exception for every failure of RocksDB
            raise BookieStorageError(f"{self._path}: {error}") from error

    def bytes_on_disk(self) -> int:
        """Returns the bytes of the database's files."""
        total = 0
        for path in self._path.iterdir():
            with contextlib.suppress(FileNotFoundError):  # RocksDB removes files at any time
                total += path.stat().st_size
        return total

    def count_estimate(self) -> int:
        """Returns RocksDB's estimate of the number of rows."""
        return int(self._db.property_int_value("rocksdb.estimate-num-keys") or 0)

    def write(
        self, puts: list[Put], *, deletes: list[bytes], ranges: list[Put], pause: Pause = no_pause
    ) -> None:
        """Deletes ranges and keys, then puts rows; durable on return.

        A range is deleted from its first key up to, and without, its second.
        BookieStorageError; then any part may have been written, and the write must be repeated as a whole.
        """
        from rocksdict import WriteBatch  # loaded by then: the database is open

        try:
            if self._failed:
                # Here and not in the error path of the last write: a disk that is full may still be full, and reads
                # go on without it.
                self._reopen()
            batch = WriteBatch(raw_mode=True)
            # Deletions first: the puts may have new rows of a ledger that was emptied in the same checkpoint.
            for start, end in ranges:
                batch.delete_range(start, end)
            for key in deletes:
                batch.delete(key)
            # `or 1` writes the deletions when there is nothing to put.
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
        """Closes the database."""
        self._db.close()

    def _reopen(self) -> None:
        with contextlib.suppress(Exception):  # the last attempt may have closed it and failed to open
            self._db.close()
        self._db = self._open()
        self._failed = False

    def _open(self) -> Rdict:
        from rocksdict import Rdict  # takes 15 ms, which callers that only want the formats need not spend

        self._path.mkdir(parents=True, exist_ok=True)
        try:
            return Rdict(str(self._path), options=_options(self._buffer_bytes))
        except Exception as error:  # rocksdict raises bare Exception for every failure of RocksDB
            # The binding has one class for all errors, so only the text tells a second process from a broken disk. "lock"
            # alone would match the damaged "block" of a corrupt file too.
            if _LOCKED.search(str(error)):
                raise BookieInUse(f"{self._path} is open in another bookie: {error}") from None
            remedy = _REBUILD if "Corruption" in str(error) else ""
            raise BookieStorageError(f"{self._path}: {error}{remedy}") from error

    def _sync_log(self) -> None:
        """Syncs the newest write-ahead log without holding the interpreter's lock. OSError."""
        # The newest log has nearly all of the batch. `flush_wal` after this syncs what an older one may still lack.
        logs = [path for path in self._path.iterdir() if _WAL_NAME.fullmatch(path.name)]
        newest = max(logs, key=lambda path: int(path.stem), default=None)
        if newest is None:
            return
        try:
            descriptor = self._file_system.open_to_read(newest)
        except FileNotFoundError:
            # `compact` has synced its rows in a table since it was listed, and removed it.
            return
        try:
            self._file_system.sync_data(descriptor)
        finally:
            self._file_system.close(descriptor)


def is_database(path: Path) -> bool:
    """Returns whether a directory holds a RocksDB database. The file CURRENT makes it one."""
    return (path / "CURRENT").exists()


@contextlib.contextmanager
def read_rows(path: Path) -> Iterator[Iterator[Put]]:
    """Opens a database to read, and gives its rows in order.

    No byte of it is changed.
    It may be open in a running bookie; then the rows are those of some moment. BookieStorageError.
    """
    with _to_read(path) as db:
        yield _rows(db, b"", path)


def sequence_of(path: Path) -> int:
    """Returns the sequence number of a database that is not open. See `Rocks.sequence`. BookieStorageError."""
    with _to_read(path) as db:
        return int(db.latest_sequence_number())


@contextlib.contextmanager
def _to_read(path: Path) -> Iterator[Rdict]:
    if not is_database(path):
        raise BookieStorageError(f"{path} is no RocksDB database: it has no file CURRENT")
    # Imported for tools alone, which read an index in place.
    import tempfile

    # The binding writes `rocksdict-config.json` into each directory that it opens, even to read. So it gets a directory
    # of links.
    with tempfile.TemporaryDirectory(prefix="index-") as directory:
        db = _opened_links(path, directory)
        try:
            yield db
        except BookieStorageError as error:
            raise BookieStorageError(_without(directory, error)) from error
        finally:
            db.close()


def _opened_links(path: Path, directory: str) -> Rdict:
    """Opens the database by links in a directory below the given one. BookieStorageError."""
    from rocksdict import AccessType, Rdict

    attempt = 0
    while True:
        attempt += 1
        files = set(path.iterdir())
        links = Path(directory) / str(attempt)
        links.mkdir()
        for file in files:
            (links / file.name).symlink_to(file.absolute())
        try:
            return Rdict(str(links), options=_options(1 << 20), access_type=AccessType.read_only(False))
        except Exception as error:  # rocksdict raises bare Exception for every failure of RocksDB
            # A running bookie may have replaced files since they were listed: then the newer ones are opened.
            if set(path.iterdir()) == files or attempt == _OPENINGS_MAX:
                raise BookieStorageError(f"{path}: {_without(directory, error)}") from error


def _without(directory: str, error: Exception) -> str:
    """Returns an error's text without the directory of links. That directory is gone when the text is read."""
    return re.sub(rf"{re.escape(directory)}/\d+/", "", str(error))


def _rows(db: Rdict, start: bytes, path: Path) -> Iterator[Put]:
    items = db.items(from_key=start) if start else db.items()
    row = start, b""
    for row in cast("Iterator[Put]", items):  # raw mode: keys and values are bytes
        yield row
    last, _ = row
    # The binding's own iteration does not give its status. A second iterator steps over the last row, to the same place.
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
        raise BookieStorageError(f"{path}: {error}; run `magnetar bookie check`") from error


def _options(buffer_bytes: int) -> Options:
    from rocksdict import BlockBasedOptions, Options

    tables = BlockBasedOptions()
    tables.set_format_version(_TABLE_FORMAT)
    # Raw: otherwise the binding encodes Python's types into keys and values, and BookKeeper could not read them.
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(tables)
    options.create_if_missing(True)
    options.set_write_buffer_size(buffer_bytes)
    options.set_manifest_preallocation_size(_MANIFEST_BYTES)
    # As at BookKeeper.
    options.set_max_write_buffer_number(4)
    # Each open begins a new file LOG, and RocksDB keeps a thousand of them by default.
    options.set_keep_log_file_num(2)
    # Bounds the log that an open must replay, and the space it takes.
    options.set_max_total_wal_size(16 * buffer_bytes)
    return options
