"""Full disks: publishing is refused and nothing confirmed is lost; a broker starts, serves and frees space on one.

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

from tests.interop.support import Admin, connect, wait_until
from tests.support.bookies import BookieProcess, ensemble_settings
from tests.vectors.broker_process import BrokerProcess

DISK_MIB = 72
BALLAST_MIB = 26
BODY = b"y" * 20_000
MESSAGES = 2400
STORED = 500
FREEING = {
    "isForceGCAllowWhenNoSpace": "true",
    "diskCheckInterval": "200",
    "flushInterval": "500",
    "journalMaxBackups": "0",
}
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


def fill(disk: Path) -> Path:
    """Takes every free byte of the disk with one file."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    assert shutil.disk_usage(disk).free < 4096
    return ballast


def broker_on(disk: Path, log_folder: Path, settings: dict[str, str]) -> BrokerProcess:
    """A broker with its data on the small disk; its log and its ready file are elsewhere."""
    (log_folder / "data").symlink_to(disk)
    return BrokerProcess(log_folder, {**SETTINGS, **settings})


def wait_for(condition: Callable[[], bool], publisher: Publisher) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"after {len(publisher.confirmed)} messages"
        time.sleep(0.01)


def test_publishing_is_refused_while_the_disk_is_full_and_goes_on_afterwards(
    small_disk: Path, tmp_path: Path
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * (BALLAST_MIB << 20))
    # The log must be on another disk: the line that the test waits for would not fit on this one.
    with broker_on(small_disk, tmp_path, {}) as broker:
        client = pulsar.Client(broker.addresses.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        with contextlib.closing(client):
            consumer = client.subscribe("full", "s")
            producer = client.create_producer("full", batching_enabled=False, send_timeout_millis=0)
            publisher = Publisher(producer)
            publisher.start()
            wait_for(lambda: journal_failed(broker), publisher)
            assert len(publisher.confirmed) < MESSAGES
            ballast.unlink()
            # Thousands of round trips, one after the other.
            publisher.join(2 * WAIT_S)
            assert publisher.confirmed == list(range(MESSAGES))
            received = [int(consumer.receive(60_000).data()[:6]) for _ in range(MESSAGES)]
            assert received == publisher.confirmed


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_broker_starts_on_a_full_disk_serves_and_frees_space(
    small_disk: Path, tmp_path: Path, how: str
) -> None:
    broker = broker_on(small_disk, tmp_path, FREEING)
    broker.start()
    with contextlib.closing(connect(broker.addresses.pulsar)) as client:
        client.subscribe("full", "s").close()
        producer = client.create_producer("full", batching_enabled=False)
        for number in range(STORED):
            producer.send(b"%06d" % number + BODY)
    if how == "kill":
        broker.kill()
    else:
        assert broker.stop() == 0
    fill(small_disk)
    broker.start()
    try:
        admin = Admin(broker.addresses.admin)
        with contextlib.closing(connect(broker.addresses.pulsar)) as client:
            consumer = client.subscribe("full", "s")
            received = []
            for _ in range(STORED):
                message = consumer.receive(int(WAIT_S * 1000))
                received.append(int(message.data()[:6]))
                consumer.acknowledge(message)
            assert received == list(range(STORED))
            wait_until(lambda: backlog_of(admin, "full") == 0, "acknowledgements are stored", WAIT_S)
        admin.delete("persistent/public/default/full?force=true")
        wait_until(
            lambda: shutil.disk_usage(small_disk).free > STORED * len(BODY) // 2, "space is free", WAIT_S
        )
        broker.logged("is full: its reserve of")
    finally:
        broker.kill()


def backlog_of(admin: Admin, topic: str) -> int:
    stats = admin.get(f"persistent/public/default/{topic}/stats")
    assert isinstance(stats, dict)
    subscriptions = stats["subscriptions"]
    assert isinstance(subscriptions, dict)
    one = subscriptions["s"]
    assert isinstance(one, dict)
    count = one["msgBacklog"]
    assert isinstance(count, int)
    return count


def send_many(producer: pulsar.Producer) -> None:
    for _ in range(MESSAGES):
        producer.send(BODY)


def test_send_ends_with_its_time_out_when_the_disk_stays_full(small_disk: Path, tmp_path: Path) -> None:
    """The client begins the time-out anew with each connection, so the broker must not let it connect at once."""
    broker = broker_on(small_disk, tmp_path, {"diskCheckInterval": "200"})
    broker.start()
    try:
        with contextlib.closing(connect(broker.addresses.pulsar)) as client:
            producer = client.create_producer("full", batching_enabled=False, send_timeout_millis=2000)
            producer.send(b"first")
            fill(small_disk)
            with pytest.raises(pulsar.Timeout):
                send_many(producer)
    finally:
        broker.kill()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_bookie_process_starts_on_a_full_disk_and_serves(small_disk: Path, tmp_path: Path, how: str) -> None:
    """The broker has its data on another disk: entries alone are on the full one."""
    bookie = BookieProcess(tmp_path / "bookie", {"journalPreAllocSizeMB": "1", "diskCheckInterval": "200"})
    (tmp_path / "bookie" / "data").symlink_to(small_disk)
    bookie.spawn()
    bookie.wait_ready()
    broker = BrokerProcess(tmp_path, ensemble_settings([bookie.address]))
    broker.start()
    try:
        with contextlib.closing(connect(broker.addresses.pulsar)) as client:
            client.subscribe("full", "s").close()
            producer = client.create_producer("full", batching_enabled=False)
            for number in range(STORED):
                producer.send(b"%06d" % number + BODY)
            producer.close()
        if how == "kill":
            bookie.kill()
        else:
            bookie.stop()
        fill(small_disk)
        bookie.spawn()
        bookie.wait_ready()
        with contextlib.closing(connect(broker.addresses.pulsar)) as client:
            consumer = client.subscribe("full", "s")
            received = [int(consumer.receive(int(WAIT_S * 1000)).data()[:6]) for _ in range(STORED)]
            assert received == list(range(STORED))
            producer = client.create_producer("full-too", batching_enabled=False, send_timeout_millis=2000)
            with pytest.raises(pulsar.Timeout):
                send_many(producer)
    finally:
        broker.kill()
        bookie.kill()
    assert "is full: its reserve of" in (tmp_path / "bookie" / "bookie.log").read_text()
