"""MetadataServer: lets other processes of the machine use the file of a SqliteMetadataStore, over a Unix socket.

The laws:

1. The socket's file belongs to its user alone (mode 0600), which is all the authentication there is.
2. Each client has a session. It ends when the client closes it, or when nothing came from it for its timeout; then its
   ephemeral keys are removed. A broken connection alone ends no session.
3. Sessions with ephemeral keys outlive a restart of the server: each has its whole timeout again to come back.
4. Writes of a connection reach the file in the order in which they came. Reads show everything that was answered.
5. A frame above the bound, or one that is none, is answered with the reason, and its connection is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
import uuid
from functools import partial
from pathlib import Path
from typing import Final

from bookkeeper.metadata.metadata_store import Stop
from bookkeeper.metadata.socket_frames import (
    BadFrame,
    Frame,
    Head,
    decode_changes,
    encode,
    read_frame,
)
from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from foundation.model.errors import BadVersion, MetadataError

log = logging.getLogger(__name__)

REQUESTS_MAX: Final = 1024
"""Requests of a connection that are under way; the rest stays in the socket."""
TIMEOUT_MS_MAX: Final = 3_600_000
"""The longest timeout of a session."""


class MetadataServer:
    """Serves one file. `start` makes one, so that a second server of the file is refused before it opens the file."""

    def __init__(self, store: SqliteMetadataStore, path: Path, lock: int, listening: socket.socket) -> None:
        """Called by `start` alone."""
        self._store, self._path, self._lock, self._listening = store, path, lock, listening
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None
        self._sessions: dict[str, _Session] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        for name in store.sessions():
            self._sessions[name] = self._new_session(name)

    @classmethod
    async def start(cls, file: Path, path: Path) -> MetadataServer:
        """Opens the file and listens at `path`. Raises MetadataError, also while another server has the file."""
        try:
            lock = os.open(
                file.with_name(file.name + "-served"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise MetadataError(f"cannot serve {file}: {error}") from error
        with contextlib.ExitStack() as opened:
            opened.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                listening = opened.enter_context(_bound(path))
            except BlockingIOError as error:
                raise MetadataError(f"another process serves {file}") from error
            except OSError as error:
                raise MetadataError(f"cannot listen at {path}: {error}") from error
            server = cls(SqliteMetadataStore(file, serves=True), path, lock, listening)
            opened.pop_all()
        server._server = await asyncio.start_unix_server(server._accepted, sock=listening)
        return server

    async def close(self) -> None:
        """Ends all connections; sessions and their keys stay for the next start. Commits the writes that wait."""
        assert self._server is not None
        self._server.close()
        for session in self._sessions.values():
            session.end()
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._store.close()
        self._path.unlink(missing_ok=True)
        os.close(self._lock)

    def _new_session(self, name: str) -> _Session:
        # The name has the timeout, so that a server that knows nothing but the name keeps it.
        return _Session(name, int(name.rpartition("-")[2]) / 1000, partial(self._expired, name))

    def _expired(self, name: str) -> None:
        log.warning(
            "a client of %s was silent for its session's time; its ephemeral keys are removed", self._path
        )
        self._sessions.pop(name).end()
        self._spawn(self._end_session(name))

    async def _end_session(self, name: str) -> None:
        try:
            await self._store.end_session(name)
        except MetadataError as error:
            # A full disk, perhaps. The keys must not stay for ever: the next expiry tries again.
            log.warning("! ephemeral keys of an ended session are not removed yet: %s", error)
            self._sessions[name] = self._new_session(name)

    def _spawn(self, work: object) -> None:
        assert asyncio.iscoroutine(work)
        task = self._loop.create_task(work, name=f"client of {self._path}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Connections

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # The client has gone.
        except (BadFrame, MetadataError) as error:
            log.warning("! a client of %s is refused: %s", self._path, error)
            writer.write(encode({"id": None, "error": str(error)}))
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = self._opened(await read_frame(reader), writer)
        writer.write(encode({"session": session.name}))
        free = asyncio.Semaphore(REQUESTS_MAX)
        try:
            while True:
                frame = await read_frame(reader)
                await free.acquire()
                # Of an ended session bytes may be left in the reader. They must make no keys that nothing would remove.
                if self._sessions.get(session.name) is not session:
                    return
                session.heard()
                self._spawn(self._answer(session, writer, frame, frame.number("id"), free))
        finally:
            session.left(writer)

    def _opened(self, frame: Frame, writer: asyncio.StreamWriter) -> _Session:
        """Returns the session that the first frame asks for, or a new one where that has ended. Raises BadFrame."""
        if frame.text("op") != "open":
            raise BadFrame("the first frame must open a session")
        timeout_ms = frame.number("timeout_ms")
        if not 0 < timeout_ms <= TIMEOUT_MS_MAX:
            raise BadFrame(f"a session's timeout is 1 to {TIMEOUT_MS_MAX} ms, not {timeout_ms}")
        session = self._sessions.get(frame.text("session"))
        if session is None:
            name = f"{uuid.uuid4().hex}-{timeout_ms}"
            session = self._sessions[name] = self._new_session(name)
        session.entered(writer)
        return session

    async def _answer(
        self,
        session: _Session,
        writer: asyncio.StreamWriter,
        frame: Frame,
        number: int,
        free: asyncio.Semaphore,
    ) -> None:
        head: Head
        body = b""
        try:
            head, body = await self._result(session, writer, frame)
            data = encode({"id": number, **head}, body)
        except (BadFrame, MetadataError) as error:
            data = encode({"id": number, "error": str(error), "mismatch": isinstance(error, BadVersion)})
        if not writer.is_closing():
            writer.write(data)
            with contextlib.suppress(OSError):  # The client has gone.
                await writer.drain()
        free.release()

    async def _result(
        self, session: _Session, writer: asyncio.StreamWriter, frame: Frame
    ) -> tuple[Head, bytes]:
        match frame.text("op"):
            case "get":
                found = await self._store.get(frame.text("key"))
                return (
                    ({"version": None}, b"") if found is None else ({"version": found.version}, found.value)
                )
            case "children":
                return {"names": await self._store.children(frame.text("key"))}, b""
            case "write":
                return {"versions": await self._store.submit(*decode_changes(frame, session.name))}, b""
            case "watch":
                await self._watch(session, writer, frame.text("key"), names=bool(frame.head.get("names")))
            case "unwatch":
                session.unwatch(frame.text("key"), names=bool(frame.head.get("names")))
            case "ping":
                pass
            case "close":
                self._sessions.pop(session.name, None)
                session.end(abort=False)
                await self._store.end_session(session.name)
            case other:
                raise BadFrame(f"no operation {other!r}")
        return {}, b""

    async def _watch(self, session: _Session, writer: asyncio.StreamWriter, key: str, *, names: bool) -> None:
        data = encode({"changed": key, "names": names})
        watch = self._store.watch_children if names else self._store.watch
        session.watches(key, await watch(key, partial(writer.write, data)), names=names)


class _Session:
    """One client: its connection, its watches, and the time at which it has been silent for too long."""

    def __init__(self, name: str, timeout_s: float, expired: Stop) -> None:
        self.name = name
        self._timeout_s = timeout_s
        self._expired = expired
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._loop.time()
        self._timer = self._loop.call_later(timeout_s, self._look)
        self._writer: asyncio.StreamWriter | None = None
        self._stops: dict[tuple[str, bool], Stop] = {}

    def heard(self) -> None:
        """Gives the session its whole timeout again."""
        self._heard_s = self._loop.time()

    def _look(self) -> None:
        left_s = self._heard_s + self._timeout_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
        else:
            self._expired()

    def entered(self, writer: asyncio.StreamWriter) -> None:
        """The client has a new connection, and makes its watches again."""
        self._leave()
        self.heard()
        self._writer = writer

    def left(self, writer: asyncio.StreamWriter) -> None:
        """A connection has ended, perhaps after the next one has begun."""
        if self._writer is writer:
            self._writer = None  # Its last bytes are on their way.
            self._leave()

    def end(self, *, abort: bool = True) -> None:
        """Ends the session's timer and watches, and its connection unless that is still to be answered."""
        self._timer.cancel()
        if not abort:
            self._writer = None
        self._leave()

    def _leave(self) -> None:
        for stop in self._stops.values():
            stop()
        self._stops.clear()
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None

    def watches(self, key: str, stop: Stop, *, names: bool) -> None:
        """Keeps the end of a watch."""
        self.unwatch(key, names=names)
        self._stops[key, names] = stop

    def unwatch(self, key: str, *, names: bool) -> None:
        """Ends a watch; without one does nothing."""
        if (stop := self._stops.pop((key, names), None)) is not None:
            stop()


def _bound(path: Path) -> socket.socket:
    """Returns a socket that is bound to the path, whose file is its user's alone. Raises OSError."""
    path.unlink(missing_ok=True)  # Of a killed server: the lock says that there is no other.
    bound = socket.socket(socket.AF_UNIX)
    former = os.umask(0o177)
    try:
        bound.bind(str(path))
    except BaseException:
        bound.close()
        raise
    finally:
        os.umask(former)
    return bound
