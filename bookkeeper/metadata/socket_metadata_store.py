"""SocketMetadataStore: the metadata file of another process of the machine, through that process's Unix socket.

The laws:

1. Requests wait while the server is away, each for the store's timeout at most. Reads are asked again in the next
   connection. A write that was out when the connection broke was perhaps carried out, so it raises MetadataError.
2. Writes are sent in the order of the calls, also those that wait for the server.
3. The session is suspended when the connection breaks. It is lost when the server has not answered for the session's
   timeout, by the clock of this process, and when the server says so. With each connection watches are made again, and all
   tell.
4. A server that is silent for two thirds of the timeout counts as away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bookkeeper.metadata.local_watches import LocalWatches
from bookkeeper.metadata.metadata_store import (
    VALUE_BYTES_MAX,
    SessionState,
    Stop,
    Versioned,
    Write,
)
from bookkeeper.metadata.socket_frames import (
    BadFrame,
    Frame,
    Head,
    encode,
    encode_changes,
    read_frame,
)
from bookkeeper.metadata.sqlite_metadata_store import Change, change_of
from foundation.model.errors import BadVersion, MetadataError, MetadataUnanswered

log = logging.getLogger(__name__)

_RETRY_S: Final = 0.1
"""Between two attempts to connect."""


class _Request:
    __slots__ = ("answered", "data", "is_out", "repeats", "session")

    def __init__(
        self, data: bytes, answered: asyncio.Future[Frame], *, repeats: bool, session: str | None
    ) -> None:
        self.session = session
        """The only one in which the request is sent; None = any."""
        self.data = data
        self.answered = answered
        self.repeats = repeats
        self.is_out = False


class SocketMetadataStore:
    """`MetadataStore` of a `MetadataServer`; `open` makes one."""

    value_bytes_max: Final = VALUE_BYTES_MAX
    """Longest value, in bytes; also of all values of one `put_all`."""
    is_shared: Final = True
    """The server has other clients."""

    def __init__(self, path: Path, session_timeout_s: float, timeout_s: float) -> None:
        """Called by `open` alone."""
        self._path = path
        self._session_timeout_s = session_timeout_s
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._session = ""
        self._requests: dict[int, _Request] = {}
        """By number, in the order of the calls: those that wait for an answer or to be sent."""
        self._number = 0
        self._writer: asyncio.StreamWriter | None = None
        """None while there is no connection."""
        self._heard_s = self._loop.time()
        """When the last request that was answered had been sent."""
        self._watches = LocalWatches()
        self._listeners: list[Callable[[SessionState], None]] = []
        self._lost: asyncio.TimerHandle | None = None
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, path: Path, *, session_timeout_s: float, timeout_s: float) -> SocketMetadataStore:
        """Connects. Raises MetadataError when no server answers within the session's timeout."""
        store = cls(path, session_timeout_s, timeout_s)
        try:
            async with asyncio.timeout(session_timeout_s):
                reader = await store._connect_until_answered()
        except TimeoutError:
            raise MetadataError(
                f"no server of a metadata store at {path} within {session_timeout_s:g} s; start one with"
                " `magnetar metadata serve`"
            ) from None
        store._task = asyncio.create_task(store._follow(reader), name=f"metadata at {path}")
        return store

    async def get(self, key: str) -> Versioned | None:
        """Raises MetadataError when the server does not answer within the store's timeout."""
        frame = await self._ask({"op": "get", "key": key})
        version = frame.head.get("version")
        return Versioned(frame.body, version) if isinstance(version, int) else None

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        """Raises MetadataError when the server is away."""
        (version,) = await self._write(Change(key, value, expected))
        return version

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        """Writes all values together, otherwise as `put`."""
        return await self._write(*(change_of(put) for put in puts))

    async def delete(self, key: str, expected: int | None = None) -> None:
        """Raises MetadataError when the server is away."""
        await self._write(Change(key, None, expected))

    async def children(self, key: str) -> list[str]:
        """Raises MetadataError when the server does not answer within the store's timeout."""
        return [str(name) for name in (await self._ask({"op": "children", "key": key})).items("names")]

    async def sync(self) -> None:
        """Asks the server: a read that comes after its answer shows every write that was answered before."""
        await self._ask({"op": "ping"})

    async def watch(self, key: str, changed: Callable[[], None]) -> Stop:
        """Raises MetadataError when the server does not answer within the store's timeout."""
        return await self._watch(key, changed, names=False)

    async def watch_children(self, key: str, changed: Callable[[], None]) -> Stop:
        """Raises MetadataError when the server does not answer within the store's timeout."""
        return await self._watch(key.rstrip("/"), changed, names=True)

    def listen(self, told: Callable[[SessionState], None]) -> None:
        """Tells of the session with the server."""
        self._listeners.append(told)

    async def close(self) -> None:
        """Finishes the writes that wait, then ends the session. Later calls raise MetadataError."""
        waiting = [request.answered for request in self._requests.values()]
        if waiting:
            await asyncio.wait(waiting, timeout=self._timeout_s)
        with contextlib.suppress(MetadataError):
            if self._writer is not None:
                await self._ask({"op": "close"}, repeats=False)
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._broken("the metadata store is closed", ends_all=True)
        if self._lost is not None:
            self._lost.cancel()

    # Requests

    async def _write(self, *changes: Change) -> list[int]:
        values = [change.value for change in changes if change.value is not None]
        if not all(values) or sum(map(len, values)) > VALUE_BYTES_MAX:
            raise MetadataError(f"{changes[0].key}: values have 1 to {VALUE_BYTES_MAX} bytes together")
        told, body = encode_changes(changes)
        in_session = any(change.value is None for change in changes)
        head: Head = {"op": "write", "changes": told}
        frame = await self._ask(head, body, repeats=False, in_session=in_session)
        return [version for version in frame.items("versions") if isinstance(version, int)]

    async def _watch(self, key: str, changed: Callable[[], None], *, names: bool) -> Stop:
        stop = (self._watches.add_children if names else self._watches.add)(key, changed)
        try:
            await self._ask({"op": "watch", "key": key, "names": names})
        except BaseException:
            stop()
            raise
        return stop

    async def _ask(
        self, head: Head, body: bytes = b"", *, repeats: bool = True, in_session: bool = False
    ) -> Frame:
        if self._closed:
            raise MetadataError("the metadata store is closed")
        self._number += 1
        number = self._number
        try:
            data = encode({**head, "id": number}, body)
        except BadFrame as error:
            raise MetadataError(str(error)) from error
        session = self._session if in_session else None
        request = _Request(data, self._loop.create_future(), repeats=repeats, session=session)
        self._requests[number] = request
        began_s = self._loop.time()
        self._send(request)
        try:
            async with asyncio.timeout(self._timeout_s):
                frame = await request.answered
        except TimeoutError:
            done = "; it was perhaps carried out" if request.is_out and not repeats else ""
            raise MetadataUnanswered(
                f"the server of the metadata store at {self._path} did not answer within"
                f" {self._timeout_s:g} s{done}"
            ) from None
        finally:
            self._requests.pop(number, None)
        self._heard_s = max(self._heard_s, began_s)
        if "error" in frame.head:
            raise (BadVersion if frame.head.get("mismatch") else MetadataError)(str(frame.head["error"]))
        return frame

    def _send(self, request: _Request) -> None:
        # One that the server has closed is replaced soon, and then this request is sent; uvloop's refuses it.
        if self._writer is not None and not self._writer.is_closing():
            request.is_out = True
            self._writer.write(request.data)

    # The connection

    async def _follow(self, reader: asyncio.StreamReader) -> None:
        """Reads answers, and connects again whenever the connection breaks."""
        while True:
            pinging = asyncio.create_task(self._ping())
            try:
                while True:
                    self._came(await read_frame(reader))
            except (OSError, asyncio.IncompleteReadError, BadFrame) as error:
                self._suspend(error)
            finally:
                pinging.cancel()
            reader = await self._connect_until_answered()

    def _came(self, frame: Frame) -> None:
        if "changed" in frame.head:
            key, names = frame.text("changed"), bool(frame.head.get("names"))
            if not self._watches.tell_of(key, names=names):
                # The last watcher has stopped.
                self._request_without_answer({"op": "unwatch", "key": key, "names": names})
            return
        number = frame.head.get("id")
        if number is None:
            raise BadFrame(str(frame.head.get("error", "a frame without a number")))
        request = self._requests.get(number) if isinstance(number, int) else None
        if request is not None and not request.answered.done():
            request.answered.set_result(frame)

    def _request_without_answer(self, head: Head) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(encode({**head, "id": 0}))

    async def _ping(self) -> None:
        """Keeps the session, and breaks the connection to a silent server."""
        while True:
            await asyncio.sleep(self._session_timeout_s / 3)
            if (
                self._loop.time() - self._heard_s > self._session_timeout_s * 2 / 3
                and self._writer is not None
            ):
                self._writer.transport.abort()
                return
            asking = asyncio.ensure_future(self._ask({"op": "ping"}))
            asking.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _connect_until_answered(self) -> asyncio.StreamReader:
        while True:
            try:
                return await self._connect()
            except (OSError, asyncio.IncompleteReadError, BadFrame) as error:
                log.debug("no server of a metadata store at %s: %s", self._path, error)
                await asyncio.sleep(_RETRY_S)

    async def _connect(self) -> asyncio.StreamReader:
        began_s, former = self._loop.time(), self._session
        reader, writer = await asyncio.open_unix_connection(str(self._path))
        try:
            timeout_ms = round(self._session_timeout_s * 1000)
            writer.write(encode({"op": "open", "session": former, "timeout_ms": timeout_ms}))
            opened = await read_frame(reader)
            if "error" in opened.head:
                raise BadFrame(str(opened.head["error"]))
            session = opened.text("session")
            if self._session != former:
                raise BadFrame("the session was lost while the server was asked for it")
        except BaseException:
            writer.transport.abort()
            raise
        self._connected(writer, session, began_s)
        return reader

    def _connected(self, writer: asyncio.StreamWriter, session: str, began_s: float) -> None:
        self._writer, self._heard_s = writer, began_s
        is_first = self._lost is None
        if self._lost is not None:
            self._lost.cancel()
        former, self._session = self._session, session
        if is_first:
            return
        for key, names in self._watches.watched():
            self._request_without_answer({"op": "watch", "key": key, "names": names})
        for request in list(self._requests.values()):
            if request.session in (None, session):
                self._send(request)
            elif not request.answered.done():
                why = "the session in which this was asked has ended; nothing was done"
                request.answered.set_exception(MetadataUnanswered(why))
        log.info("the metadata store at %s answers again", self._path)
        if former == session:
            self._tell(SessionState.CONNECTED)
        else:
            if former:
                self._tell(SessionState.LOST)
            self._tell(SessionState.RE_ESTABLISHED)
        self._watches.tell_all()

    def _suspend(self, error: Exception) -> None:
        log.warning(
            "the metadata store at %s does not answer: what is open goes on, what needs metadata waits (%s)",
            self._path,
            error or type(error).__name__,
        )
        self._broken(
            f"the connection to the metadata store at {self._path} broke; the write was perhaps carried out"
        )
        self._lost = self._loop.call_at(self._heard_s + self._session_timeout_s, self._expire)
        self._tell(SessionState.SUSPENDED)

    def _broken(self, why: str, *, ends_all: bool = False) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None
        for request in self._requests.values():
            if (ends_all or (request.is_out and not request.repeats)) and not request.answered.done():
                request.answered.set_exception(MetadataUnanswered(why))
            request.is_out = False

    def _expire(self) -> None:
        self._session = ""
        log.warning("the session with the metadata store at %s has ended, with the leases in it", self._path)
        self._tell(SessionState.LOST)

    def _tell(self, state: SessionState) -> None:
        for told in self._listeners:
            told(state)
