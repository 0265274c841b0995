"""Work that a cluster of two brokers does once, whichever broker is asked: on one ZooKeeper, with the official client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pulsar
import pytest
from kazoo.client import KazooClient

from tests.interop.support import Admin, Json, wait_until
from tests.interop.test_cluster import Brokers, location_of, owner_of
from tests.support.java import ZooKeeper
from tests.vectors.broker_process import BrokerProcess

pytestmark = [pytest.mark.peer, pytest.mark.slow]

Connect = Callable[[str], pulsar.Client]
RATE: Final = 200
LATE: Final = "dispatcherMaxReadBatchSize"


@pytest.fixture
def brokers(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Brokers]:
    found = Brokers(
        tmp_path,
        zookeeper,
        2,
        {
            "brokerServiceCompactionMonitorIntervalInSeconds": "1",
            "forceDeleteNamespaceAllowed": "true",
            "forceDeleteTenantAllowed": "true",
        },
    )
    found.cluster.start_bookie()
    with ExitStack() as stack:
        stack.callback(found.cluster.kill)
        for broker in found.brokers:
            stack.callback(broker.kill)
            broker.start()
        yield found


def topics_of_both(brokers: Brokers) -> list[str]:
    """Two topics; the first broker owns the one, the second the other."""
    found: dict[str, str] = {}
    for number in range(20):
        owner, _ = owner_of(brokers, f"t{number}")
        found.setdefault(owner.addresses.admin, f"t{number}")
    return [found[broker.addresses.admin] for broker in brokers.brokers]


def test_brokers_divide_the_rate_of_a_resource_group(brokers: Brokers, connected: Connect) -> None:
    admin = Admin(brokers.brokers[0].addresses.admin)
    admin.put("resourcegroups/shared", {"publishRateInMsgs": RATE})
    admin.post("namespaces/public/default/resourcegroup/shared")
    topics = topics_of_both(brokers)
    client = connected(brokers.url)
    producers = [
        client.create_producer(
            topic, batching_enabled=False, max_pending_messages=50, block_if_queue_full=True
        )
        for topic in topics
    ]
    confirmed = [0, 0]

    def counted(place: int, result: pulsar.Result) -> None:
        confirmed[place] += result == pulsar.Result.Ok

    def publish_until(moment: float) -> None:
        # Each has more waiting than both may publish, so that neither waits for the other.
        while time.monotonic() < moment:
            for place, producer in enumerate(producers):
                if sent[place] - confirmed[place] < 40:
                    sent[place] += 1
                    producer.send_async(b"x", lambda result, _, place=place: counted(place, result))
            time.sleep(0.001)

    sent = [0, 0]
    publish_until(time.monotonic() + 8)
    before, began = list(confirmed), time.monotonic()
    publish_until(began + 10)
    took_s = time.monotonic() - began
    rates = [(now - then) / took_s for now, then in zip(confirmed, before, strict=True)]
    print(f"two brokers, a group of {RATE} messages a second: {rates[0]:.1f} + {rates[1]:.1f}")
    # Without shares each lets the whole rate through. A slow machine may be below it.
    assert sum(rates) <= RATE * 1.1
    assert min(rates) > RATE * 0.1


def test_setting_that_one_broker_changes_acts_on_both(brokers: Brokers) -> None:
    one, other = (Admin(broker.addresses.admin) for broker in brokers.brokers)

    def value_at(admin: Admin) -> Json:
        values = admin.get("brokers/configuration/runtime")
        assert isinstance(values, dict)
        return values[LATE]

    for changer, value in ((one, "51"), (other, "52")):
        began = time.monotonic()
        changer.configure(LATE, value)
        for admin in (one, other):
            wait_until(lambda admin=admin, value=value: value_at(admin) == value, "both have the change")  # type: ignore[misc]
        print(f"both brokers have the setting after {(time.monotonic() - began) * 1000:.0f} ms")


def compactions(broker: BrokerProcess) -> float:
    return Admin(broker.addresses.admin).metric("pulsar_compaction_succeed_count")


def test_topic_is_compacted_by_its_owner_alone(brokers: Brokers, connected: Connect) -> None:
    client = connected(brokers.url)
    for topic in topics_of_both(brokers):
        owner, other = owner_of(brokers, topic)
        producer = client.create_producer(topic, batching_enabled=False)
        for number in range(30):
            producer.send(b"%d" % number, partition_key=f"k{number % 3}")
        path = f"persistent/public/default/{topic}/compaction"
        assert location_of(other, "PUT", path).startswith(owner.addresses.admin), "asked anywhere"
        before = compactions(owner), compactions(other)
        Admin(owner.addresses.admin).put(path)
        wait_until(lambda owner=owner, before=before: compactions(owner) > before[0], "the owner's run")  # type: ignore[misc]
        # The threshold too is looked at by the owner, of the topics that it has open.
        # A policy of this topic: the former one is the other broker's, which would compact it meanwhile.
        policy = f"persistent/public/default/{topic}/compactionThreshold"
        Admin(owner.addresses.admin).post(policy, 100)
        ran = compactions(owner)
        for number in range(30):
            producer.send(b"%d" % number * 20, partition_key=f"k{number % 3}")
        wait_until(lambda owner=owner, ran=ran: compactions(owner) > ran, "a run by the threshold")  # type: ignore[misc]
        assert compactions(other) == before[1]
        Admin(owner.addresses.admin).delete(policy)


def names_below(brokers: Brokers, path: str) -> list[str]:
    observer = KazooClient(hosts=brokers.zookeeper.address + brokers.root)
    observer.start()
    try:
        found: list[str] = observer.get_children(path) if observer.exists(path) else []
        return found
    finally:
        observer.stop()
        observer.close()


def test_deletion_that_a_killed_broker_left_is_ended_by_the_other(brokers: Brokers) -> None:
    begun, other = brokers.brokers
    admin, path = Admin(other.addresses.admin), "/managed-ledgers/gone/away/persistent"
    admin.put("tenants/gone", {"allowedClusters": ["standalone"]})
    admin.put("namespaces/gone/away")
    admin.put("persistent/gone/away/many/partitions", 400)
    with ThreadPoolExecutor() as pool:
        deletion = pool.submit(Admin(begun.addresses.admin).delete, "namespaces/gone/away?force=true")
        wait_until(lambda: 0 < len(names_below(brokers, path)) < 400, "the deletion is on its way")
        begun.kill()
        assert deletion.exception() is not None, "it was over before the broker was killed"
    left = len(names_below(brokers, path))
    wait_until(lambda: not names_below(brokers, path), "nothing is left", 150)
    wait_until(lambda: admin.get("namespaces/gone") == [], "nor the namespace", 60)
    print(f"{left} of 400 partitions were left to the other broker")
