"""Repeats the recorded operations of a cluster, in their order, and compares the nodes that both brokers have written.

The store is shared, through its server on a Unix socket, so cursors and schemas have ledgers as in ZooKeeper. Requests are
sent as recorded, `cluster_clients.py` repeats what clients did, and a start with other settings is a start with those. An
operation that is not repeated is counted with its reason, and so is a node that is not compared.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from magnetar.snapshot.node_path import describe
from magnetar.snapshot.node_sources import node_at
from protocol.ledger_metadata import ledger_key
from tests.bookie_stub.bookie_process import Process
from tests.support.ports import free_port
from tests.vectors.broker_process import BrokerProcess
from tests.vectors.cluster_clients import Clients
from tests.vectors.cluster_differences import NOT_COMPARED, Differences
from tests.vectors.result import Result
from tests.vectors.scripts import Op, read_scripts

_SETTINGS: Final = {
    "clusterName": "c1",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerMaxEntriesPerLedger": "20",
    "managedLedgerCursorMaxEntriesPerLedger": "12",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "managedLedgerDefaultMarkDeleteRateLimit": "0",
    "brokerEntryMetadataInterceptors": "",
    "transactionCoordinatorEnabled": "true",
    # The recorded cluster had that of broker.conf, and a standalone broker has another one.
    "backlogQuotaDefaultLimitGB": "-1",
}
_STARTS: Final = {
    "start broker 1 with LZ4 for ManagedLedgerInfo, ZSTD for ManagedCursorInfo, thresholds 0": {
        "managedLedgerInfoCompressionType": "LZ4",
        "managedLedgerInfoCompressionThresholdInBytes": "0",
        "managedCursorInfoCompressionType": "ZSTD",
        "managedCursorInfoCompressionThresholdInBytes": "0",
    },
    "start broker 1 with brokerDeduplicationEntriesInterval=3": {"brokerDeduplicationEntriesInterval": "3"},
}
"""Settings of the recorded starts of one broker."""
_LEFT_OUT: Final[Mapping[str, str]] = {
    "producer AVRO v1": "its definition is not in the recording, since it was refused",
    "(wire and )?redirect recordings dev": "the requests are those of wire.jsonl and redirects.jsonl",
    "start (broker 2|it again|both brokers.*)|SIG.*|stop both brokers": (
        "two brokers; tests/interop/test_cluster.py and test_cluster_failures.py do the same"
    ),
}
"""Operations that are not repeated, and the reason."""
NOT_KNOWN: Final = "the words of the operation are not known"
_WAIT_S: Final = 20.0
"""For what a broker stores after its answer; a node that never comes to be as wanted is a failure."""


def replay(path: Path, result: Result) -> None:
    """Judges every operation's answer, and every node that repeated operations have written."""
    repeated, left_out, named = 0, Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="magnetar-test-") as name, _cluster(Path(name)) as cluster:
        for operation in read_scripts(path):
            text = operation["op"]
            if (reason := cluster.perform(operation, result)) is not None:
                left_out[reason] += 1
                continue
            repeated += 1
            for node, recorded in _last_writes(operation):
                if (reason := cluster.reason_to_leave_out(node)) is not None:
                    named[f"not compared: {reason}"] += 1
                    continue
                # Only these make or open a cursor at a position.
                is_late = text.startswith(("PUT ", "reload", "unload namespace"))
                difference = cluster.wait_for(node, recorded, is_late=is_late)
                named.update(cluster.differences.reasons)
                result.judge(f"{text} {node}", difference, None)
    total = repeated + left_out.total()
    result.messages.append(f"operations: {path.name}: {repeated} of {total} repeated")
    result.messages += [f"not repeated: {path.name}: {text} ({n} operations)" for text, n in left_out.items()]
    result.messages += [f"named: {path.name}: {reason} ({count} nodes)" for reason, count in named.items()]


def _last_writes(operation: Op) -> Iterator[tuple[str, Op]]:
    """Yields each node that the operation wrote with its last write; lists before cursors, and both before ledgers."""
    last = {write["path"]: write for write in operation["writes"] if "path" in write}
    for node in sorted(last, key=lambda node: (node.startswith("/ledgers/"), node)):
        is_parent = last[node]["type"] == "createContainer" or describe(node).kind == "parent"
        if not is_parent:
            yield node, last[node]


@contextlib.contextmanager
def _cluster(folder: Path) -> Iterator[_Cluster]:
    command = [sys.executable, "-m", "magnetar", "metadata", "serve", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url = server.stdout.readline().rstrip("\n").partition("=")[2]
    port, bookie = free_port(), Process(folder / "bookie")
    bookie.start(f"bookiePort={port}", "advertisedAddress=127.0.0.1")
    cluster = _Cluster(folder, {"metadataStoreUrl": url, "bookieAddress": f"127.0.0.1:{port}"})
    try:
        cluster.start({})
        yield cluster
        cluster.stop()
    finally:
        cluster.broker.kill()
        bookie.end(9)
        server.kill()
        server.communicate()


class _Cluster:
    """One broker, which may be started again with other settings."""

    def __init__(self, folder: Path, stores: Mapping[str, str]) -> None:
        self._url = f"file:{folder / 'metadata.sqlite'}"
        self._settings = {**_SETTINGS, **stores}
        self._folder = folder / "broker"
        self._folder.mkdir()
        self.broker = BrokerProcess(self._folder, self._settings)
        self._clients: Clients | None = None
        self.differences = Differences()
        self._namespaces = {"pulsar/system"}

    def start(self, settings: Mapping[str, str]) -> None:
        self.broker = BrokerProcess(self._folder, {**self._settings, **settings})
        self._clients = Clients(self.broker.start().pulsar)

    def stop(self) -> None:
        if self._clients is not None:
            self._clients.client.close()
            self._clients = None
            assert self.broker.stop() == 0

    def perform(self, operation: Op, result: Result) -> str | None:
        """Does what the operation did; returns the reason where it does not."""
        text, info = operation["op"], operation.get("info")
        for pattern, reason in _LEFT_OUT.items():
            if re.fullmatch(pattern, text):
                return reason
        if text == "stop brokers":
            self.stop()
        elif text in _STARTS:
            self.start(_STARTS[text])
        elif isinstance(info, dict) and "path" in info:
            status = self._request(info)
            if made := re.fullmatch(r"PUT /admin/v2/namespaces/([^/]+/[^/]+)", text):
                self._namespaces.add(made[1])
            if text.endswith("/compaction") and info["method"] == "PUT":
                self._wait_for_compaction(info)
            result.judge(
                text, None if status == info["status"] else f"want {info['status']}, got {status}", None
            )
        else:
            assert self._clients is not None
            if not self._clients.perform(operation):
                return NOT_KNOWN
        return None

    def reason_to_leave_out(self, node: str) -> str | None:
        """Returns why a node that the operation wrote is not compared; None when it is."""
        for pattern, reason in NOT_COMPARED.items():
            if re.fullmatch(pattern, node):
                return reason
        namespace = re.match(r"/(?:managed-ledgers|schemas|namespace)/([^/]+/[^/]+)", node)
        if namespace is not None and namespace[1] not in self._namespaces:
            return "namespaces that no operation made; those of the recordings between"
        return None

    def _request(self, info: Op) -> int:
        body = json.dumps(info["body"]).encode() if "body" in info else None
        request = urllib.request.Request(
            self.broker.addresses.admin + info["path"],
            body,
            {"content-type": "application/json"},
            method=info["method"],
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def _wait_for_compaction(self, info: Op) -> None:
        """The recorded client sent again after the first one had ended."""
        url = self.broker.addresses.admin + info["path"]
        while True:
            with urllib.request.urlopen(url, timeout=60) as answer:
                if json.load(answer)["status"] != "RUNNING":
                    return
            time.sleep(0.05)

    def wait_for(self, node: str, recorded: Op, *, is_late: bool) -> str | None:
        """Returns the difference that is left after some time."""
        deadline, ours = time.monotonic() + _WAIT_S, node
        if (number := describe(node).ledger_id) is not None:
            found_id = self.differences.ledger(number)
            if found_id is None:
                self.differences.reasons = {"not compared: ledgers that no compared node names"}
                return None
            ours = ledger_key(found_id)
        while True:
            found, _ = node_at(self._url, ours)
            difference = self.differences.of(node, recorded, found and found.value, is_late=is_late)
            if difference is None or time.monotonic() > deadline:
                return difference
            time.sleep(0.05)
