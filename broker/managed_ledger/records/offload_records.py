"""The stored form of offloads: Pulsar's OffloadContext, and the marks of copies that are to be deleted.

Pulsar keeps the place as properties of the driver, of S3 with the name of the driver in its offloader's own spelling.
Files have their folder as `fileSystemURI`.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from broker.managed_ledger.ledger_list import FILES, OffloadContext, OffloadedLedger, OffloadPlace
from protocol.managed_ledger_records_pb2 import KeyValue
from protocol.managed_ledger_records_pb2 import OffloadContext as ContextRecord

_URI: Final = "fileSystemURI"
_ENDPOINT: Final = "serviceEndpoint"
_WORD_BITS: Final = 64


def encode_context(context: OffloadContext) -> ContextRecord:
    """Returns the record of an offload."""
    words = (context.uuid.int >> _WORD_BITS, context.uuid.int & (1 << _WORD_BITS) - 1)
    msb, lsb = (word - (1 << _WORD_BITS) if word >> (_WORD_BITS - 1) else word for word in words)
    metadata = ContextRecord.DriverMetadata(
        name=context.place.driver,
        properties=[KeyValue(key=key, value=value) for key, value in _properties(context.place).items()],
    )
    return ContextRecord(
        uidMsb=msb,
        uidLsb=lsb,
        complete=context.complete,
        bookkeeperDeleted=context.bookkeeper_deleted,
        timestamp=context.at_ms,
        driverMetadata=metadata,
    )


def decode_context(record: ContextRecord) -> OffloadContext | None:
    """Returns the offload in a record; None for one without an id."""
    if not record.HasField("uidMsb"):  # Pulsar writes an empty context for a ledger that was never offloaded.
        return None
    mask = (1 << _WORD_BITS) - 1
    properties = {one.key: one.value for one in record.driverMetadata.properties}
    return OffloadContext(
        UUID(int=(record.uidMsb & mask) << _WORD_BITS | record.uidLsb & mask),
        _place(record.driverMetadata.name, properties),
        record.complete,
        record.bookkeeperDeleted,
        record.timestamp,
    )


def object_text(marked: OffloadedLedger) -> str:
    """Returns the mark of a copy that is to be deleted, without spaces."""
    place = urlencode(_properties(marked.place))
    return f"{marked.ledger_id}/{marked.uuid}/{marked.place.driver}/{place}"


def object_of(text: str) -> OffloadedLedger:
    """Returns the copy of a mark. Raises ValueError."""
    ledger_id, uuid, driver, place = text.split("/", 3)
    return OffloadedLedger(
        int(ledger_id), UUID(uuid), _place(driver, dict(parse_qsl(place, keep_blank_values=True)))
    )


def _properties(place: OffloadPlace) -> dict[str, str]:
    if place.driver == FILES:
        return {_URI: place.endpoint}
    # In the spelling of Apache's enum, `AWS_S3`, as its offloader writes all four.
    driver = place.driver.upper().replace("-", "_")
    return {
        "managedLedgerOffloadDriver": driver,
        "bucket": place.bucket,
        "region": place.region,
        _ENDPOINT: place.endpoint,
    }


def _place(driver: str, properties: dict[str, str]) -> OffloadPlace:
    endpoint = properties.get(_URI if driver == FILES else _ENDPOINT, "")
    return OffloadPlace(driver, properties.get("bucket", ""), properties.get("region", ""), endpoint)
