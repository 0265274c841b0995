"""Replays recordings of Apache's bookie: frames against our server, a stored state with our readers.

Law of the place: a scenario goes frame by frame on its connections, the first difference ends it. The scenarios of v3
go on with what those of v2 have stored. Where ours differs on purpose, EXPLAINED_BOOKIE says why; an explained scenario
that passes is reported too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypedDict

from bookie_stub.compose.bookie import Bookie
from bookie_stub.config.settings import BookieSettings
from bookie_stub.wire.server import BookieServer
from protocol.bookie_frame_v3 import encode_message
from protocol.bookkeeper_api_pb2 import AUTH, VERSION_THREE, Request, Response
from tests.support.bookie_settings import for_directory
from tests.vectors import bookie_state
from tests.vectors.explained import EXPLAINED_BOOKIE
from tests.vectors.result import Result

KINDS: Final = ("bookie",)
FRAME_BYTES_MAX: Final = 5_242_880
"""nettyMaxFrameSizeBytes of the recorded bookie."""
_TIMEOUT_S: Final = 60.0
_SILENCE_S: Final = 1.0
_TIMED_OUT: Final = -23
"""The recorded client notes this when no frame came in time."""


_VOLATILE: Final = {
    "readResponse": ("lacUpdateTimestamp",),
    "getBookieInfoResponse": ("totalDiskCapacity", "freeDiskSpace"),
}
_MARKER: Final = Request()
_MARKER.header.version = VERSION_THREE
_MARKER.header.operation = AUTH
_MARKER.header.txnId = 2**64 - 1
_MARKER.authRequest.authPluginName = "marker"
_MARKER.authRequest.payload = b""


class Line(TypedDict, total=False):
    kind: str
    scenario: str
    protocol: str
    order: str
    timing: str
    conn: int
    dir: str
    event: str
    hex: str
    size: int
    note: str
    decoded: dict[str, Any]
    result: dict[str, Any]


def run_file(path: Path) -> Result:
    if path.name == "manifest.json":
        return bookie_state.run(path.parent)
    return asyncio.run(run_wire(path))


def scenarios(path: Path) -> Iterator[tuple[Line, list[Line]]]:
    head: Line | None = None
    lines: list[Line] = []
    for text in path.read_text().splitlines():
        line: Line = json.loads(text)
        if line["kind"] == "scenario":
            if head is not None:
                yield head, lines
            head, lines = line, []
        else:
            lines.append(line)
    if head is not None:
        yield head, lines


async def run_wire(path: Path) -> Result:
    result = Result()
    with tempfile.TemporaryDirectory() as directory:
        async with _Bookies(Path(directory)) as bookies:
            if path.name == "wire-v3.jsonl":
                await _run_scenarios(path.with_name("wire-v2.jsonl"), bookies, Result())
            await _run_scenarios(path, bookies, result)
    return result


async def _run_scenarios(path: Path, bookies: _Bookies, result: Result) -> None:
    for head, lines in scenarios(path):
        name = head["scenario"]
        await bookies.use(read_only=name.endswith("-read-only") and "-before-" not in name)
        difference = await _play(head, lines, bookies.port)
        result.judge(name, difference, EXPLAINED_BOOKIE.get(name))


class _Bookies:
    """A server on one data directory, restarted when a scenario wants the other mode."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._server: BookieServer | None = None
        self.port = 0

    async def __aenter__(self) -> _Bookies:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            await self._server.close()

    async def use(self, *, read_only: bool) -> None:
        if self._server is not None and self._server.bookie.availability.read_only == read_only:
            return
        await self.__aexit__()
        settings: BookieSettings = for_directory(
            self._directory, port=0, frame_bytes_max=FRAME_BYTES_MAX, read_only=read_only
        )
        self._server = BookieServer(Bookie.open(settings, asyncio.get_running_loop().call_soon_threadsafe))
        await self._server.start()
        self.port = self._server.port


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.closed = False
        self._early: deque[bytes] = deque()

    @classmethod
    async def open(cls, port: int) -> _Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def frame(self) -> bytes:
        return self._early.popleft() if self._early else await self._next()

    async def answers(self) -> bool:
        """Returns True when a frame comes within SILENCE_S."""
        with contextlib.suppress(TimeoutError):
            self._early.append(await asyncio.wait_for(self._next(), _SILENCE_S))
        return bool(self._early)

    async def until_taken(self) -> None:
        """Waits until the bookie has taken what was sent: it takes the frames of a connection in order."""
        self.writer.write(encode_message(_MARKER))
        while Response.FromString((frame := await self._next())[4:]).header.txnId != _MARKER.header.txnId:
            self._early.append(frame)

    async def _next(self) -> bytes:
        length = await self.reader.readexactly(4)
        return length + await self.reader.readexactly(int.from_bytes(length, "big"))


async def _play(head: Line, lines: list[Line], port: int) -> str | None:
    """The first difference, or None."""
    play = _Play(head, port)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            for line in lines:
                if difference := await play.step(line):
                    return f"{line.get('note')}: {difference}"
    except (TimeoutError, asyncio.IncompleteReadError, ConnectionError) as error:
        return f"{line.get('note')}: {type(error).__name__}"
    finally:
        play.close()
    return play.never_answered()


class _Play:
    def __init__(self, head: Line, port: int) -> None:
        self._head = head
        self._port = port
        self._unordered = "order" in head or "timing" in head
        self._connections: dict[int, _Connection] = {}
        self._wanted: Counter[tuple[int, bytes]] = Counter()
        self._got: Counter[tuple[int, bytes]] = Counter()

    async def step(self, line: Line) -> str | None:
        number = line.get("conn", 0)
        if number not in self._connections:
            self._connections[number] = await _Connection.open(self._port)
        connection = self._connections[number]
        if connection.closed:
            return None
        if line["kind"] == "client_result":
            in_vain = line["result"].get("code") == _TIMED_OUT
            return "answered, BookKeeper is silent" if in_vain and await connection.answers() else None
        if line["kind"] == "event":
            connection.closed = True
            if line["dir"] == "b2c" and await connection.reader.read(1):
                return "not closed, something was answered"
            connection.writer.close()
            return None
        if line["dir"] == "c2b":
            connection.writer.write(_bytes(line))
            if "previousLAC" in line.get("decoded", {}).get("readRequest", {}):
                await connection.until_taken()
            return None
        return self._compare(number, await connection.frame(), _bytes(line))

    def _compare(self, number: int, frame: bytes, expected: bytes) -> str | None:
        frame, expected = _comparable(frame, self._head), _comparable(expected, self._head)
        self._wanted[number, expected] += 1
        self._got[number, frame] += 1
        if self._unordered or frame == expected:
            return None
        return f"{_short(frame)} instead of {_short(expected)}"

    def never_answered(self) -> str | None:
        """Compares the answers of a connection as a whole, because their order is free."""
        missing = self._wanted - self._got
        return f"never answered: {[_short(frame) for _, frame in missing]}" if missing else None

    def close(self) -> None:
        for connection in self._connections.values():
            connection.writer.close()


def _comparable(frame: bytes, head: Line) -> bytes:
    """Returns the frame with each volatile number as 1, so that its presence is compared and its value is not."""
    if "volatile" not in head:
        return frame
    response = Response.FromString(frame[4:])
    for part, fields in _VOLATILE.items():
        for field in fields:
            message = getattr(response, part)
            if message.HasField(field):
                setattr(message, field, 1)
    return encode_message(response)


def _bytes(line: Line) -> bytes:
    """Returns a recorded frame. Of a long one the beginning was recorded; the rest is zeros."""
    return bytes.fromhex(line["hex"]).ljust(line["size"], b"\0")


def _short(frame: bytes) -> str:
    return frame.hex() if len(frame) <= 60 else f"{frame[:60].hex()}... ({len(frame)} bytes)"
