"""kill -9 at each step of expiry and trimming: no confirmed message is lost, and no ledger is left over.

For each point a topic gets messages in many ledgers. All up to some position expire, and the broker dies while the ledgers
before it are deleted. After the restart every message behind that position is delivered. Expired ones may come again when
the kill was before their acknowledgement was stored. Then the store has no ledger that the log's list does not name, and the
bookie none that the store does not have. At the points with `shadow.` in front the subscription is on a shadow of the topic.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Final

import pulsar

from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from broker.managed_ledger.managed_ledger_info import SHADOW_SOURCE, managed_ledger_key
from broker.managed_ledger.records.pulsar_records import decode_ledger_list
from protocol.ledger_metadata import ledger_key
from tests.crash.bookie_leftovers import left_on_bookie
from tests.crash.broker_process import BrokerProcess
from tests.crash.compaction_broker import ARMED
from tests.crash.crash_points import POINT
from tests.crash.every_point import try_points
from tests.crash.send_groups import send_groups
from tests.crash.trimming_broker import CURSOR, POINTS, SHADOW

TOPIC: Final = "persistent://public/default/trimmed"
LEDGER: Final = "public/default/persistent/trimmed"
SETTINGS: Final = (
    "managedLedgerMaxEntriesPerLedger=40",
    "managedLedgerMinLedgerRolloverTimeMinutes=0",
    "managedLedgerDefaultMarkDeleteRateLimit=0",
)
MESSAGES: Final = 300
EXPIRED: Final = 210
"""Messages that expire; the sixth ledger begins with number 200."""
TIMEOUT_S: Final = 300.0
LEDGER_IDS: Final = 3000
"""Ids that are looked up; each start reserves a block of 1,000."""


def main(*, keep: bool, audit: bool = False) -> int:
    """One line per point; 1 when anything is wrong."""
    points = [*POINTS, *(SHADOW + point for point in POINTS)]
    failed = try_points(points, run_point, keep=keep, audit=audit)
    print(f"{len(points)} points, {len(points) * MESSAGES} confirmed, {failed} failed")
    return 1 if failed else 0


def run_point(point: str, folder: Path) -> list[str]:
    """Returns what is wrong."""
    broker = BrokerProcess(folder, SETTINGS, module="tests.crash.trimming_broker")
    armed = folder / "armed"
    broker.environment = {POINT: point.removeprefix(SHADOW), ARMED: str(armed)}
    front = TOPIC
    try:
        broker.start()
        if point.startswith(SHADOW):
            front = f"{TOPIC}-shadow"
            _request(broker, "PUT", TOPIC, {})
            _request(broker, "PUT", front, {SHADOW_SOURCE: TOPIC})
        position = _publish(broker, front)
        armed.touch()
        _expire(broker, position, front)
        began = time.monotonic()
        while broker.alive():
            if time.monotonic() - began > TIMEOUT_S:
                return [f"the point was not passed: {broker.log_end()}"]
            time.sleep(0.02)
        broker.environment = {}
        broker.start()
        found = _received(broker, front)
        findings = [f"message {number} is lost" for number in range(EXPIRED, MESSAGES) if number not in found]
        # Again, so that the ledgers of a kill before the acknowledgement go too.
        _expire(broker, position, front)
        if (code := broker.stop()) != 0:
            findings.append(f"SIGTERM ended with exit code {code}")
        broker.start()
        findings += [
            f"at the end: {number}"
            for number in range(EXPIRED, MESSAGES)
            if number not in _received(broker, front)
        ][:3]
        broker.stop()
    finally:
        broker.close()
    return findings + asyncio.run(_left_over(folder)) + left_on_bookie(broker.data)


def _client(broker: BrokerProcess) -> pulsar.Client:
    return pulsar.Client(broker.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))


def _publish(broker: BrokerProcess, front: str) -> pulsar.MessageId:
    """Subscribes to `front`, publishes, and returns the position of the last message that will expire."""
    client = _client(broker)
    try:
        client.subscribe(front, CURSOR).close()
        producer = client.create_producer(TOPIC, batching_enabled=False)
        return send_groups(producer, [b"%d" % number for number in range(MESSAGES)])[EXPIRED - 1]
    finally:
        client.close()


def _received(broker: BrokerProcess, front: str) -> set[int]:
    """Receives up to the last message; acknowledges nothing."""
    client = _client(broker)
    found = set[int]()
    try:
        consumer = client.subscribe(front, CURSOR)
        while MESSAGES - 1 not in found:
            found.add(int(consumer.receive(int(TIMEOUT_S * 1000)).data()))
    finally:
        client.close()
    return found


def _request(broker: BrokerProcess, method: str, path: str, body: Mapping[str, object]) -> None:
    url = f"{broker.admin_url}/admin/v2/{path.replace('://', '/')}"
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method
    )
    urllib.request.urlopen(request, timeout=TIMEOUT_S).close()


def _expire(broker: BrokerProcess, position: pulsar.MessageId, front: str) -> None:
    body = {"ledgerId": position.ledger_id(), "entryId": position.entry_id(), "partitionIndex": -1}
    try:
        _request(broker, "POST", f"{front}/subscription/{CURSOR}/expireMessages", body)
    except urllib.error.HTTPError as error:
        if error.code != 409:  # nothing is left to expire
            raise
    except (OSError, HTTPException):
        pass  # the broker died before its answer


async def _left_over(folder: Path) -> list[str]:
    """As `ledgers_left_over`, and a finding where nothing was trimmed."""
    findings = await ledgers_left_over(folder, LEDGER)
    count = len((await _stored(folder, LEDGER))[0])
    return [*findings, f"{count} ledgers are left, nothing was trimmed"] if count > 4 else findings


async def ledgers_left_over(folder: Path, managed_ledger: str) -> list[str]:
    """Names ledgers without a reference, and those of the list that are missing."""
    wanted, deleting, ledgers = await _stored(folder, managed_ledger)
    findings = [f"ledger {one} has no reference" for one in sorted(ledgers - wanted - deleting)]
    return findings + [f"ledger {one} is missing" for one in sorted(wanted - ledgers)]


async def _stored(folder: Path, managed_ledger: str) -> tuple[set[int], set[int], set[int]]:
    """Returns the ledgers of the list, those that it deletes, and all ledgers of the store."""
    store = SqliteMetadataStore(folder / "data" / "metadata.sqlite")
    try:
        found = await store.get(managed_ledger_key(managed_ledger))
        assert found is not None
        info = decode_ledger_list(found.value)
        ledgers = {n for n in range(LEDGER_IDS) if await store.get(ledger_key(n)) is not None}
    finally:
        await store.close()
    return {one.ledger_id for one in info.ledgers}, {*info.deleting}, ledgers
