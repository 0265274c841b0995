"""Compares the nodes that a recorded operation has written with those of the same operation on a broker of ours.

Ids of ledgers are mapped: the first that both name in one place are the same from then on. A difference that is meant has a
reason here; any other one is a failure.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message

from broker.managed_ledger.records.pulsar_records import PREFIX, cursor_record, ledger_list_record
from magnetar.snapshot.node_path import describe
from protocol import ledger_metadata
from protocol.managed_ledger_records_pb2 import RecordMetadata
from protocol.pulsar_api_pb2 import CompressionType
from protocol.pulsar_metadata_pb2 import SchemaLocator
from tests.vectors.scripts import Op

_SETS: Final = ("allowedClusters", "subscription_types_enabled")
"""Lists whose order means nothing."""
UNSET: Final[dict[str, Any]] = {
    "allowed_clusters": [],
    "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
    "backlog_quota_map": {},
    "brokerClientTlsEnabled": False,
    "brokerClientTlsEnabledWithKeyStore": False,
    "clusterDispatchRate": {},
    "clusterSubscribeRate": {},
    "deleted": False,
    "encryption_required": False,
    "is_allow_auto_update_schema": True,
    "latency_stats_sample_rate": {},
    "migrated": False,
    "offload_threshold": -1,
    "offload_threshold_in_seconds": -1,
    "properties": {},
    "publishMaxMessageRate": {},
    "replication_clusters": ["c1"],
    "replicatorDispatchRate": {},
    "schema_compatibility_strategy": "UNDEFINED",
    "schema_validation_enforced": False,
    "subscriptionDispatchRate": {},
    "subscription_auth_mode": "None",
    "subscription_types_enabled": [],
    "tlsAllowInsecureConnection": False,
    "topicDispatchRate": {},
}
"""Values of Apache's broker that stand for "not set"; ours leaves such fields out."""


STALE: Final = "a node that names a ledger has another position, which counts for nothing (decision 0024)"
LATER: Final = "a cursor that is made at a position has its ledger with the first acknowledgement"
ROLLED: Final = (
    "a cursor's ledger has no entry of the position before its first acknowledgement, so it is full later"
)
LAZY: Final = "a topic that is made or opened has its next ledger with its next message"
UNOPENED: Final = "partitions are stored as a number, and have lists with their first use (decision 0025)"
ENDED: Final = "the last ledger of a terminated topic has its end in the list too"
INDEX: Final = "the property `index` (PIP-70), which Magnetar writes without the interceptor too"
COMPACTION: Final = "cursors for compaction are made with the first compaction"
OURS: Final = f"properties that begin with {PREFIX} (decision 0022)"
OUR_FIELDS: Final = "fields of a version of a schema from number 1000 on (decision 0022)"
TOKEN: Final = "a ledger has a token of its creator, who knows its own write by it"
LOCAL: Final = "local policies are written with the first value that is not the namespace's"
BUCKETS: Final = "buckets of delayed entries stand with the log, for all cursors (decision 0010)"
DEDUPLICATION: Final = (
    "a cursor of deduplication is made when its topic is opened; Apache opens all topics of a bundle"
)
OWNERS: Final = "a bundle has an owner from the first lookup on; Apache's own readers look bundles up too"
DEFAULTS: Final = "fields that are not set are left out; Pulsar writes most of them"
QUOTES: Final = "namespaceAntiAffinityGroup: Pulsar keeps the quotes of a text that was sent as JSON"
NEWEST_STAYS: Final = (
    "the records of the newest transaction of a coordinator stay unacknowledged (decision 0013)"
)
NOT_COMPARED: Final[Mapping[str, str]] = {
    r"/ledgers/idgen(/.*)?": "numbers of new ledgers, which a store in a file counts",
    r"/loadbalance/.*": "load reports, which come at times of their own",
    r"/counters/.*|/pulsar/.*": "nodes of the start of a broker",
    r"/(managed-ledgers|schemas)/.*/__(change_events|transaction_buffer_snapshot)(/.*)?": (
        "topics of policies and of transactions, which Apache opens with the first topic (decisions 0013, 0027)"
    ),
    r".*__transaction_pending_ack(/.*)?": (
        "acknowledgements that wait for a transaction, which Magnetar keeps with the cursor (decision 0013)"
    ),
    r"/(managed-ledgers|namespace|schemas)/pulsar/localhost:.*": "health checks, which leave nothing here",
}
"""Nodes that operations of clients do not write, by path, and what they are."""
_BUCKET: Final = "#pulsar.internal.delayed.bucket"
_COMPACTED: Final = "CompactedTopicLedger"
_TIMES: Final = ("timestamp", "lastActive")
_POSITION: Final = (
    *("markDeleteLedgerId", "markDeleteEntryId", "individualDeletedMessages"),
    *("batchedEntryDeletionIndexInfo", "properties"),
)


class Node(NamedTuple):
    """A node that both brokers have."""

    path: str
    recorded: Op
    """The last write of the operation."""
    value: bytes
    """Of ours."""


class Differences:
    """Compares nodes one after the other."""

    def __init__(self) -> None:
        self._ids: dict[int, int] = {-1: -1}
        """Ids of our ledgers, by the recorded ones."""
        self._full_later: set[int] = set()
        """Recorded ledgers of cursors that were full when ours were not yet."""
        self.reasons: set[str] = set()
        """Of the differences that are meant, in the node that was compared last."""

    def of(self, path: str, recorded: Op, value: bytes | None, *, is_late: bool) -> str | None:
        """Returns the first difference that is not meant. `is_late`: the operation made or opened cursors at a position."""
        before, self.reasons = dict(self._ids), set()
        difference = self._of(path, recorded, value, is_late=is_late)
        if difference is not None:
            self._ids = before
        return difference

    def ledger(self, recorded: int) -> int | None:
        """Returns the id of our ledger that stands for a recorded one; None while no node has named both."""
        return self._ids.get(recorded)

    def _of(self, path: str, recorded: Op, value: bytes | None, *, is_late: bool) -> str | None:
        kind, wanted = describe(path).kind, recorded.get("decoded", {})
        if recorded["type"] == "delete":
            if value is not None and kind == "bundle-owner":
                self.reasons.add(OWNERS)
            elif value is not None and describe(path).ledger_id in self._full_later:
                self.reasons.add(ROLLED)
            elif value is not None:
                return f"want no node, got {value!r}"
            return None
        if value is None:
            return self._absence(path, kind, wanted)
        node = Node(path, recorded, value)
        if kind == "managed-ledger":
            return self._log(wanted, tree(ledger_list_record(value))) or self._compression(node)
        if kind == "cursor":
            return self._cursor(
                path, wanted, tree(cursor_record(value)), is_late=is_late
            ) or self._compression(node)
        if kind == "schema":
            return self._schema(wanted, SchemaLocator.FromString(value))
        if kind == "ledger":
            return self._ledger(wanted, value)
        return self._document(wanted, json.loads(value), is_owner=kind == "bundle-owner")

    def _absence(self, path: str, kind: str, wanted: Op) -> str | None:
        if path.endswith("/__compaction") and wanted["cursorsLedgerId"] < 0:
            self.reasons.add(COMPACTION)
        elif kind == "bundle-owner":
            self.reasons.add(OWNERS)
        elif kind == "managed-ledger" and "-partition-" in path and not _written(wanted):
            self.reasons.add(UNOPENED)
        elif (
            kind == "ledger" and wanted["lastEntryId"] < 0 and "pulsar/cursor" not in wanted["customMetadata"]
        ):
            self.reasons.add(LAZY)
        elif path.startswith("/admin/local-policies/") and wanted.keys() == {"bundles", "migrated"}:
            self.reasons.add(LOCAL)
        elif path.endswith("/pulsar.dedup") and wanted["cursorsLedgerId"] < 0:
            self.reasons.add(DEDUPLICATION)
        else:
            return f"want {wanted}, got no node"
        return None

    def _log(self, wanted: Op, got: Op) -> str | None:
        left = []
        for one in got.get("properties", []):
            if one["key"].startswith(PREFIX):
                self.reasons.add(OURS)
            elif one["key"] == "index":
                self.reasons.add(INDEX)
            else:
                left.append(one)
        got["properties"] = left
        ledgers = got.get("ledgerInfo", [])
        if len(ledgers) == len(_written(wanted)) < len(wanted.get("ledgerInfo", [])):
            self.reasons.add(LAZY)
            wanted = {**wanted, "ledgerInfo": _written(wanted)}
        if ledgers and "terminatedPosition" in wanted and ledgers[-1].get("timestamp"):
            self.reasons.add(ENDED)
            ledgers[-1] = {"ledgerId": ledgers[-1]["ledgerId"], "timestamp": 0}
        return self._fields(wanted, got)

    def _cursor(self, path: str, wanted: Op, got: Op, *, is_late: bool) -> str | None:
        wanted, got = self._known(wanted, got)
        if wanted["cursorsLedgerId"] < 0:
            return self._fields(wanted, got)
        want, have = _without_position(wanted), _without_position(got)
        is_log = path.endswith("/transaction.subscription")
        if got["cursorsLedgerId"] < 0 and (is_late or is_log):
            self.reasons.add(NEWEST_STAYS if is_log else LATER)
            return self._fields({**want, "cursorsLedgerId": -1}, have)
        ids = dict(self._ids)
        if self._fields(want, have) is not None and got["cursorsLedgerId"] >= 0:
            self.reasons.add(ROLLED)
            self._full_later |= {one for one, ours in ids.items() if ours == got["cursorsLedgerId"]}
            del want["cursorsLedgerId"], have["cursorsLedgerId"]
        self._ids = dict(ids)
        if self._fields(wanted, {**got, "cursorsLedgerId": wanted["cursorsLedgerId"]}) is not None:
            self.reasons.add(STALE)
        self._ids = ids
        return self._fields(want, have)

    def _known(self, wanted: Op, got: Op) -> tuple[Op, Op]:
        """Leaves out what one broker alone keeps with a cursor; shows the compacted ledger as a ledger."""
        pairs = []
        for record in (dict(wanted), dict(got)):
            kept = []
            for one in record.get("cursorProperties", []):
                if one["name"].startswith(PREFIX):
                    self.reasons.add(OURS)
                elif one["name"].startswith(_BUCKET):
                    self.reasons.add(BUCKETS)
                else:
                    kept.append(one)
            record["cursorProperties"] = kept
            record["properties"] = [
                {"ledgerId": one["value"]} if one["name"] == _COMPACTED else one
                for one in record.get("properties", [])
            ]
            pairs.append(record)
        return pairs[0], pairs[1]

    def _schema(self, wanted: Op, locator: SchemaLocator) -> str | None:
        for entry in (locator.info, *locator.index):
            for field in ("type", "canonicalHash"):
                if entry.HasField(field):
                    self.reasons.add(OUR_FIELDS)
                    entry.ClearField(field)
        return self._fields(wanted, tree(locator))

    def _compression(self, node: Node) -> str | None:
        if LAZY in self.reasons:
            # Ours was not written again, and has the compression of its last write.
            return None
        want, have = node.recorded.get("compression", {}).get("compressionType"), None
        if node.value.startswith(b"\x47\x78"):
            size = int.from_bytes(node.value[2:6], "big")
            head = RecordMetadata.FromString(node.value[6 : 6 + size])
            have = CompressionType.Name(CompressionType.ValueType(head.compressionType))
        return None if want == have else f"compression: want {want}, got {have}"

    def _ledger(self, wanted: Op, value: bytes) -> str | None:
        found = ledger_metadata.decode(value)
        if found.creator_token:
            self.reasons.add(TOKEN)
        got = {
            "state": found.state.name,
            "length": found.length,
            "lastEntryId": found.last_entry_id,
            "ensembleSize": found.ensemble_size,
            "writeQuorum": found.write_quorum,
            "ackQuorum": found.ack_quorum,
            "digestType": found.digest_type.name,
            "password": found.password.decode(),
            "customMetadata": {name: text.decode() for name, text in found.custom.items()},
        }
        for field, have in got.items():
            if wanted[field] != have:
                return f"{field}: want {wanted[field]}, got {have}"
        return None

    def _document(self, wanted: Op, got: Op, *, is_owner: bool) -> str | None:
        for field in sorted(wanted.keys() | got.keys()):
            want, have = _plain(field, wanted.get(field)), _plain(field, got.get(field))
            if want == have or (is_owner and field in ("nativeUrl", "httpUrl") and want and have):
                continue
            if field not in got and field in UNSET and want == _plain(field, UNSET[field]):
                self.reasons.add(DEFAULTS)
            elif field == "namespaceAntiAffinityGroup" and want == json.dumps(have):
                self.reasons.add(QUOTES)
            else:
                return f"{field}: want {want}, got {have}"
        return None

    def _fields(self, wanted: Op, got: Op) -> str | None:
        for field in sorted(wanted.keys() | got.keys()):
            want, have = wanted.get(field), got.get(field)
            if not self._is_same(field, want or None, have or None):
                return f"{field}: want {want}, got {have}"
        return None

    def _is_same(self, field: str, want: Any, have: Any) -> bool:
        """An id that is new in one must be new in the other, and both belong together from then on."""
        if field in _TIMES:
            return bool(want) == bool(have)
        if isinstance(want, list) and isinstance(have, list):
            pairs = zip(want, have, strict=False)
            return len(want) == len(have) and all(self._is_same(field, *pair) for pair in pairs)
        if isinstance(want, dict) and isinstance(have, dict):
            return all(
                self._is_same(name, want.get(name), have.get(name))
                for name in sorted(want.keys() | have.keys(), reverse=True)
            )
        if field.endswith("LedgerId") or field == "ledgerId":
            if want not in self._ids and have not in self._ids.values():
                self._ids[want] = have
            return bool(self._ids.get(want) == have)
        return bool(want == have)


def _written(log: Op) -> list[Op]:
    """Returns the ledgers of a list but an open one, which is the last."""
    ledgers: list[Op] = log.get("ledgerInfo", [])
    return ledgers if not ledgers or ledgers[-1]["timestamp"] or "terminatedPosition" in log else ledgers[:-1]


def _without_position(cursor: Op) -> Op:
    return {name: value for name, value in cursor.items() if name not in _POSITION}


def _plain(field: str, value: Any) -> Any:
    return sorted(value) if field in _SETS and isinstance(value, list) else value


def tree(message: Message) -> dict[str, Any]:
    """Returns the fields that are present, as the recordings show them."""
    return {field.name: _value(value) for field, value in message.ListFields()}


def _value(value: Any) -> Any:
    if isinstance(value, Message):
        return tree(value)
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, int | str):
        return value
    return [_value(one) for one in value]
