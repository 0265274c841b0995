"""kill -9 at each step of a topic compaction: the view stays whole, and no ledger is left over.

For each point a topic gets messages of some keys, is compacted, gets more, and the broker dies in its second compaction.
After the restart the compacted view, folded by key, is compared with all confirmed messages; so it is after one more
compaction. Then the metadata store may have no ledger that neither the log's list nor the compaction's cursor names.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pulsar

from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from broker.managed_ledger.managed_ledger_info import cursor_key, managed_ledger_key
from broker.managed_ledger.records.pulsar_records import decode_cursor, decode_ledger_list
from broker.service.compaction.topic_compaction import LEDGER_PROPERTY
from broker.service.internal_cursors import COMPACTION_CURSOR
from protocol.ledger_metadata import ledger_key
from tests.crash.broker_process import BrokerProcess
from tests.crash.compaction_broker import ARMED, POINTS
from tests.crash.crash_points import POINT
from tests.crash.every_point import try_points

TOPIC: Final = "persistent://public/default/compacted"
LEDGER: Final = "public/default/persistent/compacted"
SETTINGS: Final = ("managedLedgerMaxEntriesPerLedger=40", "managedLedgerMinLedgerRolloverTimeMinutes=0")
TIMEOUT_S: Final = 300.0
LEDGER_IDS: Final = 3000
"""Ids that are looked up; each start reserves a block of 1,000."""


def main(*, keep: bool, audit: bool = False) -> int:
    """One line per point; 1 when anything is wrong."""
    failed = try_points(POINTS, run_point, keep=keep, audit=audit)
    print(f"{len(POINTS)} points, {failed} failed")
    return 1 if failed else 0


def run_point(point: str, folder: Path) -> list[str]:
    """Returns what is wrong."""
    broker = BrokerProcess(folder, SETTINGS, module="tests.crash.compaction_broker")
    armed = folder / "armed"
    broker.environment = {POINT: point, ARMED: str(armed)}
    try:
        broker.start()
        confirmed = _publish(broker, "a", range(300), 40)
        _compact(broker, lambda: _status(broker) == "SUCCESS")
        confirmed |= _publish(broker, "b", range(200), 30)
        armed.touch()
        _compact(broker, lambda: not broker.alive())
        broker.environment = {}
        broker.start()
        findings = _compare("after the restart", _view(broker), confirmed)
        _compact(broker, lambda: _status(broker) == "SUCCESS")
        findings += _compare("after one more compaction", _view(broker), confirmed)
        if (code := broker.stop()) != 0:
            findings.append(f"SIGTERM ended with exit code {code}")
    finally:
        broker.close()
    return findings + asyncio.run(_left_over(folder))


def _publish(broker: BrokerProcess, mark: str, numbers: range, keys: int) -> dict[str, bytes]:
    """Single messages and batches in turns; returns the last payload of each key."""
    client = pulsar.Client(broker.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    latest: dict[str, bytes] = {}
    try:
        producers = [
            client.create_producer(TOPIC, batching_enabled=batching, batching_max_publish_delay_ms=5)
            for batching in (False, True)
        ]
        for number in numbers:
            key, payload = f"k{number % keys}", f"{mark}{number}".encode()
            # A run of 20 messages goes to one producer, and is confirmed before the other one's begins.
            producer = producers[number // 20 % 2]
            producer.send_async(payload, lambda *_: None, partition_key=key)
            if number % 20 == 19:
                producer.flush()
            latest[key] = payload
        for producer in producers:
            producer.flush()
    finally:
        client.close()
    return latest


def _view(broker: BrokerProcess) -> dict[str, bytes]:
    """The compacted view, folded by key."""
    client = pulsar.Client(broker.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    found: dict[str, bytes] = {}
    try:
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest, is_read_compacted=True)
        while reader.has_message_available():
            message = reader.read_next(60_000)
            # The C++ client delivers the empty places of a batch too, without a key; every message here has one.
            if message.partition_key():
                found[message.partition_key()] = message.data()
    finally:
        client.close()
    return found


def _compare(when: str, found: dict[str, bytes], confirmed: dict[str, bytes]) -> list[str]:
    wrong = sorted(key for key in found.keys() | confirmed.keys() if found.get(key) != confirmed.get(key))
    return [f"{when} {len(wrong)} keys are wrong: {wrong[:5]}"] if wrong else []


def _compact(broker: BrokerProcess, ended: Callable[[], bool]) -> None:
    _ask(broker, "PUT")
    began = time.monotonic()
    while not ended():
        if time.monotonic() - began > TIMEOUT_S:
            raise RuntimeError(f"the compaction does not end: {broker.log_end()}")
        time.sleep(0.02)


def _status(broker: BrokerProcess) -> str:
    return str(_ask(broker, "GET")["status"])


def _ask(broker: BrokerProcess, method: str) -> Any:
    url = f"{broker.admin_url}/admin/v2/{TOPIC.replace('://', '/')}/compaction"
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else None


async def _left_over(folder: Path) -> list[str]:
    """Names ledgers without a reference, and a compacted ledger that is missing."""
    store = SqliteMetadataStore(folder / "data" / "metadata.sqlite")
    try:
        found = await store.get(managed_ledger_key(LEDGER))
        cursor = await store.get(cursor_key(LEDGER, COMPACTION_CURSOR))
        assert found is not None
        assert cursor is not None
        info, used = decode_ledger_list(found.value), decode_cursor(cursor.value).info
        compacted = used.properties[LEDGER_PROPERTY]
        ledgers = {n for n in range(LEDGER_IDS) if await store.get(ledger_key(n)) is not None}
    finally:
        await store.close()
    wanted = {*(one.ledger_id for one in info.ledgers), compacted}
    # A stop may come before a trimmed ledger is deleted; the list then names it, and the next open deletes it.
    findings = [f"ledger {one} has no reference" for one in sorted(ledgers - wanted - {*info.deleting})]
    findings += [f"ledger {one} is missing" for one in sorted(wanted - ledgers)]
    if info.beside != [compacted]:
        findings.append(f"the list names {info.beside} beside it, the cursor names {compacted}")
    return findings
