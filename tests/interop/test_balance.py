"""Three brokers on one served metadata store: the bundles of a busy one move until all have work, under an official client.

Rounds are short: reports every half second, a look for busy brokers with each of them, and no past in the use of a broker.
"""

from __future__ import annotations

import itertools
import json
import signal
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pulsar
import pytest

from tests.bookie_stub.bookie_process import Process
from tests.interop.support import Admin, connect, numbered, publish, receive, wait_until
from tests.interop.test_served_metadata import Server
from tests.support.ports import free_port
from tests.vectors.broker_process import BrokerProcess

Connect = Callable[[str], pulsar.Client]
NAMESPACE = "public/busy"
TOPICS = 16
QUICK = {
    "loadBalancerEnabled": "true",
    "loadBalancerReportUpdateMinIntervalMillis": "500",
    "loadBalancerHostUsageCheckIntervalMinutes": "0",
    "loadBalancerSheddingIntervalMinutes": "0",
    "loadBalancerHistoryResourcePercentage": "0.5",
    "loadBalancerBrokerThresholdShedderPercentage": "2",
    "loadBalancerBundleUnloadMinThroughputThreshold": "0.001",
    "loadBalancerDistributeBundlesEvenlyEnabled": "false",
    "statsUpdateFrequencyInSecs": "1",
}


class Cluster:
    """Brokers, their bookie and the store."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        server = Server(folder)
        server.start()
        stack.callback(server.end, signal.SIGKILL)
        port = free_port()
        bookie = Process(folder / "bookie")
        bookie.start(f"bookiePort={port}", "advertisedAddress=127.0.0.1")
        stack.callback(bookie.end, signal.SIGKILL)
        self.settings = {"metadataStoreUrl": server.url, "bookieAddress": f"127.0.0.1:{port}", **QUICK}
        self.brokers: list[BrokerProcess] = []

    def add(self) -> Admin:
        """Starts one more broker."""
        folder = self.folder / f"broker{len(self.brokers)}"
        folder.mkdir()
        ports = {"brokerServicePort": str(free_port()), "webServicePort": str(free_port())}
        broker = BrokerProcess(folder, {**self.settings, **ports})
        self.brokers.append(broker)
        self._stack.callback(broker.kill)
        broker.start()
        return Admin(broker.addresses.admin)

    @property
    def url(self) -> str:
        return "pulsar://" + ",".join(one.addresses.pulsar.removeprefix("pulsar://") for one in self.brokers)

    def owners(self) -> Counter[str]:
        """The number of topics that each broker has, by a lookup of each; none while one is on its way."""
        found: Counter[str] = Counter()
        for number in range(TOPICS):
            path = f"lookup/v2/topic/persistent/{NAMESPACE}/t{number}"
            url = f"{self.brokers[0].addresses.admin}/{path}"
            try:
                found[json.loads(urllib.request.urlopen(url).read())["httpUrl"]] += 1
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    raise
                return Counter()
        return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


class Traffic:
    """Sends to every topic until it is stopped, and counts the receipts."""

    def __init__(self, url: str) -> None:
        self._client = connect(url)
        self._producers = [
            self._client.create_producer(
                f"persistent://{NAMESPACE}/t{number}",
                batching_enabled=False,
                block_if_queue_full=True,
                send_timeout_millis=0,
            )
            for number in range(TOPICS)
        ]
        self.confirmed = [0] * TOPICS
        self.sent = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count():
            if self._stopped.is_set():
                return
            for place, producer in enumerate(self._producers):
                producer.send_async(b"%d" % number, self._counter(place))
            self.sent = number + 1
            # At a pace: the machine has other work.
            self._stopped.wait(0.01)

    def _counter(self, place: int) -> Callable[[pulsar.Result, pulsar.MessageId], None]:
        def confirmed(result: pulsar.Result, _: pulsar.MessageId) -> None:
            self.confirmed[place] += result == pulsar.Result.Ok

        return confirmed

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        for producer in self._producers:
            producer.flush()
        self._client.close()


@pytest.mark.slow
def test_bundles_of_a_busy_broker_move_until_all_have_work_and_nothing_is_lost(
    cluster: Cluster, connected: Connect
) -> None:
    first = cluster.add()
    first.put(f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": TOPICS}})
    consumers = connected(cluster.url)
    every = [consumers.subscribe(f"persistent://{NAMESPACE}/t{number}", "keeper") for number in range(TOPICS)]
    traffic = Traffic(cluster.url)
    try:
        assert len(cluster.owners()) == 1
        others = [cluster.add(), cluster.add()]
        wait_until(lambda: len(cluster.owners()) == 3, "each broker has topics")
        # Balanced: nobody has as much as the other two together.
        wait_until(
            lambda: max(cluster.owners().values(), default=TOPICS) <= TOPICS // 2,
            "the busy one has half at most",
        )
    finally:
        traffic.stop()
    moved = first.metric("pulsar_lb_unload_bundle_total")
    assert moved >= 2, "each of the others got one at least"
    assert traffic.confirmed == [traffic.sent] * TOPICS
    for consumer in every:
        # Those on their way when a bundle moved may come again, and in no other order.
        found: dict[bytes, None] = {}
        while len(found) < traffic.sent:
            found.update(dict.fromkeys(receive(consumer, 1)))
        assert list(found) == [b"%d" % number for number in range(traffic.sent)]
    for admin in (first, *others):
        report = admin.get("broker-stats/load-report")
        assert isinstance(report, dict)
        usage = report["cpu"]
        assert isinstance(usage, dict)
        assert float(str(usage["usage"])) > 0
        assert report["numTopics"] != 0


@pytest.mark.slow
def test_bundle_with_too_many_topics_is_divided_and_isolated_namespaces_stay_with_their_brokers(
    cluster: Cluster, connected: Connect
) -> None:
    cluster.settings |= {"loadBalancerNamespaceBundleMaxTopics": "6", "loadBalancerSheddingEnabled": "false"}
    first, second = cluster.add(), cluster.add()
    name = second.url.removeprefix("http://")
    policy = {
        "namespaces": [NAMESPACE],
        "primary": [name],
        "secondary": [],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "80"},
        },
    }
    policies = "clusters/standalone/namespaceIsolationPolicies"
    first.post(f"{policies}/busy", policy)  # type: ignore[arg-type]
    first.put(f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": 1}})
    client = connected(cluster.url)
    producers = [
        client.create_producer(f"persistent://{NAMESPACE}/t{number}", batching_enabled=False)
        for number in range(TOPICS)
    ]
    every = [client.subscribe(f"persistent://{NAMESPACE}/t{number}", "keeper") for number in range(TOPICS)]

    def bundles() -> int:
        found = first.get(f"namespaces/{NAMESPACE}/bundles")
        assert isinstance(found, dict)
        return int(str(found["numBundles"]))

    wait_until(lambda: bundles() >= 4, "a bundle of at most six of sixteen topics")
    for producer in producers:
        publish(producer, numbered(10))
    for consumer in every:
        assert receive(consumer, 10) == numbered(10)
    wait_until(lambda: set(cluster.owners()) == {second.url}, "all at the broker of the policy")
    assert first.metric("pulsar_lb_bundles_split_total") >= 3
    print(
        [line for one in cluster.brokers for line in one.log_lines() if "divided" in line or "WARN" in line]
    )
    listed = second.get(f"{policies}/brokers")
    assert isinstance(listed, list)
    primary = {str(one["brokerName"]): one["primary"] for one in listed if isinstance(one, dict)}
    assert primary == {name: True, first.url.removeprefix("http://"): False}
