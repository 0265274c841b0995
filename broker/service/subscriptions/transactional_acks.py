"""Acknowledgements of transactions on a subscription: made, ended, and restored after a restart.

`SubscriptionTransactions` keeps them. This module also tells the dispatcher, which tracks pending entries.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from broker.service.consumer import Consumer
from broker.service.entry_facts import messages_left
from broker.service.subscriptions.dispatch.shared_dispatcher import SharedDispatcher
from broker.service.subscriptions.dispatch.single_active_dispatcher import SingleActiveDispatcher
from broker.service.subscriptions.subscription import Subscription
from broker.service.transactions.pending_acks import PROPERTY, AckedEntry
from foundation.model.errors import BrokerError, NotAllowed
from foundation.model.position import Position
from foundation.model.txn_id import TxnId


def acknowledge_in_transaction(
    subscription: Subscription,
    consumer: Consumer,
    txn: TxnId,
    entries: Sequence[AckedEntry],
    *,
    cumulative: bool,
) -> None:
    """Acknowledges for a transaction; it counts once that is committed.

    TransactionConflict, TooManyRequests, or NotAllowed for a cumulative one where many consumers share. A refused
    request changes nothing.
    """
    dispatcher = subscription.dispatcher
    if cumulative:
        if isinstance(dispatcher, SharedDispatcher):
            raise NotAllowed(
                f"Subscription {subscription.name} is shared; acknowledge its messages one by one"
            )
        for through in entries:
            subscription.require_transactional().acknowledge_cumulative(txn, through)
        return
    transactional = subscription.require_transactional()
    existing = transactional.acknowledge(txn, entries)
    if isinstance(dispatcher, SharedDispatcher):
        for entry in existing:
            left = subscription.cursor.acks.ack_set_of(entry.key)
            if transactional.pending.covers(entry.key):
                dispatcher.settled(consumer, entry.key, final=False)
            elif left is not None:
                dispatcher.settled(consumer, entry.key, messages_left(left), final=False)


async def end_on_subscription(subscription: Subscription, txn: TxnId, *, commit: bool) -> None:
    """Ends a transaction on a subscription; durable when it returns. After MetadataError the caller asks again."""
    transactional, dispatcher = subscription.transactional, subscription.dispatcher
    if transactional is None:
        return
    batch_index_acks = subscription.topic.settings.batch_index_acks
    ended = transactional.end(txn, commit=commit, batch_index_acks=batch_index_acks)
    if ended is not None and not commit:
        await _take_back(subscription, ended.keys)
    elif ended is not None and dispatcher is not None:
        if isinstance(dispatcher, SharedDispatcher) and dispatcher.redelivery.counts:
            for key in ended.keys:
                remaining = 0 if subscription.cursor.acks.is_acknowledged(key) else 1
                dispatcher.redelivery.acknowledged(key, remaining)
        if subscription.cursor.context.is_terminated:
            dispatcher.acknowledged()
    await subscription.cursor.store.flush()


async def _take_back(subscription: Subscription, keys: Sequence[tuple[int, int]]) -> None:
    """Delivers entries again whose acknowledgements were aborted."""
    dispatcher = subscription.dispatcher
    if isinstance(dispatcher, SingleActiveDispatcher):
        if dispatcher.active is not None:
            dispatcher.redeliver(dispatcher.active)
    elif dispatcher is not None:
        # Entries ahead of the cursor come by reading on: queued too, they would be delivered twice. This is decided before
        # the wait below, in which the cursor may pass and deliver them.
        passed = [key for key in keys if subscription.cursor.has_passed(*key)]
        hashes = dict.fromkeys(passed, 0)
        if dispatcher.keys is not None:
            # Key_Shared queues by the hash of the key, which stands in the entry.
            for key in passed:
                # An entry that cannot be read now keeps hash 0, for a key that is known only after the next read. Raised,
                # the error would lose the entries: the coordinator asks again, and finds no acknowledgements any more.
                with contextlib.suppress(BrokerError):
                    entry = await subscription.topic.ledger.read_entry(Position(*key))
                    hashes[key] = dispatcher.redelivery.hash_of(entry)
        # The consumers may have left while this waited; the next dispatcher begins at the first open entry.
        if dispatcher.consumers:
            dispatcher.take_back(hashes.items())


async def recover_pending_acks(subscription: Subscription) -> None:
    """Restores what an earlier life of the topic left; releases it where the transactions are over."""
    if PROPERTY in subscription.cursor.store.cursor_properties:
        pending = subscription.require_transactional().pending
        for txn in subscription.topic.transactions.over(pending):
            await end_on_subscription(subscription, txn, commit=False)
