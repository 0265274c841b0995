"""ShadowTopic: a second front of another topic's log: its own subscriptions, no messages of its own (PIP-180)."""

from __future__ import annotations

from broker.service.ports import Sends
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.transactions.shadow_transactions import ShadowTransactions
from foundation.loop.clock import CallLater
from foundation.model.errors import NotAllowed
from foundation.model.position import Position


class ShadowTopic(PersistentTopic):
    """A topic whose managed ledger reads that of its source."""

    __slots__ = ()

    def publish(self, sends: Sends) -> None:
        """Refuses messages, as Pulsar does."""
        self.check_open()
        raise NotAllowed("Cannot send messages to a shadow topic")

    async def set_deduplication(self, enabled: bool) -> None:
        """Does nothing: the source drops duplicates."""

    async def terminate(self) -> Position:
        """Raises NotAllowed: only the source can be ended."""
        raise NotAllowed("Terminate is not allowed on shadow topic.")


def follow_source(topic: PersistentTopic, call_later: CallLater) -> None:
    """Lets a new shadow topic look at each entry that its source gets from here on."""
    ledger = topic.ledger
    topic.known_transactions = ShadowTransactions(topic.name, ledger, topic.settings, call_later=call_later)
    ledger.context.view = topic.known_transactions
    # Producers ask the source for delays, so each entry must be looked at.
    topic.delays.asked = True
    ledger.on_growth = topic.subscribing.wake
