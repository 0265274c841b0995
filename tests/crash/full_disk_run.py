"""kill -9 around the moment at which a producer has filled the disk: each start succeeds, no confirmed message is lost.

A disk is a tmpfs of 64 to 256 MiB with the broker's data: metadata, journal, entry logs, indexes. In each round an official
client publishes to a topic of its own until the disk is full, and the broker dies at a random moment around that. After the
start every confirmed message of every topic is read. Then topics are deleted, sometimes none, so that the next round begins
with space or without. At the end of a disk all are deleted, and publishing must work again by itself.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pulsar

from tests.crash.broker_process import ROOT, BrokerError, BrokerProcess

MIB: Final = 1 << 20
SIZES_MIB: Final = (64, 100, 128, 192, 256)
ROUNDS_PER_DISK: Final = 5
SETTINGS: Final = (
    "brokerDeleteInactiveTopicsEnabled=false",
    # The topics have no subscription and a refused add ends a ledger, which a round of trimming would take.
    "defaultRetentionTimeInMinutes=-1",
    "defaultRetentionSizeInMB=-1",
)
WAIT_S: Final = 300.0
READ_MS: Final = 60_000
_LAST_SHARE: Final = 0.1
"""A kill before the disk is full comes when less than up to this share is free."""
_AFTER_S: Final = 8.0
"""A kill comes up to so long after that."""


class Counts:
    """The sums over all rounds."""

    def __init__(self) -> None:
        self.rounds = self.failed = self.confirmed = self.lost = self.refused = 0


def main(rounds: int, seed: int, folder: Path, *, java_class_path: str = "") -> bool:
    """One line per round, then the counts; True when nothing is wrong. Needs root, for the mounts."""
    lot = random.Random(seed)
    counts = Counts()
    disks = 0
    while counts.rounds < rounds:
        place = folder / f"disk-{disks}"
        place.mkdir()
        mib = lot.choice(SIZES_MIB)
        with mounted(place / "data", mib):
            disk = FullDisk(place, mib, lot, counts, java_class_path)
            disk.run(min(ROUNDS_PER_DISK, rounds - counts.rounds))
        disks += 1
    print(
        f"{counts.rounds} kill-and-starts on {disks} disks, {counts.failed} failed; "
        f"{counts.confirmed} messages confirmed, {counts.lost} lost; {counts.refused} rounds refused messages"
    )
    return not counts.failed and not counts.lost


@contextlib.contextmanager
def mounted(place: Path, mib: int) -> Iterator[None]:
    """A tmpfs of so many MiB at `place`. CalledProcessError where it may not be mounted."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


class FullDisk:
    """The rounds of one disk."""

    def __init__(
        self, folder: Path, mib: int, lot: random.Random, counts: Counts, java_class_path: str
    ) -> None:
        self._folder = folder
        self._mib = mib
        self._lot = lot
        self._counts = counts
        self._java_class_path = java_class_path
        self._broker = BrokerProcess(folder, SETTINGS)
        self._confirmed: dict[str, set[int]] = {}
        """The numbers of the confirmed messages of each topic that exists."""

    def run(self, rounds: int) -> None:
        """Stops at the first start that fails: the disk has nothing more to tell."""
        try:
            self._broker.start()
            for _ in range(rounds):
                if not self._round():
                    return
            self._delete(list(self._confirmed))
            self._publish_again()
        except (BrokerError, AssertionError) as error:
            self._counts.failed += 1
            print(f"FAILED: {self._mib} MiB: {error}", flush=True)
        finally:
            self._broker.close()

    def _round(self) -> bool:
        counts = self._counts
        number = counts.rounds
        counts.rounds += 1
        topic = f"full-{number}"
        java = bool(self._java_class_path) and number % 3 == 2
        free, refused, confirmed = self._fill_and_kill(topic, java=java)
        self._confirmed[topic] = confirmed
        counts.confirmed += len(confirmed)
        counts.refused += bool(refused)
        line = (
            f"{number}: {self._mib} MiB, {'java' if java else 'python'}, killed with {free >> 10} KiB free, "
            f"{len(confirmed)} confirmed{', ' + refused if refused else ''}"
        )
        try:
            seconds = self._broker.start()
        except BrokerError as error:
            counts.failed += 1
            print(f"{line}; FAILED START: {error}", flush=True)
            return False
        lost = sum(self._lost(each) for each in self._confirmed)
        counts.lost += lost
        deleted = list(self._confirmed)[: self._lot.randrange(3)]
        self._delete(deleted)
        print(f"{line}; started in {seconds:.1f} s, {lost} lost, {len(deleted)} deleted", flush=True)
        return True

    def _fill_and_kill(self, topic: str, *, java: bool) -> tuple[int, str, set[int]]:
        """Returns the free bytes at the kill, the client's first refusal, and the confirmed numbers."""
        lot = self._lot
        kept = lot.random() * _LAST_SHARE * self._mib * MIB
        after_s = lot.random() * _AFTER_S
        arguments = (
            self._broker.url,
            topic,
            str(lot.choice((1000, 10_000, 60_000))),
            lot.choice(("batched", "single")),
        )
        command = (
            ["java", "-cp", self._java_class_path, str(ROOT / "tests/crash/java/Fill.java")]
            if java
            else [sys.executable, "-m", "tests.crash.fill_process"]
        )
        answers = self._folder / topic
        with answers.open("wb") as file:
            producer = subprocess.Popen([*command, *arguments], cwd=ROOT, stdout=file, stderr=file)
        try:
            wait_for(lambda: self._free() <= kept or b"refused" in answers.read_bytes(), "the disk is full")
            time.sleep(after_s)  # The moment of the kill is what a round draws.
            free = self._free()
            self._broker.kill()
        finally:
            producer.kill()
            producer.wait()
        lines = answers.read_text(errors="replace").splitlines()
        refused = next((line for line in lines if line.startswith("refused")), "")
        return free, refused, {int(line) for line in lines if line.isdecimal()}

    def _free(self) -> int:
        return shutil.disk_usage(self._broker.data).free

    def _lost(self, topic: str) -> int:
        missing = set(self._confirmed[topic])
        with contextlib.closing(connect(self._broker.url)) as client:
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            while missing and reader.has_message_available():
                missing.discard(int(reader.read_next(READ_MS).data()[:8]))
        return len(missing)

    def _delete(self, topics: Sequence[str]) -> None:
        for topic in topics:
            url = f"{self._broker.admin_url}/admin/v2/persistent/public/default/{topic}?force=true"
            wait_for(partial(deleted, url), f"{topic} is deleted")
            del self._confirmed[topic]

    def _publish_again(self) -> None:
        with contextlib.closing(connect(self._broker.url)) as client:
            wait_for(lambda: published(client), "publishing works again")


def connect(url: str) -> pulsar.Client:
    return pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))


def deleted(url: str) -> bool:
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="DELETE")).close()
    except urllib.error.HTTPError as error:
        return error.code == 404
    return True


def published(client: pulsar.Client) -> bool:
    try:
        client.create_producer("again", send_timeout_millis=2000).send(bytes(100_000))
    except pulsar.PulsarException:
        return False
    return True


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Raises AssertionError when the condition stays false."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {WAIT_S:.0f} s: {what}"
        time.sleep(0.02)
