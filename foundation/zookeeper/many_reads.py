"""ManyReads: reads of many nodes in one request, which kazoo does not have. ZooKeeper's name: MultiRead, since 3.6.

A request of its own for each node costs a quarter of a millisecond of Python, most of it in kazoo's threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol.serialization import (
    MultiHeader,
    int_struct,
    multiheader_struct,
    read_buffer,
    read_string,
    stat_struct,
    write_string,
)

DATA: Final = 4
"""ZooKeeper's number of a read of a node."""
CHILDREN: Final = 8
"""The same of a read of the names below it."""
_MANY: Final = 22
_NONE: Final = -1


class NodeData(NamedTuple):
    """The answer to a read of a node."""

    value: bytes
    """b"" for a node without a value."""
    version: int
    """Counts the writes of the value."""
    modified_ms: int
    """Time of the last write."""
    children: int
    """Number of nodes directly below."""


Answer: TypeAlias = "NodeData | list[str] | Exception"
"""Of one node: what was asked for, or kazoo's exception for ZooKeeper's refusal."""


class ManyReads:
    """A request for kazoo's queue, with the members that kazoo uses."""

    def __init__(self, reads: Sequence[tuple[int, str]]) -> None:
        """`reads`: DATA or CHILDREN, and a path."""
        self.reads = reads
        """Kind and path of each, in the order of the answers."""

    @property
    def type(self) -> int:
        """ZooKeeper's number of the request."""
        return _MANY

    def serialize(self) -> bytes:
        """Returns the bytes of the request."""
        heads = {kind: multiheader_struct.pack(kind, False, _NONE) for kind in (DATA, CHILDREN)}
        parts = [heads[kind] + write_string(path) + b"\0" for kind, path in self.reads]
        return b"".join((*parts, multiheader_struct.pack(_NONE, True, _NONE)))

    def deserialize(self, received: bytes, offset: int) -> list[Answer]:
        """Returns the answers, in the order of the reads."""
        answers: list[Answer] = []
        header, offset = MultiHeader.deserialize(received, offset)
        while not header.done:
            answer: Answer
            if header.type == DATA:
                value, offset = read_buffer(received, offset)
                _, _, _, modified_ms, version, _, _, _, _, children, _ = stat_struct.unpack_from(
                    received, offset
                )
                offset += stat_struct.size
                answer = NodeData(value or b"", version, modified_ms, children)
            elif header.type == CHILDREN:
                (count,) = int_struct.unpack_from(received, offset)
                offset += int_struct.size
                answer = []
                for _ in range(count):
                    name, offset = read_string(received, offset)
                    answer.append(name)
            else:
                (code,) = int_struct.unpack_from(received, offset)
                offset += int_struct.size
                answer = EXCEPTIONS[code]()
            answers.append(answer)
            header, offset = MultiHeader.deserialize(received, offset)
        return answers
