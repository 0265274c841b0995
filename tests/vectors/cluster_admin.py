"""Repeats the recorded admin requests of a cluster against a broker of ours, and compares the nodes that both have written.

The requests are those on tenants, namespaces, clusters, resource groups, dynamic settings, racks and counts of partitions.
After each one the nodes that Apache's broker wrote are read from our store and compared field by field. A difference with a
known reason is told once; any other one is a failure, and so is another status.
"""

from __future__ import annotations

import json
import re
import tempfile
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from magnetar.snapshot.node_sources import node_at
from tests.vectors.broker_process import BrokerProcess
from tests.vectors.result import Result
from tests.vectors.scripts import Op, read_scripts

_REQUESTS: Final = re.compile(
    r"/admin/v2/((tenants|namespaces|clusters|resourcegroups|brokers/configuration|bookies/racks-info)/"
    r"|[^/]*persistent/.*/partitions)"
)
_COMPARED: Final = ("/admin/", "/bookies")
"""Beginnings of the paths of nodes that requests write."""
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


def replay(path: Path, result: Result) -> None:
    """Judges every node that the requests of the file have written."""
    explained: Counter[str] = Counter()
    with (
        tempfile.TemporaryDirectory(prefix="magnetar-test-") as folder,
        BrokerProcess(Path(folder), {"clusterName": "c1"}) as broker,
    ):
        for operation in read_scripts(path):
            if not _is_repeated(operation):
                continue
            name, info = operation["op"], operation["info"]
            status = _request(broker.addresses.admin, info)
            if status != info["status"]:
                result.judge(name, f"want status {info['status']}, got {status}", None)
                continue
            for node, wanted in _last_values(operation):
                found, _ = node_at(broker.metadata_url, node)
                reasons, difference = _compared(wanted, None if found is None else found.value)
                explained.update(reasons)
                result.judge(f"{name} {node}", difference, None)
    result.messages += [
        f"explained: {path.name}: {text} ({count} nodes)" for text, count in explained.items()
    ]


def _is_repeated(operation: Op) -> bool:
    info = operation.get("info")
    return (
        isinstance(info, dict)
        and info.get("status", 500) < 300
        and bool(_REQUESTS.match(info.get("path", "")))
    )


def _request(admin: str, info: Op) -> int:
    body = json.dumps(info["body"]).encode() if "body" in info else None
    request = urllib.request.Request(
        admin + info["path"], body, {"content-type": "application/json"}, method=info["method"]
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def _last_values(operation: Op) -> Iterator[tuple[str, Op | None]]:
    """Yields each JSON node of the operation with its last value, None for one that was deleted."""
    last = {write["path"]: write for write in operation["writes"] if "path" in write}
    for path, write in last.items():
        if not path.startswith(_COMPARED):
            continue
        if write["type"] == "delete":
            yield path, None
        elif write.get("kind") == "json":
            yield path, write["decoded"]


def _compared(wanted: Op | None, value: bytes | None) -> tuple[set[str], str | None]:
    """Returns the reasons of explained differences, and the first difference that is not explained."""
    if wanted is None:
        return set(), None if value is None else f"want no node, got {value!r}"
    if value is None:
        return set(), "want a node, got none"
    got: Op = json.loads(value)
    reasons = set()
    for field in sorted(wanted.keys() | got.keys()):
        want, have = _plain(field, wanted.get(field)), _plain(field, got.get(field))
        if want == have:
            continue
        if field not in got and field in UNSET and want == _plain(field, UNSET[field]):
            reasons.add("fields that are not set are left out; Pulsar writes most of them")
        elif field == "namespaceAntiAffinityGroup" and want == json.dumps(have):
            reasons.add(f"{field}: Pulsar keeps the quotes of a text that was sent as JSON")
        else:
            return reasons, f"{field}: want {want}, got {have}"
    return reasons, None


def _plain(field: str, value: Any) -> Any:
    return sorted(value) if field in _SETS and isinstance(value, list) else value
