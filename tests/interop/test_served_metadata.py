"""Brokers that share an embedded metadata store through its server, with official clients."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import urllib.error
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pulsar
import pytest

from tests.bookie_stub.bookie_process import Process
from tests.interop.support import Admin, numbered, publish, receive, wait_until
from tests.support.ports import free_port
from tests.vectors.broker_process import BrokerProcess

Connect = Callable[[str], pulsar.Client]


class Server:
    """`magnetar metadata serve`, which may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = ""

    def start(self) -> None:
        command = [sys.executable, "-m", "magnetar", "metadata", "serve", str(self._folder)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        name, _, self.url = self._process.stdout.readline().rstrip("\n").partition("=")
        assert name == "metadataStoreUrl"

    def end(self, how: signal.Signals) -> None:
        self._process.send_signal(how)
        self._process.communicate()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    server.start()
    yield server
    server.end(signal.SIGKILL)


@pytest.fixture
def brokers(tmp_path: Path, server: Server) -> Iterator[list[BrokerProcess]]:
    """On ports that stay, with sessions that no test outlasts."""
    port = free_port()
    bookie = Process(tmp_path / "bookie")
    bookie.start(f"bookiePort={port}", "advertisedAddress=127.0.0.1")
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        settings = {
            "metadataStoreUrl": server.url,
            "metadataStoreSessionTimeoutMillis": "600000",
            "bookieAddress": f"127.0.0.1:{port}",
            "brokerServicePort": str(free_port()),
            "webServicePort": str(free_port()),
        }
        found.append(BrokerProcess(tmp_path / name, settings))
        found[-1].start()
    yield found
    for broker in found:
        broker.kill()
    bookie.end(signal.SIGKILL)


def test_brokers_share_policies_and_outlive_a_restart_of_the_server(
    brokers: list[BrokerProcess], server: Server, connected: Connect
) -> None:
    topic = "persistent://public/shared/t"
    admins = [Admin(broker.addresses.admin) for broker in brokers]
    admins[0].put("namespaces/public/shared")

    def has_retention() -> bool:
        try:
            found = admins[1].get("namespaces/public/shared/retention")
        except urllib.error.HTTPError:
            return False
        return isinstance(found, dict) and found["retentionTimeInMinutes"] == 7

    admins[0].post(
        "namespaces/public/shared/retention", {"retentionTimeInMinutes": 7, "retentionSizeInMB": 10}
    )
    wait_until(has_retention, "the other broker has the policy")
    client = connected(brokers[0].addresses.pulsar)
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    publish(producer, numbered(20))
    server.end(signal.SIGKILL)
    # Open topics go on.
    publish(producer, numbered(20, 20))
    assert receive(consumer, 40) == numbered(40)
    server.start()
    # A new topic needs the store.
    publish(client.create_producer(f"{topic}-new"), numbered(5))
    client.close()
    assert brokers[0].stop() == 0
    client = connected(brokers[1].addresses.pulsar)
    consumer = client.subscribe(topic, "again", initial_position=pulsar.InitialPosition.Earliest)
    assert receive(consumer, 40) == numbered(40)


def test_killed_broker_that_is_started_again_has_its_topics_in_its_former_session(
    brokers: list[BrokerProcess], connected: Connect
) -> None:
    living, killed = brokers
    admin = Admin(living.addresses.admin)
    topics = (f"t{number}" for number in range(100))
    topic = next(one for one in topics if admin.owner(one) == killed.addresses.pulsar)
    client = connected(living.addresses.pulsar)
    publish(client.create_producer(topic), numbered(5))
    is_back = threading.Event()

    def look_up() -> str:
        # For a second the owner still counts as alive; then a lookup waits.
        while True:
            found = admin.owner(topic)
            if is_back.is_set():
                return found

    killed.kill()
    with ThreadPoolExecutor(1) as threads:
        lookup = threads.submit(look_up)
        try:
            wait_until(lambda: admin.metric("magnetar_cluster_bundles_without_owner") > 0, "the lookup waits")
            killed.start()
        finally:
            is_back.set()
        assert lookup.result() == killed.addresses.pulsar
    publish(client.create_producer(topic), numbered(5, 5))
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    assert receive(consumer, 10) == numbered(10)
