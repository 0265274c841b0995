"""Brokers of a cluster as their ownership alone: sessions of one store in memory, and what closed which bundle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import cast

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.cluster.ownership import ClusterOwnership
from broker.peers.peer_settings import PeerSettings
from broker.peers.peers import Peers
from broker.service.namespaces.namespaces import Namespaces
from broker.service.successor import ServiceUrls, Successor
from broker.service.topics.topic_ownership import Addresses
from foundation.model.topic_name import TopicName, parse_topic_name

NOW_MS = 1_795_456_811_163
TOPIC = parse_topic_name("persistent://shop/orders/t")


def addresses(number: int) -> Addresses:
    return Addresses(f"pulsar://host{number}:6650", f"http://host{number}:8080")


class FourBundles(SimpleNamespace):
    """Namespaces of four bundles each, Pulsar's default."""

    cluster = "c1"

    def __init__(self) -> None:
        super().__init__()
        self.missing: set[str] = set()
        """Namespaces that do not exist."""

    def exists(self, namespace: str) -> bool:
        return namespace not in self.missing

    def policies(self, namespace: str) -> dict[str, object]:
        return {}

    def policy(self, namespace: str, key: str) -> None:
        return None


class AskedNodes(Peers):
    """Requests to other brokers as calls."""

    def __init__(self, current: Callable[[], PeerSettings]) -> None:
        super().__init__(current)
        self.nodes: list[Node] = []

    async def find_owner(self, topic: TopicName, first: Addresses, *, authoritative: bool) -> Addresses:
        for _ in range(3):
            asked = next(node for node in self.nodes if node.addresses == first)
            found = await asked.ownership.owner_of(topic, authoritative=authoritative)
            if not found.is_redirect:
                return found.addresses
            first, authoritative = found.addresses, found.authoritative
        raise AssertionError("a loop")


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
        self.ownership = ClusterOwnership(
            store,
            cast(Namespaces, self.namespaces),
            "1.0",
            spawn=self._spawn,
            now_ns=lambda: 0,
            wall_ms=lambda: NOW_MS,
            session_s=0.0,
            peers=self.peers,
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


async def cluster(count: int) -> list[Node]:
    """Brokers that have joined one after the other, so that the first one leads."""
    first = MemoryMetadataStore()
    stores = [first, *(first.another() for _ in range(count - 1))]
    nodes = [Node(store, number) for number, store in enumerate(stores)]
    for node in nodes:
        node.peers.nodes = nodes
        await node.open()
    await settle(*nodes)
    return nodes
