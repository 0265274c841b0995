"""RegistryParticipants: topics and subscriptions of this broker, as coordinators end transactions on them."""

from __future__ import annotations

from collections.abc import Callable

from broker.service.subscriptions.transactional_acks import end_on_subscription
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic_registry import TopicRegistry
from broker.service.transactions.transaction_states import Subscribed
from foundation.model.errors import InvalidTopicName, NotAllowed, TopicNotFound
from foundation.model.topic_name import parse_topic_name
from foundation.model.txn_id import TxnId


class RegistryParticipants:
    """Implements `Participants` by calls to the topics of this broker, which may have all."""

    def __init__(self, registry: TopicRegistry, wall_ms: Callable[[], int]) -> None:
        self._registry = registry
        self._wall_ms = wall_ms

    async def prepare_topic(self, topic: str) -> None:
        """Lets an existing topic take messages of transactions. A topic that comes later is prepared when it is opened."""
        found = await self._find(topic)
        if found is not None:
            await found.transactions.open_buffer()

    async def end_on_topic(self, topic: str, txn: TxnId, *, commit: bool) -> None:
        """Ends the transaction on a topic; a missing topic counts as done."""
        self._forget(txn)
        found = await self._find(topic)
        if found is None:
            return
        found.check_open()
        await found.transactions.end(txn, self._wall_ms(), commit=commit)
        # Without a marker (a terminated topic) no confirmed entry wakes them.
        for subscription in found.subscriptions.values():
            if subscription.dispatcher is not None:
                subscription.dispatcher.wake()

    async def end_on_subscription(self, subscribed: Subscribed, txn: TxnId, *, commit: bool) -> None:
        """Ends the transaction on a subscription; a missing one counts as done."""
        self._forget(txn)
        topic, name = subscribed
        found = await self._find(topic)
        subscription = None if found is None else found.subscriptions.get(name)
        if subscription is not None:
            await end_on_subscription(subscription, txn, commit=commit)

    def _forget(self, txn: TxnId) -> None:
        # First: a message that comes after this must not be stored behind the marker.
        if self._registry.transaction_states is not None:
            self._registry.transaction_states.forget(txn)

    async def _find(self, topic: str) -> PersistentTopic | None:
        try:
            found = await self._registry.get(parse_topic_name(topic), create=False)
        except (TopicNotFound, InvalidTopicName, NotAllowed):
            # NotAllowed: the name belongs to a partitioned topic now, whose partitions have names of their own.
            return None
        return found if isinstance(found, PersistentTopic) else None
