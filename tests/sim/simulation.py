"""One history: a writer, others who recover its ledger, readers, bookies that come and go; then calm, and the judgement."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from bookkeeper.client.digest import Digest, digest_of, last_add_confirmed, ledger_length
from bookkeeper.ensembles.bookies import BookieSet
from bookkeeper.ensembles.ledgers import Ledgers
from bookkeeper.ensembles.placement import write_set
from broker.compose.ledger_settings import QuarantineSettings
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError, PersistenceError
from protocol.ledger_metadata import LedgerMetadata, LedgerState
from tests.sim.bookie import SimBookie
from tests.sim.loop import SimLoop, run
from tests.sim.metadata import LEDGER, Broken, SharedState, SimMetadataStore
from tests.sim.network import Client, Network, SimConnection
from tests.sim.plan import Plan, draw
from tests.sim.rereplication import Moved, Rereplication
from tests.sim.writer import BYTES_MAX, Writer

MOVED_EACH = 3
"""Every so many seeds a history goes on with re-replication, which takes twice as long as all before."""


@dataclass
class Outcome:
    acked: int
    last_entry_id: int
    ensemble_changes: int
    recoveries: int
    damaged: int
    """Copies of entries."""
    messages: int
    simulated_s: float
    moved: Moved
    """By re-replication, after the history."""


def simulate(seed: int, trace: list[str] | None = None) -> Outcome:
    """Raises Broken, or Stuck, where an invariant does not hold. `trace` gets what happened."""
    loop = SimLoop()
    return run(Simulation(seed, loop, [] if trace is None else trace).run(), loop)


class Simulation:
    def __init__(self, seed: int, loop: SimLoop, trace: list[str]) -> None:
        self.loop = loop
        self.seed = seed
        self.trace = trace
        self.rng = random.Random(seed)
        self.plan: Plan = draw(self.rng)
        self.note(str(self.plan))
        self.network = Network(loop, self.rng, self.plan.faults)
        self.bookies = [SimBookie(f"bookie-{number}", loop, self.rng) for number in range(self.plan.bookies)]
        self.state = SharedState(self.rng)
        self.writer = Writer(self)
        self.recoveries = 0
        self.damaged = 0
        self.broken: Broken | None = None
        """A violation that a completion found; the next check raises it."""

    def ledgers_of(self, client: Client, *, configured: int = 0) -> Ledgers:
        """`configured`: the bookies that the client is told of; what the ledger has elsewhere it finds; 0: all."""
        by_address = {bookie.address: bookie for bookie in self.bookies}
        bookies = BookieSet(
            list(by_address)[: configured or None],
            lambda address: SimConnection(client, by_address[address], self.network),
            now_ns=self.loop.now_ns,
            quarantine=QuarantineSettings(errors=3, interval_s=5, quarantine_s=2),
        )
        return Ledgers(
            SimMetadataStore(self.state, client),
            bookies,
            self.plan.settings,
            call_soon=self.loop.call_soon,
            call_later=self.loop.call_later,
            creator_token=1 + self.rng.getrandbits(60),
        )

    def note(self, text: str) -> None:
        self.trace.append(f"{self.loop.time():9.4f} {text}")

    async def run(self) -> Outcome:
        plan = self.plan
        tasks = [self.loop.create_task(self.writer.run(), name="writer")]
        for bookie in self.bookies:
            bookie.set_error_rate(plan.journal_error_rate)
        self.state.error_rate, self.state.slow_rate = plan.metadata_error_rate, plan.metadata_slow_rate
        for start_s in plan.incidents_s:
            self.loop.call_later(start_s, self._incident)
        if plan.disk_loss_s is not None:
            self.loop.call_later(plan.disk_loss_s, self._lose_disk)
        if plan.stall_s is not None:
            self.loop.call_later(plan.stall_s[0], self._stall, plan.stall_s[1])
        if plan.writer_crashes_s is not None:
            self.loop.call_later(plan.writer_crashes_s, self.writer.crash)
        for number, start_s in enumerate(plan.recoveries_s):
            tasks.append(self.loop.create_task(self._recover_later(number, start_s), name=f"r{number}"))
        await asyncio.sleep(plan.chaos_s)
        self._calm()
        closed = await self._close_at_last()
        # What is still on its way has arrived now: a fenced writer may not be told "added" by any of it.
        await asyncio.sleep(10.0)
        if self.broken is not None:
            raise self.broken
        await self._judge(closed)
        for task in tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise task.exception() or AssertionError
        moved = await Rereplication(self, self.seed).run() if self.seed % MOVED_EACH == 0 else Moved()
        return Outcome(
            len(self.writer.acked),
            closed.last_entry_id,
            len(closed.segments) - 1,
            self.recoveries,
            self.damaged,
            self.network.sent,
            self.loop.time(),
            moved,
        )

    # Faults

    def _incident(self) -> None:
        rng = self.rng
        bookie = rng.choice(self.bookies)
        if rng.random() < 0.6:
            self._crash(bookie, rng.uniform(0.01, 3.0))
            return
        client = rng.choice(["writer", *(f"recoverer-{n}" for n in range(len(self.plan.recoveries_s)))])
        pair = client, bookie.address
        self.note(f"{client} and {bookie.address} do not hear each other")
        self.network.cut.add(pair)
        self.loop.call_later(rng.uniform(0.01, 3.0), self.network.cut.discard, pair)

    def _crash(self, bookie: SimBookie, down_s: float, *, lose_disk: bool = False) -> None:
        if not bookie.up:
            return
        self.note(f"{bookie.address} dies{' and loses its disk' if lose_disk else ''}")
        bookie.crash()
        self.loop.call_later(down_s, self._start, bookie, lose_disk)

    def _start(self, bookie: SimBookie, without_disk: bool) -> None:
        if bookie.up:
            return
        self.note(f"{bookie.address} is back")
        if without_disk:
            bookie.start_after_a_loss([LEDGER] if self.state.history and not self.state.deleted else [])
        else:
            bookie.start()

    def _lose_disk(self) -> None:
        bookie = self.rng.choice(self.bookies)
        self._crash(bookie, self.rng.uniform(0.01, 1.0), lose_disk=True)

    def _stall(self, duration_s: float) -> None:
        self.note(f"the writer's messages wait for {duration_s:.3f} s")
        self.network.stalled_until_s["writer"] = self.loop.time() + duration_s

    def _damage(self) -> None:
        if self.plan.damage_rate:
            self.damaged += self.bookies[0].damage(self.plan.damage_rate)

    async def _delete(self, ledgers: Ledgers, client: Client) -> None:
        """By whoever has closed it; then each bookie finds out in its own time."""
        assert self.plan.deletion_s is not None
        await asyncio.sleep(self.plan.deletion_s)
        if client.crashed or self.state.deleted:
            return
        try:
            await ledgers.delete(LEDGER)
        except BrokerError as error:
            self.note(f"{client.name}: not deleted: {error}")
            return
        self.note(f"{client.name}: deleted")
        for bookie in self.bookies:
            self.loop.call_later(self.rng.choice((0.001, self.rng.uniform(0.0, 2.0))), self._collect, bookie)

    def _collect(self, bookie: SimBookie) -> None:
        if bookie.up:
            self.note(f"{bookie.address} collects the ledger")
            bookie.collect(LEDGER)
        else:
            self.loop.call_later(1.0, self._collect, bookie)

    def _calm(self) -> None:
        self.note("calm")
        faults = self.network.faults
        faults.drop = faults.slow = faults.twice = 0.0
        self.network.cut.clear()
        self.state.error_rate = self.state.slow_rate = 0.0
        for bookie in self.bookies:
            bookie.set_error_rate(0.0)

    # Who recovers

    async def _recover_later(self, number: int, start_s: float) -> None:
        await asyncio.sleep(start_s)
        client = Client(f"recoverer-{number}")
        if self.rng.random() < 0.2:
            self.loop.call_later(self.rng.uniform(0.0, 1.0), self._crash_client, client)
        ledgers = self.ledgers_of(client, configured=self.plan.fewer)
        for _ in range(self.rng.randint(1, 3)):
            self._damage()
            try:
                closed = await ledgers.recover(LEDGER)
            except BrokerError as error:
                self.note(f"{client.name}: {error}")
                continue
            self.recoveries += 1
            if closed is not None:
                self.note(f"{client.name}: the ledger ends at {closed.last_entry_id}")
                self._check_end(closed)
                if self.plan.deletion_s is not None:
                    await self._delete(ledgers, client)
            return

    def _crash_client(self, client: Client) -> None:
        self.note(f"{client.name} dies")
        client.crashed = True

    def is_deleted(self) -> bool:
        """Returns True when the ledger was deleted; another task can do that during any wait."""
        return self.state.deleted

    async def _close_at_last(self) -> LedgerMetadata:
        if self.is_deleted():
            return self.state.history[-1]
        ledgers = self.ledgers_of(Client("last"), configured=self.plan.fewer)
        problem: BrokerError | None = None
        self._damage()
        for attempt in range(20):
            try:
                closed = await ledgers.recover(LEDGER)
            except BrokerError as error:  # bookies are still on their way back
                problem = error
            else:
                if closed is not None:
                    self.note(f"closed at {closed.last_entry_id}")
                    return closed
                if self.is_deleted():
                    return self.state.history[-1]
                if attempt > 5:
                    self.writer.crash()  # it was never made, and will not be made now
                    return LedgerMetadata((), LedgerState.CLOSED)
            await asyncio.sleep(1.0)
        raise Broken(f"the ledger cannot be closed: {problem}")

    # Judgement

    def _check_end(self, closed: LedgerMetadata) -> None:
        if self.state.history[-1] != closed and not self.state.deleted:
            raise Broken(f"told an end that is not stored: {closed}")
        beyond = [entry_id for entry_id in self.writer.acked if entry_id > closed.last_entry_id]
        if beyond:
            raise Broken(f"closed at {closed.last_entry_id}, acknowledged were {beyond}")

    async def _judge(self, closed: LedgerMetadata) -> None:
        if not closed.segments:
            if self.writer.acked:
                raise Broken("acknowledged in a ledger that does not exist")
            return
        self._check_end(closed)
        if list(self.writer.acked) != list(range(len(self.writer.acked))):
            raise Broken(f"acknowledged out of order: {list(self.writer.acked)}")
        if self.state.deleted:
            return
        length = self.writer.length_at(closed.last_entry_id)
        if closed.length != length:
            raise Broken(f"closed with {closed.length} bytes, sent were {length}")
        self._check_copies(closed)
        await self._check_readable(closed)

    def _check_copies(self, closed: LedgerMetadata) -> None:
        """Each entry is on Qa bookies of its write set (but for a lost disk and damage), and nowhere there with another
        value."""
        digest = digest_of(closed.digest_type, closed.password)
        lost = sum(bookie.lost_disk for bookie in self.bookies)
        by_address = {bookie.address: bookie for bookie in self.bookies}
        for entry_id in range(closed.last_entry_id + 1):
            segment, _ = closed.segment_of(entry_id)
            positions = write_set(entry_id, closed.ensemble_size, closed.write_quorum)
            copies = 0
            for position in positions:
                bookie = by_address[segment.members[position]]
                stored = bookie.entries.get((LEDGER, entry_id))
                if stored is not None:
                    copies += 1
                    if not (self.damaged and bookie is self.bookies[0]):
                        self._check_copy(entry_id, stored, digest, bookie.address)
            if copies < closed.ack_quorum - lost:
                raise Broken(f"entry {entry_id} is on {copies} bookies of {segment.members}")

    def _check_copy(self, entry_id: int, stored: bytes, digest: Digest, where: str) -> None:
        try:
            payload = bytes(digest.check(LEDGER, entry_id, stored))
        except PersistenceError as error:
            raise Broken(f"damage has spread to {where}: {error}") from error
        if payload != self.writer.sent[entry_id]:
            raise Broken(f"entry {entry_id} is {payload!r} on {where}")
        if ledger_length(stored) != self.writer.length_at(entry_id):
            raise Broken(f"entry {entry_id} says {ledger_length(stored)} bytes on {where}")
        lac = last_add_confirmed(stored)
        if lac >= 0 and self.writer.acked_s.get(lac, self.loop.time()) > self.writer.sent_s[entry_id]:
            raise Broken(f"entry {entry_id} says that {lac} is confirmed, and was sent before that")

    async def _check_readable(self, closed: LedgerMetadata) -> None:
        ledgers = self.ledgers_of(Client("reader"))
        next_id = 0
        while next_id <= closed.last_entry_id:
            entries, error = await read(ledgers, next_id, closed.last_entry_id)
            if error is not None:
                raise Broken(f"entry {next_id} cannot be read: {error}")
            for entry in entries:
                if entry.entry_id != next_id or bytes(entry.body) != self.writer.sent[next_id]:
                    raise Broken(f"entry {next_id} reads {bytes(entry.body)!r}")
                next_id += 1


async def read(ledgers: Ledgers, first: int, last: int) -> tuple[list[Entry], BrokerError | None]:
    answer: asyncio.Future[tuple[list[Entry], BrokerError | None]] = (
        asyncio.get_running_loop().create_future()
    )
    ledgers.read(LEDGER, first, last, BYTES_MAX, lambda *values: answer.set_result(values))
    return await answer
