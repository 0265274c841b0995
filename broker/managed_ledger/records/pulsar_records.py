"""The stored forms of managed ledgers and cursors: Apache Pulsar's records, as values of ours and back.

Pure: bytes in, values out. `tests/vectors/cluster.py` compares with the records that an Apache broker wrote.

    list                  ManagedLedgerInfo, compressed where that is asked for
    cursor                ManagedCursorInfo: the position, or the ledger whose last entry has it
    cursor ledger entry   PositionInfo

A compressed record is 0x4778, the length of RecordMetadata in four bytes, RecordMetadata, and the compressed bytes.

Facts of ours that Pulsar does not know are properties of the list, under one prefix. The node of a cursor with many
acknowledged ranges has the first ones in Pulsar's form and all after them in a field of ours, which Pulsar's brokers skip.

Values that begin with "{" are of versions up to 0.2.0 (`former_json.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from broker.managed_ledger.acks import bits_of, words_of
from broker.managed_ledger.ledger_list import LedgerInfo, OffloadContext, OffloadedLedger
from broker.managed_ledger.managed_ledger_info import (
    NO_NUMBERS,
    NO_PROPERTIES,
    CursorInfo,
    ManagedLedgerInfo,
)
from foundation.model.errors import MetadataError
from foundation.model.position import Position
from foundation.model.range_set import PAGE_ENTRIES, page_ranges
from protocol.errors import ProtocolError
from protocol.managed_ledger_records_pb2 import (
    BatchedEntryDeletionIndexInfo,
    LongListMap,
    LongProperty,
    ManagedCursorInfo,
    MessageRange,
    NestedPositionInfo,
    PackedPages,
    PositionInfo,
    RecordMetadata,
    StringProperty,
)
from protocol.managed_ledger_records_pb2 import ManagedLedgerInfo as LedgerListRecord
from protocol.pulsar_api_pb2 import CompressionType

Page = tuple[int, int, int]
"""(ledger, first entry, bits) as `RangeSet.lowest_pages` yields them: bit n set = entry first + n acknowledged, 256 bits."""
FORMER: Final = b"{"
"""The first byte of values of versions up to 0.2.0; no record of Pulsar's begins with it."""
PREFIX: Final = "magnetar."
"""Begins the names of properties that are Magnetar's own."""
RANGES_MAX: Final = 1000
"""Acknowledged ranges that a cursor's node has in Pulsar's form, by Pulsar's default."""
RANGE_ENTRIES_MAX: Final = 100_000_000
"""Entries of one acknowledged range; more is taken for damage, which must not fill the memory."""
_MAGIC: Final = b"\x47\x78"
_LISTS: Final = ("deleting", "delayed", "beside")
"""Fields of ManagedLedgerInfo that are lists of ledgers."""

M = TypeVar("M", bound=Message)


class Compression(NamedTuple):
    """Which records are compressed, and how."""

    kind: int = CompressionType.NONE
    """A number of CompressionType."""
    above_bytes: int = 16 << 10
    """Larger records are compressed."""


PLAIN: Final = Compression()
"""Nothing is compressed, Pulsar's default."""


class ShownList(NamedTuple):
    """A stored list as tools show it."""

    info: ManagedLedgerInfo
    """The list."""
    offloaded: frozenset[int] = frozenset()
    """Its ledgers that are in tiered storage alone, or will be any moment."""


class StoredCursor(NamedTuple):
    """A cursor's node."""

    info: CursorInfo
    """The position and what belongs to it; stale while there is a ledger."""
    ledger_id: int = -1
    """The ledger whose last entry has the position; -1 = `info` has it."""
    last_active_ms: int = 0
    """When the cursor was last used, ms since 1970."""


class StoredPosition(NamedTuple):
    """An entry of a cursor's ledger."""

    info: CursorInfo
    """The position and what belongs to it."""
    has_texts: bool = True
    """Its `cursor_properties` are in force; False in entries of Apache's brokers: then those of the node are."""


def ledger_list_record(value: bytes) -> LedgerListRecord:
    """Returns the record of a managed ledger, for tools that show all of it. MetadataError for other bytes."""
    return _parsed(LedgerListRecord, unwrapped(value))


def cursor_record(value: bytes) -> ManagedCursorInfo:
    """Returns the record of a cursor, as `ledger_list_record`."""
    return _parsed(ManagedCursorInfo, unwrapped(value))


def encode_ledger_list(info: ManagedLedgerInfo, compression: Compression = PLAIN) -> bytes:
    """Returns the record of a managed ledger; empty for one without ledgers, as Pulsar creates it."""
    record = LedgerListRecord()
    for ledger in info.ledgers:
        added = record.ledgerInfo.add(ledgerId=ledger.ledger_id, timestamp=ledger.closed_at_ms or 0)
        if ledger.closed_at_ms is not None:
            added.entries, added.size = ledger.entries, ledger.size_bytes
        if ledger.offload is not None:
            # Here, as in the next function: most topics have no copies.
            from broker.managed_ledger.records.offload_records import encode_context

            added.offloadContext.CopyFrom(encode_context(ledger.offload))
    if info.terminated is not None:
        record.terminatedPosition.CopyFrom(_nested(*info.terminated))
    ours = {name: " ".join(map(str, getattr(info, name))) for name in _LISTS}
    ours |= {"created": str(info.created_ms or ""), "deleted": "true" if info.deleted else ""}
    if info.deleting_objects:
        from broker.managed_ledger.records.offload_records import object_text

        ours["objects"] = " ".join(map(object_text, info.deleting_objects))
    properties = info.properties | {f"{PREFIX}{name}": text for name, text in ours.items() if text}
    for key, value in properties.items():
        record.properties.add(key=key, value=value)
    return _wrapped(record.SerializeToString(), compression)


def decode_ledger_list(value: bytes) -> ManagedLedgerInfo:
    """Returns the managed ledger of a stored value. MetadataError for other bytes, and for what would be lost."""
    if value.startswith(FORMER):
        return _former_list(value)
    record = ledger_list_record(value)
    for ledger in record.ledgerInfo:
        if ledger.properties or ledger.offloadContext.offloadSegment:
            raise MetadataError(
                f"ledger {ledger.ledgerId} has properties or was offloaded in segments, which is not supported"
            )
    return _info_of(record)


def show_ledger_list(value: bytes) -> ShownList:
    """Returns the managed ledger of any stored value, for tools. MetadataError for other bytes."""
    if value.startswith(FORMER):
        return ShownList(_former_list(value))
    record = ledger_list_record(value)
    info = _info_of(record)
    moved = (one.ledger_id for one in info.ledgers if one.offload and one.offload.bookkeeper_deleted)
    return ShownList(info, frozenset(moved))


def _former_list(value: bytes) -> ManagedLedgerInfo:
    # Here, because every start of a broker reads records, and few stores are of a former version.
    from broker.managed_ledger.records import former_json

    return former_json.decode_ledger_list(value)


def _info_of(record: LedgerListRecord) -> ManagedLedgerInfo:
    properties = {each.key: each.value for each in record.properties}
    ours = {
        name: properties.pop(f"{PREFIX}{name}", "") for name in (*_LISTS, "created", "deleted", "objects")
    }
    try:
        deleting, delayed, beside = ([int(part) for part in ours[name].split()] for name in _LISTS)
        created_ms = int(ours["created"] or 0)
        objects = _objects(ours["objects"])
    except ValueError as error:
        raise MetadataError(f"a managed ledger's properties cannot be read: {error}") from error
    terminated = record.terminatedPosition
    return ManagedLedgerInfo(
        [
            LedgerInfo(
                ledger.ledgerId, ledger.entries, ledger.size, ledger.timestamp or None, _context(ledger)
            )
            for ledger in record.ledgerInfo
        ],
        properties,
        Position(terminated.ledgerId, terminated.entryId) if record.HasField("terminatedPosition") else None,
        deleting,
        delayed,
        ours["deleted"] == "true",
        beside,
        created_ms,
        objects,
    )


def _objects(text: str) -> list[OffloadedLedger]:
    if not text:
        return []
    from broker.managed_ledger.records.offload_records import object_of

    return [object_of(part) for part in text.split()]


def _context(ledger: LedgerListRecord.LedgerInfo) -> OffloadContext | None:
    if not ledger.HasField("offloadContext"):
        return None
    from broker.managed_ledger.records.offload_records import decode_context

    return decode_context(ledger.offloadContext)


def encode_cursor(
    cursor: StoredCursor, compression: Compression = PLAIN, ranges_max: int = RANGES_MAX
) -> bytes:
    """Returns the record of a cursor; `ranges_max` of its ranges are in Pulsar's form.

    One with names in it stays as it is: Apache 4.2 cannot read it when compressed.
    """
    info = cursor.info
    ranges, packed = _ranges(info.acked, ranges_max)
    record = ManagedCursorInfo(
        cursorsLedgerId=cursor.ledger_id,
        markDeleteLedgerId=info.mark_delete.ledger_id,
        markDeleteEntryId=info.mark_delete.entry_id,
        individualDeletedMessages=ranges,
        properties=_long_properties(info),
        lastActive=cursor.last_active_ms,
        batchedEntryDeletionIndexInfo=_batches(info),
        packedPages=_packed(packed),
        cursorProperties=_texts(info),
    )
    named = info.properties or info.cursor_properties
    return _wrapped(record.SerializeToString(), PLAIN if named else compression)


def decode_cursor(value: bytes) -> StoredCursor:
    """Returns the cursor of a stored value. MetadataError for other bytes."""
    if value.startswith(FORMER):
        from broker.managed_ledger.records import former_json

        return StoredCursor(former_json.decode_cursor(value))
    record = cursor_record(value)
    acked = _pages_of_ranges(record.individualDeletedMessages)
    acked += _unpacked(record.packedPages)
    info = CursorInfo(
        Position(record.markDeleteLedgerId, record.markDeleteEntryId)
        if record.HasField("markDeleteLedgerId")
        else Position(-1, -1),
        {each.name: each.value for each in record.properties} or NO_NUMBERS,
        acked,
        _decoded_batches(record.batchedEntryDeletionIndexInfo),
        {each.name: each.value for each in record.cursorProperties} or NO_PROPERTIES,
    )
    return StoredCursor(info, record.cursorsLedgerId, record.lastActive)


def encode_position(position: StoredPosition, *, as_bits: bool = True) -> bytes:
    """Returns the entry of a cursor's ledger; its holes as sets of bits, as Pulsar 4.2 writes them, or as ranges."""
    info = position.info
    ledger_id, entry_id = info.mark_delete
    record = PositionInfo(ledgerId=ledger_id, entryId=entry_id)
    # Most positions have nothing else, and a busy cursor makes one each second.
    if info.properties:
        record.properties.extend(_long_properties(info))
    if info.batches:
        record.batchedEntryDeletionIndexInfo.extend(_batches(info))
    if info.acked and as_bits:
        record.individualDeletedMessageRanges.extend(_bit_sets(info.acked))
    elif info.acked:
        record.individualDeletedMessages.extend(_ranges(info.acked, sys.maxsize)[0])
    if position.has_texts:
        record.cursorTexts.SetInParent()
        if info.cursor_properties:
            record.cursorTexts.texts.extend(_texts(info))
    return record.SerializeToString()


def _bit_sets(acked: Iterable[Page]) -> Iterator[LongListMap]:
    by_ledger: dict[int, bytearray] = {}
    for ledger_id, first, bits in acked:
        words = by_ledger.setdefault(ledger_id, bytearray())
        # Pages come in order, so each is appended: shifting one long number would cost the square of its length.
        words.extend(bytes(first // 8 - len(words)))
        words.extend(bits.to_bytes(PAGE_ENTRIES // 8, "little"))
    for ledger_id, words in by_ledger.items():
        # Every array of Pulsar's ends with a word that is empty.
        yield LongListMap(key=ledger_id, values=(*words_of(int.from_bytes(words, "little")), 0))


def decode_position(entry: bytes) -> StoredPosition:
    """Returns the position in an entry of a cursor's ledger, with holes in either form. MetadataError for other bytes."""
    record = _parsed(PositionInfo, entry)
    acked = _pages_of_ranges(record.individualDeletedMessages)
    for each in record.individualDeletedMessageRanges:
        acked += _pages(each.key, 0, bits_of(each.values))
    info = CursorInfo(
        Position(record.ledgerId, record.entryId),
        {each.name: each.value for each in record.properties} or NO_NUMBERS,
        sorted(acked),
        _decoded_batches(record.batchedEntryDeletionIndexInfo),
        {each.name: each.value for each in record.cursorTexts.texts} or NO_PROPERTIES,
    )
    return StoredPosition(info, record.HasField("cursorTexts"))


def _wrapped(plain: bytes, compression: Compression) -> bytes:
    if compression.kind == CompressionType.NONE or len(plain) <= compression.above_bytes:
        return plain
    head = RecordMetadata(compressionType=compression.kind, uncompressedSize=len(plain)).SerializeToString()
    from broker.compaction.codecs import pack

    return b"".join((_MAGIC, len(head).to_bytes(4, "big"), head, pack(compression.kind, plain)))


def unwrapped(value: bytes) -> bytes:
    """Returns the record in a value, which may be compressed. Raises MetadataError."""
    if not value.startswith(_MAGIC):
        return value
    # Here, because few stores ask for compression, and every start of a broker reads records.
    from broker.compaction.codecs import unpack

    begin = len(_MAGIC) + 4
    end = begin + int.from_bytes(value[len(_MAGIC) : begin], "big")
    head = _parsed(RecordMetadata, value[begin:end])
    try:
        return unpack(head.compressionType, memoryview(value)[end:], head.uncompressedSize)
    except ProtocolError as error:
        raise MetadataError(f"a compressed record cannot be read: {error}") from error


def _parsed(kind: type[M], value: bytes) -> M:
    record = kind()
    try:
        record.ParseFromString(value)
    except DecodeError as error:
        raise MetadataError(f"{kind.__name__} cannot be read: {error}") from error
    if not record.IsInitialized():
        raise MetadataError(f"{kind.__name__} cannot be read: a required field is missing")
    return record


def _nested(ledger_id: int, entry_id: int) -> NestedPositionInfo:
    return NestedPositionInfo(ledgerId=ledger_id, entryId=entry_id)


def _packed(pages: Sequence[Page]) -> list[PackedPages]:
    if not pages:
        return []
    from broker.managed_ledger.records.packed_pages import pack_pages

    return [PackedPages(ledgerId=ledger_id, pages=packed) for ledger_id, packed in pack_pages(pages)]


def _unpacked(packed: Sequence[PackedPages]) -> Iterator[Page]:
    if not packed:
        return
    from broker.managed_ledger.records.packed_pages import unpack_pages

    for each in packed:
        yield from unpack_pages(each.ledgerId, each.pages)


def _long_properties(info: CursorInfo) -> list[LongProperty]:
    return [LongProperty(name=name, value=value) for name, value in info.properties.items()]


def _texts(info: CursorInfo) -> list[StringProperty]:
    return [StringProperty(name=name, value=value) for name, value in info.cursor_properties.items()]


def _batches(info: CursorInfo) -> list[BatchedEntryDeletionIndexInfo]:
    return [
        BatchedEntryDeletionIndexInfo(position=_nested(*position), deleteSet=words_of(bits))
        for position, bits in info.batches
    ]


def _decoded_batches(batches: Iterable[BatchedEntryDeletionIndexInfo]) -> list[tuple[Position, int]]:
    return [
        (Position(each.position.ledgerId, each.position.entryId), bits_of(each.deleteSet)) for each in batches
    ]


def _pages(ledger_id: int, first: int, bits: int) -> list[Page]:
    """Returns the pages of a ledger's bits; bit 0 is entry `first`."""
    start = first - first % PAGE_ENTRIES
    data = (bits << (first - start)).to_bytes((bits.bit_length() + PAGE_ENTRIES * 2) // 8, "little")
    size = PAGE_ENTRIES // 8
    pages = (
        (ledger_id, start + at * 8, int.from_bytes(data[at : at + size], "little"))
        for at in range(0, len(data), size)
    )
    return [page for page in pages if page[2]]


def _pages_of_ranges(ranges: Iterable[MessageRange]) -> list[Page]:
    """Returns the pages of ranges that begin after their lower end."""
    found: dict[tuple[int, int], int] = {}
    for each in ranges:
        lower, upper = each.lowerEndpoint, each.upperEndpoint
        # A lower end in an earlier ledger is the last entry there.
        first = lower.entryId + 1 if lower.ledgerId == upper.ledgerId else 0
        count = upper.entryId - first + 1
        if first < 0 or not 0 < count <= RANGE_ENTRIES_MAX:
            raise MetadataError(
                f"a cursor's range of {count} entries up to {upper.ledgerId}:{upper.entryId} is damaged"
            )
        for ledger_id, start, bits in _pages(upper.ledgerId, first, (1 << count) - 1):
            found[ledger_id, start] = found.get((ledger_id, start), 0) | bits
    return [(*place, bits) for place, bits in sorted(found.items())]


def _ranges(acked: Sequence[Page], ranges_max: int) -> tuple[list[MessageRange], Sequence[Page]]:
    """Returns the ranges of the first pages, each as long as can be, and the pages that would make too many."""
    ranges: list[MessageRange] = []
    last: NestedPositionInfo | None = None
    for place, (ledger_id, first, bits) in enumerate(acked):
        # Whole pages, so that none is in both forms.
        if len(ranges) + (bits & ~(bits << 1)).bit_count() > ranges_max:
            return ranges, acked[place:]
        for begin, end in page_ranges(bits, first):
            if last is not None and (last.ledgerId, last.entryId) == (ledger_id, begin - 1):
                last.entryId = end
                continue
            ranges.append(
                MessageRange(
                    lowerEndpoint=_nested(ledger_id, begin - 1), upperEndpoint=_nested(ledger_id, end)
                )
            )
            last = ranges[-1].upperEndpoint
    return ranges, ()
