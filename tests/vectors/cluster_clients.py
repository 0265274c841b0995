"""Repeats recorded operations of clients on topics, and compares the nodes of logs and cursors that both have written.

The store is shared, through its server on a Unix socket, so cursors have ledgers as in ZooKeeper. Ids of ledgers are
mapped: the first that both name in one place are the same from then on. What differs by intent stands in `NAMED`.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pulsar

from broker.managed_ledger.records.pulsar_records import PREFIX, cursor_record, ledger_list_record
from magnetar.snapshot.node_path import describe
from magnetar.snapshot.node_sources import node_at
from tests.bookie_stub.bookie_process import Process
from tests.interop.support import connect
from tests.support.ports import free_port
from tests.vectors.broker_process import Addresses, BrokerProcess
from tests.vectors.result import Result
from tests.vectors.scripts import Op, read_scripts

TOPICS: Final = ("props", "many", "batch", "term", "gone")
_NAMESPACE: Final = "shop/orders"
_ROOT: Final = f"/managed-ledgers/{_NAMESPACE}/persistent/"
_SETTINGS: Final = {
    "clusterName": "c1",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerMaxEntriesPerLedger": "20",
    "managedLedgerCursorMaxEntriesPerLedger": "12",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "managedLedgerDefaultMarkDeleteRateLimit": "0",
    "brokerEntryMetadataInterceptors": "",
}
_TYPES: Final = {
    "Exclusive": pulsar.ConsumerType.Exclusive,
    "Shared": pulsar.ConsumerType.Shared,
    "Failover": pulsar.ConsumerType.Failover,
    "KeyShared": pulsar.ConsumerType.KeyShared,
}
_WAIT_S: Final = 20.0
"""For what a broker stores after its answer; a node that never comes to be as wanted is a failure."""
_TIMES: Final = ("timestamp", "lastActive")
_POSITION: Final = (
    *("markDeleteLedgerId", "markDeleteEntryId", "individualDeletedMessages"),
    "batchedEntryDeletionIndexInfo",
)
STALE: Final = "a node that names a ledger has another position, which counts for nothing (decision 0024)"
LATER: Final = "a cursor that is made at a position has its ledger with the first acknowledgement"
ROLLED: Final = (
    "a cursor's ledger has no entry of the position before its first acknowledgement, so it is full later"
)
LAZY: Final = "a topic has its first ledger with the first message"
ENDED: Final = "the last ledger of a terminated topic has its end in the list too"
INDEX: Final = "the property `index` (PIP-70), which Magnetar writes without the interceptor too"
COMPACTION: Final = "cursors for compaction are made with the first compaction"
OURS: Final = f"properties that begin with {PREFIX} (decision 0022)"


def replay(path: Path, result: Result) -> None:
    """Judges every node of a log and a cursor that the repeated operations have written."""
    named = Counter[str]()
    with tempfile.TemporaryDirectory(prefix="magnetar-test-") as name, _broker(Path(name)) as broker:
        clients = Clients(broker.addresses)
        ids: dict[int, int] = {-1: -1}
        for operation in read_scripts(path):
            nodes = _last_nodes(operation)
            if not clients.perform(operation, nodes):
                continue
            for node, wanted in nodes.items():
                if node.endswith("/__compaction"):
                    named[COMPACTION] += 1
                    continue
                # Only these make or open a cursor at a position.
                is_late = operation["op"].startswith(("PUT ", "reload"))
                url = f"file:{Path(name) / 'metadata.sqlite'}"
                difference = _wait_for(url, node, wanted, ids, named, is_late=is_late)
                result.judge(f"{operation['op']} {node}", difference, None)
        clients.client.close()
    result.messages += [f"named: {path.name}: {reason} ({count} nodes)" for reason, count in named.items()]


@contextlib.contextmanager
def _broker(folder: Path) -> Iterator[BrokerProcess]:
    command = [sys.executable, "-m", "magnetar", "metadata", "serve", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url = server.stdout.readline().rstrip("\n").partition("=")[2]
    port, bookie = free_port(), Process(folder / "bookie")
    bookie.start(f"bookiePort={port}", "advertisedAddress=127.0.0.1")
    settings = {**_SETTINGS, "metadataStoreUrl": url, "bookieAddress": f"127.0.0.1:{port}"}
    (folder / "broker").mkdir()
    try:
        with BrokerProcess(folder / "broker", settings) as broker:
            yield broker
    finally:
        bookie.end(9)
        server.kill()
        server.communicate()


class Clients:
    """The clients of the recording."""

    def __init__(self, addresses: Addresses) -> None:
        self._admin = addresses.admin
        self.client = connect(addresses.pulsar)
        self._producers: dict[str, pulsar.Producer] = {}
        self._consumers: dict[str, pulsar.Consumer] = {}
        self._received: dict[str, list[pulsar.Message]] = {}
        self._sent = 0
        self._topic = ""
        self._ask("PUT", "/admin/v2/tenants/shop", {"adminRoles": [], "allowedClusters": ["c1"]})
        self._ask("PUT", f"/admin/v2/namespaces/{_NAMESPACE}", {"bundles": {"numBundles": 4}})

    def perform(self, operation: Op, nodes: Op) -> bool:
        """Does what the operation did; returns False for one that is not repeated."""
        text, info = operation["op"], operation.get("info")
        found = {describe(node).topic for node in nodes} - {None}
        names = {str(topic).rpartition("/")[2] for topic in found}
        if isinstance(info, dict) and "path" in info:
            if not any(f"/{_NAMESPACE}/{topic}" in re.split(r"[?]", info["path"])[0] for topic in TOPICS):
                return False
            parts = info["path"].split("?")[0].split("/")
            if parts[6] not in TOPICS or operation["group"] not in ("topics", *_GROUPS):
                return False
            self._ask(info["method"], info["path"], info.get("body"))
            return True
        if operation["group"] not in _GROUPS:
            return False
        if len(names) == 1 and names <= set(TOPICS):
            (self._topic,) = names
        return self._by_words(text)

    def _by_words(self, text: str) -> bool:
        if found := re.fullmatch(r"subscribe (\w+) (\w+)", text):
            self._subscribe(found[1], found[2])
        elif text == "subscribe gone":
            self._subscribe("s", "Exclusive")
        elif found := re.fullmatch(r"create producer (\w+)", text):
            self._producer(found[1])
        elif found := re.fullmatch(r"send (\d+)", text):
            self._send(int(found[1]))
        elif found := re.fullmatch(r"send to (term|gone)", text):
            self._topic = found[1]
            self._send({"term": 4, "gone": 25}[found[1]])
        elif text == "send 4 batches of 10":
            self._send_batches()
        elif found := re.fullmatch(r"(\w+): receive (\d+), cumulative ack of the last", text):
            self._receive(found[1], int(found[2]))
            self._consumers[found[1]].acknowledge_cumulative(self._received[found[1]][-1])
        elif found := re.fullmatch(r"(\w+): (?:receive (\d+), )?ack individually indexes (\[.*\])", text):
            self._receive(found[1], int(found[2] or 0))
            for index in json.loads(found[3]):
                self._consumers[found[1]].acknowledge(self._received[found[1]][index])
        elif text == "close clients of many":
            for one in (*self._consumers.values(), *self._producers.values()):
                with contextlib.suppress(pulsar.AlreadyClosed):
                    one.close()
            self._producers.clear()
        else:
            return False
        return True

    def _subscribe(self, name: str, kind: str) -> None:
        self._consumers[name] = self.client.subscribe(
            f"persistent://{_NAMESPACE}/{self._topic}",
            name,
            consumer_type=_TYPES[kind],
            initial_position=getattr(
                pulsar.InitialPosition, "Latest" if self._topic == "gone" else "Earliest"
            ),
            batch_index_ack_enabled=True,
        )
        self._received[name] = []

    def _producer(self, topic: str) -> pulsar.Producer:
        if topic not in self._producers:
            self._producers[topic] = self.client.create_producer(
                f"persistent://{_NAMESPACE}/{topic}",
                producer_name="p-dev" if topic == "many" else "c1-0-12",
                batching_enabled=False,
            )
        return self._producers[topic]

    def _send(self, count: int) -> None:
        producer = self._producer(self._topic)
        for number in range(count):
            producer.send(b"m%d" % number)

    def _send_batches(self) -> None:
        producer = self.client.create_producer(
            f"persistent://{_NAMESPACE}/{self._topic}",
            batching_enabled=True,
            batching_max_messages=10,
            batching_max_publish_delay_ms=10_000,
        )
        for _ in range(4):
            for number in range(10):
                producer.send_async(b"b%d" % number, lambda *_: None)
            producer.flush()
        producer.close()

    def _receive(self, name: str, count: int) -> None:
        consumer = self._consumers[name]
        self._received[name] += [consumer.receive(timeout_millis=30_000) for _ in range(count)]

    def _ask(self, method: str, path: str, body: Any = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._admin + path, data, {"content-type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=60):
            pass


_GROUPS: Final = ("ledgers-and-subscriptions", "batches", "ends")


def _last_nodes(operation: Op) -> dict[str, Op | None]:
    """Returns each log and cursor of our topics with its last value, None for one that was deleted."""
    last: dict[str, Op | None] = {}
    for write in operation["writes"]:
        path = write.get("path", "")
        if path.startswith(_ROOT) and path.removeprefix(_ROOT).split("/")[0] in TOPICS:
            last[path] = None if write["type"] == "delete" else write.get("decoded", {})
    return last


def _wait_for(
    url: str, node: str, wanted: Op | None, ids: dict[int, int], named: Counter[str], *, is_late: bool
) -> str | None:
    deadline = time.monotonic() + _WAIT_S
    while True:
        found, _ = node_at(url, node)
        tried, reasons = dict(ids), set[str]()
        difference = _difference(node, wanted, found and found.value, tried, reasons, is_late=is_late)
        if difference is None:
            ids.update(tried)
            named.update(reasons)
            return None
        if time.monotonic() > deadline:
            return difference
        time.sleep(0.05)


def _difference(
    node: str,
    wanted: Op | None,
    value: bytes | None,
    ids: dict[int, int],
    reasons: set[str],
    *,
    is_late: bool,
) -> str | None:
    if wanted is None or value is None:
        return None if wanted is None and value is None else f"want {wanted}, got {value!r}"
    if describe(node).kind == "managed-ledger":
        return _log_difference(wanted, _tree(ledger_list_record(value)), ids, reasons)
    return _cursor_difference(wanted, _tree(cursor_record(value)), ids, reasons, is_late=is_late)


def _log_difference(wanted: Op, got: Op, ids: dict[int, int], reasons: set[str]) -> str | None:
    left = []
    for one in got.get("properties", []):
        if one["key"].startswith(PREFIX):
            reasons.add(OURS)
        elif one["key"] == "index":
            reasons.add(INDEX)
        else:
            left.append(one)
    got["properties"] = left
    ledgers = got.get("ledgerInfo", [])
    if not ledgers and [one["timestamp"] for one in wanted.get("ledgerInfo", [])] == [0]:
        reasons.add(LAZY)
        wanted = {name: value for name, value in wanted.items() if name != "ledgerInfo"}
    if ledgers and "terminatedPosition" in wanted and ledgers[-1].get("timestamp"):
        reasons.add(ENDED)
        ledgers[-1] = {"ledgerId": ledgers[-1]["ledgerId"], "timestamp": 0}
    return _fields(wanted, got, ids)


def _cursor_difference(
    wanted: Op, got: Op, ids: dict[int, int], reasons: set[str], *, is_late: bool
) -> str | None:
    if wanted["cursorsLedgerId"] < 0:
        return _fields(wanted, got, ids)
    want, have = _without_position(wanted), _without_position(got)
    if got["cursorsLedgerId"] < 0 and is_late:
        reasons.add(LATER)
        return _fields({**want, "cursorsLedgerId": -1}, have, ids)
    if _fields(want, have, dict(ids)) is not None and got["cursorsLedgerId"] >= 0:
        reasons.add(ROLLED)
        del want["cursorsLedgerId"], have["cursorsLedgerId"]
    if _fields(wanted, {**got, "cursorsLedgerId": wanted["cursorsLedgerId"]}, dict(ids)) is not None:
        reasons.add(STALE)
    return _fields(want, have, ids)


def _without_position(cursor: Op) -> Op:
    return {name: value for name, value in cursor.items() if name not in _POSITION}


def _fields(wanted: Op, got: Op, ids: dict[int, int]) -> str | None:
    for field in sorted(wanted.keys() | got.keys()):
        want, have = wanted.get(field), got.get(field)
        if not _is_same(field, want or None, have or None, ids):
            return f"{field}: want {want}, got {have}"
    return None


def _is_same(field: str, want: Any, have: Any, ids: dict[int, int]) -> bool:
    """Compares two values; an id that is new in one must be new in the other, and both belong together from then on."""
    if field in _TIMES:
        return bool(want) == bool(have)
    if isinstance(want, list) and isinstance(have, list):
        pairs = zip(want, have, strict=False)
        return len(want) == len(have) and all(_is_same(field, *pair, ids) for pair in pairs)
    if isinstance(want, dict) and isinstance(have, dict):
        return all(
            _is_same(name, want.get(name), have.get(name), ids)
            for name in sorted(want.keys() | have.keys(), reverse=True)
        )
    if field.endswith("LedgerId") or field == "ledgerId":
        if want not in ids and have not in ids.values():
            ids[want] = have
        return bool(ids.get(want) == have)
    return bool(want == have)


def _tree(message: Any) -> dict[str, Any]:
    """Returns the fields that are present, as the recordings show them."""
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.message_type is None:
            found[field.name] = (
                list(value) if hasattr(value, "__len__") and not isinstance(value, str) else value
            )
        elif hasattr(value, "DESCRIPTOR"):
            found[field.name] = _tree(value)
        else:
            found[field.name] = [_tree(one) for one in value]
    return found
