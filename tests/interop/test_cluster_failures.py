"""Adding, draining and replacing brokers, and parts of a cluster that fail: each line of docs/how-to/several_brokers.md."""

from __future__ import annotations

import contextlib
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType

import pulsar
import pytest

from magnetar.commands.top_command import main as top
from magnetar.kit.controls import ask
from tests.interop.support import Admin, connect, numbered, publish, receive, wait_until
from tests.interop.test_cluster import TOPICS, Brokers, owner_of
from tests.support.bookies import BookieProcesses
from tests.support.java import ZooKeeper
from tests.support.ports import free_port
from tests.vectors.broker_process import BrokerProcess

pytestmark = [pytest.mark.peer, pytest.mark.slow]

Connect = Callable[[str], pulsar.Client]
HOUR_MS = 3_600_000


class Failing(Brokers):
    """Two brokers on three bookies, each entry on two of them."""

    def __init__(self, folder: Path, zookeeper: ZooKeeper, bookies: BookieProcesses) -> None:
        super().__init__(folder, zookeeper, 0)
        self.folder = folder
        self.bookies = bookies
        self.settings |= {
            "bookieAddress": ",".join(bookies.addresses),
            "managedLedgerDefaultEnsembleSize": "2",
            "managedLedgerDefaultWriteQuorum": "2",
            "managedLedgerDefaultAckQuorum": "2",
        }

    def add(self, name: str, settings: Mapping[str, str] = MappingProxyType({})) -> BrokerProcess:
        """Starts one more broker, with settings of its own."""
        folder = self.folder / name
        folder.mkdir()
        ports = {"brokerServicePort": str(free_port()), "webServicePort": str(free_port())}
        broker = BrokerProcess(folder, {**self.settings, **ports, **settings}, test_faults=True)
        self.brokers.append(broker)
        broker.start()
        return broker

    def kill(self) -> None:
        """Ends all brokers."""
        for broker in self.brokers:
            broker.kill()

    def all_are_serving(self, value: int) -> bool:
        """True if every broker says so of new topics."""
        return all(
            Admin(one.addresses.admin).metric("magnetar_cluster_serving") == value for one in self.brokers
        )


@pytest.fixture
def brokers(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Failing]:
    with ExitStack() as stack:
        bookies = stack.enter_context(BookieProcesses(tmp_path / "bookies", 3))
        found = Failing(tmp_path, zookeeper, bookies)
        stack.callback(found.kill)
        for number in range(2):
            found.add(f"broker{number}")
        yield found


def at_work(client: pulsar.Client) -> tuple[list[pulsar.Producer], list[pulsar.Consumer]]:
    """Opens the topics."""
    topics = [f"t{number}" for number in range(TOPICS)]
    consumers = [client.subscribe(topic, "s") for topic in topics]
    return [client.create_producer(topic, batching_enabled=False) for topic in topics], consumers


def all_come(consumers: list[pulsar.Consumer], count: int) -> None:
    """Receives until each consumer has had the first `count` messages; some may come again."""
    for consumer in consumers:
        found: set[bytes] = set()
        while not found.issuperset(numbered(count)):
            found.update(receive(consumer, 1))


def owned_by(brokers: Failing, broker: BrokerProcess) -> int:
    return sum(broker.addresses.pulsar in value for value in brokers.owners().values())


def test_broker_that_is_added_takes_bundles_that_are_unloaded(brokers: Failing, connected: Connect) -> None:
    producers, consumers = at_work(connected(brokers.url))
    third = brokers.add("third")
    admin = Admin(brokers.brokers[0].addresses.admin)
    wait_until(lambda: len(admin.get("brokers") or ()) == 3, "three brokers")  # type: ignore[arg-type]
    assert owned_by(brokers, third) == 0
    for bundle in brokers.owners():
        admin.put(f"namespaces/public/default/{bundle}/unload")
        for producer in producers:
            publish(producer, [b"moved"])
    wait_until(lambda: owned_by(brokers, third) > 0, "the new broker owns bundles")
    for consumer in consumers:
        assert set(receive(consumer, 4)) == {b"moved"}


def test_drained_broker_has_no_bundle_and_loses_nothing(brokers: Failing, connected: Connect) -> None:
    producers, consumers = at_work(connected(brokers.url))
    for producer in producers:
        publish(producer, numbered(10))
    assert brokers.brokers[1].stop() == 0
    left = brokers.brokers[0]
    assert Admin(left.addresses.admin).get("brokers") == [left.addresses.admin.removeprefix("http://")]
    for producer in producers:
        publish(producer, numbered(10, 10))
    all_come(consumers, 20)
    assert owned_by(brokers, left) == len(brokers.owners())


def test_killed_broker_comes_back_under_its_name_and_under_another(
    brokers: Failing, connected: Connect
) -> None:
    producers, consumers = at_work(connected(brokers.url))
    killed = brokers.brokers[1]
    name = killed.addresses.admin.removeprefix("http://")
    killed.kill()
    # Its session may end before it is there again; its bundles are the other one's then.
    killed.start()
    for producer in producers:
        publish(producer, numbered(10))
    killed.kill()
    admin = Admin(brokers.brokers[0].addresses.admin)
    wait_until(lambda: name not in (admin.get("brokers") or ()), "its session has ended")  # type: ignore[operator]
    for producer in producers:
        publish(producer, numbered(10, 10))
    brokers.brokers.remove(killed)
    other = brokers.add("other")
    wait_until(lambda: len(admin.get("brokers") or ()) == 2, "another broker in its place")  # type: ignore[arg-type]
    client = connected(other.addresses.pulsar)
    publish(client.create_producer("t0"), numbered(1, 20))
    all_come(consumers, 20)


def test_open_topics_go_on_while_zookeeper_is_away_and_new_ones_open_afterwards(
    brokers: Failing, connected: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    client = connected(brokers.url)
    producers, consumers = at_work(client)
    for producer in producers:
        publish(producer, numbered(10))
    all_come(consumers, 10)
    brokers.zookeeper.pause()
    try:
        wait_until(lambda: brokers.all_are_serving(0), "sessions are suspended")
        for producer in producers:
            publish(producer, numbered(10, 10))
        for consumer in consumers:
            assert receive(consumer, 10) == numbered(10, 10)
        impatient = connect(brokers.url, operation_timeout_seconds=2)
        with contextlib.closing(impatient), pytest.raises(pulsar.PulsarException):
            impatient.create_producer("new")
    finally:
        brokers.zookeeper.resume()
    wait_until(lambda: brokers.all_are_serving(1), "leases are taken again")
    publish(client.create_producer("new"), numbered(1))
    for producer in producers:
        publish(producer, numbered(10, 20))
    for consumer in consumers:
        found: set[bytes] = set()
        while not found.issuperset(numbered(10, 20)):
            found.update(receive(consumer, 1))
    assert top(["--cluster", "--once", "--admin-url", brokers.brokers[0].addresses.admin]) == 0
    assert "SUSPENDED" not in capsys.readouterr().out


def test_topics_go_on_without_one_of_three_bookies_and_move_without_it(
    brokers: Failing, connected: Connect
) -> None:
    producers, consumers = at_work(connected(brokers.url))
    for producer in producers:
        publish(producer, numbered(10))
    brokers.bookies.bookies[0].kill()
    for producer in producers:
        publish(producer, numbered(10, 10))
    # Another broker recovers the ledgers, of which one copy is lost.
    brokers.brokers[1].kill()
    for producer in producers:
        publish(producer, numbered(10, 20))
    all_come(consumers, 30)


@pytest.mark.parametrize("fast", [0, 1])
def test_broker_whose_clock_is_an_hour_ahead_keeps_its_bundles_and_moves_them(
    brokers: Failing, connected: Connect, fast: int
) -> None:
    producers, consumers = at_work(connected(brokers.url))
    before = brokers.owners()
    ask(brokers.brokers[fast].addresses.admin, "POST", "/magnetar/test/clock", {"advance_ms": HOUR_MS})
    for producer in producers:
        publish(producer, numbered(10))
    assert brokers.owners() == before
    admin = Admin(brokers.brokers[0].addresses.admin)
    assert len(admin.get("brokers") or ()) == 2  # type: ignore[arg-type]
    for bundle in before:
        admin.put(f"namespaces/public/default/{bundle}/unload")
    for producer in producers:
        publish(producer, numbered(10, 10))
    all_come(consumers, 20)


def test_bundle_without_owner_is_counted_until_its_owner_has_left(
    brokers: Failing, connected: Connect
) -> None:
    at_work(connected(brokers.url))
    topics = [f"t{number}" for number in range(TOPICS)]
    left, killed = Admin(brokers.brokers[0].addresses.admin), brokers.brokers[1]
    lost = next(topic for topic in topics if owner_of(brokers, topic)[0] is killed)
    killed.kill()
    lookup = f"{left.url}/lookup/v2/topic/persistent/public/default/{lost}"

    def ask_until_another_owns_it() -> None:
        # A session that outlasts the wait of a lookup has the dead owner as its answer.
        while left.url.encode() not in urllib.request.urlopen(lookup).read():
            pass

    asking = threading.Thread(target=ask_until_another_owns_it)
    asking.start()
    wait_until(lambda: left.metric("magnetar_cluster_bundles_without_owner") > 0, "the lookup waits")
    asking.join()
    wait_until(lambda: left.metric("magnetar_cluster_bundles_without_owner") == 0, "none waits")
    assert left.metric("magnetar_cluster_has_leader") == 1
