"""SqliteMetadataStore: the metadata store in one file, safe against `kill -9` and power loss.

The laws:

1. Writes wait in a queue. One thread takes all that wait, applies them in order in one transaction and commits once
   (write-ahead log, `synchronous=FULL`), so opening a thousand topics costs a few fsyncs.
2. Versions are compared inside that transaction, so no write of another connection can come in between.
3. Reads see what is committed. They are made at once on the loop's thread through a connection of their own, which
   does not wait for the writer.
4. When a commit fails, on a full disk for example, everything in that group fails with MetadataError and none of it is
   stored; the next group starts afresh.
5. One process uses the file, so its session is the store's life: a start removes the ephemeral keys that a killed process
   has left, and watches are told by the store's own writes. There is no news of the session.
6. A server of the file (`metadata_server.py`) has a session for each of its clients. The file keeps which of them made an
   ephemeral key, so that sessions outlive a restart of the server.
7. A start is refused when a record does not fit its checksum, or when commits are missing (`sqlite_checks.py`). A file
   above 64 MiB is checked after the start, which logs damage.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from bookkeeper.metadata.local_watches import WatchedLocally
from bookkeeper.metadata.metadata_store import (
    ABSENT,
    VALUE_BYTES_MAX,
    Check,
    Ephemeral,
    SessionState,
    Versioned,
    Write,
)
from bookkeeper.metadata.sqlite_checks import (
    CommitCount,
    check_commits,
    check_later,
    check_records,
    checks_later,
    crc_of,
)
from foundation.model.errors import BadVersion, MetadataError

GROUP_MAX = 1024
"""Writes per transaction, so that the first of a long queue is not answered last."""
NAMES_PER_SLICE = 200
"""Names of a listing that are looked up before the loop serves clients again: 3 ms."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS node (
    key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, crc INTEGER
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS commits (one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL);
INSERT INTO commits VALUES (1, 0) ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS ephemeral (key TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS served (key TEXT PRIMARY KEY, session TEXT NOT NULL) WITHOUT ROWID;
"""
"""`served` has the session of those ephemeral keys that a client of the server made."""
_END_SESSION = """
DELETE FROM node WHERE key IN (SELECT key FROM ephemeral WHERE key NOT IN (SELECT key FROM served));
DELETE FROM ephemeral WHERE key NOT IN (SELECT key FROM served);
"""
_ADD_CRC = "ALTER TABLE node ADD COLUMN crc INTEGER"
"""For stores of earlier versions; their records are not checked until they are written again."""
_OF_EARLIER_VERSION = """
CREATE TRIGGER IF NOT EXISTS value_of_an_earlier_version AFTER UPDATE OF value ON node
WHEN NEW.crc IS OLD.crc AND NEW.value IS NOT OLD.value
BEGIN UPDATE node SET crc = NULL WHERE key = NEW.key; END
"""
"""Removes the checksum of a record that an earlier version writes, which keeps the old one: the next start of this version
would take the record for damaged, and refuse the store."""
_UPSERT = """
INSERT INTO node (key, value, version, crc) VALUES (?, ?, 0, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, crc = excluded.crc, version = version + 1 RETURNING version
"""
_INSERT = """
INSERT INTO node (key, value, version, crc) VALUES (?, ?, 0, ?) ON CONFLICT (key) DO NOTHING RETURNING version
"""
_UPDATE = """
UPDATE node SET value = ?, crc = ?, version = version + 1 WHERE key = ? AND version = ? RETURNING version
"""
_NEXT_COMMIT = "UPDATE commits SET number = number + 1 RETURNING number"

_Outcome = list[int] | MetadataError
"""The new versions (0 for a delete), or the error."""


class Change(NamedTuple):
    """A write of one key, as the store's file and the wire of its server have it."""

    key: str
    """A path."""
    value: bytes | None
    """None = delete, or only compare."""
    expected: int | None
    """A version, ABSENT, or None for any."""
    ephemeral: bool = False
    """The key ends with its session."""
    compare: bool = False
    """Change nothing."""
    session: str = ""
    """Of an ephemeral key: its session, empty for the store's own. Of a deletion: delete only what this session made."""


@dataclass(slots=True)
class _Write:
    changes: tuple[Change, ...]
    """Applied together, or not at all."""
    done: asyncio.Future[list[int]]


class SqliteMetadataStore(WatchedLocally):
    """`MetadataStore` in a file."""

    value_bytes_max: Final = VALUE_BYTES_MAX
    """Longest value, in bytes."""
    is_shared: Final = False
    """One process uses the file."""

    def __init__(self, path: Path, *, serves: bool = False) -> None:
        """Opens or makes the file and starts the writer's thread. `serves` keeps the sessions of the server's clients.

        Belongs to the running loop.

        The folder must exist. Reads the whole file, unless it is large. Raises MetadataError when it cannot be opened or is
        damaged.
        """
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._path = path
        try:
            self._reader = _connect(path)
            self._prepare(serves)
            self._writer = _connect(path)
        except (sqlite3.Error, OSError) as error:
            raise MetadataError(f"cannot open {path}: {error}") from error
        self._ephemeral = {key for (key,) in self._reader.execute("SELECT key FROM ephemeral")}
        """Keys made as ephemeral ones, also removed ones: a rollback may bring a key back. For the writer's thread alone."""
        self._queue: deque[_Write] = deque()
        self._wanted = threading.Event()
        self._closing = False
        if checks_later(path):
            check_later(path)
        # A daemon: a process that ends without `close` must not hang on this thread. Nothing answered is lost by that.
        self._thread = threading.Thread(target=self._write_groups, name="metadata-writer", daemon=True)
        self._thread.start()

    def _prepare(self, serves: bool) -> None:
        """Makes the tables and checks the records, before the writer's thread begins."""
        try:
            self._count = CommitCount(self._path)
            self._reader.executescript(_SCHEMA)
            columns = [row[1] for row in self._reader.execute("PRAGMA table_info(node)")]
            if "crc" not in columns:
                self._reader.execute(_ADD_CRC)
            self._reader.execute(_OF_EARLIER_VERSION)
            (commits,) = self._reader.execute("SELECT number FROM commits").fetchone()
            check_commits(self._path, self._count, commits)
            if not checks_later(self._path):
                check_records(self._reader, self._path)
            if self._reader.execute("SELECT 1 FROM ephemeral LIMIT 1").fetchone():
                served = "" if serves else "DELETE FROM served;"
                self._reader.executescript(f"BEGIN IMMEDIATE; {served} {_END_SESSION} COMMIT;")
        except BaseException:
            self._reader.close()
            raise

    async def get(self, key: str) -> Versioned | None:
        """Does not wait for writes that are in the queue. MetadataError also for a record that is damaged."""
        try:
            row = self._reader.execute(
                "SELECT value, version, crc FROM node WHERE key = ?", (key,)
            ).fetchone()
        except sqlite3.Error as error:
            raise MetadataError(f"cannot read {key}: {error}") from error
        if row is None:
            return None
        value, version, crc = row
        if crc is not None and crc_of(key, value) != crc:
            raise MetadataError(
                f"{self._path}: {key} does not fit its checksum; bring a copy of the file back"
            )
        return Versioned(value, version)

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        """Returns after the commit of its group."""
        (version,) = await self.submit(Change(key, value, expected))
        return version

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        """Uses a savepoint inside the group's transaction."""
        return await self.submit(*(change_of(put) for put in puts))

    async def delete(self, key: str, expected: int | None = None) -> None:
        """Returns after the commit of its group."""
        await self.submit(Change(key, None, expected))

    async def children(self, key: str) -> list[str]:
        """Costs an index lookup or two per name, whatever lies below it; the loop runs between slices of names."""
        prefix = key.rstrip("/") + "/"
        end = prefix[:-1] + "0"  # "0" follows "/", so this is after everything that starts with the prefix.
        # A dict keeps the order of the keys, which is nearly that of the names: 100,000 from a set take 60 ms to sort.
        names: dict[str, None] = {}
        start = prefix
        try:
            while row := self._reader.execute(
                "SELECT key FROM node WHERE key >= ? AND key < ? ORDER BY key LIMIT 1", (start, end)
            ).fetchone():
                found: str = row[0]
                name, slash, _ = found[len(prefix) :].partition("/")
                names[name] = None
                # Skip everything below a name at once. After a value of the name's own only that one key is skipped,
                # because a longer sibling (`a-b` beside `a`) sorts between `a` and `a/`.
                start = f"{prefix}{name}0" if slash else found + "\0"
                if not len(names) % NAMES_PER_SLICE:
                    await asyncio.sleep(0)
        except sqlite3.Error as error:
            raise MetadataError(f"cannot list {key}: {error}") from error
        return sorted(names)

    async def sync(self) -> None:
        """Does nothing: a read shows every write that was answered."""

    def listen(self, told: Callable[[SessionState], None]) -> None:
        """Never calls `told`: the session lives as long as the store."""

    def sessions(self) -> set[str]:
        """Returns the sessions of the server's clients that have ephemeral keys."""
        return {session for (session,) in self._reader.execute("SELECT DISTINCT session FROM served")}

    async def end_session(self, session: str) -> None:
        """Removes the ephemeral keys that a client of the server made. Raises MetadataError."""
        # After all earlier writes, whose keys the reader does not see before their commit.
        await self.submit(Change("/", None, None))
        keys = self._reader.execute("SELECT key FROM served WHERE session = ?", (session,)).fetchall()
        if keys:
            await self.submit(*(Change(key, None, None, session=session) for (key,) in keys))

    async def close(self) -> None:
        """Commits the writes that wait, removes the ephemeral keys, then closes the file. Later writes raise
        MetadataError.
        """
        self._closing = True
        self._wanted.set()
        # In a thread: the writer posts its last outcomes to this loop, which must go on.
        await asyncio.to_thread(self._thread.join)
        self._reader.close()
        self._count.close()

    async def submit(self, *changes: Change) -> list[int]:
        """Makes all changes or none; returns the version of each key, 0 for a deleted one. BadVersion, MetadataError."""
        if self._closing:
            raise MetadataError("the metadata store is closed")
        done: asyncio.Future[list[int]] = self._loop.create_future()
        self._queue.append(_Write(changes, done))
        self._wanted.set()
        return await done

    def _settle(self, group: list[_Write], outcomes: list[_Outcome]) -> None:
        for write, outcome in zip(group, outcomes, strict=True):
            if self._watches and not isinstance(outcome, MetadataError):
                for change, version in zip(write.changes, outcome, strict=True):
                    if not change.compare:
                        # A delete has version 0, too.
                        self._watches.tell(change.key, names=version == 0)
            if write.done.done():  # The caller was cancelled; the write has happened all the same.
                continue
            if isinstance(outcome, MetadataError):
                write.done.set_exception(outcome)
            else:
                write.done.set_result(outcome)

    def _write_groups(self) -> None:
        """Runs the writer thread: for each group one commit and one call back into the loop."""
        while True:
            self._wanted.wait()
            # Before the look at the queue: a write that comes after it sets the event again.
            self._wanted.clear()
            while self._queue:
                group = [self._queue.popleft() for _ in range(min(len(self._queue), GROUP_MAX))]
                outcomes = self._commit(group)
                # One call for the group: each one wakes the loop.
                self._loop.call_soon_threadsafe(self._settle, group, outcomes)
            if self._closing and not self._queue:
                self._end_session()
                return

    def _end_session(self) -> None:
        # A full disk may refuse it; the next start removes the keys then.
        with contextlib.suppress(sqlite3.Error):
            if self._ephemeral:
                self._writer.executescript(f"BEGIN IMMEDIATE; {_END_SESSION} COMMIT;")
        self._writer.close()

    def _commit(self, group: list[_Write]) -> list[_Outcome]:
        try:
            # IMMEDIATE takes the write lock now: a transaction that begins with a read may find the file changed when
            # it writes, and fail.
            self._writer.execute("BEGIN IMMEDIATE")
            outcomes = [self._apply(write) for write in group]
            (number,) = self._writer.execute(_NEXT_COMMIT).fetchone()
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled back already.
                self._writer.execute("ROLLBACK")
            return [MetadataError(f"cannot write {write.changes[0].key}: {error}") for write in group]
        # Before the answers, so that every answered commit is counted. An older number only misses a loss.
        with contextlib.suppress(OSError):
            self._count.write(number)
        return outcomes

    def _apply(self, write: _Write) -> _Outcome:
        try:
            if len(write.changes) == 1:
                return [self._apply_one(write.changes[0])]
            return self._apply_together(write.changes)
        except BadVersion as mismatch:
            return mismatch

    def _apply_together(self, changes: tuple[Change, ...]) -> list[int]:
        # A mismatch must undo these writes and none of the group's others.
        self._writer.execute("SAVEPOINT together")
        try:
            return [self._apply_one(change) for change in changes]
        except BadVersion:
            self._writer.execute("ROLLBACK TO together")
            raise
        finally:
            self._writer.execute("RELEASE together")

    def _apply_one(self, change: Change) -> int:
        if change.value is None:
            return self._compare(change) if change.compare else self._apply_delete(change)
        crc = crc_of(change.key, change.value)
        if change.expected is None:
            cursor = self._writer.execute(_UPSERT, (change.key, change.value, crc))
        elif change.expected == ABSENT:
            cursor = self._writer.execute(_INSERT, (change.key, change.value, crc))
        else:
            cursor = self._writer.execute(_UPDATE, (change.value, crc, change.key, change.expected))
        row = cursor.fetchone()
        if row is None:
            raise _mismatch(change)
        if change.ephemeral:
            self._writer.execute("INSERT INTO ephemeral VALUES (?)", (change.key,))
            if change.session:
                self._writer.execute("INSERT INTO served VALUES (?, ?)", (change.key, change.session))
            self._ephemeral.add(change.key)
        return int(row[0])

    def _compare(self, change: Change) -> int:
        row = self._writer.execute("SELECT version FROM node WHERE key = ?", (change.key,)).fetchone()
        if row is None or row[0] != change.expected:
            raise _mismatch(change)
        return int(row[0])

    def _apply_delete(self, change: Change) -> int:
        if (
            change.session
            and not self._writer.execute(
                "SELECT 1 FROM served WHERE key = ? AND session = ?", (change.key, change.session)
            ).fetchone()
        ):
            return 0
        deleted = self._writer.execute(
            "DELETE FROM node WHERE key = ?1 AND (?2 IS NULL OR version = ?2)", (change.key, change.expected)
        ).rowcount
        if not deleted and change.expected is not None:
            raise _mismatch(change)
        if change.key in self._ephemeral:
            for table in ("ephemeral", "served"):
                self._writer.execute(f"DELETE FROM {table} WHERE key = ?", (change.key,))
        return 0


def _connect(path: Path) -> sqlite3.Connection:
    # `check_same_thread` off: both connections are made on the loop's thread, and the writer's is used on its own.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
    connection.execute("PRAGMA journal_mode=WAL")
    # NORMAL would sync at checkpoints only with a write-ahead log, and lose answered writes in a power loss.
    connection.execute("PRAGMA synchronous=FULL")
    return connection


def _mismatch(change: Change) -> BadVersion:
    return BadVersion(f"{change.key} does not have the expected version {change.expected}")


def change_of(put: Write) -> Change:
    """Returns the change for a part of `put_all`."""
    if isinstance(put, Check):
        return Change(put.key, None, put.expected, compare=True)
    return Change(put.key, put.value, put.expected, ephemeral=isinstance(put, Ephemeral))
