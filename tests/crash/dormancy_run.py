"""kill -9 at each step of falling asleep and waking: nothing confirmed or acknowledged is lost, and no ledger is left over.

A topic gets messages, and some of them are acknowledged. The broker dies while it falls asleep, or while a producer and a
consumer wake it. After the restart the producer goes on; every message that was not acknowledged is delivered, and none that
was. Then the topic is dormant again, and the store has no ledger without a reference.
"""

from __future__ import annotations

import asyncio
import threading
import time
import urllib.request
from pathlib import Path
from typing import Final

import pulsar

from tests.crash.bookie_leftovers import left_on_bookie
from tests.crash.broker_process import BrokerProcess
from tests.crash.compaction_broker import ARMED
from tests.crash.crash_points import POINT
from tests.crash.dormancy_broker import CURSOR, POINTS, SLEEP_POINTS
from tests.crash.every_point import try_points
from tests.crash.send_groups import GROUP, send_groups
from tests.crash.trimming_run import ledgers_left_over

TOPIC: Final = "persistent://public/default/sleeping"
LEDGER: Final = "public/default/persistent/sleeping"
SETTINGS: Final = (
    "dormantTopicsAfterSeconds=1",
    "brokerDeleteInactiveTopicsEnabled=false",
    "managedLedgerDefaultMarkDeleteRateLimit=0",
)
MESSAGES: Final = 50
"""Messages before the topic first sleeps."""
MORE: Final = 20
"""Those that wake it."""
TIMEOUT_S: Final = 300.0


def main(*, keep: bool, audit: bool = False) -> int:
    """One line per point; 1 when anything is wrong."""
    failed = try_points(POINTS, run_point, keep=keep, audit=audit)
    print(f"{len(POINTS)} points, {len(POINTS) * (MESSAGES + MORE)} confirmed, {failed} failed")
    return 1 if failed else 0


def run_point(point: str, folder: Path) -> list[str]:
    """Returns what is wrong."""
    broker = BrokerProcess(folder, SETTINGS, module="tests.crash.dormancy_broker")
    armed = folder / "armed"
    broker.environment = {POINT: point, ARMED: str(armed)}
    findings: list[str] = []
    try:
        broker.start()
        acknowledged = _publish(broker)
        if point in SLEEP_POINTS:
            armed.touch()
            waking = None
        else:
            _wait_until_dormant(broker)
            armed.touch()
            waking = threading.Thread(target=_wake, args=(broker,), daemon=True)
            waking.start()
        began = time.monotonic()
        while broker.alive():
            if time.monotonic() - began > TIMEOUT_S:
                return [f"the point was not passed: {broker.log_end()}"]
            time.sleep(0.02)
        broker.environment = {}
        broker.start()
        if waking is None:
            _wake(broker)
        else:
            waking.join()
        wanted = set(range(MESSAGES + MORE)) - acknowledged - {MESSAGES}
        for moment in ("after the kill", "after one more sleep"):
            _wait_until_dormant(broker)
            found = _received(broker)
            findings += [f"{moment}: message {number} is lost" for number in sorted(wanted - found)]
            findings += [f"{moment}: {number} comes again" for number in sorted(acknowledged & found)]
        _wait_until_dormant(broker)
        if (code := broker.stop()) != 0:
            findings.append(f"SIGTERM ended with exit code {code}")
    finally:
        broker.close()
    return findings + asyncio.run(ledgers_left_over(folder, LEDGER)) + left_on_bookie(broker.data)


def _client(broker: BrokerProcess) -> pulsar.Client:
    return pulsar.Client(broker.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))


def _publish(broker: BrokerProcess) -> set[int]:
    """Publishes, and acknowledges every third message; returns the numbers of these."""
    client = _client(broker)
    acknowledged = set[int]()
    try:
        consumer = client.subscribe(TOPIC, CURSOR, consumer_type=pulsar.ConsumerType.Shared)
        producer = client.create_producer(TOPIC, batching_enabled=False)
        send_groups(producer, [b"%d" % number for number in range(MESSAGES)])
        for _ in range(MESSAGES):
            message = consumer.receive(int(TIMEOUT_S * 1000))
            if int(message.data()) % 3 == 0:
                consumer.acknowledge(message)
                acknowledged.add(int(message.data()))
    finally:
        client.close()
    return acknowledged


def _wake(broker: BrokerProcess) -> None:
    """Publishes a group, acknowledges its first message, then publishes more; goes on after a restart."""
    client = _client(broker)
    try:
        producer = client.create_producer(TOPIC, batching_enabled=False, send_timeout_millis=0)
        numbers = [b"%d" % number for number in range(MESSAGES, MESSAGES + MORE)]
        send_groups(producer, numbers[:GROUP])
        consumer = client.subscribe(TOPIC, CURSOR, consumer_type=pulsar.ConsumerType.Shared)
        while True:
            message = consumer.receive(int(TIMEOUT_S * 1000))
            if int(message.data()) == MESSAGES:
                consumer.acknowledge(message)
                break
        send_groups(producer, numbers[GROUP:])
    finally:
        client.close()


def _received(broker: BrokerProcess) -> set[int]:
    """Receives up to the last message; acknowledges nothing."""
    client = _client(broker)
    found = set[int]()
    try:
        consumer = client.subscribe(TOPIC, CURSOR, consumer_type=pulsar.ConsumerType.Shared)
        while MESSAGES + MORE - 1 not in found:
            found.add(int(consumer.receive(int(TIMEOUT_S * 1000)).data()))
    finally:
        client.close()
    return found


def _wait_until_dormant(broker: BrokerProcess) -> None:
    began = time.monotonic()
    while time.monotonic() - began < TIMEOUT_S:
        with urllib.request.urlopen(f"{broker.admin_url}/metrics/", timeout=TIMEOUT_S) as answer:
            if b'\nmagnetar_dormant_topics{cluster="standalone"} 1.0\n' in answer.read():
                return
        time.sleep(0.05)
    raise AssertionError(f"the topic stays open: {broker.log_end()}")
