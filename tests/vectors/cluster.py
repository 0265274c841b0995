"""Replays recordings of a cluster: each record is read into values of ours, written again, and compared field by field.

`cluster_admin.py` repeats the requests of the recorded operations and compares the policies that they leave.

Records of kinds that nothing of ours reads yet are counted and named, once for each file; so are lines of requests, which
need a cluster of two brokers.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import Message

from broker.managed_ledger.records.pulsar_records import (
    decode_cursor,
    decode_ledger_list,
    decode_position,
    encode_cursor,
    encode_ledger_list,
    encode_position,
)
from broker.schemas.schema_ledgers import decode_entry, encode_entry
from broker.service.namespaces.partitioned_metadata import PARTITIONED_ROOT, decode_partitions
from foundation.model.errors import BrokerError
from magnetar.snapshot.apache_values import schema_ledgers
from protocol import ledger_metadata
from protocol.managed_ledger_records_pb2 import ManagedCursorInfo, ManagedLedgerInfo, PositionInfo
from protocol.pulsar_metadata_pb2 import SchemaEntry, SchemaInfo
from tests.vectors import cluster_admin
from tests.vectors.result import Result
from tests.vectors.scripts import Op, read_scripts


def run_file(path: Path) -> Result:
    result, unread = Result(), Counter[str]()
    for name, record in _records(path):
        kind = _kind(record)
        if kind not in _REPLAYS:
            unread[kind] += 1
            continue
        try:
            difference = _REPLAYS[kind](base64.b64decode(record["data"]), record["decoded"])
        except (BrokerError, ValueError) as error:
            difference = f"it cannot be read: {error}"
        result.judge(f"{path.name} {name}", difference, None)
    if path.name.startswith("writes."):
        cluster_admin.replay(path, result)
    if unread:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(unread.items()))
        result.messages.append(f"{path.name}: no replayer for {kinds}")
    return result


def _records(path: Path) -> Iterator[tuple[str, Op]]:
    """Yields each record with a name: a node, a write of an operation, or an entry of a ledger."""
    for number, line in enumerate(read_scripts(path), 1):
        for record in line.get("writes", [line]):
            if "writes" in line and not record.get("data"):
                continue  # A node is made empty or removed.
            where = record.get("path") or f"{record.get('ledger')}:{record.get('entry')}"
            yield f"line {number} {where}", record


def _kind(record: Op) -> str:
    kind = str(record.get("kind") or ("empty nodes" if record.get("data") == "" else "requests and others"))
    if kind == "json" and str(record["path"]).startswith(f"{PARTITIONED_ROOT}/"):
        return "PartitionedTopicMetadata"
    return kind


def _tree(message: Message) -> dict[str, Any]:
    """Returns the fields that are present, as the recordings show them."""
    return {field.name: _value(value) for field, value in message.ListFields()}


def _value(value: Any) -> Any:
    if isinstance(value, Message):
        return _tree(value)
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, int | str):
        return value
    return [_value(one) for one in value]


def _again(kind: type[Message], data: bytes, written: bytes, decoded: Op) -> str | None:
    if not data.startswith(b"\x47\x78") and written != data:
        return f"want the bytes {data.hex()}, got {written.hex()}"
    message = kind()
    message.ParseFromString(written)
    got = _tree(message)
    for key in sorted(got.keys() | decoded.keys()):
        if got.get(key) != decoded.get(key):
            return f"{key}: want {decoded.get(key)}, got {got.get(key)}"
    return None


def _ledger_list(data: bytes, decoded: Op) -> str | None:
    return _again(ManagedLedgerInfo, data, encode_ledger_list(decode_ledger_list(data)), decoded)


def _cursor(data: bytes, decoded: Op) -> str | None:
    return _again(ManagedCursorInfo, data, encode_cursor(decode_cursor(data)), decoded)


def _position(data: bytes, decoded: Op) -> str | None:
    return _again(PositionInfo, data, encode_position(decode_position(data)), decoded)


def _ledger(data: bytes, decoded: Op) -> str | None:
    found = ledger_metadata.decode(data)
    wanted = decoded["state"], decoded["lastEntryId"], decoded["length"]
    got = found.state.name, found.last_entry_id, found.length
    return None if got == wanted else f"state, last entry and length: want {wanted}, got {got}"


def _partitions(data: bytes, decoded: Op) -> str | None:
    got = json.loads(decode_partitions(data).encode())
    # Pulsar writes empty properties too.
    wanted = {key: value for key, value in decoded.items() if value != {}}
    return None if got == wanted else f"want {wanted}, got {got}"


def _schema_locator(data: bytes, decoded: Op) -> str | None:
    entries = [*decoded.get("index", []), decoded["info"]]
    wanted = len(decoded.get("index", [])), sorted({one["position"]["ledgerId"] for one in entries})
    got = schema_ledgers(data)
    return None if got == wanted else f"versions and ledgers: want {wanted}, got {got}"


def _schema_entry(data: bytes, decoded: Op) -> str | None:
    entry = SchemaEntry.FromString(data)
    name = SchemaInfo.FromString(entry.schemaData).schemaId
    return _again(SchemaEntry, data, encode_entry(name, *decode_entry(data), entry.index), decoded)


_REPLAYS: Final[dict[str, Callable[[bytes, Op], str | None]]] = {
    "ManagedLedgerInfo": _ledger_list,
    "ManagedCursorInfo": _cursor,
    "PositionInfo": _position,
    "LedgerMetadata": _ledger,
    "PartitionedTopicMetadata": _partitions,
    "SchemaLocator": _schema_locator,
    "SchemaEntry": _schema_entry,
}
