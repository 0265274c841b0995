"""Pass two of a compaction: writes a batch anew without the messages that are not kept.

A removed message leaves an empty place with the flag `compacted_out`, so that the others keep their batch indexes. The
metadata lists the indexes that are left (`compacted_batch_indexes`), as Pulsar 4.2.4 does.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from broker.compaction.codecs import pack
from broker.compaction.entry_content import batch_messages, read_entry, unpacked
from protocol.frame import message_body
from protocol.pulsar_api_pb2 import SingleMessageMetadata


def _removed() -> bytes:
    single = SingleMessageMetadata(payload_size=0, compacted_out=True).SerializeToString()
    return struct.pack(">I", len(single)) + single


REMOVED: Final = _removed()
"""The place of a removed message."""


def rewrite(body: bytes | memoryview, kept: Sequence[int]) -> bytes:
    """Returns the batch with its kept messages alone.

    `kept`: 1 or 0 for each message that was not removed by an earlier compaction. ProtocolError for a damaged batch.
    """
    metadata, payload = read_entry(body)
    plain = unpacked(metadata, payload)
    parts: list[bytes] = []
    indexes: list[int] = []
    present = 0
    for index, (single, start, end) in enumerate(batch_messages(metadata, plain)):
        if single.compacted_out:
            parts.append(REMOVED)
            continue
        if kept[present]:
            parts.append(plain[start:end])
            indexes.append(index)
        else:
            parts.append(REMOVED)
        present += 1
    rest = b"".join(parts)
    metadata.uncompressed_size = len(rest)
    metadata.compacted_batch_indexes[:] = indexes
    return message_body(metadata, pack(metadata.compression, rest))
