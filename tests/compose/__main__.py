"""`python -m tests.compose`: build, up, produce, consume, scrape, down, up, kill, up: nothing may be lost.

Uses docker-compose.yml as it is, under a project name and on ports of its own, and removes what it made. Services
whose images cannot be pulled here are not started: bookie, broker, producer and consumer are. The first line that
fails ends the run with exit code 1; `--keep` leaves the containers for a look.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pulsar

from tests.metrics_check import core_names, names_in
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "magnetar:compose-test"
IMAGE_MB_MAX = 120
MESSAGES = 1000
ACKED = 400
TOPIC = "persistent://public/default/compose"


class Failed(Exception):
    """What was expected and what was found."""


def missing_engine() -> str | None:
    """Why the run is not possible here; None when it is."""
    if shutil.which("docker") is None:
        return "there is no docker command"
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        return "no Docker Engine answers"
    return None if compose_command() else "there is neither docker compose nor docker-compose"


def compose_command() -> list[str]:
    """Returns the words that run Compose: those of Docker's plugin, or of the program of its own; none without either."""
    plugin = ["docker", "compose", "version"]
    if subprocess.run(plugin, capture_output=True, check=False).returncode == 0:
        return plugin[:2]
    return ["docker-compose"] if shutil.which("docker-compose") else []


class Stack:
    """One project of docker-compose.yml."""

    def __init__(self) -> None:
        self.pulsar_port, self.admin_port = free_port(), free_port()
        self._command = [*compose_command(), "-p", f"magnetar-test-{os.getpid()}"]
        self._environment = {
            **os.environ,
            "MAGNETAR_IMAGE": IMAGE,
            "MAGNETAR_PULSAR_PORT": str(self.pulsar_port),
            "MAGNETAR_ADMIN_PORT": str(self.admin_port),
        }

    @property
    def admin(self) -> str:
        return f"http://127.0.0.1:{self.admin_port}"

    def compose(self, *words: str) -> str:
        print(f"$ docker-compose {' '.join(words)}", flush=True)
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

    def up(self) -> None:
        """Starts bookie and broker; returns when both are healthy."""
        started = time.monotonic()
        self.compose("up", "-d", "--no-build", "bookie", "broker")
        wait_for(lambda: self.get("/admin/v2/brokers/health") == "ok", 60, "the broker's health")
        print(f"  healthy after {time.monotonic() - started:.1f} s")

    def check_reach(self) -> None:
        """Expects ports on the loopback of the host only, and a warning about those inside, once."""
        for port in ("6650", "8080"):
            published = self.compose("port", "broker", port).strip()
            expect(published.startswith("127.0.0.1:"), f"port {port} is published at {published}")
        for service in ("broker", "bookie"):
            warnings = self.compose("logs", service).count("without authentication, everyone who reaches")
            expect(warnings == 1, f"{service} warns {warnings} times that its ports are open")
        print("  ports are published on the loopback, and each service warns once")

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.admin + path, timeout=60) as answer:
            text: str = answer.read().decode()
        return text

    def client(self) -> pulsar.Client:
        return pulsar.Client(
            f"pulsar://127.0.0.1:{self.pulsar_port}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.compose", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the containers running")
    options = parser.parse_args(arguments)
    reason = missing_engine()
    if reason is not None:
        print(f"not possible here: {reason}", file=sys.stderr)
        return 2
    stack = Stack()
    try:
        run(stack)
    except (Failed, pulsar.PulsarException) as error:
        print(f"FAILED: {error or type(error).__name__}\n{_logs(stack)}", file=sys.stderr)
        return 1
    finally:
        if not options.keep:
            stack.compose("--profile", "demo", "down", "--volumes", "--timeout", "10")
    print("passed: nothing was lost")
    return 0


def run(stack: Stack) -> None:
    build()
    stack.up()
    stack.check_reach()
    produce(stack)
    consume_some(stack)
    scrape(stack)
    demo(stack)
    print("-- down and up: containers are new, the volumes stay")
    stack.compose("--profile", "demo", "down", "--timeout", "10")
    stack.up()
    consume_rest(stack)
    read_all(stack)
    print("-- kill -9 of both, and up")
    stack.compose("kill", "-s", "SIGKILL", "broker", "bookie")
    stack.up()
    read_all(stack)


def build() -> None:
    command = ["docker", "build", "--network", "host", "-t", IMAGE, "."]
    print(f"$ {' '.join(command)}", flush=True)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"docker build: {(done.stdout + done.stderr)[-2000:]}")
    inspect = ["docker", "image", "inspect", IMAGE]
    image = json.loads(subprocess.run(inspect, capture_output=True, text=True, check=True).stdout)[0]
    size, user = image["Size"] / 1e6, image["Config"]["User"]
    print(f"  {size:.0f} MB, user {user}")
    expect(size <= IMAGE_MB_MAX, f"the image has {size:.0f} MB, {IMAGE_MB_MAX} are allowed")
    expect(user == "10000:0", f"the image runs as {user!r}")


def produce(stack: Stack) -> None:
    client = stack.client()
    for subscription in ("s", "all"):  # "all" acknowledges nothing, so that nothing may be removed.
        client.subscribe(TOPIC, subscription).close()
    producer = client.create_producer(TOPIC)
    for number in range(MESSAGES):
        producer.send_async(b"message %d" % number, None)
    producer.flush()
    client.close()
    print(f"  produced {MESSAGES} from the host")


def consume_some(stack: Stack) -> None:
    client = stack.client()
    consumer = client.subscribe(TOPIC, "s")
    for number in range(ACKED):
        message = consumer.receive(timeout_millis=60_000)
        expect(message.data() == b"message %d" % number, f"got {message.data()!r}, not message {number}")
        consumer.acknowledge(message)
    client.close()
    print(f"  consumed and acknowledged {ACKED}")


def consume_rest(stack: Stack) -> None:
    client = stack.client()
    consumer = client.subscribe(TOPIC, "s")
    for number in range(ACKED, MESSAGES):
        message = consumer.receive(timeout_millis=60_000)
        expect(message.data() == b"message %d" % number, f"got {message.data()!r}, not message {number}")
        consumer.acknowledge(message)
    client.close()
    print(f"  consumed the other {MESSAGES - ACKED}, in order, none of the acknowledged ones again")


def read_all(stack: Stack) -> None:
    client = stack.client()
    reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
    for number in range(MESSAGES):
        data = reader.read_next(timeout_millis=60_000).data()
        expect(data == b"message %d" % number, f"read {data!r}, not message {number}")
    expect(not reader.has_message_available(), "there is more than was produced")
    client.close()
    print(f"  read all {MESSAGES} from the start, in order")


def scrape(stack: Stack) -> None:
    text = stack.get("/metrics")
    missing = [name for name in core_names("broker") if name not in names_in(text)]
    expect(not missing, f"the scrape lacks {', '.join(missing)}")
    expect(
        f'pulsar_in_messages_total{{cluster="standalone",namespace="public/default",topic="{TOPIC}"}} {MESSAGES}\n'
        in text,
        "the scrape does not count what was produced",
    )
    expect(stack.get("/admin/v2/clusters") == '["standalone"]', "the cluster has another name")
    print("  the scrape has every core name and counts what was produced")


def demo(stack: Stack) -> None:
    stack.compose("--profile", "demo", "up", "-d", "--no-build", "producer", "consumer")
    start = 'pulsar_out_messages_total{cluster="standalone",namespace="public/default",topic="persistent://public/default/demo",'

    def delivered() -> bool:
        lines = [line for line in stack.get("/metrics").splitlines() if line.startswith(start)]
        return bool(lines) and float(lines[0].rpartition(" ")[2]) > 200

    wait_for(delivered, 60, "200 deliveries from the demo's producer to its consumer")
    print("  the demo's producer and consumer are at work")


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except OSError:
            pass  # Not listening yet.
        expect(time.monotonic() < until, f"waited {seconds:.0f} s for {what}")
        time.sleep(0.1)


def expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Failed(otherwise)


def _logs(stack: Stack) -> str:
    try:
        return stack.compose("logs", "--tail", "20")
    except Failed as error:
        return str(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
