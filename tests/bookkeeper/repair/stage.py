"""A cluster in memory with auditor and worker, and a clock turned by hand."""

from __future__ import annotations

import asyncio

from bookkeeper.ensembles.own_ledger import OwnLedger, read_metadata
from bookkeeper.repair.auditor import Auditor
from bookkeeper.repair.copying import Copying
from bookkeeper.repair.marks import Marks
from bookkeeper.repair.pace import CopyPace
from bookkeeper.repair.stats import RecoveryStats
from bookkeeper.repair.worker import ReplicationWorker
from broker.compose.ledger_settings import LedgerSettings
from magnetar.process.recovery_settings import AutoRecoverySettings
from protocol.ledger_metadata import LedgerMetadata
from tests.bookkeeper.ensembles.ensemble_fakes import LEDGER, OK, Cluster, turns

SECOND_NS = 1_000_000_000
GRACE_NS = 30 * SECOND_NS


class MemoryLocks:
    """Locks in a set; `stolen` makes a lock's owner lose it while it works."""

    def __init__(self) -> None:
        self.taken: set[int] = set()
        self.stolen = False

    async def take(self, ledger_id: int) -> MemoryLock | None:
        if ledger_id in self.taken:
            return None
        self.taken.add(ledger_id)
        return MemoryLock(self, ledger_id)


class MemoryLock:
    def __init__(self, locks: MemoryLocks, ledger_id: int) -> None:
        self._locks = locks
        self._ledger_id = ledger_id

    async def is_held(self) -> bool:
        return not self._locks.stolen

    async def release(self) -> None:
        self._locks.taken.discard(self._ledger_id)


class Stage:
    """`lost` bookies do not answer and are not registered."""

    def __init__(self, bookies: int, settings: LedgerSettings, **keys: int) -> None:
        self.cluster = Cluster(bookies, settings)
        self.store = self.cluster.metadata
        self.marks = Marks(self.store)
        self.locks = MemoryLocks()
        self.stats = RecoveryStats()
        self.lost: set[int] = set()
        self.wall_ms = 1_700_000_000_000
        self.settings = AutoRecoverySettings(open_ledger_grace_ns=GRACE_NS, **keys)
        loop = asyncio.get_running_loop()
        self.worker = ReplicationWorker(
            self.store,
            self.cluster.set,
            self.marks,
            self.locks,
            self.registered,
            self.settings,
            Copying(self.cluster.set, CopyPace(0), 7, self.now_ns, self.stats.worker),
            call_soon=loop.call_soon,
            spawn=loop.create_task,
        )
        self.auditor = Auditor(
            self.store,
            self.cluster.set,
            self.marks,
            self.registered,
            self.settings,
            self.stats.auditor,
            now_ns=self.now_ns,
            wall_ms=lambda: self.wall_ms,
        )

    def now_ns(self) -> int:
        return self.cluster.now_ns

    def wait(self, seconds: float) -> None:
        self.cluster.now_ns += int(seconds * SECOND_NS)
        self.wall_ms += int(seconds * 1000)

    async def registered(self) -> frozenset[str]:
        return frozenset(name for number, name in enumerate(self.cluster.names) if number not in self.lost)

    def lose(self, *numbers: int) -> None:
        for number in numbers:
            bookie = self.cluster.bookies[number]
            bookie.reachable = False
            bookie.rc = 101
            bookie.close_now()
            self.lost.add(number)

    async def written(self, count: int, *, closed: bool = True) -> OwnLedger:
        await self.marks.prepare(0)
        own = await self.cluster.begin()
        self.cluster.add(*range(count))
        await turns()
        assert [rc for _, rc in self.cluster.answers] == [OK] * count
        if closed:
            await own.close(count - 1, sum(len(b"body %d" % each) for each in range(count)))
        return own

    async def metadata(self) -> LedgerMetadata:
        found = await read_metadata(self.store, LEDGER)
        assert found is not None
        return found[0]

    async def marked(self) -> list[int]:
        return [ledger_id async for ledger_id in self.marks.ledgers()]

    def has(self) -> list[list[int]]:
        return [bookie.has for bookie in self.cluster.bookies]
