"""Reads the locators of schemas that Apache Pulsar keeps, for a snapshot's tables.

The message is that of `protocol/pulsar_metadata.proto`.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from protocol.pulsar_metadata_pb2 import SchemaLocator

COMPACTED_LEDGER = "CompactedTopicLedger"
"""The property of the compaction's cursor that names the compacted ledger."""


def schema_ledgers(value: bytes) -> tuple[int, list[int]]:
    """Returns the number of a schema's versions, and the ledgers that hold them. Raises ValueError for other bytes."""
    locator = SchemaLocator()
    try:
        locator.ParseFromString(value)
    except DecodeError as error:
        raise ValueError(f"SchemaLocator cannot be parsed: {error}") from error
    # Parsing alone accepts bytes without the required fields.
    if not locator.IsInitialized():
        raise ValueError("SchemaLocator lacks a required field")
    entries = (*locator.index, locator.info)
    return len(locator.index), sorted({entry.position.ledgerId for entry in entries})
