"""The mark of a subscription whose position is to be replicated to other clusters; kept and shown, because there is none."""

from __future__ import annotations

from broker.service.subscriptions.subscription import REPLICATED, Subscription


async def keep_replicated(subscription: Subscription, wanted: bool) -> None:
    """Sets or removes the mark; returns when it is stored. Raises MetadataError."""
    cursor = subscription.cursor
    if wanted == subscription.replicated:
        return
    if wanted:
        cursor.acks.properties[REPLICATED] = 1
    else:
        del cursor.acks.properties[REPLICATED]
    cursor.store.changed()
    await cursor.store.flush()
