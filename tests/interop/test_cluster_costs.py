"""Requests of brokers on one ZooKeeper: docs/reference/limits.md has the rules that are counted here.

`MAGNETAR_COSTS_BROKERS`, `…_BUNDLES` and `…_TOPICS` choose a cluster, and `MAGNETAR_COSTS_SECONDS` how long it rests.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pulsar
import pytest
from kazoo.client import KazooClient

from tests.interop.support import Admin, wait_until
from tests.interop.test_cluster import Brokers
from tests.interop.test_unloads import Cut
from tests.support.java import ZooKeeper

BROKERS: Final = int(os.environ.get("MAGNETAR_COSTS_BROKERS", "3"))
BUNDLES: Final = int(os.environ.get("MAGNETAR_COSTS_BUNDLES", "16"))
TOPICS: Final = int(os.environ.get("MAGNETAR_COSTS_TOPICS", "60"))
SECONDS: Final = float(os.environ.get("MAGNETAR_COSTS_SECONDS", "0"))
NAMESPACE: Final = "public/many"
TENANTS: Final = 2
"""public and pulsar."""
NAMESPACES: Final = 2
"""public/default and pulsar/system."""

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(600 + 2 * SECONDS)]

Connect = Callable[[str], pulsar.Client]


@pytest.fixture
def brokers(tmp_path: Path, mortal: ZooKeeper) -> Iterator[Brokers]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    settings = {"loadBalancerEnabled": "true", "transactionCoordinatorEnabled": "true"}
    found = Brokers(folder, mortal, BROKERS, settings)
    found.cluster.start_bookie()
    with ExitStack() as stack:
        stack.callback(found.cluster.kill)
        for broker in found.brokers:
            stack.callback(broker.kill)
            broker.start()
        for broker in found.brokers:
            Cut.wait_for_list(broker, lambda names: len(names) == BROKERS)
        yield found


def stored(brokers: Brokers, root: str) -> dict[str, bytes]:
    """Returns the values of the nodes below one of the cluster's."""
    observer = KazooClient(hosts=brokers.zookeeper.address + brokers.root)
    observer.start()
    try:
        return {name: observer.get(f"{root}/{name}")[0] for name in observer.get_children(root)}
    finally:
        observer.stop()
        observer.close()


def rest(brokers: Brokers, title: str) -> None:
    """Prints what the cluster asks of ZooKeeper in a minute of rest; nothing without `MAGNETAR_COSTS_SECONDS`."""
    if not SECONDS:
        return
    before, began_s = brokers.zookeeper.figures, time.monotonic()
    threading.Event().wait(SECONDS)
    now, minutes = brokers.zookeeper.figures, (time.monotonic() - began_s) / 60
    asked, written = ((now[key] - before[key]) / minutes for key in ("packets_received", "zxid"))
    print(
        f"{BROKERS} brokers, {title}: {now['watch_count']:.0f} watches, {now['num_alive_connections'] - 1:.0f} connections, "
        f"{asked:.0f} requests and {written:.1f} writes a minute, {now['znode_count']:.0f} nodes"
    )


def has_watches(brokers: Brokers, expected: int) -> None:
    """Waits until ZooKeeper has so many watches."""

    def counted() -> Mapping[str, float] | None:
        found = brokers.zookeeper.figures
        return found if found["watch_count"] == expected else None

    wait_until(counted, f"{expected} watches")


def test_watches_and_connections_follow_the_rules(brokers: Brokers, connected: Connect) -> None:
    per_broker = 8 + 2 * TENANTS + NAMESPACES
    has_watches(brokers, BROKERS * per_broker)
    # The bookie has one too.
    assert brokers.zookeeper.connections == BROKERS + 1
    rest(brokers, "no topic")

    Admin(brokers.brokers[0].addresses.admin).put(
        f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": BUNDLES}}
    )
    client, before = connected(brokers.url), brokers.zookeeper.figures["zxid"]
    for number in range(TOPICS):
        client.create_producer(f"persistent://{NAMESPACE}/t{number}").send(b"first")
    writes = brokers.zookeeper.figures["zxid"] - before
    leases = stored(brokers, f"/namespace/{NAMESPACE}")
    owners = set(leases.values())
    # A watch on the new namespace, and one on its events at each broker with a topic of it.
    has_watches(brokers, BROKERS * (per_broker + 1) + len(owners) + len(leases))
    assert brokers.zookeeper.connections == BROKERS + 1
    print(f"{TOPICS} new topics with a message each in {len(leases)} bundles: {writes:.0f} writes")
    for name, value in stored(brokers, "/loadbalance/brokers").items():
        held = json.loads(value)["bundles"]
        print(f"the registration of {name} has {len(value)} bytes for {len(held)} bundles")
    rest(brokers, f"{TOPICS} topics in {len(leases)} bundles")
