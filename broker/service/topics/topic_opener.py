"""TopicOpener: makes a persistent topic from what is stored of it. Imported late: no topic is open at a start."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bookkeeper.metadata.metadata_store import Lease, Versioned
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.service.compaction.topic_compaction import Compactor
from broker.service.limits.broker_limits import BrokerLimits
from broker.service.namespaces.partitioned_metadata import StoredPartitions
from broker.service.policies.effective_policies import EffectivePolicies
from broker.service.topics.dormant_topic import DormantTopic
from broker.service.topics.persistent_topic import PersistentTopic, open_compaction
from broker.service.topics.shadows import Shadows, shadow_properties
from broker.service.topics.transaction_recovery import recover_transactions
from broker.service.transactions.coordinators import Coordinators
from foundation.loop.clock import CallLater
from foundation.model.topic_name import TopicName


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
        record: DormantTopic | None,
        stored: Versioned | None,
        lease: Lease | None,
        ledger_settings: ManagedLedgerSettings,
        transaction_states: Coordinators | None,
        partitioned: StoredPartitions,
    ) -> PersistentTopic:
        """Opens the log and all that belongs to it. Raises as `ManagedLedger.open`.

        `stored`: the list of its ledgers, where the caller has read it. `partitioned`: of a partition.
        """
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
            nodes=None if record is None else record.take_nodes(),
            known=stored,
            lease=lease,
            properties=shadow_properties(partitioned),
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
