"""Restores the transactions of a topic that is being opened."""

from __future__ import annotations

from broker.service.internal_cursors import TRANSACTIONS_CURSOR
from broker.service.subscriptions.transactional_acks import recover_pending_acks
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.transactions.coordinators import Coordinators


async def recover_transactions(topic: PersistentTopic, states: Coordinators | None) -> None:
    """Restores what an earlier life of the topic left. Raises as `Ledgers.read`.

    `states` None: the broker runs without coordinators.
    """
    if states is not None:
        topic.transactions.states = states
        states.forget_topic(str(topic.name))
    if TRANSACTIONS_CURSOR in topic.ledger.cursors.by_name:
        await topic.transactions.recover()
    for subscription in topic.subscriptions.values():
        await recover_pending_acks(subscription)
    if states is not None and states.is_expected(str(topic.name)):
        await topic.transactions.open_buffer()
