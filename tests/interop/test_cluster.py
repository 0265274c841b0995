"""Brokers as processes of their own on one ZooKeeper and one bookie: owners, redirects, hand-over, a killed broker."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pulsar
import pytest
from kazoo.client import KazooClient

from foundation.value import Json
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

    def __init__(
        self, folder: Path, zookeeper: ZooKeeper, count: int, settings: Mapping[str, str] | None = None
    ) -> None:
        self.root = f"/{folder.name}"
        self.zookeeper = zookeeper
        self.cluster = Cluster(folder, zookeeper)
        self.settings = {
            "metadataStoreUrl": f"zk:{zookeeper.address}{self.root}",
            "metadataStoreSessionTimeoutMillis": "6000",
            "bookieAddress": self.cluster.bookie_address,
            "bindAddress": "127.0.0.1",
            **(settings or {}),
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


def location_of(broker: BrokerProcess, method: str, path: str) -> str:
    """Returns the address to which a broker sends a request; empty where the broker answers itself."""

    class Keep(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    request = urllib.request.Request(f"{broker.addresses.admin}/admin/v2/{path}", method=method)
    try:
        with urllib.request.build_opener(Keep).open(request) as answer:
            return str(answer.headers.get("Location", ""))
    except urllib.error.HTTPError as error:
        if error.code != 307:
            raise
        return str(error.headers["Location"])


def owner_of(brokers: Brokers, topic: str) -> tuple[BrokerProcess, BrokerProcess]:
    """The owner of the topic, as a lookup over HTTP tells, and the other broker."""
    first, second = brokers.brokers
    found = json.loads(
        urllib.request.urlopen(
            f"{first.addresses.admin}/lookup/v2/topic/persistent/public/default/{topic}"
        ).read()
    )
    return (first, second) if found["httpUrl"] == first.addresses.admin else (second, first)


def test_requests_about_a_topic_go_to_its_owner(brokers: Brokers, connected: Connect) -> None:
    connected(brokers.url).subscribe("t", "s")
    owner, other = owner_of(brokers, "t")
    topic, leads = "persistent/public/default/t", Admin(owner.addresses.admin).get("brokers/leaderBroker")
    assert isinstance(leads, dict)
    flag = "true" if leads["serviceUrl"] == other.addresses.admin else "false"
    for method, path in (
        ("GET", f"{topic}/stats"),
        ("GET", f"{topic}/subscriptions"),
        ("POST", f"{topic}/subscription/s/skip_all"),
        ("GET", "schemas/public/default/t/schemas"),
        ("PUT", f"{topic}/unload"),
    ):
        expected = f"{owner.addresses.admin}/admin/v2/{path}?authoritative={flag}"
        assert location_of(other, method, path) == expected
        assert location_of(owner, method, path) == ""
    path = f"brokers/standalone/{owner.addresses.admin.removeprefix('http://')}/ownedNamespaces"
    assert location_of(other, "GET", path) == f"{owner.addresses.admin}/admin/v2/{path}"
    for path in ("persistent/public/default", f"{topic}/partitions", "namespaces/public/default", "brokers"):
        assert location_of(other, "GET", path) == ""


def partitions_in(answer: Json) -> int:
    found = answer.get("partitions") if isinstance(answer, dict) else None
    return len(found) if isinstance(found, dict) else 0


def test_requests_about_all_partitions_at_once_are_all_answered(brokers: Brokers) -> None:
    admins = [Admin(broker.addresses.admin) for broker in brokers.brokers]
    path = "persistent/public/default/p"
    admins[0].put(f"{path}/partitions", 8)
    assert partitions_in(admins[0].get(f"{path}/partitioned-stats")) == 8
    assert len(set(brokers.owners().values())) == 2

    def internals(admin: Admin) -> int:
        return partitions_in(admin.get(f"{path}/partitioned-internalStats"))

    def subscribe(admin: Admin, number: int) -> None:
        admin.put(f"{path}/subscription/s{number}", "earliest")

    # All at one broker, which then waits for itself where it can, and at both, which wait for each other.
    for asked, numbers in ((admins[:1] * 100, range(100)), (admins * 50, range(100, 200))):
        with ThreadPoolExecutor(100) as threads:
            # `map` raises the first error, of an answer that is no success.
            assert [*threads.map(internals, asked[:8])] == [8] * 8
            list(threads.map(subscribe, asked, numbers))
    names = admins[1].get(f"{path}/subscriptions")
    assert isinstance(names, list)
    assert set(names) == {f"s{number}" for number in range(200)}


def test_unloaded_bundle_moves_and_nothing_is_lost(brokers: Brokers, connected: Connect) -> None:
    client = connected(brokers.url)
    consumer = client.subscribe("t", "s")
    producer = client.create_producer("t", batching_enabled=False)
    for number in range(6):
        publish(producer, numbered(20, number * 20))
        owner, _ = owner_of(brokers, "t")
        path = "lookup/v2/topic/persistent/public/default/t/bundle"
        bundle = urllib.request.urlopen(f"{owner.addresses.admin}/{path}").read().decode()
        Admin(owner.addresses.admin).put(f"namespaces/public/default/{bundle}/unload")
    publish(producer, numbered(20, 120))
    assert sorted(set(receive(consumer, 140))) == sorted(numbered(140))


def test_namespace_is_unloaded_after_both_brokers_changed_policies_of_topics(
    brokers: Brokers, connected: Connect
) -> None:
    client = connected(brokers.url)
    for number in range(TOPICS):
        client.subscribe(f"t{number}", "s").close()
    assert len(set(brokers.owners().values())) == 2
    admin = Admin(brokers.brokers[0].addresses.admin)
    for _ in range(2):
        # Each owner of a topic opens the topic of policies, and takes it from the other one.
        for number in range(TOPICS):
            admin.post(f"persistent/public/default/t{number}/maxProducers", 5)
        admin.put("namespaces/public/default/unload")


def test_broker_that_stood_still_gives_up_what_others_have(brokers: Brokers, connected: Connect) -> None:
    connected(brokers.url).subscribe("t", "s")
    owner, other = owner_of(brokers, "t")
    client = connected(f"{other.addresses.pulsar}")
    producer = client.create_producer("t", batching_enabled=False)
    consumer = client.subscribe("t", "s2")
    publish(producer, numbered(10))
    os.kill(owner.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: len(Admin(other.addresses.admin).get("brokers") or ()) == 1, "one broker is left")  # type: ignore[arg-type]
        late = connected(other.addresses.pulsar)
        publish(late.create_producer("t", batching_enabled=False), numbered(10, 10))
    finally:
        os.kill(owner.pid, signal.SIGCONT)
    publish(producer, numbered(10, 20))
    found: set[bytes] = set()
    while not found.issuperset(numbered(30)):
        found.update(receive(consumer, 1))
    assert found == set(numbered(30))
    # It learns of the end of its session a moment after it runs again; until then its writes are refused.
    wait_until(lambda: owner_of(brokers, "t")[0] is other, "all brokers name the new owner")
