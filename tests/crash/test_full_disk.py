"""A disk that fills up while an official client publishes, and then has free space again: nothing confirmed is lost.

A small tmpfs stands for the disk; mounting it needs root, so elsewhere the test is skipped.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest

from tests.vectors.broker_process import BrokerProcess

DISK_MIB = 72
BALLAST_MIB = 26
BODY = b"y" * 20_000
MESSAGES = 2400
SETTINGS = {"bindAddress": "127.0.0.1", "journalPreAllocSizeMB": "1"}
WAIT_S = 60.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = shutil.which("mount")
    if mount is None:
        pytest.skip("no mount command here")
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(
        [mount, "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"cannot mount a tmpfs: {done.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


class Publisher(threading.Thread):
    """Publishes one message after the other; the client tries again by itself while the broker refuses."""

    def __init__(self, producer: pulsar.Producer) -> None:
        super().__init__(daemon=True)
        self._producer = producer
        self.confirmed: list[int] = []

    def run(self) -> None:
        for number in range(MESSAGES):
            self._producer.send(b"%06d" % number + BODY)
            self.confirmed.append(number)


def journal_failed(broker: BrokerProcess) -> bool:
    return any("No space left" in line for line in broker.log_lines())


def wait_for(condition: Callable[[], bool], publisher: Publisher) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"after {len(publisher.confirmed)} messages"
        time.sleep(0.01)


def test_publishing_is_refused_while_the_disk_is_full_and_goes_on_afterwards(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * (BALLAST_MIB << 20))
    with BrokerProcess(small_disk, SETTINGS) as broker:
        client = pulsar.Client(broker.addresses.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        with contextlib.closing(client):
            consumer = client.subscribe("full", "s")
            publisher = Publisher(client.create_producer("full", batching_enabled=False))
            publisher.start()
            wait_for(lambda: journal_failed(broker), publisher)
            assert len(publisher.confirmed) < MESSAGES
            ballast.unlink()
            publisher.join(WAIT_S)
            assert publisher.confirmed == list(range(MESSAGES))
            received = [int(consumer.receive(60_000).data()[:6]) for _ in range(MESSAGES)]
            assert received == publisher.confirmed
