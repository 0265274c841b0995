"""Expiry: acknowledges the old entries of a subscription for an administrator, by a time or through a position.

By a time, the rule is that of the time to live (`MessageExpiry`). Through a position, everything up to it is acknowledged.
"""

from __future__ import annotations

from broker.service.subscriptions.subscription import Subscription
from foundation.model.errors import BrokerError
from foundation.model.position import Position


class NotExpired(BrokerError):
    """Nothing can expire now; Pulsar's status."""

    status = 409


async def expire_older(subscription: Subscription, before_ms: int) -> int:
    """Acknowledges each entry older than the time (ms since 1970) and returns their number.

    A delayed message counts from its delivery time, by the rule of `MessageExpiry`.
    NotExpired without a backlog, while another expiry of the subscription runs, or after a seek meanwhile.
    """
    topic, seeks = subscription.topic, subscription.cursor.seeks
    if not subscription.cursor.backlog or subscription.expired.running:
        raise NotExpired(
            f"Expire message by timestamp not issued on topic {topic.name} for subscription {subscription.name} due to"
            " ongoing message expiration not finished or subscription almost catch  up. If it's performed on a"
            " partitioned topic operation might succeeded on other partitions, please check stats of individual partition."
        )
    subscription.expired = subscription.expired._replace(running=True)
    try:
        count = await topic.expiry.expire(subscription, before_ms)
    finally:
        subscription.expired = subscription.expired._replace(running=False)
    if subscription.cursor.seeks != seeks:
        raise NotExpired(
            f"A seek moved subscription {subscription.name} of {topic.name} while its messages expired, so the expiry ended"
            f" after {count} entries; ask again to expire messages at the new position too"
        )
    return count


def expire_through(subscription: Subscription, position: Position) -> int:
    """Acknowledges each entry through the position and returns their number.

    NotExpired for a position past the last entry, or while another expiry of the subscription runs.
    """
    topic = subscription.topic
    if position > topic.ledger.last_confirmed or subscription.expired.running:
        raise NotExpired(
            f"Expire message by position not issued on topic {topic.name} for subscription {subscription.name} due to"
            " ongoing message expiration not finished or invalid message position provided."
        )
    before = subscription.cursor.backlog
    subscription.acknowledge_through(position)
    count = before - subscription.cursor.backlog
    subscription.expired = subscription.expired.counted(count, topic.ledger.environment.wall_ms())
    return count
