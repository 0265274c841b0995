"""Deletes subscriptions that had no consumer for a time (`subscriptionExpirationTimeMinutes`)."""

from __future__ import annotations

import logging

from broker.service.internal_cursors import INTERNAL_CURSORS
from broker.service.policies.table import SUBSCRIPTION_EXPIRATION
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.units import NS_PER_MINUTE

log = logging.getLogger("magnetar")


def is_unused(subscription: Subscription, minutes: int, now_ns: int) -> bool:
    """Returns True for a durable subscription without a consumer for so long; 0 minutes = never.

    The time counts from the leave of the last consumer, or from the opening of the topic. Replicated ones stay, because
    their consumers may be in another cluster.
    """
    return (
        minutes > 0
        and subscription.durable
        and not subscription.consumers
        and not subscription.replicated
        and subscription.name not in INTERNAL_CURSORS
        and now_ns - subscription.left_at_ns >= minutes * NS_PER_MINUTE
    )


async def delete_unused_subscriptions(topic: PersistentTopic) -> None:
    """Deletes the topic's subscriptions that are unused. Raises MetadataError."""
    minutes = topic.policies.of(topic.name, SUBSCRIPTION_EXPIRATION)
    if minutes <= 0 or topic.name.is_system:
        return
    now_ns = topic.ledger.environment.now_ns()
    for subscription in list(topic.subscriptions.values()):
        if is_unused(subscription, minutes, now_ns):
            backlog = subscription.cursor.backlog
            await topic.subscribing.delete(subscription, None, force=False)
            log.info(
                "subscription %s of %s deleted: no consumer for %d min, %d entries unread",
                *(subscription.name, topic.name, minutes, backlog),
            )
