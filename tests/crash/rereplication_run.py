"""Part of `python -m tests.crash --bookie`: re-replication, killed behind each of its steps, and bookies killed under it.

For each point three ledgers are on a bookie that is lost: one whose bookies have all entries, a striped one, and an open
one. The process dies at the point, or kills the bookie it reads from or writes to; dead bookies are started again, and
another process ends the work. Then every bookie that the metadata names is asked for every entry that it must have.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from bookkeeper.client.bookkeeper import BookKeeperLedgerClient
from bookkeeper.client.digest import DEFAULT_DIGEST
from bookkeeper.ensembles.bookies import BookieSet
from bookkeeper.ensembles.ensemble_writer import EnsembleWriter
from bookkeeper.ensembles.own_ledger import OwnLedger, read_metadata
from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from bookkeeper.repair.fragments import bookies_needed, fragments_of
from bookkeeper.repair.marks import Marks
from bookkeeper.repair.replicas import read_entry
from broker.compose.ledger_settings import QuarantineSettings
from foundation.loop import clock
from foundation.loop.turn import Turn
from protocol.ledger_metadata import LedgerMetadata, LedgerSegment, LedgerState
from tests.crash.broker_process import ROOT
from tests.crash.rereplication_process import BOOKIE_POINTS, COUNT, POINT, WORKER_POINTS
from tests.support.bookies import BookieProcesses

POINTS: Final = (*WORKER_POINTS, *BOOKIE_POINTS)
ENTRIES: Final = 50
END_S: Final = 120.0
ONCE: Final = ("mark.added", "lock.taken", "ledger.fenced", "ledger.closed", "mark.removed")
"""Points that three ledgers pass once or a few times."""


class Outcome(NamedTuple):
    point: str
    passed: int
    entries: int
    """Copies that were asked for afterwards."""
    findings: list[str]

    def text(self) -> str:
        verdict = "ok" if not self.findings else "FAILED"
        return f"rereplication {self.point:<18} x{self.passed}  {self.entries:5d} copies asked for  {verdict}"


def run(points: Sequence[str], seed: int, folder: Path) -> list[Outcome]:
    lot = random.Random(seed)
    outcomes = []
    for point in points:
        count = 1 if point in ONCE else lot.randint(1, 3)
        place = folder / f"rereplication-{point}"
        place.mkdir(parents=True)
        outcome = asyncio.run(_at(point, count, place))
        print(outcome.text(), flush=True)
        for finding in outcome.findings[:10]:
            print(f"    {finding}", flush=True)
        outcomes.append(outcome)
    print(
        f"{len(points)} points of re-replication, {sum(each.entries for each in outcomes)} copies asked for,"
        f" {sum(len(each.findings) for each in outcomes)} findings"
    )
    return outcomes


async def _at(point: str, count: int, folder: Path) -> Outcome:
    with BookieProcesses(folder, 5) as processes:
        lost = processes.addresses[0]
        cluster = _Cluster(folder, processes.addresses)
        await cluster.write()
        processes.bookies[0].kill()
        pids = {bookie.address: bookie.pid for bookie in processes.bookies[1:]}
        (folder / "bookies.json").write_text(json.dumps({lost: 0, **pids}))
        findings: list[str] = []
        process = _spawn(folder, lost, {POINT: point, COUNT: str(count)})
        expected = 0 if point in BOOKIE_POINTS else -signal.SIGKILL
        if point in BOOKIE_POINTS:
            await _restart_the_dead(processes, process)
        if await asyncio.to_thread(process.wait, END_S) != expected:
            findings.append(f"ended with {process.returncode} instead of {expected}: {_log_end(folder)}")
        process = _spawn(folder, lost, {})
        if await asyncio.to_thread(process.wait, END_S) != 0:
            findings.append(f"the second process ended with {process.returncode}: {_log_end(folder)}")
        cluster = _Cluster(folder, processes.addresses)
        asked, more = await cluster.judge(lost)
        return Outcome(point, count, asked, findings + more)


async def _restart_the_dead(processes: BookieProcesses, worker: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + END_S
    while worker.poll() is None and time.monotonic() < deadline:
        for bookie in processes.bookies[1:]:
            if not bookie.alive:
                bookie.spawn()
                await asyncio.to_thread(bookie.wait_ready)
                return
        await asyncio.sleep(0.02)


def _spawn(folder: Path, lost: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.crash.rereplication_process", str(folder), lost],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=log,
            stderr=log,
        )


def _log_end(folder: Path) -> str:
    return " | ".join((folder / "log").read_text(errors="replace").splitlines()[-3:])


class _Cluster:
    """The test's own connections, for one step."""

    def __init__(self, folder: Path, addresses: list[str]) -> None:
        loop = asyncio.get_running_loop()
        turn = Turn(loop.call_soon, clock.monotonic_ns)

        def connect(address: str) -> BookKeeperLedgerClient:
            return BookKeeperLedgerClient(address, turn=turn, frame_bytes_max=5 << 20)

        self._store = SqliteMetadataStore(folder / "metadata.sqlite")
        self._bookies = BookieSet(
            addresses, connect, now_ns=clock.monotonic_ns, quarantine=QuarantineSettings()
        )
        self._addresses = addresses

    async def _until_reachable(self, count: int) -> None:
        async with asyncio.timeout(END_S):
            while len(self._bookies.reachable()) < count:  # noqa: ASYNC110 - connections come in the background
                await asyncio.sleep(0.01)

    async def write(self) -> None:
        await self._until_reachable(len(self._addresses))
        first, second, third, *_ = self._addresses
        for ledger_id, members in enumerate(((first, second), (second, third, first), (second, first))):
            metadata = LedgerMetadata(
                (LedgerSegment(members),), ensemble_size=len(members), write_quorum=2, ack_quorum=2
            )
            own, _ = await OwnLedger.create(self._store, ledger_id, metadata, lambda *_: None)
            await self._add(own)
            if ledger_id < 2:
                await own.close(ENTRIES - 1, sum(len(_payload(ledger_id, each)) for each in range(ENTRIES)))
        await self._close()

    async def _add(self, own: OwnLedger) -> None:
        loop = asyncio.get_running_loop()
        writer = EnsembleWriter(own, self._bookies, call_soon=loop.call_soon, spawn=loop.create_task)
        answers: list[asyncio.Future[int]] = [loop.create_future() for _ in range(ENTRIES)]
        length = 0
        for entry_id, answer in enumerate(answers):
            body = _payload(own.ledger_id, entry_id)
            length += len(body)
            writer.add(
                own.ledger_id,
                (entry_id,),
                [DEFAULT_DIGEST.seal(own.ledger_id, entry_id, entry_id - 1, length, b"", body)],
                master_key=DEFAULT_DIGEST.master_key,
                recovery=False,
                done=partial(_settle, answer),
            )
        assert set(await asyncio.gather(*answers)) == {0}

    async def judge(self, lost: str) -> tuple[int, list[str]]:
        """Asks every bookie for all that it must have; returns the number of questions and what is wrong."""
        await self._until_reachable(len(self._addresses) - 1)
        findings = [f"ledger {each} is marked" async for each in Marks(self._store).ledgers()]
        asked = 0
        for ledger_id in range(3):
            found = await read_metadata(self._store, ledger_id)
            assert found is not None
            metadata = found[0]
            if (metadata.state, metadata.last_entry_id) != (LedgerState.CLOSED, ENTRIES - 1):
                findings.append(f"ledger {ledger_id} is {metadata}")
                continue
            if lost in bookies_needed(metadata):
                findings.append(f"ledger {ledger_id} needs the lost bookie: {metadata.segments}")
            for fragment in fragments_of(metadata):
                for position, member in enumerate(fragment.segment.members):
                    for entry_id in fragment.entries_at(position):
                        asked += 1
                        findings += await self._look(ledger_id, entry_id, member)
        await self._close()
        return asked, findings

    async def _look(self, ledger_id: int, entry_id: int, member: str) -> list[str]:
        stored = await read_entry(self._bookies, member, ledger_id, entry_id, DEFAULT_DIGEST)
        if stored is None:
            return [f"{member} lacks {ledger_id}:{entry_id}"]
        if bytes(DEFAULT_DIGEST.check(ledger_id, entry_id, stored)) != _payload(ledger_id, entry_id):
            return [f"{member} has another entry {ledger_id}:{entry_id}"]
        return []

    async def _close(self) -> None:
        await self._bookies.close()
        await self._store.close()


def _payload(ledger_id: int, entry_id: int) -> bytes:
    return b"%d:%d " % (ledger_id, entry_id) * 40


def _settle(answer: asyncio.Future[int], rc: int, _entry_id: int) -> None:
    answer.set_result(rc)
