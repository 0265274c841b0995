"""Full disks: publishing is refused and nothing confirmed is lost; a broker starts, serves and frees space on one.

A small tmpfs stands for the disk; mounting it needs root, so elsewhere the test is skipped.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
import time
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest

from bookie_stub.base.disk_reserve import NAME, reserve_bytes
from magnetar.audit.facts import AuditFinding, gather, judge
from magnetar.snapshot.node_sources import nodes_of
from tests.interop.support import Admin, connect, wait_until
from tests.support.bookies import BookieProcess, ensemble_settings
from tests.support.file_sizes import bytes_of
from tests.support.log_file import wait_for_lines
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
    # Below the share that is in use when the broker has released its reserve.
    "diskUsageWarnThreshold": "0.9",
}
IN_JOURNAL = {"flushInterval": "600000"}
"""Entries stay in the journal and in the write cache."""
LONG_REPLAY = {"dbStorage_writeCacheMaxSizeMb": "3"}
"""A replay of all entries fills the write cache several times."""
SETTINGS = {"bindAddress": "127.0.0.1", "journalPreAllocSizeMB": "1"}
WAIT_S = 60.0
OWN_DISK = pytest.mark.one_broker("fills the disk of the bookie and the store inside the process")


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


def adds_are_refused(broker: BrokerProcess) -> bool:
    return any("adds are refused until" in line for line in broker.log_lines())


def fill(disk: Path) -> Path:
    """Takes every free byte of the disk with one file."""
    ballast = take_free_bytes(disk)
    assert shutil.disk_usage(disk).free < 4096
    return ballast


def take_free_bytes(disk: Path) -> Path:
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return ballast


def fill_beside_broker(disk: Path) -> None:
    """Takes the free bytes while a broker runs, which may free some at the same time."""
    reserve = disk / NAME
    # Not the size of the file, which the broker may remove before it could be asked.
    kept = reserve_bytes(shutil.disk_usage(disk).total)
    ballast = take_free_bytes(disk)
    if not reserve.exists():
        # The broker looks at its disk every five seconds. One that looked in the middle has released the reserve, and the
        # ballast has taken it: without it nothing could be written, and so nothing be removed.
        os.truncate(ballast, ballast.stat().st_size - kept)


def logged_bytes(disk: Path) -> int:
    """Bytes of all entry logs on the disk."""
    return bytes_of(disk / "bookie" / "ledgers" / "current", "*.log")


def journal_bytes(disk: Path) -> int:
    """Bytes of all journal files on the disk."""
    return bytes_of(disk / "bookie" / "journal" / "current", "*.txn")


def broker_on(disk: Path, log_folder: Path, settings: dict[str, str]) -> BrokerProcess:
    """A broker with its data on the small disk; its log and its ready file are elsewhere."""
    (log_folder / "data").symlink_to(disk)
    return BrokerProcess(log_folder, {**SETTINGS, **settings})


def wait_for(condition: Callable[[], bool], publisher: Publisher) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"after {len(publisher.confirmed)} messages"
        time.sleep(0.01)


@OWN_DISK
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
            wait_for(lambda: adds_are_refused(broker), publisher)
            assert len(publisher.confirmed) < MESSAGES
            ballast.unlink()
            # Thousands of round trips, one after the other.
            publisher.join(2 * WAIT_S)
            assert publisher.confirmed == list(range(MESSAGES))
            received = [int(consumer.receive(60_000).data()[:6]) for _ in range(MESSAGES)]
            assert received == publisher.confirmed


@OWN_DISK
@pytest.mark.parametrize("how", ["stop", "kill", "kill before a checkpoint"])
def test_broker_starts_on_a_full_disk_serves_and_frees_space(
    small_disk: Path, tmp_path: Path, how: str
) -> None:
    in_journal = how == "kill before a checkpoint"
    broker = broker_on(small_disk, tmp_path, IN_JOURNAL if in_journal else FREEING)
    broker.start()
    with contextlib.closing(connect(broker.addresses.pulsar)) as client:
        client.subscribe("full", "s").close()
        producer = client.create_producer("full", batching_enabled=False)
        for number in range(STORED):
            producer.send(b"%06d" % number + BODY)
    if in_journal:
        broker.kill()
        assert logged_bytes(small_disk) == 0
        broker = BrokerProcess(tmp_path, {**SETTINGS, **FREEING, **LONG_REPLAY})
    else:
        wait_until(lambda: logged_bytes(small_disk) > STORED * len(BODY), "entry logs have all", WAIT_S)
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


@OWN_DISK
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


@OWN_DISK
@pytest.mark.parametrize("removal", ["trimming", "deletion"])
def test_removal_goes_on_when_the_disk_fills_up_in_its_middle(
    small_disk: Path, tmp_path: Path, removal: str
) -> None:
    rolling = {"managedLedgerMaxEntriesPerLedger": "50", "managedLedgerMinLedgerRolloverTimeMinutes": "0"}
    more = {"retentionCheckIntervalInSeconds": "1", "brokerDeleteInactiveTopicsEnabled": "false"}
    broker = broker_on(small_disk, tmp_path, {**FREEING, **rolling, **more})
    broker.start()
    try:
        admin = Admin(broker.addresses.admin)
        with contextlib.closing(connect(broker.addresses.pulsar)) as client:
            consumer = client.subscribe("full", "s")
            producer = client.create_producer("full", batching_enabled=False)
            for number in range(STORED):
                producer.send(b"%06d" % number + BODY)
            producer.close()
            # Entries of the write cache alone would be dropped with their ledgers, and nothing would become free.
            wait_until(lambda: logged_bytes(small_disk) > STORED * len(BODY), "entry logs have all", WAIT_S)
            received = []
            for number in range(STORED):
                message = consumer.receive(int(WAIT_S * 1000))
                received.append(int(message.data()[:6]))
                if number == STORED // 3:
                    # The first ledgers are being removed by now.
                    fill_beside_broker(small_disk)
                consumer.acknowledge(message)
            assert received == list(range(STORED))
            wait_until(lambda: backlog_of(admin, "full") == 0, "acknowledgements are stored", WAIT_S)
        if removal == "deletion":
            wait_until(lambda: is_deleted(admin), "the reserve serves the deletion", WAIT_S)
        # All of it was in one log and one journal file, which are far from their limits.
        left = STORED * len(BODY) // 5
        wait_until(lambda: journal_bytes(small_disk) < left, "the journal is removed", WAIT_S)
        wait_until(lambda: logged_bytes(small_disk) < left, "the entry logs are removed", WAIT_S)
        with contextlib.closing(connect(broker.addresses.pulsar)) as client:
            wait_until(lambda: may_publish(client), "the broker takes messages again", WAIT_S)
        # Before the stop: only a broker that runs goes on with the last of them.
        wait_until(lambda: not left_behind(small_disk), "no ledger waits for its removal", WAIT_S)
        assert broker.stop() == 0
    finally:
        broker.kill()
    assert left_behind(small_disk) == []


def left_behind(disk: Path) -> list[AuditFinding]:
    """Everything that the audits find in the broker's metadata."""
    return list(judge(gather(nodes_of(f"file:{disk / 'metadata.sqlite'}"))))


def is_deleted(admin: Admin) -> bool:
    """Asks for the deletion; it is refused, and nothing is stored, until the broker has noticed that the disk is full."""
    try:
        admin.delete("persistent/public/default/full?force=true")
    except urllib.error.HTTPError as error:
        if error.code != 500:
            raise
        return False
    return True


def may_publish(client: pulsar.Client) -> bool:
    try:
        client.create_producer("full", send_timeout_millis=2000).send(b"again")
    except (pulsar.Timeout, pulsar.PulsarException):
        return False
    return True


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
        wait_for_lines(tmp_path / "bookie" / "bookie.log", "is full: its reserve of")
    finally:
        broker.kill()
        bookie.kill()
