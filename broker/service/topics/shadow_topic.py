"""ShadowTopic: a second front of another topic's log: its own subscriptions, no messages of its own (PIP-180)."""

from __future__ import annotations

from collections.abc import Callable

from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.service.compaction.topic_compaction import Compactor
from broker.service.limits.broker_limits import BrokerLimits
from broker.service.policies.effective_policies import EffectivePolicies
from broker.service.ports import Sends
from broker.service.settings import ServiceSettings
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.transactions.shadow_transactions import ShadowTransactions
from foundation.loop.clock import CallLater
from foundation.loop.turn import Turn
from foundation.model.errors import NotAllowed
from foundation.model.position import Position
from foundation.model.topic_name import TopicName


class ShadowTopic(PersistentTopic):
    """A topic whose managed ledger reads that of its source."""

    __slots__ = ()

    def __init__(
        self,
        name: TopicName,
        ledger: ManagedLedger,
        settings: ServiceSettings,
        policies: EffectivePolicies,
        limits: BrokerLimits,
        *,
        turn: Turn,
        call_later: CallLater,
        on_fenced: Callable[[PersistentTopic], None],
        compactor: Compactor,
    ) -> None:
        super().__init__(
            name,
            ledger,
            settings,
            policies,
            limits,
            turn=turn,
            call_later=call_later,
            on_fenced=on_fenced,
            compactor=compactor,
        )
        self.known_transactions = ShadowTransactions(name, ledger, settings, call_later=call_later)
        ledger.context.view = self.known_transactions
        # Producers ask the source for delays, so each entry must be looked at.
        self.delays.asked = True
        ledger.on_growth = self.subscribing.wake

    def publish(self, sends: Sends) -> None:
        """Refuses messages, as Pulsar does."""
        self.check_open()
        raise NotAllowed("Cannot send messages to a shadow topic")

    async def set_deduplication(self, enabled: bool) -> None:
        """Does nothing: the source drops duplicates."""

    async def terminate(self) -> Position:
        """Raises NotAllowed: only the source can be ended."""
        raise NotAllowed("Terminate is not allowed on shadow topic.")
