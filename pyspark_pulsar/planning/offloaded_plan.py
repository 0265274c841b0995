"""Plans a batch query of offloaded ledgers: the objects in the storage say which topics and entries they hold.

No broker is asked. The index of a copy is written after its data, so each index that is there stands for a whole ledger.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote
from uuid import UUID

from foundation.objects.object_storage import NoSuchObject, ObjectStorage
from protocol.offload.blocks import OffloadIndex, Piece, decode_index, index_key, key_parts
from pyspark_pulsar.errors import OptionError
from pyspark_pulsar.options import TopicChoice
from pyspark_pulsar.topic_names import base_topic

INDEXES_AT_ONCE: Final = 16
LOOK_BACK_BYTES: Final = 64 << 20
"""Bytes before a part in which the first chunks of a message are searched."""
_OWNER: Final = "pulsar/managed-ledger"
"""Custom metadata of a ledger, with the name of its managed ledger, which Pulsar's brokers write, too."""


class EarlierPiece(NamedTuple):
    """A piece, and its ledger."""

    ledger_id: int
    """The offloaded ledger."""
    uuid: UUID
    """In the names of its objects."""
    piece: Piece
    """Its place."""


class LedgerPart(NamedTuple):
    """Consecutive pieces of an offloaded ledger. Pickled to the tasks."""

    topic: str
    """Full name of the topic or partition."""
    ledger_id: int
    """The offloaded ledger."""
    uuid: UUID
    """In the names of its objects."""
    pieces: tuple[Piece, ...]
    """The pieces to read, in order."""
    before: tuple[EarlierPiece, ...]
    """Pieces of the topic before these, the newest last, for a message in chunks that began there."""


async def plan_offloaded(storage: ObjectStorage, topics: TopicChoice, tasks: int) -> list[list[LedgerPart]]:
    """Returns the parts of each task, in the order of topics, ledgers and entries. ObjectStorageError, OptionError."""
    found = await _indexes(storage, topics)
    if not found and topics.pattern is None:
        raise OptionError(f"{storage.uri} has no offloaded ledger of {', '.join(topics.names)}")
    parts: list[LedgerPart] = []
    earlier: list[EarlierPiece] = []
    for (topic, ledger_id), (uuid, index) in sorted(found.items(), key=lambda one: one[0]):
        if not parts or parts[-1].topic != topic:
            earlier = []
        for piece in index.pieces:
            parts.append(LedgerPart(topic, ledger_id, uuid, (piece,), tuple(earlier)))
            earlier = _newest([*earlier, EarlierPiece(ledger_id, uuid, piece)])
    return _into_tasks(parts, tasks)


async def _indexes(
    storage: ObjectStorage, topics: TopicChoice
) -> dict[tuple[str, int], tuple[UUID, OffloadIndex]]:
    """Returns one copy of each ledger of the topics: the newest, where a run that failed has left another."""
    keys = [
        (one.modified_ms, *parts)
        async for one in storage.scan()
        if one.key.endswith("-index") and (parts := key_parts(one.key)) is not None
    ]
    keys.sort()
    found: dict[tuple[str, int], tuple[UUID, OffloadIndex]] = {}
    for start in range(0, len(keys), INDEXES_AT_ONCE):
        some = keys[start : start + INDEXES_AT_ONCE]
        values = await asyncio.gather(*(_index(storage, uuid, ledger_id) for _, uuid, ledger_id in some))
        for (_, uuid, ledger_id), index in zip(some, values, strict=True):
            topic = None if index is None else topic_of(index)
            if index is not None and topic is not None and _chosen(topic, topics):
                found[topic, ledger_id] = uuid, index
    return found


async def _index(storage: ObjectStorage, uuid: UUID, ledger_id: int) -> OffloadIndex | None:
    try:
        return decode_index(await storage.get(index_key(uuid, ledger_id)))
    except NoSuchObject:  # Deleted since the list was read.
        return None


def topic_of(index: OffloadIndex) -> str | None:
    """Returns the full name of the topic whose ledger it is; None for a ledger that names none."""
    parts = index.metadata.custom.get(_OWNER, b"").decode(errors="replace").split("/")
    if len(parts) != 4 or parts[2] != "persistent":
        return None
    return f"persistent://{parts[0]}/{parts[1]}/{unquote(parts[3])}"


def _chosen(topic: str, topics: TopicChoice) -> bool:
    if topics.pattern is None:
        return topic in topics.names or base_topic(topic) in topics.names
    return re.fullmatch(topics.pattern, base_topic(topic)) is not None


def _newest(pieces: list[EarlierPiece]) -> list[EarlierPiece]:
    """Returns the last of the pieces, of some bytes in all: as far back as a message's first chunk is searched."""
    size = 0
    for place in range(len(pieces) - 1, -1, -1):
        size += pieces[place].piece.length
        if size > LOOK_BACK_BYTES:
            return pieces[place:]
    return pieces


def _into_tasks(parts: Sequence[LedgerPart], tasks: int) -> list[list[LedgerPart]]:
    """Cuts the parts into tasks of about as many bytes; parts of one ledger in one task become one."""
    total = sum(part.pieces[0].length for part in parts)
    found: list[list[LedgerPart]] = []
    before = 0
    for part in parts:
        task = before * tasks // max(1, total)
        before += part.pieces[0].length
        if task >= len(found) or not found:
            found.append([part])
            continue
        last = found[-1][-1]
        if last.uuid == part.uuid:
            found[-1][-1] = last._replace(pieces=last.pieces + part.pieces)
        else:
            found[-1].append(part)
    return found
