"""kill -9 at each step of an offload and of the deletion of copies: no message is lost, nothing is left over.

For each point a topic gets messages in many ledgers. They are offloaded to files, or to S3 at the points with `s3.` in
front, and the bookie loses them at once. The broker dies at the point. After the restart every message is delivered. After
one more offload the storage has the objects that the list names, no other and no part of one, the bookie has only the ledger
that was not offloaded, and every message is delivered again. At the points of a deletion all ledgers are offloaded before,
the subscription skips its messages, and the broker dies while it deletes the copies; after the restart none is left.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPException
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

import pulsar

from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from broker.managed_ledger.managed_ledger_info import ManagedLedgerInfo, managed_ledger_key
from broker.managed_ledger.records.pulsar_records import decode_ledger_list
from protocol.ledger_metadata import ledger_key
from protocol.offload.blocks import data_key, index_key
from tests.crash.bookie_leftovers import left_on_bookie
from tests.crash.broker_process import BrokerProcess
from tests.crash.compaction_broker import ARMED
from tests.crash.crash_points import POINT
from tests.crash.every_point import try_points
from tests.crash.offload_broker import POINTS, REMOVALS, S3
from tests.crash.send_groups import send_groups
from tests.crash.trimming_run import LEDGER_IDS
from tests.support.s3_server import KEYS, S3Server, find_program

TOPIC: Final = "persistent://public/default/offloaded"
LEDGER: Final = "public/default/persistent/offloaded"
SETTINGS: Final = (
    "managedLedgerMaxEntriesPerLedger=40",
    "managedLedgerMinLedgerRolloverTimeMinutes=0",
    "retentionCheckIntervalInSeconds=1",
    "managedLedgerOffloadDeletionLagMs=0",
    "s3ManagedLedgerOffloadReadBufferSizeInBytes=4096",
)
MESSAGES: Final = 300
MESSAGE_BYTES: Final = 500
SUBSCRIPTION: Final = "keeps"
TIMEOUT_S: Final = 300.0
BUCKET: Final = "copies"


class Place(NamedTuple):
    """The storage for the copies of one point."""

    settings: tuple[str, ...]
    """Of the broker."""
    environment: Mapping[str, str]
    """Of the broker."""
    names: Callable[[], set[str]]
    """Returns the names of all objects, and of those of which parts are there."""


def can_use_s3() -> bool:
    """Returns True where the server and both libraries are installed."""
    return find_program() is not None and all(map(find_spec, ("obstore", "boto3")))


def main(*, keep: bool, audit: bool = False) -> int:
    """One line per point; 1 when anything is wrong."""
    points = (*POINTS, *(S3 + point for point in POINTS)) if can_use_s3() else POINTS
    failed = try_points(points, run_point, keep=keep, audit=audit)
    print(f"{len(points)} points, {len(points) * MESSAGES} confirmed, {failed} failed")
    return 1 if failed else 0


@contextmanager
def _files(folder: Path) -> Iterator[Place]:
    folder = folder / "objects"
    folder.mkdir()
    settings = ("managedLedgerOffloadDriver=filesystem", f"fileSystemURI={folder.absolute().as_uri()}")
    yield Place(settings, {}, lambda: {*os.listdir(folder)})


@contextmanager
def _s3(folder: Path) -> Iterator[Place]:
    server = S3Server(folder / "s3", (BUCKET,))
    client = import_module("boto3").client(
        "s3",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
    )

    def names() -> set[str]:
        objects = client.list_objects_v2(Bucket=BUCKET).get("Contents") or []
        uploads = client.list_multipart_uploads(Bucket=BUCKET).get("Uploads") or []
        return {one["Key"] for one in objects} | {f"{one['Key']} (parts)" for one in uploads}

    settings = (
        "managedLedgerOffloadDriver=S3",
        f"s3ManagedLedgerOffloadBucket={BUCKET}",
        f"s3ManagedLedgerOffloadServiceEndpoint={server.endpoint}",
    )
    try:
        yield Place(settings, KEYS, names)
    finally:
        server.stop()


def run_point(point: str, folder: Path) -> list[str]:
    """Returns what is wrong."""
    with (_s3 if point.startswith(S3) else _files)(folder) as place:
        return _run(point, folder, place)


def _run(point: str, folder: Path, place: Place) -> list[str]:
    broker = BrokerProcess(folder, (*SETTINGS, *place.settings), module="tests.crash.offload_broker")
    armed = folder / "armed"
    broker.environment = {**place.environment, POINT: point, ARMED: str(armed)}
    removes = point.removeprefix(S3).partition(".")[0] in REMOVALS
    try:
        broker.start()
        _publish(broker)
        if removes:
            offload(broker)
            _until(lambda: _all_moved(broker), "not all ledgers were offloaded", broker)
        armed.touch()
        (_skip_all if removes else offload)(broker)
        _until(lambda: not broker.alive(), "the point was not passed", broker)
        broker.environment = {**place.environment}
        broker.start()
        if removes:
            return _left_after_removal(broker, folder, place)
        findings = _missing(broker, "after the kill")
        offload(broker)
        _until(lambda: _all_moved(broker), "not all ledgers were offloaded", broker)
        findings += _missing(broker, "from the copies")
        if (code := broker.stop()) != 0:
            findings.append(f"SIGTERM ended with exit code {code}")
        broker.start()
        findings += _missing(broker, "at the end")
        broker.stop()
    finally:
        broker.close()
    return findings + asyncio.run(left_over(folder, LEDGER, place.names())) + left_on_bookie(broker.data)


def _left_after_removal(broker: BrokerProcess, folder: Path, place: Place) -> list[str]:
    """Returns what is left of the copies once the broker, started anew, has had its time to delete them."""
    _skip_all(broker)  # Again: its answer was not stored where the kill came first.
    _until(lambda: not place.names(), f"{sorted(place.names())} are left", broker)
    broker.stop()
    copies = [one for one in asyncio.run(_stored(folder, LEDGER))[0].ledgers if one.offload is not None]
    return [f"{one} is named" for one in copies] + left_on_bookie(broker.data)


def _until(holds: Callable[[], bool], else_: str, broker: BrokerProcess) -> None:
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > TIMEOUT_S:
            raise RuntimeError(f"{else_}: {broker.log_end()}")
        time.sleep(0.05)


def _client(broker: BrokerProcess) -> pulsar.Client:
    return pulsar.Client(broker.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))


def _publish(broker: BrokerProcess) -> None:
    client = _client(broker)
    try:
        client.subscribe(TOPIC, SUBSCRIPTION).close()
        producer = client.create_producer(TOPIC, batching_enabled=False)
        send_groups(producer, [b"%d" % number + bytes(MESSAGE_BYTES) for number in range(MESSAGES)])
    finally:
        client.close()


def _missing(broker: BrokerProcess, when: str) -> list[str]:
    """Reads all messages past the subscription; names those that are missing."""
    client = _client(broker)
    found = set[int]()
    try:
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
        while MESSAGES - 1 not in found:
            found.add(int(reader.read_next(int(TIMEOUT_S * 1000)).data().rstrip(b"\0")))
    finally:
        client.close()
    return [f"message {number} is lost {when}" for number in range(MESSAGES) if number not in found][:3]


def _url(broker: BrokerProcess, path: str) -> str:
    return f"{broker.admin_url}/admin/v2/{TOPIC.replace('://', '/')}/{path}"


def offload(broker: BrokerProcess) -> None:
    """Asks for the offload of all closed ledgers; a broker that dies before its answer is fine."""
    with urllib.request.urlopen(_url(broker, "internalStats"), timeout=TIMEOUT_S) as answer:
        ledger_id, entry_id = map(int, json.load(answer)["lastConfirmedEntry"].split(":"))
    body = {"ledgerId": ledger_id, "entryId": entry_id, "partitionIndex": -1}
    request = urllib.request.Request(
        _url(broker, "offload"), json.dumps(body).encode(), {"Content-Type": "application/json"}, method="PUT"
    )
    try:
        urllib.request.urlopen(request, timeout=TIMEOUT_S).close()
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"offload: {error.code} {error.read()!r}") from error
    except (OSError, HTTPException):
        pass


def _skip_all(broker: BrokerProcess) -> None:
    request = urllib.request.Request(_url(broker, f"subscription/{SUBSCRIPTION}/skip_all"), method="POST")
    with suppress(OSError, HTTPException):  # The broker may die before its answer.
        urllib.request.urlopen(request, timeout=TIMEOUT_S).close()


def _all_moved(broker: BrokerProcess) -> bool:
    with urllib.request.urlopen(_url(broker, "offload"), timeout=TIMEOUT_S) as answer:
        status = json.load(answer)
    assert status["status"] != "ERROR", status
    with urllib.request.urlopen(_url(broker, "internalStats"), timeout=TIMEOUT_S) as answer:
        stats = json.load(answer)
    # The ledger with the last entry stays, although it is closed by a restart: the position that was asked for is in it.
    last = int(stats["lastConfirmedEntry"].split(":")[0])
    moved = all(one["offloaded"] for one in stats["ledgers"] if one["ledgerId"] < last)
    return status["status"] == "SUCCESS" and moved


async def left_over(folder: Path, managed_ledger: str, there: set[str]) -> list[str]:
    """Names objects (`there` are all) and ledgers without a reference, and those that are named and missing."""
    info, ledgers = await _stored(folder, managed_ledger)
    copies = [(one.ledger_id, one.offload) for one in info.ledgers if one.offload is not None]
    named = {key(offload.uuid, ledger_id) for ledger_id, offload in copies for key in (data_key, index_key)}
    kept = {
        one.ledger_id for one in info.ledgers if one.offload is None or not one.offload.bookkeeper_deleted
    }
    findings = [f"object {one} has no reference" for one in sorted(there - named)]
    findings += [f"object {one} is missing" for one in sorted(named - there)]
    findings += [f"ledger {one} has no reference" for one in sorted(ledgers - kept - {*info.deleting})]
    findings += [f"ledger {one} is missing" for one in sorted(kept - ledgers)]
    if len(copies) < MESSAGES // 40 - 1:
        findings.append(f"{len(copies)} ledgers are offloaded")
    return findings


async def _stored(folder: Path, managed_ledger: str) -> tuple[ManagedLedgerInfo, set[int]]:
    """Returns the list, and all ledgers of the store."""
    store = SqliteMetadataStore(folder / "data" / "metadata.sqlite")
    try:
        found = await store.get(managed_ledger_key(managed_ledger))
        assert found is not None
        ledgers = {n for n in range(LEDGER_IDS) if await store.get(ledger_key(n)) is not None}
    finally:
        await store.close()
    return decode_ledger_list(found.value), ledgers
