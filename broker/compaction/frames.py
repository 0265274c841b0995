"""The bytes between the broker and its compaction worker.

frame     uint8 kind, uint32 length, content
entries   uint32 count, count times (uint64 number, uint32 length), the bodies one after the other

to the worker     SETTINGS first, then ENTRIES and END_ROUND for pass one, REWRITE for pass two
from the worker   AGAIN or RESULT for each END_ROUND, ENTRIES for each REWRITE
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from broker.compaction.passes import PassesSettings, PassOneResult

HEAD: Final = struct.Struct(">BI")
"""Kind and length of a frame."""
_COUNT: Final = struct.Struct(">I")
_ITEM: Final = struct.Struct(">QI")
_SETTINGS: Final = struct.Struct(">?Q")
_RESULT: Final = struct.Struct(">QQ")

Numbered = tuple[int, bytes | memoryview]
"""(number of the entry in pass one, body)"""


class FrameKind(IntEnum):
    """Kinds of frames."""

    SETTINGS = 1
    """The rules of the compaction."""
    ENTRIES = 2
    """Entries of pass one, or batches that were written anew."""
    END_ROUND = 3
    """All entries were sent."""
    REWRITE = 4
    """Batches to write anew."""
    AGAIN = 5
    """All entries are needed once more."""
    RESULT = 6
    """The outcome of pass one."""


def frame(kind: FrameKind, content: bytes = b"") -> bytes:
    """Returns a whole frame."""
    return HEAD.pack(kind, len(content)) + content


def encode_entries(entries: Sequence[Numbered]) -> bytes:
    """Returns the content of ENTRIES and REWRITE."""
    items = [_ITEM.pack(number, len(body)) for number, body in entries]
    return b"".join((_COUNT.pack(len(items)), *items, *[body for _, body in entries]))


def decode_entries(content: bytes) -> list[Numbered]:
    """Returns what was encoded; the bodies are slices of `content`."""
    (count,) = _COUNT.unpack_from(content)
    at = _COUNT.size + count * _ITEM.size
    view = memoryview(content)
    entries: list[Numbered] = []
    for number, size in _ITEM.iter_unpack(view[_COUNT.size : at]):
        entries.append((number, view[at : at + size]))
        at += size
    return entries


def encode_settings(settings: PassesSettings) -> bytes:
    """Returns the content of SETTINGS."""
    return _SETTINGS.pack(settings.retain_null_key, settings.memory_bytes)


def decode_settings(content: bytes) -> PassesSettings:
    """Returns what was encoded."""
    return PassesSettings(*_SETTINGS.unpack(content))


def encode_result(result: PassOneResult) -> bytes:
    """Returns the content of RESULT."""
    return _RESULT.pack(result.messages, result.kept) + result.fates


def decode_result(content: bytes) -> PassOneResult:
    """Returns what was encoded."""
    messages, kept = _RESULT.unpack_from(content)
    return PassOneResult(content[_RESULT.size :], messages, kept)
