"""AutoRecovery in a simulation: processes with auditor and worker that die, lose their sessions, and are replaced."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Protocol

from bookkeeper.ensembles.ledgers import Ledgers
from bookkeeper.repair.auditor import Auditor
from bookkeeper.repair.copying import Copying
from bookkeeper.repair.marks import Marks
from bookkeeper.repair.pace import CopyPace
from bookkeeper.repair.stats import RecoveryStats
from bookkeeper.repair.worker import ReplicationWorker
from foundation.model.errors import BrokerError, MetadataError
from magnetar.process.recovery_settings import AutoRecoverySettings
from tests.sim.bookie import SimBookie
from tests.sim.loop import SimLoop
from tests.sim.metadata import SharedState, SimMetadataStore
from tests.sim.network import Client

SESSION_S = 1.0
GRACE_NS = 500_000_000
PROCESSES_MAX = 30


class Cluster(Protocol):
    """The simulation, as AutoRecovery uses it."""

    loop: SimLoop
    bookies: list[SimBookie]

    @property
    def state(self) -> SharedState:
        """Returns what all clients share."""
        ...

    def ledgers_of(self, client: Client) -> Ledgers:
        """Returns the ledgers as the client sees them."""
        ...

    def note(self, text: str) -> None:
        """Takes a line of the history."""
        ...


class SimLocks:
    """The locks of all clients; one ends some time after its client died, or is taken away with its session."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self.owners: dict[int, object] = {}

    async def take(self, client: Client, ledger_id: int) -> SimLock | None:
        await self.travel(client)
        if ledger_id in self.owners:
            return None
        lock = SimLock(self, client, ledger_id)
        self.owners[ledger_id] = lock
        await self.travel(client)
        return lock

    async def travel(self, client: Client) -> None:
        await asyncio.sleep(self._rng.uniform(0.0005, 0.005))
        if client.crashed:
            await asyncio.get_running_loop().create_future()
        # Not after the calm, or the last worker would fail for ever.
        if self._rng.random() < self._cluster.state.error_rate:
            raise MetadataError("connection to the metadata store lost")

    def expire(self, client: Client) -> None:
        """Ends the client's session: its locks are free, whatever it believes."""
        for ledger_id, owner in list(self.owners.items()):
            if isinstance(owner, SimLock) and owner.client is client:
                del self.owners[ledger_id]


class SimLock:
    def __init__(self, locks: SimLocks, client: Client, ledger_id: int) -> None:
        self._locks = locks
        self.client = client
        self._ledger_id = ledger_id

    async def is_held(self) -> bool:
        await self._locks.travel(self.client)
        return self._locks.owners.get(self._ledger_id) is self

    async def release(self) -> None:
        if self._locks.owners.get(self._ledger_id) is self:
            # The request is sent in any case: a release that fails leaves the lock to the end of the session.
            del self._locks.owners[self._ledger_id]


@dataclass
class LocksOf:
    """`Locks` of one client."""

    locks: SimLocks
    client: Client

    async def take(self, ledger_id: int) -> SimLock | None:
        return await self.locks.take(self.client, ledger_id)


class Processes:
    """The processes with auditor and worker."""

    def __init__(self, cluster: Cluster, rng: random.Random, last_s: float) -> None:
        """`last_s`: a process dies at most so many seconds after its start, if it does."""
        self.cluster = cluster
        self.rng = rng
        self.locks = SimLocks(cluster, rng)
        self.stats = RecoveryStats()
        self.tasks: list[asyncio.Task[None]] = []
        self.clients: list[Client] = []
        """One for each process."""
        self._last_s = last_s
        self._is_calm = False

    def spawn(self, number: int) -> None:
        """A process with auditor and worker; it dies after a while, loses its session, or stays."""
        if self._is_calm:
            return
        client = Client(f"autorecovery-{len(self.clients)}")
        self.clients.append(client)
        task = self.cluster.loop.create_task(self._process(client), name=client.name)
        self.tasks.append(task)
        fate = self.rng.random()
        at_s = self.rng.choice((self.rng.uniform(0.0, 0.3), self.rng.uniform(0.0, self._last_s)))
        if fate < 0.6:
            self.cluster.loop.call_later(at_s, self._kill, client, number)
        elif fate < 0.8:
            self.cluster.loop.call_later(at_s, self._expire, client)

    def _kill(self, client: Client, number: int) -> None:
        self.cluster.note(f"{client.name} dies")
        client.crashed = True
        self.cluster.loop.call_later(SESSION_S, self.locks.expire, client)
        if not self._is_calm and len(self.clients) < PROCESSES_MAX:
            self.cluster.loop.call_later(self.rng.uniform(0.0, 1.0), self.spawn, number)

    def _expire(self, client: Client) -> None:
        self.cluster.note(f"the session of {client.name} has expired")
        self.locks.expire(client)

    def calm(self) -> None:
        """Ends every process; none begins any more."""
        self._is_calm = True
        for client in self.clients:
            client.crashed = True
            self.locks.expire(client)

    def parts(self, client: Client) -> tuple[Auditor, ReplicationWorker, Marks]:
        """Returns what one process has."""
        cluster = self.cluster
        ledgers = cluster.ledgers_of(client)
        store = SimMetadataStore(cluster.state, client)
        marks = Marks(store)
        now_ns = cluster.loop.now_ns
        settings = AutoRecoverySettings(
            open_ledger_grace_ns=GRACE_NS, backoff_ns=100_000_000, backoff_ns_max=10**9
        )
        means = Copying(
            ledgers.bookies, CopyPace(0), self.rng.choice((1, 1, 5, 100)), now_ns, self.stats.worker
        )
        worker = ReplicationWorker(
            store,
            ledgers.bookies,
            marks,
            LocksOf(self.locks, client),
            self._registered,
            settings,
            means,
            call_soon=cluster.loop.call_soon,
            spawn=cluster.loop.create_task,
            shuffle=self.rng.shuffle,
        )
        auditor = Auditor(
            store,
            ledgers.bookies,
            marks,
            self._registered,
            settings,
            self.stats.auditor,
            now_ns=now_ns,
            wall_ms=lambda: now_ns() // 1_000_000,
        )
        return auditor, worker, marks

    async def _registered(self) -> frozenset[str]:
        await asyncio.sleep(self.rng.uniform(0.0005, 0.005))
        return frozenset(bookie.address for bookie in self.cluster.bookies if bookie.up)

    async def _process(self, client: Client) -> None:
        auditor, worker, marks = self.parts(client)
        while not client.crashed:
            try:
                await marks.prepare(0)
                await auditor.look()
                await worker.work()
            except BrokerError as error:
                self.cluster.note(f"{client.name}: {error}")
            await asyncio.sleep(0.1)
