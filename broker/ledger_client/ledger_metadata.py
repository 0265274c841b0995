"""A ledger's metadata in BookKeeper's own format version 3, so that BookKeeper's tools can read our store.

A text line with the version, a varint with the length, one LedgerMetadataFormat message. The key is the
hierarchical path that BookKeeper uses: `/ledgers/00/1234/L5678` for ledger 12345678. A ledger begins with one segment
and gets another one whenever its ensemble changes.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from broker.model.errors import MetadataError
from protocol.ledger_path import ledger_path
from protocol.varint import read_varint, varint

VERSION_LINE = b"BookieMetadataFormatVersion\t3\n"
_MASK = 2**64 - 1
_VARINT, _BYTES = 0, 2


class LedgerState(enum.IntEnum):
    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


class DigestType(enum.IntEnum):
    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


@dataclass(frozen=True, slots=True)
class Segment:
    """From `first_entry_id` on, the entries are on these bookies."""

    members: tuple[str, ...]
    first_entry_id: int = 0


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    segments: tuple[Segment, ...]
    state: LedgerState = LedgerState.OPEN
    length: int = 0
    """Payload bytes, known when closed."""
    last_entry_id: int = -1
    """Known when closed; -1 = no entry."""
    ensemble_size: int = 1
    write_quorum: int = 1
    ack_quorum: int = 1
    digest_type: DigestType = DigestType.CRC32C
    password: bytes = b""
    created_ms: int | None = None
    custom: dict[str, bytes] = field(default_factory=dict)
    creator_token: int = 0

    def segment_of(self, entry_id: int) -> tuple[Segment, int | None]:
        """The segment that has the entry, and the first entry id of the one behind it (None = it is the last)."""
        following = None
        for segment in reversed(self.segments):
            if segment.first_entry_id <= entry_id:
                return segment, following
            following = segment.first_entry_id
        raise MetadataError(f"no segment has entry {entry_id}: {self.segments}")

    def with_ensemble(self, first_entry_id: int, members: tuple[str, ...]) -> LedgerMetadata:
        """From `first_entry_id` on, entries go to these. A last segment that begins there has none yet that counts."""
        last = self.segments[-1]
        assert first_entry_id >= last.first_entry_id
        kept = self.segments[:-1] if last.first_entry_id == first_entry_id else self.segments
        return replace(self, segments=(*kept, Segment(members, first_entry_id)))


def ledger_key(ledger_id: int) -> str:
    return f"/ledgers/{ledger_path(ledger_id)}"


def encode(metadata: LedgerMetadata) -> bytes:
    message = (
        _number(1, metadata.write_quorum)
        + _number(2, metadata.ensemble_size)
        + _number(3, metadata.length)
        + _number(4, metadata.last_entry_id)
        + _number(5, metadata.state)
        + b"".join(_text(6, _encode_segment(segment)) for segment in metadata.segments)
        + _number(7, metadata.digest_type)
        + _text(8, metadata.password)
        + _number(9, metadata.ack_quorum)
        + (b"" if metadata.created_ms is None else _number(10, metadata.created_ms))
        + b"".join(_text(11, _text(1, k.encode()) + _text(2, v)) for k, v in metadata.custom.items())
        + _number(12, metadata.creator_token)
    )
    return VERSION_LINE + varint(len(message)) + message


def decode(value: bytes) -> LedgerMetadata:
    """Raises MetadataError for another format version and for bytes that are no such message."""
    if not value.startswith(VERSION_LINE):
        raise MetadataError(f"ledger metadata is not of format version 3: {value[:40]!r}")
    try:
        size, start = read_varint(value, len(VERSION_LINE))
        if start + size != len(value):
            raise ValueError(f"{len(value) - start} bytes where {size} are announced")
        return _decode_message(value[start:])
    except (ValueError, IndexError) as error:
        raise MetadataError(f"ledger metadata cannot be read: {error}") from error


def _decode_message(message: bytes) -> LedgerMetadata:
    numbers: dict[int, int] = {}
    password = b""
    segments: list[Segment] = []
    custom: dict[str, bytes] = {}
    for number, content in _fields(message):
        if isinstance(content, int):
            numbers[number] = content
        elif number == 6:
            segments.append(_decode_segment(content))
        elif number == 8:
            password = content
        elif number == 11:
            pair = dict(_fields(content))
            key, item = pair.get(1, b""), pair.get(2, b"")
            if isinstance(key, bytes) and isinstance(item, bytes):
                custom[key.decode()] = item
    return LedgerMetadata(
        segments=tuple(segments),
        state=LedgerState(numbers.get(5, LedgerState.OPEN)),
        length=numbers.get(3, 0),
        last_entry_id=numbers.get(4, -1),
        ensemble_size=numbers.get(2, 1),
        write_quorum=numbers.get(1, 1),
        ack_quorum=numbers.get(9, numbers.get(1, 1)),
        digest_type=DigestType(numbers.get(7, DigestType.CRC32)),
        password=password,
        created_ms=numbers.get(10),
        custom=custom,
        creator_token=numbers.get(12, 0),
    )


def _encode_segment(segment: Segment) -> bytes:
    members = b"".join(_text(1, member.encode()) for member in segment.members)
    return members + _number(2, segment.first_entry_id)


def _decode_segment(message: bytes) -> Segment:
    members: list[str] = []
    first_entry_id = 0
    for number, content in _fields(message):
        if isinstance(content, bytes):
            members.append(content.decode())
        elif number == 2:
            first_entry_id = content
    return Segment(tuple(members), first_entry_id)


def _number(number: int, value: int) -> bytes:
    return varint(number << 3 | _VARINT) + varint(value & _MASK)


def _text(number: int, value: bytes) -> bytes:
    return varint(number << 3 | _BYTES) + varint(len(value)) + value


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Every field in order; numbers are signed 64-bit. ValueError or IndexError where it breaks off."""
    offset = 0
    while offset < len(message):
        tag, offset = read_varint(message, offset)
        value, offset = read_varint(message, offset)
        if tag & 7 == _VARINT:
            yield tag >> 3, value - 2**64 if value >> 63 else value
        elif tag & 7 == _BYTES:
            if offset + value > len(message):
                raise ValueError(f"field {tag >> 3} is cut off")
            yield tag >> 3, message[offset : offset + value]
            offset += value
        else:
            raise ValueError(f"field {tag >> 3} has wire type {tag & 7}")
