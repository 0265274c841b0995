"""Broker and bookie as processes of their own that share a ZooKeeper, with an official client."""

from __future__ import annotations

import os
import signal
import urllib.error
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pulsar
import pytest
from kazoo.client import KazooClient

from tests.bookie_stub.bookie_process import Process
from tests.interop.support import Admin, Json, nothing_comes, numbered, publish, receive, wait_until
from tests.support.java import ZooKeeper
from tests.support.ports import free_port
from tests.vectors.broker_process import BrokerProcess

pytestmark = [pytest.mark.peer, pytest.mark.slow]

Connect = Callable[[str], pulsar.Client]
SESSION_MS = 10_000


class Cluster:
    """One bookie, one broker, and the ZooKeeper in which both write what they share."""

    def __init__(
        self, folder: Path, zookeeper: ZooKeeper, settings: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """`settings` are the broker's."""
        self.zookeeper = zookeeper
        self.root = f"/{folder.name}"
        bookie_port, broker_port = free_port(), free_port()
        self.bookie_address = f"127.0.0.1:{bookie_port}"
        self.bookie = Process(folder / "bookie")
        self._bookie_settings = (
            f"bookiePort={bookie_port}",
            "advertisedAddress=127.0.0.1",
            f"metadataServiceUri=zk+hierarchical://{zookeeper.address}{self.root}/ledgers",
            f"zkTimeout={SESSION_MS}",
        )
        self.store_settings = {
            "metadataStoreUrl": f"zk:{zookeeper.address}{self.root}",
            "bookieAddress": self.bookie_address,
        }
        self.broker = BrokerProcess(
            folder,
            {
                **self.store_settings,
                "metadataStoreSessionTimeoutMillis": str(SESSION_MS),
                "brokerServicePort": str(broker_port),
                "managedLedgerDefaultMarkDeleteRateLimit": "0",
                **settings,
            },
        )

    def start(self) -> None:
        self.start_bookie()
        self.broker.start()

    def start_bookie(self) -> None:
        self.bookie.start(*self._bookie_settings)

    def kill(self) -> None:
        self.broker.kill()
        process = self.bookie.process
        if process is not None and process.poll() is None:
            self.bookie.end(signal.SIGKILL)

    def stop(self) -> None:
        assert self.broker.stop() == 0
        assert self.bookie.end(signal.SIGTERM)[0] == 0


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, zookeeper)
    cluster.start()
    yield cluster
    cluster.kill()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_stored_messages_survive_a_restart_of_broker_and_bookie(
    cluster: Cluster, connected: Connect, topic: str, how: str
) -> None:
    client = connected(cluster.broker.addresses.pulsar)
    consumer = client.subscribe(topic, "s")
    client.subscribe(topic, "untouched").close()
    publish(client.create_producer(topic), numbered(100))
    assert receive(consumer, 40) == numbered(40)
    client.close()
    getattr(cluster, how)()
    cluster.start()
    client = connected(cluster.broker.addresses.pulsar)
    publish(client.create_producer(topic), numbered(10, 100))
    assert receive(client.subscribe(topic, "untouched"), 110) == numbered(110)
    consumer = client.subscribe(topic, "s")
    # The broker closed each of the 40 in order; after a kill the last of them may come again.
    first = int(receive(consumer, 1)[0].split()[1])
    assert first == 40 if how == "stop" else first <= 40
    assert receive(consumer, 109 - first) == numbered(109 - first, first + 1)
    assert nothing_comes(consumer)


def test_the_nodes_are_where_others_look_for_them(cluster: Cluster, connected: Connect, topic: str) -> None:
    client = connected(cluster.broker.addresses.pulsar)
    client.subscribe(topic, "s")
    publish(client.create_producer(topic), numbered(1))
    observer = KazooClient(hosts=cluster.zookeeper.address + cluster.root)
    observer.start()
    try:
        assert observer.exists(f"/managed-ledgers/public/default/persistent/{topic}/s")
        ledgers = observer.get_children("/ledgers/00/0000")
        assert len(ledgers) == 1
        assert set(observer.get_children("/ledgers/available")) == {"readonly", cluster.bookie_address}
        assert cluster.bookie_address.encode() in observer.get(f"/ledgers/00/0000/{ledgers[0]}")[0]
        assert "default" in observer.get_children("/admin/policies/public")
    finally:
        observer.stop()
        observer.close()


def test_a_broker_whose_session_expired_goes_on(cluster: Cluster, connected: Connect, topic: str) -> None:
    client = connected(cluster.broker.addresses.pulsar)
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    publish(producer, numbered(50))
    connections = cluster.zookeeper.connections
    os.kill(cluster.broker.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: cluster.zookeeper.connections < connections, "ZooKeeper gave the broker up")
    finally:
        os.kill(cluster.broker.pid, signal.SIGCONT)
    publish(producer, numbered(50, 50))
    publish(client.create_producer(f"{topic}-new"), numbered(1))
    assert receive(consumer, 100) == numbered(100)
    cluster.broker.logged("the session with ZooKeeper has expired")
    client.close()
    cluster.stop()
    cluster.start()
    client = connected(cluster.broker.addresses.pulsar)
    assert nothing_comes(client.subscribe(topic, "s")), "all was acknowledged, and is kept"


def test_a_broker_without_zookeeper_serves_what_is_open(
    classes: str, tmp_path: Path, connected: Connect, topic: str
) -> None:
    (tmp_path / "zookeeper").mkdir()
    zookeeper = ZooKeeper(classes, tmp_path / "zookeeper")
    zookeeper.start()
    cluster = Cluster(tmp_path, zookeeper)
    cluster.start()
    try:
        client = connected(cluster.broker.addresses.pulsar)
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic)
        publish(producer, numbered(10))
        zookeeper.stop()
        publish(producer, numbered(10, 10))
        assert receive(consumer, 20) == numbered(20)
        zookeeper.start()
        publish(client.create_producer(f"{topic}-new"), numbered(1))
        client.close()
        cluster.stop()
    finally:
        cluster.kill()
        zookeeper.stop()


def test_policy_of_a_topic_acts_on_the_other_broker_and_survives_a_kill(
    tmp_path: Path, zookeeper: ZooKeeper, connected: Connect, topic: str
) -> None:
    cluster = Cluster(tmp_path, zookeeper)
    (tmp_path / "other").mkdir()
    second = Cluster(tmp_path / "other", zookeeper, cluster.store_settings)
    cluster.start()
    second.broker.start()
    try:
        one, other = (Admin(each.broker.addresses.admin) for each in (cluster, second))
        path = f"persistent/public/default/{topic}/maxConsumers"
        one.put(f"persistent/public/default/{topic}")
        client = connected(second.broker.addresses.pulsar)
        client.subscribe(topic, "first", consumer_type=pulsar.ConsumerType.Shared)
        one.post(path, 1)
        wait_until(lambda: other.get(path) == 1, "the other broker has the policy")
        with pytest.raises(pulsar.ConsumerBusy):
            client.subscribe(topic, "second", consumer_type=pulsar.ConsumerType.Shared)
        other.post(path, 2)
        wait_until(lambda: one.get(path) == 2, "the first broker has the change")
        client.close()
        other.post(path, 3)
        second.kill()
        cluster.broker.kill()
        cluster.broker.start()
        started = Admin(cluster.broker.addresses.admin)

        def found() -> Json:
            # Requests go to the killed owner until its session ends.
            try:
                return started.get(path)
            except urllib.error.URLError:
                return None

        assert wait_until(found, "a living owner") == 3, "it was confirmed before the kill"
    finally:
        second.kill()
        cluster.kill()
