"""kill -9 at each step of a deletion: the next start finishes it, and nothing that was confirmed elsewhere is lost.

For each point a tenant gets a topic and a partitioned topic with messages, subscriptions, schemas, policies and grants;
another namespace gets messages too. The broker dies in the deletion. After its restart the thing must vanish, and no
intent may stay; every message of the other namespace must be there, an audit of the store must find nothing, and the bookie
must have no ledger that the store does not have.
"""

from __future__ import annotations

import contextlib
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Final

import pulsar

from magnetar.audit.facts import gather, judge
from magnetar.snapshot.node_sources import nodes_of
from tests.crash.bookie_leftovers import left_on_bookie
from tests.crash.broker_process import BrokerProcess
from tests.crash.compaction_broker import ARMED
from tests.crash.crash_points import POINT
from tests.crash.deletion_broker import POINTS
from tests.crash.every_point import try_points
from tests.crash.send_groups import send_groups

SETTINGS: Final = (
    "forceDeleteNamespaceAllowed=true",
    "forceDeleteTenantAllowed=true",
    "brokerDeleteInactiveTopicsEnabled=false",
    "managedLedgerMaxEntriesPerLedger=5",
    "managedLedgerMinLedgerRolloverTimeMinutes=0",
)
PATHS: Final = {
    "topic": "persistent/shop/orders/plain?force=true",
    "partitioned": "persistent/shop/orders/parts/partitions?force=true",
    "namespace": "namespaces/shop/orders?force=true",
    "tenant": "tenants/shop?force=true",
}
GONE: Final = {"topic": "/plain", "partitioned": "/parts", "namespace": "shop/orders", "tenant": "shop"}
"""A text that no path of the store may have after the deletion."""
KEPT: Final = "persistent://public/default/kept"
MESSAGES: Final = 12
TIMEOUT_S: Final = 300.0


def main(*, keep: bool, audit: bool = False) -> int:
    """One line per point; 1 when anything is wrong."""
    failed = try_points(POINTS, run_point, keep=keep, audit=audit)
    print(f"{len(POINTS)} points, {failed} failed")
    return 1 if failed else 0


def run_point(point: str, folder: Path) -> list[str]:
    """Returns what is wrong."""
    kind = point.partition(".")[0]
    broker = BrokerProcess(folder, SETTINGS, module="tests.crash.deletion_broker")
    armed = folder / "armed"
    broker.environment = {POINT: point, ARMED: str(armed)}
    try:
        broker.start()
        confirmed = _fill(broker)
        armed.touch()
        with contextlib.suppress(OSError, HTTPException):
            _ask(broker, "DELETE", PATHS[kind])
        _until(lambda: not broker.alive(), "the broker passes the point")
        armed.unlink()
        broker.environment = {}
        broker.start()
        _until(lambda: not _paths(broker, GONE[kind]), f"{GONE[kind]} vanishes")
        _until(lambda: not _paths(broker, "/admin/deletions/"), "no intent is left")
        findings = [] if _received(broker) == confirmed else ["confirmed messages are lost"]
        if (code := broker.stop()) != 0:
            findings.append(f"SIGTERM ended with exit code {code}")
    except AssertionError as error:
        return [str(error)]
    finally:
        broker.close()
    found = judge(gather(nodes_of(f"file:{broker.data / 'metadata.sqlite'}")))
    findings += [f"{one.kind} {one.subject}: {one.reason}" for one in found]
    return findings + left_on_bookie(broker.data)


def _fill(broker: BrokerProcess) -> list[bytes]:
    _ask(broker, "PUT", "tenants/shop", b'{"adminRoles":[],"allowedClusters":["standalone"]}')
    _ask(broker, "PUT", "namespaces/shop/orders", b"{}")
    _ask(broker, "PUT", "persistent/shop/orders/parts/partitions", b"3")
    client = pulsar.Client(broker.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    sent = [b"%d" % number for number in range(MESSAGES)]
    try:
        for topic in ("persistent://shop/orders/plain", "persistent://shop/orders/parts", KEPT):
            client.subscribe(topic, "s").close()
            producer = client.create_producer(topic, schema=pulsar.schema.StringSchema())
            send_groups(producer, [body.decode() for body in sent])
        for topic in ("plain", "parts"):
            name = f"persistent://shop/orders/{topic}"
            client.create_producer(name, schema=pulsar.schema.StringSchema()).close()
            _ask(broker, "POST", f"persistent/shop/orders/{topic}/maxMessageSize", b"100000")
            _ask(broker, "POST", f"persistent/shop/orders/{topic}/permissions/clerk", b'["consume"]')
    finally:
        client.close()
    return sent


def _received(broker: BrokerProcess) -> list[bytes]:
    client = pulsar.Client(broker.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    try:
        consumer = client.subscribe(KEPT, "s")
        return [consumer.receive(int(TIMEOUT_S * 1000)).data() for _ in range(MESSAGES)]
    finally:
        client.close()


def _paths(broker: BrokerProcess, text: str) -> list[str]:
    nodes = nodes_of(f"file:{broker.data / 'metadata.sqlite'}")
    return [node.path for node in nodes if text in node.path or text.encode() in node.value]


def _until(done: object, what: str) -> None:
    assert callable(done)
    began = time.monotonic()
    while not done():
        assert time.monotonic() - began < TIMEOUT_S, f"not within {TIMEOUT_S:.0f} s: {what}"
        time.sleep(0.05)


def _ask(broker: BrokerProcess, method: str, path: str, body: bytes | None = None) -> None:
    headers = {"Content-Type": "application/json"}
    url = f"{broker.admin_url}/admin/v2/{path}"
    with urllib.request.urlopen(
        urllib.request.Request(url, body, headers, method=method), timeout=TIMEOUT_S
    ) as answer:
        answer.read()
