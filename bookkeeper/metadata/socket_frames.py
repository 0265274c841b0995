"""Frames between the server of a metadata file and its clients, on a Unix socket of one machine.

    length of the rest: 4 bytes | length of the head: 4 bytes | head: a JSON object | values, one after the other

    client                                                   server
    {"op": "open", "session": "" or a name, "timeout_ms"}    {"session": its name}
    {"op": "get", "id", "key"}                               {"id", "version": null or a number} and the value
    {"op": "children", "id", "key"}                          {"id", "names"}
    {"op": "write", "id", "changes"} and the values          {"id", "versions"}
    {"op": "watch", "id", "key", "names"}                    {"id"}; at each change {"changed": key, "names"}
    {"op": "unwatch" | "ping" | "close", "id", …}            {"id"}
                                                             or {"id", "error", "mismatch": true for BadVersion}

`names` is true for a watch of the names below a key.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from bookkeeper.metadata.metadata_store import VALUE_BYTES_MAX
from bookkeeper.metadata.sqlite_metadata_store import Change

HEAD_BYTES_MAX: Final = 16 << 20
"""Bytes of a head, which may be the names below a key."""
FRAME_BYTES_MAX: Final = 4 + HEAD_BYTES_MAX + VALUE_BYTES_MAX
"""Bytes after the first length; a longer frame ends its connection."""
_LENGTHS: Final = struct.Struct(">II")

Head = dict[str, object]
"""A JSON object."""


class BadFrame(Exception):
    """Bytes that are no frame, or a head without what its operation needs."""


class Frame(NamedTuple):
    """One frame, with checked access to its head."""

    head: Head
    """The JSON object."""
    body: bytes
    """The values."""

    def text(self, name: str) -> str:
        """Returns a text of the head. Raises BadFrame."""
        value = self.head.get(name)
        if not isinstance(value, str):
            raise BadFrame(f"{name} is no text: {value!r}")
        return value

    def number(self, name: str) -> int:
        """Returns a whole number of the head. Raises BadFrame."""
        value = self.head.get(name)
        if type(value) is not int:
            raise BadFrame(f"{name} is no whole number: {value!r}")
        return value

    def items(self, name: str) -> list[object]:
        """Returns a list of the head. Raises BadFrame."""
        value = self.head.get(name)
        if not isinstance(value, list):
            raise BadFrame(f"{name} is no list: {value!r}")
        return value


def encode(head: Head, body: bytes = b"") -> bytes:
    """Returns a whole frame. Raises BadFrame for one above the bounds."""
    data = json.dumps(head, separators=(",", ":")).encode()
    if len(data) > HEAD_BYTES_MAX or len(body) > VALUE_BYTES_MAX:
        raise BadFrame(f"{len(data)} bytes with {len(body)} of values are too many for a frame")
    return _LENGTHS.pack(4 + len(data) + len(body), len(data)) + data + body


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    """Returns the next frame. Raises BadFrame; OSError and IncompleteReadError at the connection's end."""
    length = int.from_bytes(await reader.readexactly(4), "big")
    if not 4 <= length <= FRAME_BYTES_MAX:
        raise BadFrame(f"a frame of {length} bytes; allowed is 4 to {FRAME_BYTES_MAX}")
    return decode(await reader.readexactly(length))


def decode(data: bytes) -> Frame:
    """Returns the frame of the bytes after the first length. Raises BadFrame."""
    end = 4 + int.from_bytes(data[:4], "big")
    try:
        head = json.loads(data[4:end]) if end <= len(data) else None
    except ValueError:
        head = None
    if not isinstance(head, dict):
        raise BadFrame("the head of a frame is no JSON object")
    return Frame(head, data[end:])


def encode_changes(changes: Sequence[Change]) -> tuple[list[object], bytes]:
    """Returns what the head has of changes, and their values."""
    values = [change.value or b"" for change in changes]
    return [
        [change.key, None if change.value is None else len(change.value), change.expected, *change[3:5]]
        for change in changes
    ], b"".join(values)


def decode_changes(frame: Frame, session: str) -> list[Change]:
    """Returns the changes of a frame, with the session of the ephemeral keys among them. Raises BadFrame."""
    changes: list[Change] = []
    start = 0
    for one in frame.items("changes"):
        match one:
            case [str(key), None, int() | None as expected, bool(), bool(compare)]:
                changes.append(Change(key, None, expected, compare=compare))
            case [str(key), int(length), int() | None as expected, bool(ephemeral), bool()] if length > 0:
                value = frame.body[start : start + length]
                start += length
                changes.append(Change(key, value, expected, ephemeral, session=session if ephemeral else ""))
            case _:
                raise BadFrame(f"no change of a key: {one!r}")
    if not changes or start != len(frame.body):
        raise BadFrame(f"the changes have {start} bytes of values, and the frame {len(frame.body)}")
    return changes
