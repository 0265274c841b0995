"""One process of a broker in the cluster: its session, its lease of bundles, its topics, without ports."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING

from bookkeeper.ensembles.ledger_id_stock import LedgerIdStock
from bookkeeper.ensembles.ledger_ids import LedgerIds
from bookkeeper.metadata.metadata_store import Versioned
from broker.admin.cluster.transaction_stats import transaction_metadata
from broker.cluster.loads import BrokerLoad, ResourceUse
from broker.cluster.ownership import REPORT_INTERVAL_S, ClusterOwnership
from broker.cluster.transactions import ClusterTransactions
from broker.compose.cache_settings import EntryCacheSettings
from broker.compose.cluster_membership import unload_bundle
from broker.compose.coordinators import OWNED_INTERVAL_S, TIME_OUTS_INTERVAL_S
from broker.managed_ledger.cursor_info_writer import CursorInfoWriter
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.peers.contexts import PeerContexts
from broker.peers.peer_settings import PeerSettings
from broker.peers.peers import PeerAnswer, PeerRefused, Peers
from broker.peers.wires import Wires
from broker.service.compaction.topic_compaction import Compactor
from broker.service.lifecycle.transaction_participants import RegistryParticipants
from broker.service.namespaces.bundles import bundles_of
from broker.service.namespaces.namespaces import Namespaces
from broker.service.settings import ServiceSettings
from broker.service.topics.dormant_topic import NOT_KNOWN
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic_ownership import Addresses, Owner
from broker.service.topics.topic_registry import TopicRegistry
from broker.service.transactions.coordinators import Coordinators
from broker.service.transactions.transaction_limits import TransactionLimits
from entry_cache.compose import ComposedCache
from foundation.loop.turn import Turn
from foundation.model.errors import BrokerError
from foundation.model.topic_name import TopicName
from foundation.model.txn_id import TxnId
from foundation.value import Json
from protocol.commands import parse_command
from protocol.frame import SIZES
from protocol.pulsar_api_pb2 import TxnAction
from tests.fakes.compaction import InlineWorker
from tests.sim.dozing import may_sleep
from tests.sim.followers import Cluster, FollowerStore, Leader, SequenceIds
from tests.sim.lives.life import WallClock
from tests.sim.network import Client

if TYPE_CHECKING:
    from broker.compaction.passes import PassesSettings
    from tests.sim.cluster.history import ClusterHistory

ENTRIES_PER_LEDGER = 5
DUE_S = 0.2
DOZE_S = 2.5
SESSION_S = 6.0


def addresses(place: int) -> Addresses:
    """Returns the addresses of the brokers that run at this place, one after the other."""
    return Addresses(f"pulsar://broker{place}:6650", f"http://broker{place}:8080")


class SimWires(Wires):
    """Ends of transactions, as requests of a client to the broker."""

    def __init__(self, history: ClusterHistory) -> None:
        super().__init__(PeerSettings, dict, PeerContexts())
        self._history = history

    async def tell(self, to: Addresses, encode: Callable[[int], bytes]) -> None:
        request = parse_command(encode(1)[SIZES.size :]).endTxnOnPartition
        txn = TxnId(request.txnid_most_bits, request.txnid_least_bits)

        async def end(process: ClusterProcess) -> None:
            commit = request.txn_action == TxnAction.COMMIT
            await process.local.end_on_topic(request.topic, txn, commit=commit)

        await self._history.ask(to, end)


class SimPeers(Peers):
    """Requests to other brokers, as clients send theirs."""

    def __init__(self, history: ClusterHistory, process: ClusterProcess) -> None:
        super().__init__(PeerSettings)
        self.wires = SimWires(history)
        self._history = history
        self._process = process

    async def request(
        self,
        to: Addresses,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json = None,
    ) -> PeerAnswer:
        if path.endswith("/unload"):
            await self._history.unload_at(to, path, (query or {})["destinationBroker"])
            self._history.shed(self._process, path)
            return PeerAnswer(None, to)
        if path.endswith("/split"):
            bundle = path.removeprefix("/admin/v2/namespaces/").removesuffix("/split")
            unloads = (query or {})["unload"] == "true"
            await self._history.divisions.request(to, bundle, unloads=unloads)
            self._history.counts.divided_for_balance += 1
            return PeerAnswer(None, to)
        most, least = map(int, path.removeprefix("/admin/v3/transactions/transactionMetadata/").split("/"))
        txn = TxnId(most, least)

        async def answer(process: ClusterProcess) -> Json:
            known = (await process.coordinators.at_owner(txn.most)).transactions.get(txn)
            return None if known is None else transaction_metadata(known, {})

        found = await self._history.ask(to, answer)
        if found is None:
            raise PeerRefused("not found", 404)
        return PeerAnswer(found, to)

    async def find_owner(self, topic: TopicName, first: Addresses, *, authoritative: bool) -> Addresses:
        return await self._history.find_owner(topic, first, authoritative=authoritative)


class ProcessStore(FollowerStore):
    """The session of a process. Once that has crashed, none of its requests arrives any more."""

    def __init__(self, cluster: Cluster, process: ClusterProcess) -> None:
        self.process = process
        self.seen: dict[str, tuple[Leader, bytes]] = {}
        """Keys whose removal was asked at once after a read of the same session: the session, and the value read."""
        self._last_read: tuple[str, Leader, float, bytes] | None = None
        """Key, session, time of the answer, and value of the last read that found one."""
        super().__init__(cluster)

    async def get(self, key: str) -> Versioned | None:
        session = self._known
        found = await super().get(key)
        if found is not None:
            self._last_read = key, session, self._cluster.loop.time(), found.value
        return found

    async def delete(self, key: str, expected: int | None = None) -> None:
        self.seen.pop(key, None)
        if self._last_read is not None:
            *read, value = self._last_read
            if read == [key, self._known, self._cluster.loop.time()]:
                self.seen[key] = self._known, value
        await super().delete(key, expected)

    async def _travel(self) -> None:
        await self._while_alive()
        await super()._travel()
        await self._while_alive()

    async def _while_alive(self) -> None:
        if self.process.client.crashed:
            await asyncio.get_running_loop().create_future()


class SimOwnership(ClusterOwnership):
    """Tells of which bundles it says that they are this broker's."""

    named: Callable[[str], None]
    """Called in the moment in which a lookup gets this broker as the owner of a bundle."""

    async def owner_of_bundle(self, bundle: str, *, authoritative: bool = False) -> Owner:
        found = await super().owner_of_bundle(bundle, authoritative=authoritative)
        if found.addresses == self.owner and not found.is_redirect:
            self.named(bundle)
        return found


class ClusterProcess:
    """A broker from its start to its end."""

    def __init__(self, history: ClusterHistory, place: int, number: int) -> None:
        self.client = Client(f"broker{place}-{number}")
        self.place = place
        self.addresses = addresses(place)
        self.clock = WallClock(history.loop)
        self.is_up = False
        """True while clients reach it: between its start and its stop."""
        self.disturbed_until_s = 0.0
        """Until when the last fault of this process lasts."""
        self.paused_until_s = 0.0
        self._history = history
        loop = history.loop
        self.store = ProcessStore(history.cluster, self)
        self.environment = ManagedLedgerEnvironment(
            metadata=self.store,
            ledgers=history.ledgers_of(self),
            # In blocks, as on a store that is served, or one by one and taken ahead, as on ZooKeeper.
            ids=LedgerIds(self.store, 20) if history.seed % 2 else LedgerIdStock(SequenceIds(self.store)),
            caches=ComposedCache(EntryCacheSettings(1 << 20, policy="pip430")).manager,
            turn=Turn(loop.call_soon, loop.now_ns),
            now_ns=loop.now_ns,
            wall_ms=self.clock.now_ms,
        )
        self.namespaces = Namespaces(self.store, "standalone")
        self.ownership = SimOwnership(
            self.store,
            self.namespaces,
            "sim",
            spawn=self.spawn,
            now_ns=loop.now_ns,
            wall_ms=self.clock.now_ms,
            session_s=SESSION_S,
            peers=SimPeers(history, self),
            settings=lambda: history.divisions.balance_settings,
        )
        self.ownership.leases.made = self.environment.ids.forget
        self.ownership.reports.measure = self._measure
        self.ownership.named = partial(history.divisions.named, self)
        self.registry = TopicRegistry(
            self.environment,
            ManagedLedgerSettings(
                entries_per_ledger_max=ENTRIES_PER_LEDGER, rollover_ns_min=0, mark_delete_rate=1
            ),
            ServiceSettings(delete_inactive=False, ttl_interval_min=0, trim_interval_s=1),
            self.namespaces,
            ownership=self.ownership,
            call_later=loop.call_later,
            compactor=Compactor(_start_worker),
        )
        self.ownership.close_bundle = partial(unload_bundle, self.registry)
        self.local = RegistryParticipants(self.registry, self.clock.now_ms)
        self.coordinators = self._coordinators()
        if history.transactors:
            self.registry.transaction_states = self.coordinators
        self._tasks: set[asyncio.Task[object]] = set()
        self._dozing = random.Random(f"{history.seed} {self.client.name}")

    def _coordinators(self) -> Coordinators:
        return Coordinators(
            self.environment,
            ManagedLedgerSettings(entries_per_ledger_max=50, rollover_ns_min=0, mark_delete_rate=1),
            self.local,
            self.registry.partitions,
            spawn=self.spawn,
            limits=TransactionLimits(),
            cluster=ClusterTransactions(self.ownership, self.local),
        )

    async def _measure(self) -> BrokerLoad:
        """Returns the load that its topics make; each has a weight of its own."""
        found = {bundle: self._history.divisions.load_of(bundle) for bundle in self.ownership.leases}
        return BrokerLoad(cpu=ResourceUse(sum(one.rate_in for one in found.values()), 100.0), bundles=found)

    async def start(self) -> None:
        """Raises BrokerError where the store fails; the process ends then."""
        await self.namespaces.open()
        if self._history.transactors:
            await self.coordinators.open()
        await self.ownership.open(self.addresses)
        self.spawn(self._every(DUE_S, self._run_due), "due")
        self.spawn(self._every(REPORT_INTERVAL_S, self.ownership.tick), "load report")
        self.spawn(self._every(DOZE_S, self._doze), "falling asleep")
        if self._history.transactors:
            self.spawn(self._every(OWNED_INTERVAL_S, self.coordinators.keep_open), "coordinators")
            self.spawn(self._every(TIME_OUTS_INTERVAL_S, self._time_outs), "time-outs")
        self.is_up = True

    async def _time_outs(self) -> None:
        self.coordinators.tick()

    async def stop(self) -> None:
        """Stops in order."""
        await self.coordinators.close()
        await self.ownership.leave()
        self.is_up = False
        await self.registry.close()
        await self.namespaces.stored.close()
        await self.store.close()

    def crash(self) -> None:
        """Ends the process at once; its session ends by its time-out."""
        self.is_up = False
        if not self.client.crashed:
            self.client.crashed = True
            for task in list(self._tasks):
                task.cancel()

    def pause(self, seconds: float) -> None:
        """Nothing leaves the process and nothing comes in, as after SIGSTOP."""
        until_s = self._history.loop.time() + seconds
        self.paused_until_s = max(self.paused_until_s, until_s)
        self._history.network.stalled_until_s[self.client.name] = self.paused_until_s
        self.store.cut(seconds, SESSION_S, silently=True)

    def spawn(self, work: Coroutine[object, object, object], name: str) -> asyncio.Task[object]:
        """Runs it as long as this process lives."""
        task: asyncio.Task[object] = self._history.loop.create_task(work, name=f"{self.client.name} {name}")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._history.failed(self, error)

    def knows(self, bundle: str) -> bool:
        """Returns True for a bundle, `tenant/namespace/range`, that is there as far as this process knows."""
        namespace, _, text = bundle.rpartition("/")
        return text in bundles_of(self.namespaces, namespace)

    def disturb(self, seconds: float) -> None:
        """Notes a fault."""
        self.disturbed_until_s = max(self.disturbed_until_s, self._history.loop.time() + seconds)

    @property
    def is_well(self) -> bool:
        """True where nothing hinders it from serving."""
        return (
            self.is_up
            and self._history.loop.time() > self.disturbed_until_s
            and self.ownership._is_joined
            and self.ownership._is_connected
        )

    def strays(self) -> list[str]:
        """Returns the open topics without a lease, and those with a cursor that another broker seems to store."""
        return [
            text
            for text, topic in self.registry.topics.items()
            if not topic.closed
            and isinstance(topic, PersistentTopic)
            and (
                self._history.bundle_of(topic.name) not in self.ownership.leases
                or any(
                    isinstance(one.store, CursorInfoWriter) and one.store.closed
                    for one in topic.ledger.cursors.by_name.values()
                )
            )
        ]

    async def _every(self, interval_s: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await work()
            except BrokerError as error:
                self._history.note(f"{self.client.name}: {error}")

    async def _doze(self) -> None:
        """Lets a topic fall asleep at a random moment, also with clients: they come back and wake it."""
        await asyncio.sleep(self._dozing.uniform(0.0, DOZE_S))
        if topics := may_sleep(self.registry):
            self._history.counts.fallen_asleep += 1
            await self.registry.fall_asleep(self._dozing.choice(topics), NOT_KNOWN)

    async def _run_due(self) -> None:
        now_ns = self.environment.now_ns()
        self.environment.unsaved_cursors.write_due(now_ns)
        self.environment.read_deadlines.fire_due(now_ns)


async def _start_worker(settings: PassesSettings) -> InlineWorker:
    return InlineWorker(settings)
