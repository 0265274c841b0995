"""`python -m tests.compose.cluster_round`: up, used, one broker killed, down and up: nothing may be lost.

Uses docker-compose.cluster.yml as it is, under a project name and on ports of its own, and removes what it made. Where the
image of ZooKeeper cannot be pulled, one is built from the same jars that other tests run. The service `prometheus` is not
started. `--keep` leaves the containers for a look.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Final

import pulsar

from tests.compose.__main__ import (
    IMAGE,
    ROOT,
    Failed,
    build,
    compose_command,
    expect,
    missing_engine,
    wait_for,
)
from tests.support.java import class_path
from tests.support.ports import free_port

FILE: Final = "docker-compose.cluster.yml"
ZOOKEEPER: Final = "zookeeper:3.9.4"
STAND_IN: Final = "magnetar-zookeeper:compose-test"
SERVERS: Final = ("zookeeper", "bookie-1", "bookie-2", "bookie-3", "broker-1", "broker-2", "broker-3")
"""Services whose images are here."""
NUMBERS: Final = (1, 2, 3)
TOPICS: Final = tuple(f"persistent://public/default/cluster-{number}" for number in range(12))
MESSAGES: Final = 100


class ClusterStack:
    """One project of docker-compose.cluster.yml."""

    def __init__(self, zookeeper: str) -> None:
        self.pulsar_ports = {number: free_port() for number in NUMBERS}
        self.admin_ports = {number: free_port() for number in NUMBERS}
        self._command = [*compose_command(), "-f", FILE, "-p", f"magnetar-cluster-{os.getpid()}"]
        self._environment = {
            **os.environ,
            "MAGNETAR_IMAGE": IMAGE,
            "MAGNETAR_ZOOKEEPER_IMAGE": zookeeper,
            **{f"MAGNETAR_PULSAR_PORT_{number}": str(port) for number, port in self.pulsar_ports.items()},
            **{f"MAGNETAR_ADMIN_PORT_{number}": str(port) for number, port in self.admin_ports.items()},
        }

    def compose(self, *words: str) -> str:
        print(f"$ docker-compose -f {FILE} {' '.join(words)}", flush=True)
        done = subprocess.run(
            [*self._command, *words],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Failed(f"docker-compose {words[0]}: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def get(self, number: int, path: str) -> object:
        """Returns the answer of one broker's admin port."""
        url = f"http://127.0.0.1:{self.admin_ports[number]}/{path}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            found: object = json.load(answer)
        return found

    def up(self) -> None:
        """Starts all servers; returns when each broker lists all three."""
        started = time.monotonic()
        self.compose("up", "-d", "--no-build", *SERVERS)
        wait_for(lambda: all(len(self.brokers(number)) == 3 for number in NUMBERS), 300, "three brokers")
        print(f"  each broker lists {', '.join(self.brokers(1))} after {time.monotonic() - started:.0f} s")

    def brokers(self, number: int) -> list[str]:
        """The brokers that one of them lists."""
        found = self.get(number, "admin/v2/brokers/local")
        assert isinstance(found, list)
        return found

    def owners(self, number: int) -> list[str]:
        """The owners of the topics as one broker tells them, by the ports at which this machine reaches them."""
        found = []
        for topic in TOPICS:
            answer = self.get(number, f"lookup/v2/topic/{topic.replace('://', '/')}")
            assert isinstance(answer, dict)
            found.append(answer["brokerUrl"])
        return found

    def client(self) -> pulsar.Client:
        """A client on this machine, which names the listener for it."""
        url = "pulsar://" + ",".join(f"127.0.0.1:{port}" for port in self.pulsar_ports.values())
        return pulsar.Client(
            url, listener_name="external", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )


def zookeeper_image() -> str:
    """Returns the image of ZooKeeper, or of a stand-in that is built here."""
    if not subprocess.run(["docker", "pull", "-q", ZOOKEEPER], capture_output=True, check=False).returncode:
        return ZOOKEEPER
    print(f"  {ZOOKEEPER} cannot be pulled; a stand-in is built from its jars", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(ROOT / "tests/compose/zookeeper/Dockerfile", folder)
        (folder / "jars").mkdir()
        for jar in class_path(ROOT / "tests/compose/java/pom.xml", folder).strip().split(":"):
            shutil.copy(jar, folder / "jars")
        command = ["docker", "build", "--network", "host", "-t", STAND_IN, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"docker build: {(done.stdout + done.stderr)[-2000:]}")
    return STAND_IN


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.compose.cluster_round", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the containers running")
    options = parser.parse_args(arguments)
    reason = missing_engine()
    if reason is not None:
        print(f"not possible here: {reason}", file=sys.stderr)
        return 2
    build()
    stack = ClusterStack(zookeeper_image())
    try:
        run(stack)
    except (Failed, pulsar.PulsarException) as error:
        print(f"FAILED: {error or type(error).__name__}\n{_logs(stack)}", file=sys.stderr)
        return 1
    finally:
        if not options.keep:
            stack.compose("down", "--volumes", "--timeout", "10")
    print("passed: nothing was lost")
    return 0


def run(stack: ClusterStack) -> None:
    stack.up()
    client = stack.client()
    for topic in TOPICS:
        # It acknowledges nothing, so that nothing may be removed.
        client.subscribe(topic, "all").close()
    producers = {topic: client.create_producer(topic) for topic in TOPICS}
    produce(producers, 0)
    owners = stack.owners(1)
    expect(len(set(owners)) == 3, f"the topics are not on three brokers: {owners}")
    expect(stack.owners(2) == stack.owners(3) == owners, "brokers name different owners")
    spread = ", ".join(f"{owner} {owners.count(owner)}" for owner in sorted(set(owners)))
    print(f"  {MESSAGES} messages to each of {len(TOPICS)} topics, which are spread: {spread}")
    print("-- kill -9 of one broker, while its topics are in use")
    killed = time.monotonic()
    stack.compose("kill", "-s", "SIGKILL", "broker-2")
    produce(producers, MESSAGES)
    print(
        f"  every topic has taken the next {MESSAGES} messages {time.monotonic() - killed:.1f} s after the kill"
    )
    expect(stack.brokers(1) == stack.brokers(3) and len(stack.brokers(1)) == 2, "two brokers are left")
    expect("pulsar://broker-2:6651" not in stack.owners(1), "the killed broker owns topics")
    client.close()
    read_all(stack, 2 * MESSAGES)
    stack.up()
    print("-- down and up: containers are new, the volumes stay")
    stack.compose("down", "--timeout", "30")
    stack.up()
    read_all(stack, 2 * MESSAGES)


def produce(producers: dict[str, pulsar.Producer], first: int) -> None:
    for number in range(first, first + MESSAGES):
        for producer in producers.values():
            producer.send_async(b"message %d" % number, None)
    for producer in producers.values():
        producer.flush()


def read_all(stack: ClusterStack, count: int) -> None:
    client = stack.client()
    for topic in TOPICS:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        found: dict[bytes, None] = {}
        while len(found) < count:
            # A send whose receipt was lost with its broker may have been stored twice.
            found[reader.read_next(timeout_millis=60_000).data()] = None
        expected = [b"message %d" % number for number in range(count)]
        expect(list(found) == expected, f"{topic} has other messages, or in another order")
        reader.close()
    client.close()
    print(f"  read all {count} messages of each topic from the start, in order")


def _logs(stack: ClusterStack) -> str:
    try:
        return stack.compose("logs", "--tail", "20")
    except Failed as error:
        return str(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
