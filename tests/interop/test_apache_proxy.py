"""Pulsar's own proxy in front of three brokers: it finds them in ZooKeeper, and its clients reach every topic.

`MAGNETAR_PULSAR_PROXY_HOME` names an unpacked distribution of Apache Pulsar whose `lib` has the proxy.
"""

from __future__ import annotations

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pulsar
import pytest

from tests.interop.support import Admin, numbered, publish, receive, wait_until
from tests.interop.test_cluster import TOPICS, Brokers
from tests.support.apache_broker import OPENS
from tests.support.java import QUICK, ZooKeeper
from tests.support.ports import free_port

pytestmark = [pytest.mark.peer, pytest.mark.slow]

HOME: Final = "MAGNETAR_PULSAR_PROXY_HOME"
Connect = Callable[[str], pulsar.Client]


class Proxy:
    """One proxy of Apache's on loopback; it learns of brokers by their nodes in the metadata store alone."""

    def __init__(self, home: Path, folder: Path, metadata: str) -> None:
        self.url, self.admin = (f"{kind}://127.0.0.1:{free_port()}" for kind in ("pulsar", "http"))
        self._log, config = folder / "proxy.log", folder / "proxy.conf"
        values = {
            "metadataStoreUrl": metadata,
            "configurationMetadataStoreUrl": metadata,
            "servicePort": self.url.rpartition(":")[2],
            "webServicePort": self.admin.rpartition(":")[2],
            "bindAddress": "127.0.0.1",
            "advertisedAddress": "127.0.0.1",
            "brokerProxyAllowedHostNames": "*",
            "brokerProxyAllowedIPAddresses": "127.0.0.1",
            "brokerProxyAllowedTargetPorts": "*",
            "clusterName": "standalone",
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        self._command = ["java", *QUICK, "-Xmx256m", *(f"--add-opens={one}=ALL-UNNAMED" for one in OPENS)]
        self._command += ["-cp", f"{home}/lib/*", "org.apache.pulsar.proxy.server.ProxyServiceStarter"]
        self._command += ["-c", str(config)]

    def __enter__(self) -> Proxy:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        # No limit of time: a Java process that has started serves, or ends.
        while not self._is_ready():
            assert self._process.poll() is None, self._log.read_text()[-2000:]
            time.sleep(0.1)
        return self

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.admin}/admin/v2/brokers/ready", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def home() -> Path:
    named = os.environ.get(HOME)
    if not named:
        pytest.skip(f"{HOME} names no distribution of Apache Pulsar that has the proxy")
    return Path(named)


@pytest.fixture
def brokers(home: Path, tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Brokers]:
    del home  # Without it nothing is started.
    found = Brokers(tmp_path, zookeeper, 3)
    found.cluster.start_bookie()
    with ExitStack() as stack:
        stack.callback(found.cluster.kill)
        for broker in found.brokers:
            stack.callback(broker.kill)
            broker.start()
        yield found


@pytest.fixture
def proxy(home: Path, tmp_path: Path, brokers: Brokers) -> Iterator[Proxy]:
    folder = tmp_path / "proxy"
    folder.mkdir()
    with Proxy(home, folder, brokers.settings["metadataStoreUrl"]) as running:
        yield running


def test_clients_of_a_proxy_reach_the_topics_of_all_brokers(
    brokers: Brokers, proxy: Proxy, connected: Connect
) -> None:
    client, admin = connected(proxy.url), Admin(proxy.admin)
    topics = [f"t{number}" for number in range(TOPICS)]
    consumers = [client.subscribe(topic, "s") for topic in topics]
    producers = [client.create_producer(topic) for topic in topics]
    for producer in producers:
        publish(producer, numbered(10))
    assert all(receive(consumer, 10) == numbered(10) for consumer in consumers)
    assert len(set(brokers.owners().values())) == 3
    assert len(admin.get("brokers") or ()) == 3  # type: ignore[arg-type]
    for topic in topics:
        stats = admin.get(f"persistent/public/default/{topic}/stats")
        assert isinstance(stats, dict)
        assert stats["msgInCounter"] == 10


def test_clients_of_a_proxy_go_on_when_bundles_move_and_a_broker_is_killed(
    brokers: Brokers, proxy: Proxy, connected: Connect
) -> None:
    client, admin = connected(proxy.url), Admin(proxy.admin)
    topics = [f"t{number}" for number in range(TOPICS)]
    consumers = [client.subscribe(topic, "s") for topic in topics]
    producers = [client.create_producer(topic, batching_enabled=False) for topic in topics]
    for bundle in brokers.owners():
        admin.put(f"namespaces/public/default/{bundle}/unload")
    for producer in producers:
        publish(producer, numbered(10))
    brokers.brokers[2].kill()
    for producer in producers:
        publish(producer, numbered(10, 10))
    for consumer in consumers:
        # Acknowledgements that were not stored yet bring the first messages again.
        found: set[bytes] = set()
        while not found.issuperset(numbered(20)):
            found.update(receive(consumer, 1))
        assert found == set(numbered(20))
    wait_until(lambda: len(set(brokers.owners().values())) == 2, "the bundles have two owners")
