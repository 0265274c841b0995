"""The mark of a subscription whose position is to be replicated to other clusters; kept and shown, because there is none."""

from __future__ import annotations

from broker.service.subscriptions.subscription import REPLICATED, Subscription


async def keep_replicated(subscription: Subscription, wanted: bool) -> None:
    """Sets or removes the mark; returns when it is stored. Raises MetadataError."""
    cursor, acks = subscription.cursor, subscription.cursor.acks
    if wanted == subscription.replicated:
        return
    if wanted:
        acks.properties = {**acks.properties, REPLICATED: 1}
    else:
        acks.properties = {name: number for name, number in acks.properties.items() if name != REPLICATED}
    cursor.store.changed()
    await cursor.store.flush()
