"""Deletion, trimming and the audit of leaks with a real ZooKeeper, also while it is away."""

from __future__ import annotations

import json
import threading
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest
from kazoo.client import KazooClient

from broker.cluster.records import BUNDLES as LEASES
from broker.managed_ledger.records.pulsar_records import decode_ledger_list
from broker.service.lifecycle.deletion.intents import OWNERS
from magnetar.__main__ import main
from magnetar.snapshot.node_sources import nodes_of
from tests.interop.support import Admin, numbered, publish, receive, wait_until
from tests.interop.test_zookeeper import Cluster
from tests.support.java import ZooKeeper

pytestmark = [pytest.mark.peer, pytest.mark.slow]

Connect = Callable[[str], pulsar.Client]
WAIT_S = 60.0
SETTINGS = {
    "managedLedgerMaxEntriesPerLedger": "10",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "retentionCheckIntervalInSeconds": "1",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "metadataStoreOperationTimeoutSeconds": "5",
}


@pytest.fixture
def away(classes: str, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster whose ZooKeeper the test may stop."""
    (tmp_path / "zookeeper").mkdir()
    zookeeper = ZooKeeper(classes, tmp_path / "zookeeper")
    zookeeper.start()
    cluster = Cluster(tmp_path, zookeeper, SETTINGS)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.kill()
        zookeeper.stop()


def url_of(cluster: Cluster) -> str:
    return f"zk:{cluster.zookeeper.address}{cluster.root}"


def audit(cluster: Cluster, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    capsys.readouterr()
    where = ["--metadata-url", url_of(cluster), "--admin-url", cluster.broker.addresses.admin]
    code = main(["admin", "audit", *where, "--pause", "0.2", "--grace-seconds", "0", *flags])
    out = capsys.readouterr()
    return code, out.out + out.err


def paths(cluster: Cluster) -> set[str]:
    """Returns the nodes that have bytes, without those that come and go: of a broker's session, as an owner of deletions
    or bundles, and what it writes about its load.
    """
    nodes = nodes_of(url_of(cluster))
    passing = (OWNERS, LEASES, "/loadbalance/")
    return {node.path for node in nodes if node.value and not node.path.startswith(passing)}


def fill(client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "s").close()
    producer = client.create_producer(topic, schema=pulsar.schema.StringSchema(), batching_enabled=False)
    for number in range(35):
        producer.send(f"message {number}")
    producer.close()


def test_deleted_topic_leaves_nothing_in_zookeeper(
    away: Cluster, connected: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    client = connected(away.broker.addresses.pulsar)
    admin = Admin(away.broker.addresses.admin)
    fill(client, "kept")
    # The topic with the namespace's policies stays.
    admin.post("persistent/public/default/kept/maxMessageSize", 100_000)
    before = paths(away)
    admin.put("persistent/public/default/parts/partitions", 3)
    for topic in ("plain", "parts"):
        fill(client, topic)
        admin.post(f"persistent/public/default/{topic}/maxMessageSize", 100_000)
        admin.post(f"persistent/public/default/{topic}/permissions/clerk", ["consume"])
    assert len(paths(away)) > len(before) + 12
    admin.delete("persistent/public/default/plain?force=true")
    admin.delete("persistent/public/default/parts/partitions?force=true")
    # More events of policies may have begun another ledger of that topic.
    left = paths(away) - before - {"/admin/policies/public/default"}
    assert len(left) <= 1, left
    assert all(one.startswith("/ledgers/") for one in left), left
    assert audit(away, capsys) == (0, "no findings; nothing was changed\n")


def test_leaks_in_zookeeper_go_through_quarantine_and_export(
    away: Cluster, connected: Connect, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    client = connected(away.broker.addresses.pulsar)
    fill(client, "leaked")
    list_key = f"{away.root}/managed-ledgers/public/default/persistent/leaked"
    observer = KazooClient(hosts=away.zookeeper.address)
    observer.start()
    try:
        Admin(away.broker.addresses.admin).put("persistent/public/default/leaked/unload")
        ledgers = [one.ledger_id for one in decode_ledger_list(observer.get(list_key)[0]).ledgers]
        assert len(ledgers) == 4
        # Its cursor is below it, so the node stays as a parent without bytes.
        observer.set(list_key, b"")
        code, text = audit(away, capsys)
        assert code == 1
        assert text.count("  orphan  ") == 4
        cursor = "/managed-ledgers/public/default/persistent/leaked/s"
        assert f"metadata  cursor  {cursor}  its topic does not exist" in text
        audit(away, capsys, "--quarantine")
        assert not observer.exists(away.root + cursor)
        assert audit(away, capsys, "--put-back", cursor) == (0, f"{cursor} is back\n")
        assert observer.get(away.root + cursor)[0]
        audit(away, capsys, "--quarantine")
        copies = tmp_path / "copies"
        assert audit(away, capsys, "--delete", str(copies))[1].count(" stays: ") >= 5
        assert " copies in " in audit(away, capsys, "--export", str(copies))[1]
        # The messages, and the entry of the schema's ledger.
        assert sum(len(json.loads(one.read_text())["entries"]) for one in copies.glob("ledger-*")) == 36
        assert audit(away, capsys, "--delete", str(copies))[1].count(" deleted") >= 5
        assert audit(away, capsys) == (0, "no findings; nothing was changed\n")
    finally:
        observer.stop()
        observer.close()


@pytest.mark.parametrize("how", ["dies", "hangs"])
def test_deletion_and_trimming_go_on_after_zookeeper_was_away(
    away: Cluster, connected: Connect, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    client = connected(away.broker.addresses.pulsar)
    admin = Admin(away.broker.addresses.admin)
    fill(client, "gone")
    consumer = client.subscribe("trimmed", "s")
    producer = client.create_producer("trimmed", batching_enabled=False)
    publish(producer, numbered(35))
    end, begin = {
        "dies": (away.zookeeper.stop, away.zookeeper.start),
        "hangs": (away.zookeeper.pause, away.zookeeper.resume),
    }[how]
    end()
    deleting = threading.Thread(target=_delete, args=(admin, "persistent/public/default/gone?force=true"))
    deleting.start()
    publish(producer, numbered(3, 35))
    assert receive(consumer, 38) == numbered(38), "what is open is served"
    begin()
    deleting.join(WAIT_S)
    assert not deleting.is_alive()
    publish(producer, numbered(10, 38))
    assert receive(consumer, 10) == numbered(10, 38)
    wait_until(lambda: _ledgers(admin, "trimmed") <= 2, "acknowledged ledgers are trimmed", WAIT_S)
    _delete(admin, "persistent/public/default/gone?force=true")
    wait_until(lambda: not [path for path in paths(away) if "/gone" in path], "nothing is left", WAIT_S)
    assert audit(away, capsys) == (0, "no findings; nothing was changed\n")


def _delete(admin: Admin, path: str) -> None:
    """Asks for a deletion, which may fail while ZooKeeper is away, or may have been carried out."""
    try:
        admin.delete(path)
    except (urllib.error.HTTPError, OSError):
        return


def _ledgers(admin: Admin, topic: str) -> int:
    stats = admin.get(f"persistent/public/default/{topic}/internalStats")
    assert isinstance(stats, dict)
    found = stats["ledgers"]
    assert isinstance(found, list)
    return len(found)
