"""A process that marks ledgers of a lost bookie and copies them, and dies, or kills a bookie, at a named point.

`python -m tests.crash.rereplication_process FOLDER LOST`: the folder has the metadata store, and `bookies.json` with the
pid of each bookie by address. `CRASH_POINT` names the point and `CRASH_COUNT` the time at which it acts.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bookkeeper.client.bookkeeper import BookKeeperLedgerClient
from bookkeeper.ensembles.bookies import BookieSet
from bookkeeper.ensembles.own_ledger import RecoveringLedger
from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from bookkeeper.repair import copying, worker
from bookkeeper.repair.auditor import Auditor
from bookkeeper.repair.copying import Copying
from bookkeeper.repair.marks import Marks
from bookkeeper.repair.pace import CopyPace
from bookkeeper.repair.stats import RecoveryStats
from bookkeeper.repair.worker import ReplicationWorker
from broker.compose.ledger_settings import QuarantineSettings
from foundation.loop import clock
from foundation.loop.turn import Turn
from magnetar.process.recovery_settings import AutoRecoverySettings

POINT, COUNT = "CRASH_POINT", "CRASH_COUNT"
WORKER_POINTS: Final = (
    "mark.added",
    "lock.taken",
    "ledger.fenced",
    "ledger.closed",
    "batch.read",
    "batch.sent",
    "batch.answered",
    "fragment.copied",
    "ensemble.stored",
    "copies.looked-at",
    "mark.removed",
)
"""The process kills itself behind each of these steps."""
BOOKIE_POINTS: Final = ("kill.source", "kill.target")
"""The process kills a bookie: the one that is read from, or the one that is written to."""


class Points:
    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids
        self._point = os.environ.get(POINT, "")
        self._left = int(os.environ.get(COUNT, "1"))

    def passed(self, point: str, bookie: str = "") -> None:
        if point != self._point:
            return
        self._left -= 1
        if self._left == 0:
            os.kill(self._pids[bookie] if bookie else os.getpid(), signal.SIGKILL)


class Locks:
    """They end with the process."""

    def __init__(self, points: Points) -> None:
        self._points = points

    async def take(self, ledger_id: int) -> Locks:
        self._points.passed("lock.taken")
        return self

    async def is_held(self) -> bool:
        self._points.passed("copies.looked-at")
        return True

    async def release(self) -> None:
        """Nothing to release."""


def plant(points: Points) -> None:
    """Puts the points behind the steps of worker and copy."""

    def behind(owner: object, name: str, passed: Callable[..., None]) -> None:
        plain = getattr(owner, name)

        async def step(*values: object, **named: object) -> object:
            outcome = await plain(*values, **named)
            passed(*values)
            return outcome

        setattr(owner, name, step)

    behind(Marks, "add", lambda *_: points.passed("mark.added"))
    behind(Marks, "remove", lambda *_: points.passed("mark.removed"))
    behind(worker, "recover", lambda *_: points.passed("ledger.closed"))
    behind(RecoveringLedger, "take_over", lambda *_: points.passed("ledger.fenced"))
    behind(worker, "copy_fragment", lambda *_: points.passed("fragment.copied"))
    behind(ReplicationWorker, "_store_ensemble", lambda *_: points.passed("ensemble.stored"))
    behind(copying._Copy, "_move", lambda *_: points.passed("batch.answered"))
    sources, write = copying._Copy._sources, copying._Copy._write

    def asked(self: copying._Copy, entry_id: int) -> list[str]:
        found = sources(self, entry_id)
        points.passed("kill.source", found[0])
        return found

    def sent(self: copying._Copy, *values: object) -> object:
        points.passed("batch.read")
        points.passed("kill.target", self._target)
        batch = write(self, *values)  # type: ignore[arg-type]
        # The adds leave at the end of the turn.
        asyncio.get_running_loop().call_later(0.01, points.passed, "batch.sent")
        return batch

    copying._Copy._sources = asked  # type: ignore[method-assign]
    copying._Copy._write = sent  # type: ignore[assignment, method-assign]


async def main(folder: Path, lost: str) -> None:
    pids: dict[str, int] = json.loads((folder / "bookies.json").read_text())
    points = Points(pids)
    plant(points)
    loop = asyncio.get_running_loop()
    turn = Turn(loop.call_soon, clock.monotonic_ns)

    def connect(address: str) -> BookKeeperLedgerClient:
        return BookKeeperLedgerClient(address, turn=turn, frame_bytes_max=5 << 20, timeout_s=5.0)

    bookies = BookieSet(pids, connect, now_ns=clock.monotonic_ns, quarantine=QuarantineSettings())
    store = SqliteMetadataStore(folder / "metadata.sqlite")

    async def registered() -> frozenset[str]:
        return frozenset(pids) - {lost}

    stats = RecoveryStats()
    marks = Marks(store)
    settings = AutoRecoverySettings(
        open_ledger_grace_ns=0, backoff_ns=100_000_000, backoff_ns_max=500_000_000
    )
    means = Copying(bookies, CopyPace(0), 10, clock.monotonic_ns, stats.worker)
    replication = ReplicationWorker(
        store,
        bookies,
        marks,
        Locks(points),
        registered,
        settings,
        means,
        call_soon=loop.call_soon,
        spawn=loop.create_task,
    )
    auditor = Auditor(
        store,
        bookies,
        marks,
        registered,
        settings,
        stats.auditor,
        now_ns=clock.monotonic_ns,
        wall_ms=clock.wall_ms,
    )
    while len(bookies.reachable()) < len(pids) - 1:  # noqa: ASYNC110 - connections are made in the background
        await asyncio.sleep(0.01)
    await marks.prepare(0)
    await auditor.look()
    while [ledger_id async for ledger_id in marks.ledgers()]:
        await replication.work()
        await asyncio.sleep(0.02)
    await bookies.close()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
