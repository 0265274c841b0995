"""The simulation's writer: it adds, reads what it was told is there, and remembers when it sent and heard what."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from bookkeeper.ensembles.ledger_handle import Added, LedgerHandle
from bookkeeper.ensembles.own_ledger import OwnLedger
from foundation.loop.turn import Turn
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError, NoSuchEntry, NoSuchLedger
from tests.sim.metadata import LEDGER, Broken
from tests.sim.network import Client

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

BYTES_MAX = 1 << 20


class Writer:
    """Adds numbered entries, reads some of what was acknowledged, and closes the ledger behind a failure or the end."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._client = Client("writer")
        self.sent: list[bytes] = []
        self.acked: dict[int, bytes] = {}
        self.sent_s: list[float] = []
        self.acked_s: dict[int, float] = {}
        """When."""
        self.own: OwnLedger | None = None
        self._failed = False
        self._idle = asyncio.Event()

    def crash(self) -> None:
        self._simulation.note("writer dies")
        self._client.crashed = True

    def length_at(self, entry_id: int) -> int:
        return sum(map(len, self.sent[: entry_id + 1]))

    async def run(self) -> None:
        simulation, plan = self._simulation, self._simulation.plan
        ledgers = simulation.ledgers_of(self._client)
        while self.own is None:
            try:
                self.own = await ledgers.create(LEDGER, {})
            except BrokerError as error:
                simulation.note(f"writer: no ledger: {error}")
                await asyncio.sleep(0.2)
        turn = Turn(simulation.loop.call_soon, simulation.loop.now_ns)
        handle = LedgerHandle(LEDGER, ledgers.writer(self.own), turn, self, ledgers.digest)
        while len(self.sent) < plan.entries:
            if self._failed or self._client.crashed:
                break
            run = []
            for _ in range(min(simulation.rng.choice((1, 1, 2, 5)), plan.entries - len(self.sent))):
                run.append(b"%d:" % len(self.sent) + simulation.rng.randbytes(simulation.rng.randint(0, 40)))
                self.sent.append(run[-1])
                self.sent_s.append(simulation.loop.time())
            handle.add([b""] * len(run), run, 1, None, simulation.loop.now_ns())
            if self.acked and simulation.rng.random() < 0.2:
                wanted = simulation.rng.randrange(len(self.acked))
                ledgers.read(LEDGER, wanted, wanted, BYTES_MAX, partial(self._read, wanted))
            await asyncio.sleep(simulation.rng.expovariate(1 / plan.pause_s))
        while handle.pending and not self._client.crashed:
            self._idle.clear()
            await self._idle.wait()
        if self._client.crashed or not (plan.writer_closes or self._failed):
            return
        try:
            await self.own.close(handle.last_confirmed, sum(map(len, self.acked.values())))
            simulation.note(f"writer: closed at {handle.last_confirmed}")
        except BrokerError as error:
            simulation.note(f"writer: not closed: {error}")

    def _read(self, wanted: int, entries: list[Entry], error: BrokerError | None) -> None:
        if error is None:
            found = [bytes(entry.body) for entry in entries]
            if found != [self.acked[wanted]]:
                self._simulation.broken = Broken(f"entry {wanted} reads {found}")
        elif isinstance(error, NoSuchEntry | NoSuchLedger) and not (
            self._simulation.state.deleted or any(bookie.lost_disk for bookie in self._simulation.bookies)
        ):
            self._simulation.broken = Broken(f"entry {wanted} was acknowledged: {error}")

    # What the handle reports

    def ledger_failing(self, handle: LedgerHandle, rc: int) -> None:
        self._failed = True
        self._simulation.note(f"writer: refused with {rc}")

    def entries_confirmed(
        self,
        handle: LedgerHandle,
        entries: list[Entry],
        added: list[Added],
        now_ns: int,
    ) -> None:
        for entry in entries:
            self.acked[entry.entry_id] = bytes(entry.body)
            self.acked_s[entry.entry_id] = self._simulation.loop.time()
        self._idle.set()

    def adds_failed(self, handle: LedgerHandle, entries: list[Entry], added: list[Added], rc: int) -> None:
        self._idle.set()
