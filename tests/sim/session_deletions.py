"""Deletions in a history of sessions: every process makes, deletes and resumes partitioned topics on one store.

The deletions are the broker's own (`Deletions`, `Intents`, their steps); topics are a list of ledgers for each partition. A
topic that is made has a generation, which its ledgers and its metadata name. The statements:

* What is removed belongs to a generation whose deletion was decided; so nobody removes what was made anew.
* After all faults each decided deletion is finished, by a process whose session lived, and no intent is left.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Final

from bookkeeper.metadata.metadata_store import ABSENT, Check, Put, Versioned
from broker.managed_ledger.ledger_list import LedgerInfo
from broker.managed_ledger.managed_ledger_info import ManagedLedgerInfo, managed_ledger_key
from broker.managed_ledger.records.pulsar_records import encode_ledger_list
from broker.managed_ledger.removal.deletion import no_tier
from broker.service.lifecycle.deletion.deletions import Deletions
from broker.service.lifecycle.deletion.intents import OWNERS, ROOT
from broker.service.namespaces.partitioned_metadata import (
    PARTITIONED_ROOT,
    PartitionedMetadata,
    StoredPartitions,
    decode_partitions,
)
from broker.service.topics.topic_ownership import TopicOwnership
from foundation.model.errors import BadVersion, BrokerError
from foundation.model.topic_name import TopicName, parse_topic_name
from tests.sim.followers import FollowerStore
from tests.sim.metadata import Broken

TOPICS: Final = ("p", "q")
PARTITIONS: Final = 2
LISTS: Final = "/managed-ledgers/"


def _topic(name: str) -> TopicName:
    return parse_topic_name(f"persistent://sim/n/{name}")


class _NoShadows:
    """No topic has shadows."""

    async def check_deletable(self, _source: TopicName, _deleted: str = "") -> None:
        """Allows the deletion."""

    async def own_partition(self, _name: TopicName) -> None:
        """Leaves the list as it is."""


class _Registry:
    """The part of a registry that deletions of partitioned topics need; no topic is open."""

    def __init__(self, store: FollowerStore) -> None:
        self.ownership = TopicOwnership()
        self.namespaces = SimpleNamespace(exists=lambda _: False)
        self.partitions = PartitionedMetadata(store)
        self.schemas = None
        self.shadows = _NoShadows()
        self.check_open: Callable[[TopicName], Awaitable[None]]

    async def exists(self, _name: TopicName) -> bool:
        """The other domain has a topic of the name, so the schema is not this one's."""
        return True

    async def shut(self, _name: TopicName, work: Callable[[], Awaitable[None]], *, force: bool) -> None:
        await work()


class _Ledgers:
    async def delete(self, _ledger_id: int) -> None:
        """Ids of ledgers are never used twice, so a late removal harms nothing."""


class Deleting:
    """One process."""

    def __init__(self, store: FollowerStore, rng: random.Random, generations: list[int]) -> None:
        """`generations` is shared by all processes: it counts what was made."""
        self._store, self._rng, self._generations = store, rng, generations
        environment = SimpleNamespace(
            metadata=store, ledgers=_Ledgers(), wall_ms=lambda: 1, now_ns=lambda: 0, open_tier=no_tier
        )
        self._registry = _Registry(store)
        self.deletions = Deletions(environment, self._registry)  # type: ignore[arg-type]

    async def act(self) -> str:
        """Makes or deletes a topic, or resumes; returns the outcome, empty where nothing was to be done."""
        name = _topic(self._rng.choice(TOPICS))
        with contextlib.suppress(BrokerError):
            if self._rng.random() < 0.3:
                before = self.deletions.resumed
                await self.deletions.resume()
                return "resumed" if self.deletions.resumed > before else ""
            found = await self._registry.partitions.find(name)
            if found is None:
                await self._registry.check_open(name)
                await self._make(name)
                return "made"
            if not found.deleted:
                await self.deletions.partitioned(name, found.partitions)
                return "deleted"
        return ""

    async def _make(self, name: TopicName) -> None:
        self._generations.append(len(self._generations))
        generation = self._generations[-1]
        await self._registry.partitions.create(name, PARTITIONS, {"generation": str(generation)})
        metadata_key = f"{PARTITIONED_ROOT}/{name.namespace}/{name.domain}/{name.local}"
        for index in range(PARTITIONS):
            info = ManagedLedgerInfo([LedgerInfo(generation)])
            key = managed_ledger_key(name.with_partition(index).ledger_name)
            # No list comes after the decision to delete its topic.
            await self._store.put_all([Put(key, encode_ledger_list(info), ABSENT), Check(metadata_key, 0)])
            # As a list in use: its version is then that of the marked metadata.
            with contextlib.suppress(BadVersion):
                await self._store.put(key, encode_ledger_list(info), 0)


class DeletionWitness:
    """Reads the leader's log."""

    def __init__(self) -> None:
        self._decided: set[int] = set()
        self._values: dict[str, bytes] = {}
        self._made_for: dict[str, int] = {}
        """The generation of each list: that of the topic that was there when the list was made. A request to make one may
        wait until its topic was deleted and made anew, whose metadata has the version that the request names."""

    def changed(self, key: str, value: Versioned | None) -> None:
        """Judges one change. Raises Broken."""
        if key.startswith(f"{PARTITIONED_ROOT}/"):
            if value is not None:
                if decode_partitions(value.value).deleted:
                    # Of the value before: a request that waited for the store may mark the topic that was made anew, whose
                    # version is the same. It was asked to delete what has the name, and has not been answered.
                    self._decided.add(_generation_of(decode_partitions(self._values[key])))
                self._values[key] = value.value
                return
            stored = decode_partitions(self._values.pop(key))
            if not stored.deleted:
                raise Broken(f"{key} was removed without a mark: {stored}")
        elif key.startswith(LISTS):
            if value is not None:
                if key not in self._values:
                    self._made_for[key] = self._generation_at(key)
                self._values[key] = value.value
                return
            del self._values[key]
            self._check(key, self._made_for[key])

    def _generation_at(self, key: str) -> int:
        """Returns the generation of the topic that a list is made for now."""
        topic = key.removeprefix(LISTS).rpartition("-partition-")[0]
        return _generation_of(decode_partitions(self._values[f"{PARTITIONED_ROOT}/{topic}"]))

    def _check(self, key: str, generation: int) -> None:
        if generation not in self._decided:
            raise Broken(f"{key} of generation {generation} was removed, whose deletion nobody had decided")

    def check_finished(self, values: dict[str, Versioned]) -> None:
        """Judges the store after all faults."""
        for key in values:
            if key.startswith((f"{ROOT}/",)) and not key.startswith(f"{OWNERS}/"):
                raise Broken(f"the deletion {key} is not finished")
        for key, value in self._values.items():
            if key.startswith(f"{PARTITIONED_ROOT}/"):
                stored = decode_partitions(value)
                left, what = stored.deleted, _generation_of(stored)
            else:
                what = self._made_for[key]
                left = what in self._decided
            if left:
                raise Broken(f"{key} of the deleted generation {what} is left")


def _generation_of(stored: StoredPartitions) -> int:
    return int(stored.properties["generation"])
