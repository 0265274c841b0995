"""A stream's offset: how far each topic has been read, in memory as columns and in Spark's checkpoint as JSON.

Up to `READABLE_MAX` topics the JSON is a table that people can read and edit:

    {"version": 1, "id": "3f9c…", "tasks": 8, "topics": {"persistent://public/default/a": "12:40"}}

`tasks` is the limit of tasks of the batch that ends here (`task_limit`).

Above that it is two blocks, base64 of compressed bytes: the names in order, and the columns ledger, entry and batch
index. With `offsetsLocation` the blocks are files named by their content, and the JSON holds only their names.

Compact because Spark copies the JSON: per micro-batch it goes through a socket between JVM and Python several times,
and into the write-ahead log, the progress event and the log file. As a table, 600,000 topics would be about 35 MB.

Byte layout of one packed column, three of them (ledger, entry, batch index) in a row, numbers big-endian:

    kind u8 (0 differences, 1 bits) · least i64 · plain size u64 · bit width u32 · block size u32 · block (zstd)
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from pyspark_pulsar.cutting.protobuf_columns import Ints, join_rows, read_varints, write_varints
from pyspark_pulsar.errors import PulsarSourceError
from pyspark_pulsar.position import EARLIEST, WHOLE, MessagePosition

READABLE_MAX: Final = 100
"""Topics up to which the JSON is a readable table."""
VERSION: Final = 1
"""Format version of the JSON; other versions are refused."""
_LEVEL: Final = 1
_BLOCK_BYTES_MAX: Final = 1 << 30


class OffsetFiles(Protocol):
    """A store of large offsets; its content must outlive the driver."""

    def put(self, name: str, content: bytes) -> None:
        """Stores `content` under `name`, completely or not at all; repeated calls are harmless."""
        ...

    def get(self, name: str) -> bytes:
        """Returns the stored content. PulsarSourceError where it is missing or damaged."""
        ...


class Offsets:
    """A position per topic, as columns with one element per topic.

    Topics are sorted by name and unique. Immutable by agreement: the arrays are shared between offsets.
    """

    def __init__(
        self, identity: str, topics: tuple[str, ...], ledgers: Ints, entries: Ints, batches: Ints
    ) -> None:
        self.identity = identity
        """Names the query as long as its checkpoint lives; the subscription is named after it."""
        self.topics = topics
        """Full names, of partitions and of topics without partitions."""
        self.ledgers = ledgers
        """Ledger of each position, -1 before the first message."""
        self.entries = entries
        """Entry of each position."""
        self.batches = batches
        """Batch index of each position, WHOLE after a complete entry."""

    @classmethod
    def at(cls, identity: str, topics: Sequence[str], positions: Sequence[MessagePosition]) -> Offsets:
        """Builds offsets from one position per topic; topics must be sorted."""
        table = np.array(positions, np.int64).reshape(len(topics), 3)
        return cls(identity, tuple(topics), table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy())

    def __len__(self) -> int:
        return len(self.topics)

    def position(self, row: int) -> MessagePosition:
        """Returns the position of the topic at index `row`."""
        return MessagePosition(int(self.ledgers[row]), int(self.entries[row]), int(self.batches[row]))

    def same_as(self, other: Offsets) -> bool:
        """Returns True if topics and positions are equal; the identity is not compared."""
        return (
            self.topics == other.topics
            and not self.is_before(other).any()
            and not other.is_before(self).any()
        )

    def is_before(self, other: Offsets) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Returns for each topic True if `other`, which must have the same topics, is further."""
        return _is_before(
            (self.ledgers, self.entries, self.batches), (other.ledgers, other.entries, other.batches)
        )

    def aligned_to(self, topics: tuple[str, ...]) -> Offsets:
        """Returns the same positions for another list of topics; new topics get the earliest position."""
        if topics is self.topics or topics == self.topics:
            return self
        rows = {topic: row for row, topic in enumerate(self.topics)}
        found = [rows.get(topic, -1) for topic in topics]
        taken = np.array(found, np.int64)
        new = taken < 0
        return Offsets(
            self.identity,
            topics,
            *(
                np.where(new, default, column[taken] if len(column) else default).astype(np.int64)
                for column, default in zip((self.ledgers, self.entries, self.batches), EARLIEST, strict=True)
            ),
        )


_Columns = tuple[Ints, Ints, Ints]


def _is_before(first: _Columns, second: _Columns) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Compares positions row by row; `MessagePosition` compares tuples the same way."""
    (ledgers, entries, batches), (ledgers2, entries2, batches2) = first, second
    found: np.ndarray[Any, np.dtype[np.bool_]] = (ledgers < ledgers2) | (
        (ledgers == ledgers2) & ((entries < entries2) | ((entries == entries2) & (batches < batches2)))
    )
    return found


def new_identity() -> str:
    """Returns a random name for a query that starts without a checkpoint."""
    return os.urandom(6).hex()


# To and from the JSON in Spark's checkpoint


def to_json(offsets: Offsets, tasks: int, files: OffsetFiles | None = None) -> dict[str, Any]:
    """Encodes offsets for Spark's checkpoint; with `files`, large ones are stored there.

    `tasks` is the largest number of tasks for the batch that ends here.
    """
    head: dict[str, Any] = {"version": VERSION, "id": offsets.identity, "tasks": tasks}
    if len(offsets) <= READABLE_MAX:
        table = {topic: str(offsets.position(row)) for row, topic in enumerate(offsets.topics)}
        return head | {"topics": table}
    names, positions = _pack_names(offsets.topics), _pack_columns(offsets)
    head["count"] = len(offsets)
    if files is None:
        return head | {"names": names[0], "positions": base64.b64encode(positions).decode()}
    stored = f"positions-{_digest(positions)}"
    files.put(names[1], base64.b64decode(names[0]))
    files.put(stored, positions)
    return head | {"namesFile": names[1], "positionsFile": stored}


def from_json(found: Mapping[str, Any], files: OffsetFiles | None = None) -> Offsets:
    """Decodes `to_json`'s result. PulsarSourceError for another source's offset, another version, or damage."""
    if found.get("version") != VERSION or "id" not in found:
        raise PulsarSourceError(
            f"the checkpoint's offset has version {found.get('version')!r}, this is {VERSION}: "
            "it was written by another source, or by a newer release of this one"
        )
    identity = str(found["id"])
    if "topics" in found:
        table = {topic: _position(text) for topic, text in sorted(found["topics"].items())}
        return Offsets.at(identity, list(table), list(table.values()))
    if "namesFile" in found:
        if files is None:
            raise PulsarSourceError(
                "the checkpoint's offset stands in files: give offsetsLocation as when it was written"
            )
        topics = _unpack_names(base64.b64encode(files.get(found["namesFile"])).decode())
        packed = files.get(found["positionsFile"])
    else:
        topics = _unpack_names(found["names"])
        packed = base64.b64decode(found["positions"])
    columns = _unpack_columns(packed, len(topics))
    return Offsets(identity, topics, *columns)


def task_limit(found: Mapping[str, Any], option: int) -> int:
    """Returns the largest number of tasks for the batch that ends at this offset.

    It comes from the checkpoint: a repeated batch is cut into the same tasks as at its first attempt, even if
    `numPartitions` (or its default, the number of CPUs) has changed since. Other tasks would give rows other sequence
    ids, and the exactly-once sink would store some rows twice and drop others. `option` is the value for offsets that
    an older release wrote without the number. PulsarSourceError unless it is a whole number from 1 on.
    """
    tasks = found.get("tasks", option)
    if not isinstance(tasks, int) or isinstance(tasks, bool) or tasks < 1:
        raise PulsarSourceError(
            f"the checkpoint's offset has tasks {tasks!r} where a whole number from 1 on is expected"
        )
    return tasks


def _position(text: str) -> MessagePosition:
    try:
        return MessagePosition(*(int(part) for part in text.split(":")))
    except (ValueError, TypeError):
        raise PulsarSourceError(
            f"the checkpoint's offset has {text!r} where ledger:entry is expected"
        ) from None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:24]


# Names


@lru_cache(maxsize=2)
def _pack_names(topics: tuple[str, ...]) -> tuple[str, str]:
    """Returns base64 of the block, and the name of its file.

    Cached, because the names of most micro-batches are those of the one before and compressing 600,000 takes long.
    """
    plain = "\n".join(topics).encode()
    packed = pa.Codec("zstd", compression_level=_LEVEL).compress(plain, asbytes=True)
    # pyarrow's decompress wants to be given the plain size.
    block = len(plain).to_bytes(8, "big") + packed
    return base64.b64encode(block).decode(), f"names-{_digest(block)}"


@lru_cache(maxsize=2)
def _unpack_names(text: str) -> tuple[str, ...]:
    block = base64.b64decode(text)
    return tuple(_decompress(block[8:], int.from_bytes(block[:8], "big")).decode().split("\n"))


def _decompress(block: bytes, size: int) -> bytes:
    if not 0 <= size <= _BLOCK_BYTES_MAX:
        raise PulsarSourceError(f"the checkpoint's offset claims a block of {size} bytes: it is damaged")
    plain: bytes = pa.Codec("zstd").decompress(block, size, asbytes=True)
    return plain


# Columns: the smaller of two encodings


_DELTAS, _BITS = 0, 1
_HEAD_BYTES: Final = 1 + 8 + 8 + 4 + 4


def _pack_columns(offsets: Offsets) -> bytes:
    # -1 instead of WHOLE: otherwise a single partial batch would widen the whole column to 31 bits.
    partial = np.where(offsets.batches == WHOLE, -1, offsets.batches)
    return b"".join(_pack_column(column) for column in (offsets.ledgers, offsets.entries, partial))


def _unpack_columns(packed: bytes, count: int) -> tuple[Ints, Ints, Ints]:
    columns = []
    at = 0
    for _ in range(3):
        column, at = _unpack_column(packed, at, count)
        columns.append(column)
    ledgers, entries, batches = columns
    return ledgers, entries, np.where(batches < 0, WHOLE, batches)


def _pack_column(numbers: Ints) -> bytes:
    """Encodes differences as varints, or each number in the bits of the largest; compresses and keeps the smaller.

    Differences win when ids rise with the names (ledgers created in the order of the names), bits when they do not.
    """
    least = int(numbers.min())
    differences = np.diff(numbers, prepend=least)
    zigzag = (differences << 1) ^ (differences >> 63)
    plain = join_rows([write_varints(zigzag)])[0].tobytes()
    codec = pa.Codec("zstd", compression_level=_LEVEL)
    best = (_DELTAS, 0, len(plain), codec.compress(plain, asbytes=True))
    width = max(1, int(numbers.max() - least).bit_length())
    # Only narrow columns: the table below has count x width numbers of 8 bytes.
    if width <= 32:
        bits = ((numbers - least)[:, None] >> np.arange(width)) & 1
        packed = np.packbits(bits.astype(np.uint8), bitorder="little").tobytes()
        squeezed = codec.compress(packed, asbytes=True)
        if len(squeezed) < len(best[3]):
            best = (_BITS, width, len(packed), squeezed)
    kind, width, size, block = best
    head = bytes([kind]) + least.to_bytes(8, "big", signed=True) + size.to_bytes(8, "big")
    sizes: bytes = width.to_bytes(4, "big") + len(block).to_bytes(4, "big")
    packed_column: bytes = head + sizes + block
    return packed_column


def _unpack_column(packed: bytes, at: int, count: int) -> tuple[Ints, int]:
    head = packed[at : at + _HEAD_BYTES]
    kind, least = head[0], int.from_bytes(head[1:9], "big", signed=True)
    size, width = int.from_bytes(head[9:17], "big"), int.from_bytes(head[17:21], "big")
    start = at + _HEAD_BYTES
    end = start + int.from_bytes(head[21:25], "big")
    plain = np.frombuffer(_decompress(packed[start:end], size) + bytes(16), np.uint8)
    if kind == _BITS:
        bits = np.unpackbits(plain[:size], bitorder="little")[: count * width].reshape(count, width)
        numbers = (bits.astype(np.int64) << np.arange(width)).sum(axis=1)
        return numbers + least, end
    ends = np.flatnonzero(plain[:size] < 0x80)
    starts = np.concatenate(([0], ends[:-1] + 1)).astype(np.int64)
    zigzag = read_varints(plain, starts)[0]
    differences = (zigzag >> 1) ^ -(zigzag & 1)
    return np.cumsum(differences) + least, end
