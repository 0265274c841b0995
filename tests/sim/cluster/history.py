"""One history of three brokers on one metadata store and shared bookies; then calm, and the judgement.

Processes are killed, stopped, paused and cut off; sessions expire; followers of the store answer reads of before; notices
come late, answers are lost; clocks differ; bundles are unloaded and divided, and their nodes removed by hand. The statements
(`divisions` has more):

* A broker takes a topic, by fencing or by the first write of its list, only while its own session has the lease; so it
  writes the nodes of cursors. One whose lease somebody else removed may do so until it hears of that.
* A broker removes a lease only if it was its own when it read that a moment before, in the same session; and nobody gives a
  bundle up with topics of it open.
* Each confirmed message is at its position for ever, and at no other; a message is twice in the log only where its producer
  sent it twice; first appearances are in the order of the producer.
* No lookup takes more than three steps, unless the leader changes meanwhile.
* A leader moves a bundle for balance once within the grace period.
* While a broker is well, and neither the owner of a topic, the leader where it has none, nor the broker that a client is
  connected to, or asks, is hindered by a fault, the client is served within a bound.
* A broker that is well has no topic open without a lease, and none whose acknowledgements it does not store any more.
* After the faults all brokers know each other and one leader; every bundle has one owner, which all brokers name, and topics
  are open there alone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, fields
from typing import TypeVar
from unittest import mock

from bookkeeper.ensembles.awaited_reads import read_entries
from bookkeeper.ensembles.bookies import BookieSet
from bookkeeper.ensembles.ledgers import Ledgers
from broker.cluster import dead_owners
from broker.cluster.records import BUNDLES, LEADER
from broker.compose.ledger_settings import LedgerSettings, QuarantineSettings
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic_ownership import Addresses
from broker.service.transactions.coordinator_log import LOG_PREFIX
from broker.service.transactions.coordinators import ASSIGN_TOPIC
from foundation.model.errors import BrokerError, PersistenceError, ServiceNotReady
from foundation.model.topic_name import TopicName, parse_topic_name
from protocol.ledger_metadata import LedgerState, decode, ledger_key
from tests.sim.bookie import SimBookie
from tests.sim.cluster.clients import Link, Publisher, Reader, Unserved, call, find, follow
from tests.sim.cluster.divisions import NAMESPACE, Divisions
from tests.sim.cluster.faults import LIFE_S, ClusterFaults
from tests.sim.cluster.process import SESSION_S, ClusterProcess, addresses
from tests.sim.cluster.transactions import Transactor, judge
from tests.sim.cluster.witness import ClusterWitness
from tests.sim.followers import Cluster
from tests.sim.lives.history import LivesLoop
from tests.sim.loop import SimLoop, run
from tests.sim.metadata import Broken
from tests.sim.network import Faults, Network, SimConnection

Result = TypeVar("Result")
PLACES = 3
TRANSACTORS = 3
"""Clients with transactions, where a history has such."""
TOPICS = 6
CALM_S = 40.0
"""Simulated seconds after which all are served and nothing is under way."""
SERVED_S = 30.0
"""In which a client is served unless it is hindered: the session of a dead owner, and some requests in vain."""
OBSERVED_S = 0.1
"""Seconds between two looks."""
LEFT_OPEN_S = 10.0
"""In which a broker that is well closes a topic whose bundle it has not, or whose cursors are another broker's."""
STRAY = "without a lease, or with a cursor that is not stored any more,"


@dataclass
class ClusterCounts:
    """Operations of one history."""

    confirmed: int = 0
    runs_of_several: int = 0
    committed: int = 0
    takeovers: int = 0
    killed: int = 0
    stopped: int = 0
    paused: int = 0
    cut: int = 0
    expired: int = 0
    frozen: int = 0
    unloaded: int = 0
    removed: int = 0
    removed_late: int = 0
    """Leases of others that were the remover's when it read them."""
    written_late: int = 0
    """Writes under a lease that somebody else had removed, before its former owner could know."""
    clock_jumps: int = 0
    fallen_asleep: int = 0
    bookies_down: int = 0
    shed: int = 0
    divided: int = 0
    divided_for_balance: int = 0
    doubled: int = 0
    hops_most: int = 0
    unserved_most_s: float = 0.0

    def add(self, other: ClusterCounts) -> None:
        """Adds another history's; of the two last ones the greater counts."""
        for field in fields(self):
            mine, its = getattr(self, field.name), getattr(other, field.name)
            setattr(self, field.name, max(mine, its) if "most" in field.name else mine + its)

    def text(self) -> str:
        return ", ".join(
            f"{getattr(self, field.name):.4g} {field.name.replace('_', ' ')}"
            if isinstance(getattr(self, field.name), float)
            else f"{getattr(self, field.name)} {field.name.replace('_', ' ')}"
            for field in fields(self)
        )


def simulate_cluster(
    seed: int, trace: list[str] | None = None, *, transactions: bool = False
) -> ClusterCounts:
    """Raises Broken, or Stuck, where a statement does not hold. `trace` gets what happened.

    `transactions`: clients begin transactions too, see `transactions.py`.
    """
    loop = LivesLoop()
    history = ClusterHistory(
        seed, loop, [] if trace is None else trace, transactors=TRANSACTORS if transactions else 0
    )
    with mock.patch.object(dead_owners, "_refuses", history.refuses):
        return run(history.run(), loop)


class ClusterHistory:
    """The brokers, their clients, the faults and the judgement."""

    def __init__(self, seed: int, loop: SimLoop, trace: list[str], *, transactors: int = 0) -> None:
        self.loop, self.trace = loop, trace
        self.transactors = [Transactor(self, number) for number in range(transactors)]
        self.seed = seed
        self.rng = rng = random.Random(seed ^ 0xC1057E)
        self.network = Network(loop, rng, Faults(drop=rng.choice((0.0, 0.005)), slow=rng.choice((0.0, 0.01))))
        self.cluster = Cluster(rng, loop, lag_s=rng.choice((0.01, 0.2)), notice_s=rng.choice((0.0, 0.3)))
        self.witness = ClusterWitness(self, self.cluster)
        self._ledger_settings = LedgerSettings(*rng.choice(((2, 2, 2), (3, 3, 2))))
        self.bookies = [SimBookie(f"bookie-{number}", loop, rng) for number in range(4)]
        self.counts = ClusterCounts()
        self.places: list[ClusterProcess | None] = [None] * PLACES
        """The process at each place; None between two of them."""
        self.names = [parse_topic_name(f"persistent://{NAMESPACE}/t{number}") for number in range(TOPICS)]
        self.publishers = [Publisher(self, name) for name in self.names]
        self.readers = [Reader(self, name) for name in self.names]
        self.faults = ClusterFaults(self)
        self._lost = rng.choice((0.0, 0.005, 0.02))
        self.divisions = Divisions(self, seed)
        self._shed: set[tuple[str, str]] = set()
        """Leaders and the bundles that they have moved for balance."""
        self._numbers = self._processes = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._broken: Broken | None = None
        self._leader_at_s = 0.0
        self._leader_value: bytes | None = None
        self._strays: dict[tuple[str, str], float] = {}
        """Those of `ClusterProcess.strays`, and since when."""

    # Questions of processes and clients

    def note(self, text: str) -> None:
        self.trace.append(f"{self.loop.time():9.4f} {text}")

    def broken(self, text: str) -> None:
        """Notes a violation; the code under test may swallow an exception."""
        self.note(f"BROKEN {text}")
        self._broken = self._broken or Broken(text)

    def failed(self, process: ClusterProcess, error: BaseException) -> None:
        """A task of a process has failed."""
        if not isinstance(error, BrokerError):
            self.broken(f"{process.client.name}: {type(error).__name__}: {error}")

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def bundle_of(self, name: TopicName) -> str:
        if name.local.startswith(LOG_PREFIX):
            # A coordinator's log belongs to the owner of its partition.
            name = ASSIGN_TOPIC.with_partition(int(name.local.removeprefix(LOG_PREFIX)))
        return self.divisions.bundle_of(name)

    def at(self, found: Addresses) -> ClusterProcess | None:
        """Returns the process that has these addresses now."""
        for place, process in enumerate(self.places):
            if addresses(place) == found:
                return process
        return None

    async def refuses(self, url: str) -> bool:
        """Stands for a connection of `DeadOwners`."""
        await asyncio.sleep(0.001)
        place = next(number for number in range(PLACES) if addresses(number).service_url == url)
        process = self.places[place]
        return process is None or not process.is_up

    async def find_owner(self, topic: TopicName, first: Addresses, *, authoritative: bool) -> Addresses:
        """Stands for a lookup that a broker sends to another one."""
        try:
            found = await follow(self, self.at(first), topic, authoritative=authoritative)
        except Unserved as error:
            raise ServiceNotReady(str(error)) from error
        return found.addresses

    async def ask(
        self, to: Addresses, work: Callable[[ClusterProcess], Coroutine[object, object, Result]]
    ) -> Result:
        """Stands for a request of a broker to another one, or to itself. Raises ServiceNotReady."""
        process = self.at(to)

        async def answer() -> Result:
            assert process is not None
            return await work(process)

        try:
            return await call(self, process, answer)
        except Unserved as error:
            raise ServiceNotReady(str(error)) from error

    async def unload_at(self, to: Addresses, path: str, destination: str) -> None:
        """Stands for a request of the leader to hand a bundle over."""
        bundle = path.removeprefix("/admin/v2/namespaces/").removesuffix("/unload")
        process = self.at(to)
        if process is not None and not process.knows(bundle):
            raise ServiceNotReady(f"{process.client.name} knows no bundle {bundle}")
        try:
            await call(self, process, lambda: process.ownership.unload(bundle, destination))  # type: ignore[union-attr]
        except Unserved as error:
            raise ServiceNotReady(str(error)) from error

    def shed(self, leader: ClusterProcess, bundle: str) -> None:
        """A leader has had a bundle moved for balance."""
        self.counts.shed += 1
        self.note(f"{leader.client.name} moves {bundle} for balance")
        if (leader.client.name, bundle) in self._shed:
            self.broken(f"{leader.client.name} moves {bundle} twice within the grace period")
        self._shed.add((leader.client.name, bundle))

    def leader_changed_within(self, seconds: float) -> bool:
        return self.loop.time() - self._leader_at_s < seconds

    def served(self, link: Link) -> None:
        """A client has been served."""
        link.is_served, link.waited_s = True, 0.0

    def judge_receipt(self, name: TopicName, number: int, position: tuple[int, int]) -> None:
        """A confirmed message is before the end of its ledger, whoever has closed that."""
        ledger_id, entry_id = position
        assert self.cluster.first is not None
        value = self.cluster.first.value_of(ledger_key(ledger_id))
        if value is None:
            self.broken(f"{name}: {number} is confirmed in ledger {ledger_id}, which is not there")
        elif (found := decode(value)).state is LedgerState.CLOSED and found.last_entry_id < entry_id:
            self.broken(
                f"{name}: {number} at {position} is behind the end of its ledger, {found.last_entry_id}"
            )

    def ledgers_of(self, process: ClusterProcess) -> Ledgers:
        """Returns the ledgers as the process sees them."""
        by_address = {bookie.address: bookie for bookie in self.bookies}
        bookies = BookieSet(
            list(by_address),
            lambda address: SimConnection(process.client, by_address[address], self.network),
            now_ns=self.loop.now_ns,
            quarantine=QuarantineSettings(errors=3, interval_s=5, quarantine_s=2),
        )
        return Ledgers(
            process.store,
            bookies,
            self._ledger_settings,
            call_soon=self.loop.call_soon,
            call_later=self.loop.call_later,
            creator_token=1 + self.rng.getrandbits(60),
        )

    # The run

    async def run(self) -> ClusterCounts:
        for place in range(PLACES):
            await self._start(place)
        await self._prepare()
        self.cluster.witness = self.witness
        self.cluster.lost = self._lost
        for link in (*self.publishers, *self.readers):
            self.spawn(link.run(), f"{link.name} {type(link).__name__}")
        for transactor in self.transactors:
            self.spawn(transactor.run(), "transactions")
        self.spawn(self._observe(), "observer")
        faults = [
            self.spawn(work(), work.__name__)
            for work in (
                self.faults.hurt,
                self.faults.hurt,
                self.faults.administrate,
                self.divisions.administrate,
            )
        ]
        await self._until(LIFE_S)
        for task in faults:
            task.cancel()
        await self._calm()
        await self._judge()
        self.counts.takeovers = self.witness.takeovers
        return self.counts

    async def _until(self, at_s: float) -> None:
        """Waits, and raises the first violation."""
        while self.loop.time() < at_s:
            await asyncio.sleep(0.1)
            self._raise_broken()

    def _raise_broken(self) -> None:
        if self._broken is not None:
            raise self._broken
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    def spawn(self, work: object, name: str) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self.loop.create_task(work, name=name)  # type: ignore[arg-type]
        self._tasks.append(task)
        return task

    async def _prepare(self) -> None:
        process = self.places[0]
        assert process is not None
        await process.namespaces.create_tenant("sim", {"adminRoles": [], "allowedClusters": ["standalone"]})
        await process.namespaces.create(NAMESPACE, {"bundles": {"numBundles": 4}})
        for other in self.places:
            assert other is not None
            while not other.namespaces.exists(NAMESPACE):  # noqa: ASYNC110 - as its watch tells
                await asyncio.sleep(0.1)

    # Processes

    async def _start(self, place: int) -> None:
        """Starts processes at the place until one is up."""
        while True:
            process = ClusterProcess(self, place, self._processes)
            self._processes += 1
            try:
                async with asyncio.timeout(30.0):
                    await process.start()
            except (BrokerError, TimeoutError) as error:
                self.note(f"{process.client.name} does not start: {error}")
                self.end(process)
            else:
                self.note(f"{process.client.name} is up")
                self.places[place] = process
                return

    def end(self, process: ClusterProcess) -> None:
        process.crash()
        self.loop.call_later(SESSION_S + self.rng.uniform(0.0, 2.0), process.store.end)

    async def restart(self, place: int, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self._start(place)

    # Observation

    async def _observe(self) -> None:
        while True:
            await asyncio.sleep(OBSERVED_S)
            now_s = self.loop.time()
            assert self.cluster.first is not None
            if (leader := self.cluster.first.value_of(LEADER)) != self._leader_value:
                self._leader_value, self._leader_at_s = leader, now_s
            well = [process for process in self.places if process is not None and process.is_well]
            if well:
                self._check_served()
            self._check_strays(now_s, well)
            self.divisions.observe(now_s)

    def _check_served(self) -> None:
        for link in (*self.publishers, *self.readers):
            if not link.is_served and not self._is_hindered(link):
                link.waited_s += OBSERVED_S
                self.counts.unserved_most_s = max(self.counts.unserved_most_s, link.waited_s)
                if link.waited_s > SERVED_S:
                    self.broken(
                        f"{type(link).__name__} of {link.name} is not served for {link.waited_s:.1f} s"
                    )

    def _is_hindered(self, link: Link) -> bool:
        """Returns True while a broker that the client needs is there and disturbed: its session has to end first.

        It needs the topic's owner, without one the leader, and the broker that it is connected to, or asks first.
        """
        owner = self.divisions.holder(f"{BUNDLES}/{self.bundle_of(link.name)}")
        needed = (link.process, owner or self.divisions.holder(LEADER))
        return any(one is not None and not one.client.crashed and not one.is_well for one in needed)

    def _check_strays(self, now_s: float, well: list[ClusterProcess]) -> None:
        strays = {(process.client.name, text) for process in well for text in process.strays()}
        self._strays = {one: self._strays.get(one, now_s) for one in strays}
        for (process_name, text), since_s in self._strays.items():
            if now_s - since_s > LEFT_OPEN_S:
                self.broken(f"{text} is open at {process_name} {STRAY} since {since_s:.1f} s")

    # The end

    async def _calm(self) -> None:
        self.note("calm")
        self.cluster.lost = 0.0
        self.network.faults.drop = self.network.faults.slow = 0.0
        await self._until(self.loop.time() + CALM_S / 2)
        for publisher in self.publishers:
            publisher.stops = True
        for transactor in self.transactors:
            transactor.stops = True
        await self._until(self.loop.time() + CALM_S)
        if any(process is None or not process.is_up for process in self.places):
            raise Broken(f"not every broker is up: {self.places}")

    async def _judge(self) -> None:
        self._judge_members()
        for publisher, reader in zip(self.publishers, self.readers, strict=True):
            if publisher.pending:
                raise Broken(f"{publisher.name} has no receipts of {list(publisher.pending)}")
            if missing := set(publisher.positions.values()) - reader.got:
                raise Broken(f"{reader.name} does not deliver {sorted(missing)}")
            owner = await self._judge_owner(publisher.name)
            await self._judge_log(owner, publisher)
        await self.divisions.judge()
        if self.transactors:
            await judge(self, self.transactors)
        self._raise_broken()

    def _judge_members(self) -> None:
        expected = {addresses(place).broker_id for place in range(PLACES)}
        for process in self.places:
            assert process is not None
            ownership = process.ownership
            if set(ownership.brokers) != expected or ownership.leader not in expected:
                raise Broken(
                    f"{process.client.name} knows {list(ownership.brokers)}, led by {ownership.leader}"
                )
        if len(leaders := {process.ownership.leader for process in self.places if process is not None}) > 1:
            raise Broken(f"brokers name {len(leaders)} leaders: {leaders}")

    async def _judge_owner(self, name: TopicName) -> ClusterProcess:
        owners = []
        for first in self.places:
            try:
                owners.append(await find(self, first, name))
            except Unserved as error:
                raise Broken(f"{name} is not found: {error}") from error
        if len(set(owners)) > 1:
            raise Broken(f"brokers disagree about {name}: {[one.client.name for one in owners]}")
        for process in self.places:
            assert process is not None
            topic = process.registry.topics.get(str(name))
            if process is not owners[0] and topic is not None and not topic.closed:
                raise Broken(f"{name} of {owners[0].client.name} is open at {process.client.name}")
        return owners[0]

    async def _judge_log(self, owner: ClusterProcess, publisher: Publisher) -> None:
        topic = await owner.registry.get(publisher.name, create=False)
        assert isinstance(topic, PersistentTopic)
        found: list[int] = []
        for info in topic.ledger.ledgers.infos():
            for entry_id in range(info.entries):
                body = await self._read(owner, info.ledger_id, entry_id, publisher)
                number = int(body.rpartition(b":")[2])
                if publisher.positions.get((info.ledger_id, entry_id), number) != number:
                    raise Broken(f"{publisher.name} has {number} at {info.ledger_id}:{entry_id}")
                found.append(number)
        there = set(found)
        if lost := set(publisher.positions.values()) - there:
            raise Broken(f"{publisher.name} has lost {sorted(lost)}")
        firsts = list(dict.fromkeys(found))
        if firsts != sorted(firsts):
            raise Broken(f"{publisher.name} is out of order: {firsts}")
        doubled = [number for number in there if found.count(number) > publisher.sent[number]]
        if doubled:
            raise Broken(f"{publisher.name} has {doubled} more often than they were sent")
        self.counts.doubled += len(found) - len(there)

    async def _read(
        self, owner: ClusterProcess, ledger_id: int, entry_id: int, publisher: Publisher
    ) -> bytes:
        try:
            (entry,) = await read_entries(owner.environment.ledgers, ledger_id, entry_id, entry_id, 1 << 20)
        except PersistenceError as error:
            raise Broken(f"{ledger_id}:{entry_id} of {publisher.name} cannot be read: {error}") from error
        return bytes(entry.body)
