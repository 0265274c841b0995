"""One history of topics: brokers, bookies, AutoRecovery and an operator die and come back; clocks jump; then the judgement.

* No ledger goes while a confirmed message in it is neither acknowledged by each subscription nor expired, nor while
  retention holds it.
* No message is read above the publish rate that holds, and a producer that waits for it goes on.
* Each subscription of a living topic gets every confirmed message that it has not acknowledged and that is not expired.
* No message that its consumer has acknowledged comes again to it, though messages that it has for too long do.
* The compacted view has for each key its last confirmed message, or a later one.
* In the end no ledger is left that each subscription has acknowledged and retention does not hold.
* No message of a deleted topic comes back; nothing of the topic is left after its deletion.
* A leak stays until it is in quarantine and a whole copy of it is exported; nothing else ever enters the quarantine.
* A ledger that a subscription needs leaves the bookies only when the copy that its list names has each message; in the end
  the object storage has the objects that lists name, no other, and no part of one.
* In the end an audit of the store finds nothing, no deletion and no quarantine is left, and no ledger needs a lost bookie.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path
from urllib.parse import quote

from bookkeeper.ensembles.bookies import BookieSet
from bookkeeper.ensembles.ledgers import Ledgers
from bookkeeper.leaks.quarantine import LEDGERS, NODES, ledger_record_key
from bookkeeper.repair.fragments import bookies_needed
from broker.compose.ledger_settings import LedgerSettings, QuarantineSettings
from broker.managed_ledger.managed_ledger_info import ROOT, managed_ledger_key
from broker.managed_ledger.records.pulsar_records import decode_ledger_list
from foundation.model.errors import BrokerError
from foundation.model.topic_name import parse_topic_name
from magnetar.audit.facts import AuditFinding, gather, judge
from protocol.ledger_metadata import LedgerState, decode, ledger_key
from tests.sim.autorecovery import SESSION_S, Processes
from tests.sim.bookie import SimBookie
from tests.sim.lives.broker import SimBroker
from tests.sim.lives.clients import Slot
from tests.sim.lives.counts import Counts
from tests.sim.lives.judgement import judge_life
from tests.sim.lives.life import KINDS, LIFE_S, Kind, Life, WallClock
from tests.sim.lives.objects import ObjectService
from tests.sim.lives.operator import Operator, exported
from tests.sim.lives.store import LivesState
from tests.sim.loop import SimLoop, run
from tests.sim.metadata import Broken, SimMetadataStore
from tests.sim.network import Client, Faults, Network, SimConnection

LIST_DEPTH = 5
"""Slashes in the key of a list: /managed-ledgers/TENANT/NAMESPACE/persistent/TOPIC."""
CALM_S = 150.0
"""Simulated seconds for all that is under way."""


class LivesLoop(SimLoop):
    """Runs the work of threads at once, so that a seed gives one history."""

    def run_in_executor(self, executor: object, func: object, *args: object) -> asyncio.Future[object]:  # type: ignore[override]
        """Calls it; a coroutine that it returns runs on this loop."""
        assert callable(func)
        answer: asyncio.Future[object] = self.create_future()
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001  # As a thread's: the caller gets it.
            answer.set_exception(error)
            return answer
        if asyncio.iscoroutine(result):
            return self.create_task(result)
        answer.set_result(result)
        return answer


def simulate_lives(seed: int, trace: list[str] | None = None, kinds: tuple[Kind, ...] = KINDS) -> Counts:
    """Raises Broken, or Stuck, where an invariant does not hold. `trace` gets what happened."""
    loop = LivesLoop()
    with tempfile.TemporaryDirectory(prefix="magnetar-sim-") as folder:
        return run(History(seed, loop, [] if trace is None else trace, Path(folder), kinds).run(), loop)


class History:
    """The cluster, its faults and the judgement."""

    def __init__(
        self, seed: int, loop: SimLoop, trace: list[str], folder: Path, kinds: tuple[Kind, ...]
    ) -> None:
        self.loop = loop
        self.seed = seed
        self.trace = trace
        self.folder = folder
        """For exports."""
        self.rng = rng = random.Random(seed ^ 0x11FE)
        self.network = Network(loop, rng, Faults(drop=rng.choice((0.0, 0.01)), slow=rng.choice((0.0, 0.02))))
        self.settings = LedgerSettings(*rng.choice(((2, 2, 2), (3, 3, 2), (3, 2, 2), (3, 3, 3))))
        self.bookies = [
            SimBookie(f"bookie-{number}", loop, rng) for number in range(self.settings.ensemble_size + 2)
        ]
        self.clock = WallClock(loop)
        self.state = LivesState(rng, self._judge_removal)
        self.state.error_rate = rng.choice((0.0, 0.0, 0.005, 0.02))
        self.state.slow_rate = rng.choice((0.0, 0.02))
        self.state.exported = lambda subject: bool(exported(folder, subject))
        # Its own draws: the histories of before stay as they were.
        self.objects = ObjectService(random.Random(seed))
        self.rates = random.Random(f"{seed} rates")
        """Draws publish rates."""
        self.counts = Counts()
        self.lives: list[Life] = []
        self.broker: SimBroker | None = None
        """The one that runs; None in between."""
        self.is_calm = False
        self.is_judged = False
        """True once the last broker runs."""
        self._slots = [Slot(self, kind) for kind in kinds]
        self._brokers = self._numbers = self._operators = 0
        self._processes = Processes(self, rng, 30.0)
        self._lost: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._broken: Broken | None = None
        """A violation that a removal was; the code under test may have swallowed it."""

    def next_life(self) -> int:
        """Returns a number that nothing else has."""
        self._numbers += 1
        return self._numbers

    def defect(self, error: Broken) -> None:
        """Notes a violation that the caller cannot raise: the code under test would swallow it."""
        self._broken = self._broken or error

    def note(self, text: str) -> None:
        self.trace.append(f"{self.loop.time():9.4f} {text}")

    def ledgers_of(self, client: Client) -> Ledgers:
        """Returns the ledgers as the client sees them."""
        by_address = {bookie.address: bookie for bookie in self.bookies}
        bookies = BookieSet(
            list(by_address),
            lambda address: SimConnection(client, by_address[address], self.network),
            now_ns=self.loop.now_ns,
            quarantine=QuarantineSettings(errors=3, interval_s=5, quarantine_s=2),
        )
        return Ledgers(
            SimMetadataStore(self.state, client),
            bookies,
            self.settings,
            call_soon=self.loop.call_soon,
            call_later=self.loop.call_later,
            creator_token=1 + self.rng.getrandbits(60),
        )

    async def run(self) -> Counts:
        self._spawn(self._run_brokers(), "brokers")
        self._spawn(self._run_operators(), "operators")
        self._spawn(self._collect_garbage(), "garbage")
        self._plan_faults()
        await asyncio.sleep(LIFE_S)
        self._calm()
        await asyncio.sleep(CALM_S)
        self._raise_defects()
        for task in self._tasks:
            task.cancel()
        await self._start_last()
        await self._finish()
        await self._judge()
        self.objects.check_names(
            decode_ledger_list(node.value)
            for node in await self.state.nodes()
            if node.path.startswith(ROOT) and node.path.count("/") == LIST_DEPTH
        )
        self._raise_defects()
        self.counts.copies_made = self.objects.copies_made
        self.counts.clock_jumps = self.clock.jumps
        self.counts.bookies_lost = len(self._lost)
        self.counts.copied = self._processes.stats.worker.entries_written
        return self.counts

    def _raise_defects(self) -> None:
        if self._broken is not None:
            raise self._broken
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    def _spawn(self, work: object, name: str) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self.loop.create_task(work, name=name)  # type: ignore[arg-type]
        self._tasks.append(task)
        return task

    # Processes

    async def _run_brokers(self) -> None:
        """One broker after the other; each is killed or stopped, the last one stays."""
        while True:
            broker = SimBroker(self, self._brokers)
            self._brokers += 1
            starting = asyncio.ensure_future(broker.start())
            ends_s = self.loop.time() + self.rng.choice(
                (self.rng.uniform(0.01, 2.0), self.rng.uniform(5.0, 60.0))
            )
            try:
                await self._while_running(starting, ends_s)
                self.broker = broker
                for slot in self._slots:
                    broker.spawn(slot.serve(broker), slot.kind.name)
                await self._watch(broker, ends_s)
            except BrokerError as error:
                self.note(f"{broker.client.name} does not start: {error}")
            except TimeoutError:
                self.note(f"{broker.client.name} is killed in its start")
            self.broker = None
            self.counts.resumed += broker.resumed
            broker.crash()
            self.counts.brokers_killed += 1
            await asyncio.sleep(self.rng.uniform(0.1, 2.0))

    async def _while_running(self, starting: asyncio.Future[None], ends_s: float) -> None:
        if self.is_calm:
            await starting
        else:
            await asyncio.wait_for(starting, max(ends_s - self.loop.time(), 0.001))

    async def _watch(self, broker: SimBroker, ends_s: float) -> None:
        """Returns when the broker is to be killed; stops it in order at times. A defect of a client ends the history."""
        while self.loop.time() < ends_s or self.is_calm:
            for task in broker.tasks:
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    raise error
            await asyncio.sleep(0.1)
        if self.rng.random() < 0.3:
            self.note(f"{broker.client.name} stops")
            self.counts.brokers_stopped += 1
            self.counts.brokers_killed -= 1
            self.broker = None
            try:
                await asyncio.wait_for(broker.close(), 5.0)
            except TimeoutError:
                self.note(f"{broker.client.name} did not end")
        else:
            self.note(f"{broker.client.name} is killed")

    async def _run_operators(self) -> None:
        while not self.is_calm:
            operator = Operator(self, Client(f"operator-{self._operators}"))
            self._operators += 1
            work = self._spawn(operator.run(), operator.client.name)
            await asyncio.sleep(self.rng.choice((self.rng.uniform(1.0, 10.0), self.rng.uniform(10.0, 60.0))))
            if work.done():
                await work
            operator.client.crashed = True
            work.cancel()
            self.counts.operators_killed += 1

    async def _collect_garbage(self) -> None:
        """Bookies give up ledgers that the store does not have."""
        while True:
            await asyncio.sleep(self.rng.uniform(2.0, 10.0))
            for bookie in self.bookies:
                if bookie.up:
                    for ledger_id in sorted({ledger_id for ledger_id, _ in bookie.entries}):
                        if self.state.value_of(ledger_key(ledger_id)) is None:
                            bookie.collect(ledger_id)

    # Faults

    def _plan_faults(self) -> None:
        rng, later = self.rng, self.loop.call_later
        for _ in range(rng.choice((0, 1, 4))):
            later(
                rng.uniform(5.0, LIFE_S),
                self._jump,
                rng.choice((-1, 1)) * rng.choice((3_000, 25_000, 400_000)),
            )
        for _ in range(rng.choice((0, 2, 6))):
            later(rng.uniform(0.0, LIFE_S), self._incident)
        if self.settings.ack_quorum > 1 and rng.random() < 0.5:
            later(rng.uniform(20.0, LIFE_S - 40.0), self._lose_bookie)

    def _jump(self, ms: int) -> None:
        self.note(f"the clock jumps by {ms} ms")
        self.clock.jump(ms)

    def _incident(self) -> None:
        bookie = self.rng.choice([one for one in self.bookies if one.address not in self._lost])
        if bookie.up:
            self.note(f"{bookie.address} dies for a while")
            bookie.crash()
            self.loop.call_later(self.rng.uniform(0.01, 3.0), bookie.start)

    def _lose_bookie(self) -> None:
        bookie = self.rng.choice([one for one in self.bookies if one.up])
        self.note(f"{bookie.address} is lost for good")
        bookie.crash()
        self._lost.add(bookie.address)
        for number in range(self.rng.randint(1, 2)):
            self._processes.spawn(number)

    def _calm(self) -> None:
        self.note("calm")
        self.is_calm = True
        faults = self.network.faults
        faults.drop = faults.slow = 0.0
        self.state.error_rate = self.state.slow_rate = self.objects.error_rate = 0.0
        self._processes.calm()
        for bookie in self.bookies:
            if not bookie.up and bookie.address not in self._lost:
                bookie.start()

    # Requests of clients and operators

    async def all_closed(self, ledger_ids: set[int]) -> bool:
        """Returns True when the metadata of each of them says so; those that were trimmed count as closed."""
        values = [self.state.value_of(ledger_key(each)) for each in ledger_ids]
        return all(value is None or decode(value).state is LedgerState.CLOSED for value in values)

    async def lose_list(self, life: Life) -> None:
        """Removes the node with the ledgers of a topic, as a careless administrator does."""
        life.leaked = True
        key = managed_ledger_key(parse_topic_name(life.name).ledger_name)
        self.state.leaked |= {f"{key}/{cursor}" for cursor in await self.state.store.children(key)}
        await self.state.store.delete(key)
        self.note(f"the list of {life.name} is lost")

    def check_leak(self, found: AuditFinding) -> None:
        """Raises Broken for a finding that is no leak."""
        names = [parse_topic_name(life.name).ledger_name for life in self.lives if life.leaked]
        if found.audit == "ledgers":
            value = self.state.value_of(ledger_key(int(found.subject)))
            # Gone means that its topic has removed it since the second look.
            owner = value and decode(value).custom["pulsar/managed-ledger"].decode()
            is_leak = owner in (None, *names)
        else:
            is_leak = any(name in found.subject for name in names)
        if not is_leak:
            raise Broken(f"{found.kind} {found.subject} is no leak and went into quarantine: {found.reason}")

    async def check_gone(self, life: Life) -> None:
        """Raises Broken while anything of a deleted topic is stored."""
        name = parse_topic_name(life.name)
        texts = (name.base.ledger_name, str(name.base), quote(str(name.base), safe=""))
        for node in await self.state.nodes():
            if any(text in node.path or text.encode() in node.value for text in texts):
                raise Broken(f"{life.name} is deleted, and {node.path} is left")
        for ledger_id, _ in life.positions:
            if self.state.value_of(ledger_key(ledger_id)) is not None:
                raise Broken(f"{life.name} is deleted, and its ledger {ledger_id} is left")

    def copy_of(self, ledger_id: int, entry_id: int) -> bytes:
        """Returns the bytes of an entry as some bookie has them."""
        for bookie in self.bookies:
            if (ledger_id, entry_id) in bookie.entries:
                return bookie.entries[ledger_id, entry_id]
        return b""

    def _judge_removal(self, ledger_id: int) -> None:
        try:
            self._check_removal(ledger_id)
        except Broken as error:
            self.defect(error)
            raise

    def _check_removal(self, ledger_id: int) -> None:
        for life in self.lives:
            if life.kind.tiered and not life.ended and self._is_copied(life, ledger_id):
                self.counts.ledgers_moved += 1
                continue
            for one in life.in_ledger(ledger_id):
                if life.leaked:
                    record = self.state.value_of(ledger_record_key(ledger_id))
                    if record is None or one.body.decode() not in exported(self.folder, str(ledger_id)):
                        raise Broken(f"{one.body!r} of a leak was deleted without a copy")
                elif not life.ended and (needed := life.needed_by(one, self.clock)):
                    raise Broken(
                        f"{one.body!r} of {life.name} was deleted, and {needed} had not acknowledged it"
                    )
                elif not life.ended and life.is_retained(one, self.clock):
                    raise Broken(f"{one.body!r} of {life.name} was deleted before its retention was over")

    def _is_copied(self, life: Life, ledger_id: int) -> bool:
        """Returns True where the copy that the list names has each confirmed message of the ledger."""
        stored = self.state.value_of(managed_ledger_key(parse_topic_name(life.name).ledger_name))
        messages = {entry: number for (its, entry), number in life.positions.items() if its == ledger_id}
        if stored is None or not messages:
            return False
        copy = self.objects.entries(decode_ledger_list(stored), ledger_id)
        return all(
            copy.get(entry, b"").endswith(life.sent[number].body) for entry, number in messages.items()
        )

    # The end

    async def _start_last(self) -> None:
        """Ends the broker with its clients, and starts one without."""
        if self.broker is not None:
            self.counts.resumed += self.broker.resumed
            self.broker.crash()
        self.is_judged = True
        self.broker = SimBroker(self, self._brokers)
        await self.broker.start()
        for _ in range(60):
            if not self.broker.deletions.intents.pending:
                return
            await asyncio.sleep(1.0)
        raise Broken(f"deletions wait: {list(self.broker.deletions.intents.pending)}")

    async def _finish(self) -> None:
        auditor, worker, marks = self._processes.parts(Client("last autorecovery"))
        await asyncio.sleep(3 * SESSION_S)
        await marks.prepare(0)
        for _ in range(60):
            await auditor.look()
            await worker.work()
            needed = [node.path for node in await self.state.nodes() if self._needs_lost(node.value)]
            if not needed and not [ledger_id async for ledger_id in marks.ledgers()]:
                break
            await asyncio.sleep(0.5)
        else:
            raise Broken(f"re-replication does not end: {needed} need {sorted(self._lost)}")
        operator = Operator(self, Client("last operator"))
        for _ in range(5):
            if not await operator.round():
                break

    def _needs_lost(self, value: bytes) -> bool:
        if not value.startswith(b"BookieMetadataFormatVersion"):
            return False
        metadata = decode(value)
        return not self._lost.isdisjoint(bookies_needed(metadata))

    async def _judge(self) -> None:
        broker = self.broker
        assert broker is not None
        if self._processes.locks.owners:
            raise Broken(f"locks of {sorted(self._processes.locks.owners)} are left")
        for life in self.lives:
            if not life.ended and not life.leaked:
                await judge_life(self, broker, life)
        self.counts.resumed += broker.resumed
        nodes = await self.state.nodes()
        found = list(judge(gather(nodes)))
        if found:
            raise Broken(f"the audit finds {[(one.kind, one.subject, one.reason) for one in found]}")
        if left := [node.path for node in nodes if node.path.startswith((LEDGERS, NODES))]:
            raise Broken(f"the quarantine is not empty: {left}")
