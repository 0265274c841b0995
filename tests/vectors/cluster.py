"""Replays recordings of a cluster: each record is read into values of ours, written again, and compared field by field.

`cluster_nodes.py` has the nodes of JSON and text. `cluster_operations.py` repeats the recorded operations, and compares the
nodes that they leave.

Rows that are not replayed are counted and named with the reason, once for each file.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from google.protobuf import json_format
from google.protobuf.message import Message

from broker.compaction.compacted_entry import decode as decode_compacted
from broker.compaction.compacted_entry import encode_head
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
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError
from foundation.model.position import Position
from magnetar.snapshot.apache_values import schema_ledgers
from magnetar.snapshot.node_path import describe
from protocol import ledger_metadata
from protocol.managed_ledger_records_pb2 import ManagedCursorInfo, ManagedLedgerInfo, PositionInfo
from protocol.pulsar_api_pb2 import MessageIdData
from protocol.pulsar_metadata_pb2 import SchemaEntry, SchemaInfo
from protocol.transaction_log_pb2 import TransactionMetadataEntry
from tests.vectors import cluster_nodes, cluster_operations
from tests.vectors.cluster_differences import tree
from tests.vectors.cluster_nodes import Compared
from tests.vectors.result import Result
from tests.vectors.scripts import Op, read_scripts


def run_file(path: Path) -> Result:
    result, named, left_out = Result(), Counter[str](), Counter[str]()
    for name, record in _records(path):
        reason = _reason_to_leave_out(record)
        if reason is not None:
            left_out[reason] += 1
            continue
        try:
            compared = _compared(record)
        except (BrokerError, ValueError) as error:
            compared = Compared(f"it cannot be read: {error}")
        named.update(compared.reasons)
        result.judge(f"{path.name} {name}", compared.difference, None)
    if path.name.startswith("writes."):
        cluster_operations.replay(path, result)
    result.messages += [f"named: {path.name}: {reason} ({count} rows)" for reason, count in named.items()]
    result.messages += [
        f"not replayed: {path.name}: {reason} ({count} rows)" for reason, count in left_out.items()
    ]
    return result


def _records(path: Path) -> Iterator[tuple[str, Op]]:
    """Yields each record with a name: a node, a write of an operation, or an entry of a ledger."""
    for number, line in enumerate(read_scripts(path), 1):
        for record in line.get("writes", [line]):
            where = record.get("path") or f"{record.get('ledger')}:{record.get('entry')}"
            yield f"line {number} {where}", record


def _reason_to_leave_out(record: Op) -> str | None:
    """Returns why nothing of the record can be compared here; None when it is compared."""
    if "hops" in record or "steps" in record:
        return "requests to a cluster of two brokers, no nodes; tests/interop/test_cluster.py has such"
    kind = record.get("kind")
    if kind in _NOT_NODES:
        return f"{kind}: {_NOT_NODES[kind]}"
    if record.get("data"):
        return None
    if "metadata" in record:
        return "metadata of ledgers without its bytes, which nodes.jsonl and writes.jsonl have"
    if "data" in record and _is_new_list(record):
        return None
    return f"{record.get('type', 'empty nodes')}: no value"


def _is_new_list(record: Op) -> bool:
    """Returns True for the node of a topic, which begins empty."""
    return describe(record["path"]).kind == "managed-ledger"


def _compared(record: Op) -> Compared:
    path, data = record.get("path", ""), base64.b64decode(record["data"])
    if not data:
        written = encode_ledger_list(decode_ledger_list(data))
        return Compared(None if written == data else f"want no bytes, got {written.hex()}")
    kind = record.get("kind")
    if path.startswith(f"{PARTITIONED_ROOT}/"):
        return Compared(_partitions(data, record["decoded"]))
    if kind in _REPLAYS:
        return Compared(_REPLAYS[kind](data, record.get("decoded", {})))
    return cluster_nodes.compare(path, data, record.get("decoded")) or Compared("no replayer")


def _again(kind: type[Message], data: bytes, written: bytes, decoded: Op) -> str | None:
    if not data.startswith(b"\x47\x78") and written != data:
        return f"want the bytes {data.hex()}, got {written.hex()}"
    message = kind()
    message.ParseFromString(written)
    got = tree(message)
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


def _transaction(data: bytes, decoded: Op) -> str | None:
    entry = TransactionMetadataEntry.FromString(data)
    got = json_format.MessageToDict(entry)
    # JSON of protocol buffers has 64-bit numbers as texts.
    want = {key: str(value) if isinstance(value, int) else value for key, value in decoded.items()}
    return None if got == want else f"want {want}, got {got}"


def _compacted(data: bytes, _decoded: Op) -> str | None:
    entry = decode_compacted(Entry(0, 0, b"", data, 1))
    body = bytes(entry.body)
    partition = MessageIdData.FromString(data[4 : 4 + int.from_bytes(data[:4], "big")]).partition
    position = Position(entry.ledger_id, entry.entry_id)
    written = encode_head(position, partition, bytes(entry.header), len(body)) + body
    return None if written == data else f"want the bytes {data.hex()}, got {written.hex()}"


_NOT_NODES: Final[dict[str, str]] = {
    "message": "no nodes but the messages of clients, which a broker stores as they come",
    "PendingAckMetadataEntry": "no nodes; Magnetar keeps pending acknowledgements with the cursor (decision 0013)",
    "delayed.SnapshotMetadata": "no nodes; Magnetar's buckets of delayed entries have records of their own (decision 0010)",
    "delayed.SnapshotSegment": "no nodes; Magnetar's buckets of delayed entries have records of their own (decision 0010)",
}
"""Kinds of entries of ledgers that are not nodes, and the reason why they are not replayed."""
_REPLAYS: Final[dict[str, Callable[[bytes, Op], str | None]]] = {
    "ManagedLedgerInfo": _ledger_list,
    "ManagedCursorInfo": _cursor,
    "PositionInfo": _position,
    "LedgerMetadata": _ledger,
    "SchemaLocator": _schema_locator,
    "SchemaEntry": _schema_entry,
    "TransactionMetadataEntry": _transaction,
    "RawMessage": _compacted,
}
