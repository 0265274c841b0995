"""After a history: bookies are lost for good, and auditors and workers that die and lose their sessions copy what they held.

A second ledger, whose writer has stopped without closing it, must be fenced and closed on the way. Bookies look for
over-replicated ledgers meanwhile, and give entries up that no metadata names. In the end

* no ledger needs a lost bookie, no mark and no lock is left;
* a bookie that took a position has every entry of that position;
* everything acknowledged is read.

It has a random generator of its own, so that the history before it stays that of its seed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from bookkeeper.client.digest import digest_of
from bookkeeper.ensembles.own_ledger import OwnLedger, read_metadata
from bookkeeper.repair.fragments import bookies_needed, fragments_of
from bookkeeper.repair.replicas import is_good
from foundation.model.errors import BrokerError, MetadataError
from protocol.ledger_metadata import LedgerMetadata, LedgerState
from tests.sim.autorecovery import SESSION_S, Processes
from tests.sim.bookie import SimBookie
from tests.sim.metadata import LEDGER, OTHER_LEDGER, Broken, SimMetadataStore
from tests.sim.network import Client

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

CHAOS_S = 12.0
TRIES = 60


@dataclass
class Moved:
    """Counts of the phase."""

    lost: int = 0
    copied: int = 0
    moves: int = 0
    workers: int = 0
    given_up: int = 0


class Rereplication:
    def __init__(self, simulation: Simulation, seed: int) -> None:
        self.simulation = simulation
        self.rng = random.Random(seed ^ 0x5EED)
        self.lost: set[str] = set()
        self.acked: dict[int, bytes] = {}
        self.outcome = Moved()
        self._processes = Processes(simulation, self.rng, CHAOS_S)

    async def run(self) -> Moved:
        """Returns what was done; nothing where the history has left no copy that may be lost."""
        simulation = self.simulation
        settings = simulation.plan.settings
        damage = sum(bookie.lost_disk for bookie in simulation.bookies) + (simulation.damaged > 0)
        spare = settings.ack_quorum - 1 - damage
        if spare <= 0:
            return self.outcome
        for bookie in simulation.bookies:
            if not bookie.up:
                bookie.start()
        simulation.state.may_move = True
        await self._write()
        before = {each: metadata for each in self._ledgers() if (metadata := self._stored(each)) is not None}
        self._lose(spare)
        self._begin_chaos()
        await asyncio.sleep(CHAOS_S)
        self._calm()
        await self._finish()
        await asyncio.sleep(5.0)
        for ledger_id, metadata in before.items():
            await self._judge(ledger_id, metadata)
        self.outcome.copied = self._processes.stats.worker.entries_written
        self.outcome.moves = simulation.state.moves
        self.outcome.workers = len(self._processes.clients)
        return self.outcome

    def _ledgers(self) -> list[int]:
        simulation = self.simulation
        return [OTHER_LEDGER] if simulation.state.deleted else [LEDGER, OTHER_LEDGER]

    def _stored(self, ledger_id: int) -> LedgerMetadata | None:
        state = self.simulation.state
        if ledger_id == LEDGER:
            return state.history[-1] if state.history else None
        return next(iter(state.others.values()), None)

    async def _write(self) -> None:
        """Begins the second ledger, and stops without closing it."""
        simulation = self.simulation
        ledgers = simulation.ledgers_of(Client("second writer"))
        own: OwnLedger = await ledgers.create(OTHER_LEDGER, {})
        writer, digest = ledgers.writer(own), ledgers.digest
        length = 0
        for entry_id in range(self.rng.randint(0, 30)):
            body = b"second %d" % entry_id
            length += len(body)
            answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            writer.add(
                OTHER_LEDGER,
                (entry_id,),
                [digest.seal(OTHER_LEDGER, entry_id, entry_id - 1, length, b"", body)],
                master_key=digest.master_key,
                recovery=False,
                done=partial(_settle, answer),
            )
            if await answer == 0:
                self.acked[entry_id] = body

    # Faults

    def _lose(self, most: int) -> None:
        simulation = self.simulation
        for bookie in self.rng.sample(simulation.bookies, self.rng.randint(1, most)):
            simulation.note(f"{bookie.address} is lost for good")
            bookie.crash()
            self.lost.add(bookie.address)
        for number in range(len(self.lost) + 1):
            simulation.bookies.append(SimBookie(f"spare-{number}", simulation.loop, self.rng))
        self.outcome.lost = len(self.lost)

    def _begin_chaos(self) -> None:
        simulation, rng = self.simulation, self.rng
        faults = simulation.network.faults
        faults.drop, faults.slow, faults.twice = (
            rng.choice((0.0, 0.01)),
            rng.choice((0.0, 0.1)),
            rng.choice((0.0, 0.1)),
        )
        simulation.state.error_rate = rng.choice((0.0, 0.02, 0.1))
        for number in range(rng.randint(1, 3)):
            simulation.loop.call_later(rng.uniform(0.0, 2.0), self._processes.spawn, number)
        for _ in range(rng.choice((0, 1, 3))):
            simulation.loop.call_later(rng.uniform(0.0, CHAOS_S), self._incident)
        for bookie in self._kept():
            # Mostly while the first copies are made.
            for _ in range(rng.choice((0, 4, 30))):
                simulation.loop.call_later(
                    rng.uniform(0.0, rng.choice((3.0, CHAOS_S))), self._give_up_later, bookie
                )

    def _kept(self) -> Iterator[SimBookie]:
        return (bookie for bookie in self.simulation.bookies if bookie.address not in self.lost)

    def _incident(self) -> None:
        simulation, rng = self.simulation, self.rng
        bookie = rng.choice(list(self._kept()))
        if bookie.up:
            simulation.note(f"{bookie.address} dies for a while")
            bookie.crash()
            simulation.loop.call_later(rng.uniform(0.01, 2.0), bookie.start)

    def _give_up_later(self, bookie: SimBookie) -> None:
        self._processes.tasks.append(
            self.simulation.loop.create_task(self._give_up(bookie), name=f"gc of {bookie.address}")
        )

    async def _give_up(self, bookie: SimBookie) -> None:
        """As `OverReplicatedLedgers`: under the lock, by the metadata of a closed ledger that does not name the bookie."""
        client = Client(f"gc of {bookie.address}")
        for ledger_id in self._ledgers():
            try:
                lock = await self._processes.locks.take(client, ledger_id)
            except MetadataError:
                self._processes.locks.expire(client)
                return
            if lock is None:
                continue
            metadata = self._stored(ledger_id)
            await asyncio.sleep(self.rng.uniform(0.001, 0.2))
            if metadata is not None and _may_give_up(bookie, metadata):
                self.outcome.given_up += bookie.give_up(ledger_id)
            await lock.release()

    def _calm(self) -> None:
        simulation = self.simulation
        simulation.note("calm, after the loss")
        faults = simulation.network.faults
        faults.drop = faults.slow = faults.twice = 0.0
        simulation.state.error_rate = 0.0
        self._processes.calm()

    # Processes

    async def _finish(self) -> None:
        """The last process works until no mark is left."""
        for bookie in self._kept():
            if not bookie.up:
                bookie.start()
        await asyncio.sleep(3 * SESSION_S)
        auditor, worker, marks = self._processes.parts(Client("last autorecovery"))
        await marks.prepare(0)
        problem = ""
        for _ in range(TRIES):
            await auditor.look()
            await worker.work()
            left = [ledger_id async for ledger_id in marks.ledgers()]
            needed = [each for each in self._ledgers() if self._needs_lost(each)]
            if not left and not needed:
                return
            problem = f"ledgers {left} are marked, {needed} need one of {sorted(self.lost)}"
            await asyncio.sleep(0.5)
        raise Broken(f"re-replication does not end: {problem}")

    def _needs_lost(self, ledger_id: int) -> bool:
        metadata = self._stored(ledger_id)
        return metadata is not None and not self.lost.isdisjoint(bookies_needed(metadata))

    # Judgement

    async def _judge(self, ledger_id: int, before: LedgerMetadata) -> None:
        if self._processes.locks.owners:
            raise Broken(f"locks of {sorted(self._processes.locks.owners)} are left")
        store = SimMetadataStore(self.simulation.state, Client("judge"))
        found = await read_metadata(store, ledger_id)
        if found is None:
            raise Broken(f"ledger {ledger_id} is gone")
        metadata = found[0]
        if metadata.state is not LedgerState.CLOSED:
            # No bookie of its last ensemble was lost. It is closed as a broker does that opens the log.
            closed = await self.simulation.ledgers_of(Client("opener")).recover(ledger_id)
            assert closed is not None
            metadata = closed
        self._check_positions(ledger_id, metadata, before)
        if ledger_id == OTHER_LEDGER:
            beyond = [entry_id for entry_id in self.acked if entry_id > metadata.last_entry_id]
            if beyond:
                raise Broken(
                    f"ledger {ledger_id} ends at {metadata.last_entry_id}, acknowledged were {beyond}"
                )
        await self._check_readable(ledger_id, metadata)

    def _check_positions(self, ledger_id: int, metadata: LedgerMetadata, before: LedgerMetadata) -> None:
        """A bookie that has taken a position has every entry of it, as it was written."""
        by_address = {bookie.address: bookie for bookie in self.simulation.bookies}
        digest = digest_of(metadata.digest_type, metadata.password)
        members_before = {segment.first_entry_id: segment.members for segment in before.segments}
        for fragment in fragments_of(metadata):
            old = members_before.get(fragment.segment.first_entry_id)
            for position, member in enumerate(fragment.segment.members):
                if old is None or old[position] == member:
                    continue
                for entry_id in fragment.entries_at(position):
                    stored = by_address[member].entries.get((ledger_id, entry_id))
                    # A segment that a recovery has begun has Qa copies of each entry, and not always all Qw.
                    if (
                        stored is None
                        and before.state is not LedgerState.CLOSED
                        and self._copies(ledger_id, entry_id, metadata) >= metadata.ack_quorum
                    ):
                        continue
                    if stored is None or not is_good(ledger_id, entry_id, stored, digest):
                        raise Broken(f"{member} has position {position} and lacks {ledger_id}:{entry_id}")

    def _copies(self, ledger_id: int, entry_id: int, metadata: LedgerMetadata) -> int:
        by_address = {bookie.address: bookie for bookie in self.simulation.bookies}
        segment, _ = metadata.segment_of(entry_id)
        return sum((ledger_id, entry_id) in by_address[member].entries for member in segment.members)

    async def _check_readable(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        ledgers = self.simulation.ledgers_of(Client("reader after the loss"))
        sent = self.simulation.writer.sent if ledger_id == LEDGER else self.acked
        for entry_id in range(metadata.last_entry_id + 1):
            answer: asyncio.Future[tuple[list[bytes], BrokerError | None]] = (
                asyncio.get_running_loop().create_future()
            )
            ledgers.read(
                ledger_id,
                entry_id,
                entry_id,
                1 << 20,
                lambda entries, error, answer=answer: answer.set_result(
                    ([bytes(each.body) for each in entries], error)
                ),  # type: ignore[misc]
            )
            bodies, error = await answer
            if error is not None:
                raise Broken(f"after the loss, entry {ledger_id}:{entry_id} cannot be read: {error}")
            if (isinstance(sent, list) or entry_id in sent) and bodies != [sent[entry_id]]:
                raise Broken(f"after the loss, entry {ledger_id}:{entry_id} reads {bodies}")


def _may_give_up(bookie: SimBookie, metadata: LedgerMetadata) -> bool:
    named = any(bookie.address in segment.members for segment in metadata.segments)
    return metadata.state is LedgerState.CLOSED and not named and bookie.up


def _settle(answer: asyncio.Future[int], rc: int, _entry_id: int) -> None:
    if not answer.done():
        answer.set_result(rc)
