"""kill -9 at each step of a quarantine: each leak stays until it is exported, and repeating the action goes on.

For each point a topic is leaked: somebody removes the node with its list, so its ledger, cursor and schema are left. An
operator puts them into quarantine, one back, all in again, exports and deletes them. One of these processes dies at the
point, or the broker does while it deletes the ledger; the operator repeats the action. In the end the audit finds nothing,
the exports have every message, and the other topic has all of its own.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Final

import pulsar

from bookkeeper.leaks.quarantine import LEDGERS, NODES, ledger_record_key, node_record_key
from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from magnetar.audit.quarantine import export_path
from protocol.ledger_metadata import ledger_key
from tests.crash.broker_process import ROOT, BrokerProcess
from tests.crash.compaction_broker import ARMED
from tests.crash.crash_points import POINT
from tests.crash.every_point import try_points
from tests.crash.quarantine_process import POINTS as OPERATOR_POINTS
from tests.crash.send_groups import send_groups

BROKER_POINTS: Final = ("broker.delete.before", "broker.delete.after")
"""The broker dies around its deletion of the ledger, before the record of the quarantine goes."""
POINTS: Final = (*OPERATOR_POINTS, *BROKER_POINTS)
MESSAGES: Final = 12
LIST: Final = "/managed-ledgers/public/default/persistent/"
LEAKED, KEPT = "leaked", "kept"
CURSOR: Final = f"{LIST}{LEAKED}/s"
TIMEOUT_S: Final = 300.0
SETTINGS: Final = ("brokerDeleteInactiveTopicsEnabled=false", "managedLedgerDefaultMarkDeleteRateLimit=0")


def main(*, keep: bool, audit: bool = False) -> int:
    """One line per point; 1 when anything is wrong."""
    failed = try_points(POINTS, run_point, keep=keep, audit=audit)
    print(f"{len(POINTS)} points, {2 * len(POINTS) * MESSAGES} confirmed, {failed} failed")
    return 1 if failed else 0


def run_point(point: str, folder: Path) -> list[str]:
    """Returns what is wrong."""
    run = _Run(point, folder)
    try:
        run.plant()
        for action, flags in run.actions():
            run.act(action, flags)
        return run.findings + run.judge()
    finally:
        run.broker.close()


class _Run:
    """One point."""

    def __init__(self, point: str, folder: Path) -> None:
        self.findings: list[str] = []
        self._point = point
        self._armed = folder / "armed"
        self._copies = folder / "copies"
        self.broker = BrokerProcess(folder, SETTINGS, module="tests.crash.trimming_broker")
        self._store = self.broker.data / "metadata.sqlite"
        self._ledger = -1
        self._passed = False

    def plant(self) -> None:
        """Publishes to two topics, closes one, and removes its list."""
        if self._point in BROKER_POINTS:
            self.broker.environment = {POINT: self._point.removeprefix("broker."), ARMED: str(self._armed)}
        self.broker.start()
        client = pulsar.Client(
            self.broker.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
        )
        try:
            for name in (KEPT, LEAKED):
                client.subscribe(f"persistent://public/default/{name}", "s").close()
                producer = client.create_producer(
                    f"persistent://public/default/{name}",
                    schema=pulsar.schema.StringSchema(),
                    batching_enabled=False,
                )
                ids = send_groups(producer, [f"{name}-{number}" for number in range(MESSAGES)])
                self._ledger = ids[-1].ledger_id()
        finally:
            client.close()
        url = f"{self.broker.admin_url}/admin/v2/persistent/public/default/{LEAKED}/unload"
        urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=TIMEOUT_S).close()
        asyncio.run(self._remove(LIST + LEAKED))

    def actions(self) -> list[tuple[str, list[str]]]:
        """Returns the operator's actions in order, each with its flags."""
        copies = str(self._copies)
        return [
            ("quarantine", ["--quarantine"]),
            ("put-back", ["--put-back", CURSOR]),
            ("quarantine", ["--quarantine"]),
            ("export", ["--export", copies]),
            ("delete", ["--delete", copies]),
        ]

    def act(self, action: str, flags: list[str]) -> None:
        """Runs the action; one that dies at the point is repeated."""
        here = not self._passed and self._point.startswith(f"{action}.")
        broker_dies = not self._passed and action == "delete" and self._point in BROKER_POINTS
        if broker_dies:
            self._armed.touch()
        code = self._operator(flags, self._point if here else None)
        if broker_dies:
            self._passed = True
            self._armed.unlink()
            if self.broker.alive():
                self.findings.append("the point was not passed")
                return
            self.broker.environment = {}
            self.broker.start()
        elif here:
            self._passed = True
            if code != -signal.SIGKILL:
                self.findings.append(f"the point was not passed: exit code {code}")
        self.findings += asyncio.run(self._lost())
        if here or broker_dies:
            self._operator(flags, None)

    def _operator(self, flags: list[str], point: str | None) -> int:
        environment = {**os.environ, **({} if point is None else {POINT: point})}
        command = [sys.executable, "-m", "tests.crash.quarantine_process", "admin", "audit"]
        where = [
            "--metadata-url",
            f"file:{self._store}",
            "--admin-url",
            self.broker.admin_url,
            "--pause",
            "0.05",
        ]
        done = subprocess.run(
            [*command, *where, *flags],
            cwd=ROOT,
            env=environment,
            check=False,
            capture_output=True,
            timeout=TIMEOUT_S,
        )
        return done.returncode

    async def _remove(self, key: str) -> None:
        store = SqliteMetadataStore(self._store)
        await store.delete(key)
        await store.close()

    async def _lost(self) -> list[str]:
        """Names leaks that are neither in their place, nor in quarantine, nor exported."""
        store = SqliteMetadataStore(self._store)
        try:
            pairs = ((CURSOR, CURSOR), (str(self._ledger), ledger_key(self._ledger)))
            return [
                f"{subject} is lost"
                for subject, place in pairs
                if await store.get(place) is None
                and (subject.isdecimal() or await store.get(node_record_key(subject)) is None)
                and not export_path(self._copies, subject).is_file()
            ]
        finally:
            await store.close()

    def judge(self) -> list[str]:
        """Returns what is wrong in the end."""
        findings = []
        if (code := self._operator([], None)) != 0:
            findings.append(f"the audit ended with {code}")
        if left := asyncio.run(self._left()):
            findings.append(f"left: {left}")
        copy = json.loads(export_path(self._copies, str(self._ledger)).read_text())
        found = [base64.b64decode(one).rpartition(b"leaked-")[2] for one in copy["entries"]]
        if found != [b"%d" % number for number in range(MESSAGES)]:
            findings.append(f"the export has {found}")
        client = pulsar.Client(
            self.broker.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
        )
        try:
            consumer = client.subscribe(f"persistent://public/default/{KEPT}", "s")
            received = [consumer.receive(int(TIMEOUT_S * 1000)).data() for _ in range(MESSAGES)]
        finally:
            client.close()
        if received != [b"kept-%d" % number for number in range(MESSAGES)]:
            findings.append("confirmed messages are lost")
        if (code := self.broker.stop()) != 0:
            findings.append(f"SIGTERM ended with exit code {code}")
        return findings

    async def _left(self) -> list[str]:
        store = SqliteMetadataStore(self._store)
        try:
            keys = (ledger_key(self._ledger), ledger_record_key(self._ledger), CURSOR)
            left = [key for key in keys if await store.get(key) is not None]
            return left + [name for root in (LEDGERS, NODES) for name in await store.children(root)]
        finally:
            await store.close()
