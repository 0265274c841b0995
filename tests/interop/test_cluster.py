"""Brokers as processes of their own on one ZooKeeper and one bookie: owners, redirects, hand-over, a killed broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pulsar
import pytest
from kazoo.client import KazooClient

from tests.interop.support import Admin, numbered, publish, receive, wait_until
from tests.interop.test_zookeeper import Cluster
from tests.support.java import ZooKeeper
from tests.support.ports import free_port
from tests.vectors.broker_process import BrokerProcess

pytestmark = [pytest.mark.peer, pytest.mark.slow]

Connect = Callable[[str], pulsar.Client]
TOPICS = 12


class Brokers:
    """Some brokers on one store."""

    def __init__(self, folder: Path, zookeeper: ZooKeeper, count: int) -> None:
        self.root = f"/{folder.name}"
        self.zookeeper = zookeeper
        self.cluster = Cluster(folder, zookeeper)
        self.settings = {
            "metadataStoreUrl": f"zk:{zookeeper.address}{self.root}",
            "metadataStoreSessionTimeoutMillis": "6000",
            "bookieAddress": self.cluster.bookie_address,
            "bindAddress": "127.0.0.1",
        }
        self.brokers = [self._broker(folder / f"broker{number}") for number in range(count)]

    def _broker(self, folder: Path) -> BrokerProcess:
        folder.mkdir()
        ports = {"brokerServicePort": str(free_port()), "webServicePort": str(free_port())}
        return BrokerProcess(folder, {**self.settings, **ports})

    @property
    def url(self) -> str:
        """The addresses of all brokers, as clients get them."""
        return "pulsar://" + ",".join(
            broker.addresses.pulsar.removeprefix("pulsar://") for broker in self.brokers
        )

    def owners(self) -> dict[str, str]:
        """The owner's binary address of each owned bundle, as ZooKeeper has them."""
        observer = KazooClient(hosts=self.zookeeper.address + self.root)
        observer.start()
        try:
            found: dict[str, str] = {}
            base = "/namespace/public/default"
            for name in observer.get_children(base) if observer.exists(base) else ():
                found[name] = observer.get(f"{base}/{name}")[0].decode()
            return found
        finally:
            observer.stop()
            observer.close()


@pytest.fixture
def brokers(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Brokers]:
    found = Brokers(tmp_path, zookeeper, 2)
    found.cluster.start_bookie()
    with ExitStack() as stack:
        stack.callback(found.cluster.kill)
        for broker in found.brokers:
            stack.callback(broker.kill)
            broker.start()
        yield found


def test_topics_are_spread_and_each_message_comes_once(brokers: Brokers, connected: Connect) -> None:
    client = connected(brokers.url)
    for number in range(TOPICS):
        consumer = client.subscribe(f"t{number}", "s")
        publish(client.create_producer(f"t{number}"), numbered(10))
        assert receive(consumer, 10) == numbered(10)
    owners = set(brokers.owners().values())
    assert len(owners) == 2, owners
    for broker in brokers.brokers:
        other = connected(broker.addresses.pulsar)
        for number in range(TOPICS):
            publish(other.create_producer(f"t{number}"), numbered(5, 10))
        other.close()


def test_bundles_of_a_killed_broker_are_served_again(brokers: Brokers, connected: Connect) -> None:
    client = connected(brokers.url)
    producers = [client.create_producer(f"t{number}") for number in range(TOPICS)]
    consumers = [client.subscribe(f"t{number}", "s") for number in range(TOPICS)]
    for producer in producers:
        publish(producer, numbered(10))
    assert all(receive(consumer, 10) == numbered(10) for consumer in consumers)
    brokers.brokers[1].kill()
    for producer in producers:
        publish(producer, numbered(10, 10))
    for consumer in consumers:
        # Acknowledgements that were not stored yet bring the first messages again.
        found: set[bytes] = set()
        while not found.issuperset(numbered(10, 10)):
            found.update(receive(consumer, 1))
        assert found <= set(numbered(20))
    address = brokers.brokers[0].addresses.pulsar
    assert all(address in value for value in brokers.owners().values())


def test_a_broker_that_stops_hands_its_bundles_over(brokers: Brokers, connected: Connect) -> None:
    client = connected(brokers.url)
    producers = [client.create_producer(f"t{number}") for number in range(TOPICS)]
    consumers = [client.subscribe(f"t{number}", "s") for number in range(TOPICS)]
    for producer in producers:
        publish(producer, numbered(10))
    assert brokers.brokers[0].stop() == 0
    for producer in producers:
        publish(producer, numbered(10, 10))
    for consumer in consumers:
        assert receive(consumer, 20) == numbered(20)
    wait_until(lambda: len(set(brokers.owners().values())) == 1, "one owner of all")


def test_every_broker_knows_the_others(brokers: Brokers) -> None:
    first, second = (Admin(broker.addresses.admin) for broker in brokers.brokers)
    names = sorted(broker.addresses.admin.removeprefix("http://") for broker in brokers.brokers)
    wait_until(lambda: first.get("brokers") == second.get("brokers") == names, "both list both")
    assert first.get("brokers/leaderBroker") == second.get("brokers/leaderBroker")
