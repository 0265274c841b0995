"""TopicOpener: makes a persistent topic from what is stored of it. Imported late: no topic is open at a start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bookkeeper.metadata.metadata_store import Lease
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.managed_ledger_info import StoredNodes, read_nodes
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.service.compaction.topic_compaction import Compactor
from broker.service.limits.broker_limits import BrokerLimits
from broker.service.namespaces.partitioned_metadata import (
    NO_PARTITIONS,
    PartitionedMetadata,
    StoredPartitions,
)
from broker.service.policies.effective_policies import EffectivePolicies
from broker.service.topics.dormant_topic import DormantTopic
from broker.service.topics.persistent_topic import PersistentTopic, open_compaction
from broker.service.topics.shadows import Shadows, shadow_properties
from broker.service.topics.transaction_recovery import recover_transactions
from broker.service.transactions.coordinators import Coordinators
from foundation.loop.clock import CallLater
from foundation.model.topic_name import TopicName


class StoredTopic(NamedTuple):
    """The parts of a topic in the metadata store, read before it is opened."""

    nodes: StoredNodes | None
    """Its managed ledger; None for a topic that does not exist."""
    partitioned: StoredPartitions = NO_PARTITIONS
    """Of a partition or of a topic that does not exist."""
    reserved: int = -1
    """An unused id for its next ledger; -1 = none was taken."""


async def read_stored(
    name: TopicName,
    record: DormantTopic | None,
    environment: ManagedLedgerEnvironment,
    partitions: PartitionedMetadata,
) -> StoredTopic:
    """Reads what is stored of a topic, or takes it from its record. Raises MetadataError, ServiceNotReady.

    On a shared store the record only says what is probably there, so that all of it is read together, and meanwhile an id is
    taken: one round trip in place of four.
    """
    if not name.is_persistent:
        return StoredTopic(None, await partitions.usable(name))
    if record is not None and (nodes := record.take_nodes()) is not None:
        return StoredTopic(nodes)

    async def of_partition() -> StoredPartitions:
        # `check_open` knows the decisions of others as of the last look, this all.
        return await partitions.usable(name) if name.partition >= 0 else NO_PARTITIONS

    async def reserved() -> int:
        # Not before the topic is known to exist: clients may ask for many that do not.
        return -1 if record is None else await environment.ids.next()

    expected = () if record is None else tuple(one.name for one in record.subscriptions)
    nodes, partitioned, ledger_id = await asyncio.gather(
        read_nodes(environment.metadata, name.ledger_name, expected), of_partition(), reserved()
    )
    if nodes is None and name.partition < 0:
        partitioned = await partitions.usable(name)
    return StoredTopic(nodes, partitioned, ledger_id)


class TopicOpener:
    """Opens the persistent topics of one registry."""

    def __init__(
        self,
        environment: ManagedLedgerEnvironment,
        policies: EffectivePolicies,
        limits: BrokerLimits,
        shadows: Shadows,
        call_later: CallLater,
        compactor: Compactor,
        on_fenced: Callable[[PersistentTopic], None],
    ) -> None:
        """`on_fenced`: one object, because each topic would keep a bound method of its own."""
        self._environment, self._policies, self._limits = environment, policies, limits
        self._shadows = shadows
        self._call_later = call_later
        self._compactor = compactor
        self._on_fenced = on_fenced

    async def open(
        self,
        name: TopicName,
        stored: StoredTopic,
        lease: Lease | None,
        ledger_settings: ManagedLedgerSettings,
        transaction_states: Coordinators | None,
    ) -> PersistentTopic:
        """Opens the log and all that belongs to it. Raises as `ManagedLedger.open`."""
        settings = self._policies.settings
        stamp = self._environment.stamp(
            str(name), timestamp=settings.entry_timestamp, index=settings.entry_index
        )
        ledger = await ManagedLedger.open(
            name.ledger_name,
            self._environment,
            ledger_settings,
            stamp=stamp,
            source_of=partial(self._shadows.source_of, name),
            nodes=stored.nodes,
            lease=lease,
            properties=shadow_properties(stored.partitioned),
            reserved=stored.reserved,
        )
        kind = PersistentTopic
        if ledger.source is not None:
            # Imported late: most brokers have no shadow topics.
            from broker.service.topics.shadow_topic import ShadowTopic, follow_source

            kind = ShadowTopic
        topic = kind(
            name,
            ledger,
            settings,
            self._policies,
            self._limits,
            turn=self._environment.turn,
            call_later=self._call_later,
            on_fenced=self._on_fenced,
            compactor=self._compactor,
        )
        if ledger.source is not None:
            follow_source(topic, self._call_later)
        await open_compaction(topic)
        await topic.set_deduplication(self._policies.deduplicates(name))
        await recover_transactions(topic, transaction_states)
        return topic
