"""Which bookies a ledger's metadata names: BookKeeper's text formats of version 2 and its binary ones of version 3."""

from __future__ import annotations

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from protocol.bookkeeper_metadata_pb2 import LedgerMetadataFormat
from protocol.varint import read_varint

_TEXT = b"BookieMetadataFormatVersion\t2\n"
_BINARY = b"BookieMetadataFormatVersion\t3\n"


def members_of_closed(value: bytes) -> frozenset[str] | None:
    """Everybody whom an ensemble of the ledger names; None for one that is not closed. ValueError when that cannot be
    told."""
    metadata = _parsed(value)
    if metadata.state != LedgerMetadataFormat.CLOSED:
        return None
    members = frozenset(member for segment in metadata.segment for member in segment.ensembleMember)
    if not members:
        raise ValueError("the metadata of a closed ledger names nobody")
    return members


def _parsed(value: bytes) -> LedgerMetadataFormat:
    metadata = LedgerMetadataFormat()
    try:
        if value.startswith(_BINARY):
            size, start = read_varint(value, len(_BINARY))
            if start + size != len(value):
                raise ValueError(f"metadata has {len(value) - start} bytes where {size} are announced")
            metadata.ParseFromString(value[start:])
        elif value.startswith(_TEXT):
            text_format.Parse(value[len(_TEXT) :], metadata)
        else:
            raise ValueError(f"metadata of another version: {value[:40]!r}")
    except (DecodeError, text_format.ParseError, IndexError) as error:
        raise ValueError(f"metadata cannot be read: {error}") from error
    return metadata
