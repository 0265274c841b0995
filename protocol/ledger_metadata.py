"""A ledger's metadata: the value of its node in the metadata store, in BookKeeper's formats.

    BookieMetadataFormatVersion\\t1\\n   lines of text, of BookKeeper's first releases; read here
    BookieMetadataFormatVersion\\t2\\n   LedgerMetadataFormat in protobuf's text form; read here
    BookieMetadataFormatVersion\\t3\\n   a varint with the length, then LedgerMetadataFormat; read and written here

BookKeeper's names: LedgerMetadata for the value, LedgerMetadataSerDe for this codec. Broker, bookie and tools all use this
one codec, so that a value means the same to each of them: a ledger that the broker calls open must never look
closed to the bookie, which would then give up its entries.

A value that BookKeeper itself refuses (a required field is missing, the state is unknown) raises LedgerMetadataError.
Callers keep what they have when they cannot read a value.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from google.protobuf import text_format
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from protocol.bookkeeper_metadata_pb2 import LedgerMetadataFormat
from protocol.ledger_path import ledger_path
from protocol.varint import read_varint, varint

VERSION_LINE = b"BookieMetadataFormatVersion\t3\n"
"""The first line of every value that `encode` writes."""
_TEXT_LINE = b"BookieMetadataFormatVersion\t2\n"
_OLD_LINE = b"BookieMetadataFormatVersion\t1\n"
_OLD_END = "CLOSED"
_OLD_IN_RECOVERY = -102
_STATE, _DIGEST_TYPE = 5, 7


class LedgerMetadataError(ValueError):
    """The value is no ledger metadata that this codec understands. The text says why."""


class LedgerState(enum.IntEnum):
    """A ledger is written (OPEN), being recovered, or ended for ever (CLOSED)."""

    OPEN = 1
    """One writer may add entries; the last one stands nowhere yet."""
    IN_RECOVERY = 2
    """Another process has begun to fence the ledger; its writer must stop."""
    CLOSED = 3
    """The last entry id and the length are fixed."""


class DigestType(enum.IntEnum):
    """Kind of a ledger's digest, with BookKeeper's numbers."""

    CRC32 = 1
    """8 bytes, of which 4 are 0; detects damage, not forgery."""
    HMAC = 2
    """20 bytes, SHA-1 under the ledger's password; detects forgery too."""
    CRC32C = 3
    """4 bytes; the default of `managedLedgerDigestType`."""
    DUMMY = 4
    """No bytes at all: damage goes unseen."""


class LedgerSegment(NamedTuple):
    """From `first_entry_id` on, the ledger's entries are on these bookies."""

    members: tuple[str, ...]
    """Bookie ids by position in the ensemble; a write set is a choice of positions."""
    first_entry_id: int = 0
    """The segment ends before the next segment's first entry."""


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """A ledger's value in the metadata store. The value is never changed; `replace` makes another."""

    segments: tuple[LedgerSegment, ...]
    """In the order of their entries; a new one begins when the ensemble changes."""
    state: LedgerState = LedgerState.OPEN
    """Only a CLOSED ledger has an end."""
    length: int = 0
    """Payload bytes of all entries; counts only when the ledger is closed."""
    last_entry_id: int = -1
    """The ledger's end, -1 = no entry; counts only when the ledger is closed."""
    ensemble_size: int = 1
    """Bookies that the entries are spread over (E)."""
    write_quorum: int = 1
    """Bookies that get each entry (Qw)."""
    ack_quorum: int = 1
    """Bookies that must have an entry before it is confirmed (Qa)."""
    digest_type: DigestType = DigestType.CRC32C
    """Digest of every entry."""
    password: bytes = b""
    """The ledger's master key is derived from it."""
    created_ms: int | None = None
    """Milliseconds since the epoch; None where the writer did not say."""
    custom: dict[str, bytes] = field(default_factory=dict)
    """For people and tools: the application and the log that the ledger belongs to."""
    creator_token: int = 0
    """A random number by which the ledger's creator knows its own create again; 0 = none."""

    def segment_of(self, entry_id: int) -> tuple[LedgerSegment, int | None]:
        """Returns the entry's segment, and the first entry of the next.

        None in place of that entry means that the segment is the last. Raises LedgerMetadataError for an entry in front
        of the first segment.
        """
        following = None
        for segment in reversed(self.segments):
            if segment.first_entry_id <= entry_id:
                return segment, following
            following = segment.first_entry_id
        raise LedgerMetadataError(f"no segment has entry {entry_id}: {self.segments}")

    def with_ensemble(self, first_entry_id: int, members: tuple[str, ...]) -> LedgerMetadata:
        """Returns a copy in which entries from `first_entry_id` on are on `members`."""
        last = self.segments[-1]
        assert first_entry_id >= last.first_entry_id
        # A last segment that begins at this entry has no confirmed entry yet, so the new one replaces it. Two segments
        # with one first entry would leave it to the reader which of them counts.
        kept = self.segments[:-1] if last.first_entry_id == first_entry_id else self.segments
        return replace(self, segments=(*kept, LedgerSegment(members, first_entry_id)))


def ledger_key(ledger_id: int) -> str:
    """Returns the metadata store's key of a ledger: `/ledgers/00/1234/L5678` for ledger 12345678."""
    return f"/ledgers/{ledger_path(ledger_id)}"


def encode(metadata: LedgerMetadata) -> bytes:
    """Returns the value in format version 3. Equal metadata always gives equal bytes."""
    message = LedgerMetadataFormat(
        quorumSize=metadata.write_quorum,
        ensembleSize=metadata.ensemble_size,
        length=metadata.length,
        lastEntryId=metadata.last_entry_id,
        state=LedgerMetadataFormat.State.ValueType(metadata.state),
        segment=[
            LedgerMetadataFormat.Segment(ensembleMember=segment.members, firstEntryId=segment.first_entry_id)
            for segment in metadata.segments
        ],
        digestType=LedgerMetadataFormat.DigestType.ValueType(metadata.digest_type),
        password=metadata.password,
        ackQuorumSize=metadata.ack_quorum,
        ctime=metadata.created_ms,
        customMetadata=[
            LedgerMetadataFormat.cMetadataMapEntry(key=key, value=value)
            for key, value in metadata.custom.items()
        ],
        cToken=metadata.creator_token,
    )
    # Every field is set, also to its default: `OwnLedger` compares bytes to know its own write again.
    content = message.SerializeToString()
    return VERSION_LINE + varint(len(content)) + content


def decode(value: bytes) -> LedgerMetadata:
    """Returns the metadata in a value of format version 1, 2 or 3.

    Raises LedgerMetadataError for another version and for bytes that are no ledger metadata.
    """
    try:
        if value.startswith(_OLD_LINE):
            return _from_lines(value[len(_OLD_LINE) :].decode().splitlines())
        return _from_message(_parsed(value))
    except (DecodeError, text_format.ParseError, ValueError, IndexError) as error:
        raise LedgerMetadataError(f"ledger metadata cannot be read: {error}") from error


def _parsed(value: bytes) -> LedgerMetadataFormat:
    message = LedgerMetadataFormat()
    if value.startswith(VERSION_LINE):
        size, start = read_varint(value, len(VERSION_LINE))
        if start + size != len(value):
            raise ValueError(f"{len(value) - start} bytes where {size} are announced")
        message.ParseFromString(value[start:])
    elif value.startswith(_TEXT_LINE):
        text_format.Parse(value[len(_TEXT_LINE) :], message)
    else:
        raise ValueError(f"its first line names no format version from 1 to 3: {value[:40]!r}")
    # Python's protobuf parses a message whose required fields are missing. Java's refuses it, and so does BookKeeper.
    if not message.IsInitialized():
        raise ValueError("a required field is missing")
    # A number that the enumeration does not know becomes an unknown field, and reading it would give the default: an
    # unknown state would look OPEN, and entries would be checked by the wrong digest.
    unknown = UnknownFieldSet(message)
    if any(unknown[place].field_number in (_STATE, _DIGEST_TYPE) for place in range(len(unknown))):
        raise ValueError("its state or digest type is unknown")
    return message


def _from_message(message: LedgerMetadataFormat) -> LedgerMetadata:
    """Returns the metadata with BookKeeper's meaning for each optional field that is absent."""
    return LedgerMetadata(
        segments=tuple(
            LedgerSegment(tuple(segment.ensembleMember), segment.firstEntryId) for segment in message.segment
        ),
        state=LedgerState(message.state),
        length=message.length,
        last_entry_id=message.lastEntryId if message.HasField("lastEntryId") else -1,
        ensemble_size=message.ensembleSize,
        write_quorum=message.quorumSize,
        # Without an ack quorum all bookies of the write set had to answer.
        ack_quorum=message.ackQuorumSize if message.HasField("ackQuorumSize") else message.quorumSize,
        digest_type=DigestType(message.digestType),
        password=message.password,
        created_ms=message.ctime if message.HasField("ctime") else None,
        custom={entry.key: entry.value for entry in message.customMetadata},
        creator_token=message.cToken,
    )


def _from_lines(lines: list[str]) -> LedgerMetadata:
    """Reads version 1: write quorum, ensemble size, length, then a line for each segment, then perhaps the end.

    A segment is its first entry and its members, with tabs between. The end is the last entry and the word CLOSED; an
    entry of -102 there stands for IN_RECOVERY (BookKeeper's LedgerMetadataSerDe). The format has no digest and no ack
    quorum.
    """
    write_quorum, ensemble_size, length = map(int, lines[:3])
    segments: list[LedgerSegment] = []
    state, last_entry_id = LedgerState.OPEN, -1
    for line in lines[3:]:
        number, *words = line.split("\t")
        if words == [_OLD_END]:
            in_recovery = int(number) == _OLD_IN_RECOVERY
            state = LedgerState.IN_RECOVERY if in_recovery else LedgerState.CLOSED
            last_entry_id = -1 if in_recovery else int(number)
            break
        segments.append(LedgerSegment(tuple(words), int(number)))
    return LedgerMetadata(
        tuple(segments),
        state,
        length,
        last_entry_id,
        ensemble_size,
        write_quorum,
        ack_quorum=write_quorum,
        digest_type=DigestType.CRC32,
    )
