"""Brokers of a cluster as their ownership alone: sessions of one store in memory, and what closed which bundle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Coroutine, Mapping
from types import SimpleNamespace
from typing import cast

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.cluster.balance import GROUP
from broker.cluster.balance_settings import BalanceSettings
from broker.cluster.ownership import ClusterOwnership
from broker.peers.peer_settings import PeerSettings
from broker.peers.peers import PeerAnswer, Peers
from broker.service.namespaces.bundles import Bundles
from broker.service.namespaces.namespaces import NamespaceNotFound, Namespaces
from broker.service.namespaces.stored_forms import BUNDLES_KEY
from broker.service.successor import ServiceUrls, Successor
from broker.service.topics.topic_ownership import Addresses, Listener
from foundation.model.topic_name import TopicName, parse_topic_name
from foundation.value import Json

NOW_MS = 1_795_456_811_163
TOPIC = parse_topic_name("persistent://shop/orders/t")


def addresses(number: int, *, outside: bool = False) -> Addresses:
    """Addresses of a broker; `outside`: with a listener that has a URL of its own."""
    listeners = {"outside": Listener(f"pulsar://host{number}.example.org:6650")} if outside else {}
    return Addresses(f"pulsar://host{number}:6650", f"http://host{number}:8080", listeners=listeners)


class FourBundles(SimpleNamespace):
    """Namespaces of four bundles each, Pulsar's default."""

    cluster = "c1"

    def __init__(self) -> None:
        super().__init__()
        self.missing: set[str] = set()
        """Namespaces that do not exist."""
        self.bundles = Bundles.equal(4)
        """Those of each namespace."""
        self.groups: dict[str, str] = {}
        """Anti-affinity groups by namespace."""
        self.listed: list[str] = []
        """Those that lists show."""
        self.stored = self
        """Every copy is the newest one."""

    async def read_newest(self, namespace: str) -> None:
        """Has it already."""

    def tenants(self) -> list[str]:
        return sorted({name.partition("/")[0] for name in self.listed})

    def names(self, tenant: str) -> list[str]:
        return [name for name in self.listed if name.startswith(f"{tenant}/")]

    def exists(self, namespace: str) -> bool:
        return namespace not in self.missing

    def policies(self, namespace: str) -> dict[str, object]:
        if namespace in self.missing:
            raise NamespaceNotFound("Namespace not found")
        return {}

    def policy(self, namespace: str, key: str) -> Json:
        if key == BUNDLES_KEY:
            return self.bundles.json()
        return self.groups.get(namespace) if key == GROUP else None


class AskedNodes(Peers):
    """Requests to other brokers as calls."""

    def __init__(self, current: Callable[[], PeerSettings]) -> None:
        super().__init__(current)
        self.nodes: list[Node] = []
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        """The requests."""

    async def find_owner(self, topic: TopicName, first: Addresses, *, authoritative: bool) -> Addresses:
        for _ in range(3):
            asked = next(node for node in self.nodes if node.addresses == first)
            found = await asked.ownership.owner_of(topic, authoritative=authoritative)
            if not found.is_redirect:
                return found.addresses
            first, authoritative = found.addresses, found.authoritative
        raise AssertionError("a loop")

    async def request(
        self,
        to: Addresses,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json = None,
    ) -> PeerAnswer:
        self.asked.append((to.broker_id, path, dict(query or {})))
        bundle, _, action = path.removeprefix("/admin/v2/namespaces/").rpartition("/")
        if action == "unload":
            asked = next(node for node in self.nodes if node.addresses == to)
            await asked.ownership.unload(bundle, (query or {})["destinationBroker"])
        return PeerAnswer(None, to)


class Node:
    """One broker."""

    def __init__(self, store: MemoryMetadataStore, number: int) -> None:
        self.store = store
        self.closed: list[str] = []
        self.told: list[ServiceUrls] = []
        """The next owner of each closed bundle, as clients are told."""
        self._is_dead = False
        self._tasks: set[asyncio.Task[object]] = set()
        self.namespaces = FourBundles()
        self.peers = AskedNodes(PeerSettings)
        self.settings = BalanceSettings()
        self.now_ms = NOW_MS
        self.ownership = ClusterOwnership(
            store,
            cast(Namespaces, self.namespaces),
            "1.0",
            spawn=self._spawn,
            now_ns=lambda: self.now_ms * 1_000_000,
            wall_ms=lambda: self.now_ms,
            session_s=0.0,
            peers=self.peers,
            settings=lambda: self.settings,
        )
        self.ownership.close_bundle = self._close
        self.addresses = addresses(number)

    async def _close(self, bundle: str, successor: Successor | None) -> None:
        self.closed.append(bundle)
        if successor is not None:
            successor.when_known(self.told.append)

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        if self._is_dead:
            work.close()
            return
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Returns when nothing of this broker is under way."""
        await asyncio.sleep(0)
        while self._tasks:
            await asyncio.gather(*self._tasks)

    async def kill(self) -> None:
        """Ends the session, of which this broker itself learns nothing."""
        self._is_dead = True
        await self.store.close()

    async def open(self) -> ClusterOwnership:
        await self.ownership.open(self.addresses)
        return self.ownership


async def settle(*nodes: Node) -> None:
    """Lets watches and what they begin come to an end."""
    for _ in range(3):
        for node in nodes:
            await node.settle()


async def cluster(count: int, *, outside: Container[int] = ()) -> list[Node]:
    """Brokers that have joined one after the other, so that the first one leads; `outside`: those with that listener."""
    first = MemoryMetadataStore()
    stores = [first, *(first.another() for _ in range(count - 1))]
    nodes = [Node(store, number) for number, store in enumerate(stores)]
    for number, node in enumerate(nodes):
        node.peers.nodes = nodes
        node.addresses = addresses(number, outside=number in outside)
        await node.open()
    await settle(*nodes)
    return nodes
