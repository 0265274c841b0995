"""Replays what was recorded of Apache's bookie: v2 frames against our server, a stored state with our readers.

Law of the place: a scenario goes frame by frame on its connections, the first difference ends it. Where ours
differs on purpose, EXPLAINED_BOOKIE says why; an explained scenario that passes is reported too.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypedDict

from bookie_stub.bookie import Bookie
from bookie_stub.config import BookieSettings, for_directory
from bookie_stub.server import BookieServer
from tests.vectors import bookie_state
from tests.vectors.explained import EXPLAINED_BOOKIE
from tests.vectors.result import Result

KINDS: Final = ("bookie",)
FRAME_BYTES_MAX: Final = 5_242_880
"""nettyMaxFrameSizeBytes of the recorded bookie."""
_TIMEOUT_S: Final = 10.0


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


def run_file(path: Path) -> Result:
    if path.name == "manifest.json":
        return bookie_state.run(path.parent)
    if path.name == "wire-v2.jsonl":
        return asyncio.run(_run_wire(path))
    return Result(messages=[f"{path.name}: skipped, the v3 protocol is not spoken yet"])


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


async def _run_wire(path: Path) -> Result:
    result = Result()
    with tempfile.TemporaryDirectory() as directory:
        async with _Bookies(Path(directory)) as bookies:
            for head, lines in scenarios(path):
                name = head["scenario"]
                await bookies.use(read_only=name.endswith("-read-only") and "-before-" not in name)
                difference = await _play(head, lines, bookies.port)
                result.judge(name, difference, EXPLAINED_BOOKIE.get(name))
    return result


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
        if self._server is not None and self._server.bookie.read_only == read_only:
            return
        await self.__aexit__()
        settings: BookieSettings = for_directory(
            self._directory, port=0, frame_bytes_max=FRAME_BYTES_MAX, read_only=read_only
        )
        self._server = BookieServer(Bookie.open(settings, asyncio.get_running_loop().call_soon_threadsafe))
        await self._server.start()
        self.port = self._server.port


async def _play(head: Line, lines: list[Line], port: int) -> str | None:
    """The first difference, or None."""
    connections: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
    closed: set[int] = set()
    unordered = "order" in head or "timing" in head
    wanted: Counter[tuple[int, bytes]] = Counter()
    got: Counter[tuple[int, bytes]] = Counter()
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            for line in lines:
                connection = line.get("conn", 0)
                if line["kind"] == "client_result" or connection in closed:
                    continue
                if connection not in connections:
                    connections[connection] = await asyncio.open_connection("127.0.0.1", port)
                reader, writer = connections[connection]
                if line["kind"] == "event":
                    closed.add(connection)
                    if line["dir"] == "b2c" and await reader.read(1):
                        return f"{line.get('note')}: not closed, something was answered"
                    writer.close()
                elif line["dir"] == "c2b":
                    writer.write(_bytes(line))
                else:
                    frame = await _read_frame(reader)
                    wanted[connection, _bytes(line)] += 1
                    got[connection, frame] += 1
                    if not unordered and frame != _bytes(line):
                        return f"{line.get('note')}: {_short(frame)} instead of {_short(_bytes(line))}"
    except (TimeoutError, asyncio.IncompleteReadError, ConnectionError) as error:
        return f"{line.get('note')}: {type(error).__name__}"
    finally:
        for _, writer in connections.values():
            writer.close()
    missing = wanted - got
    return f"never answered: {[_short(frame) for _, frame in missing]}" if missing else None


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    length = await reader.readexactly(4)
    return length + await reader.readexactly(int.from_bytes(length, "big"))


def _bytes(line: Line) -> bytes:
    """What was recorded of a long frame is its beginning; the rest is zeros."""
    return bytes.fromhex(line["hex"]).ljust(line["size"], b"\0")


def _short(frame: bytes) -> str:
    return frame.hex() if len(frame) <= 60 else f"{frame[:60].hex()}... ({len(frame)} bytes)"
