"""Expiry: acknowledges the old entries of a subscription, for an administrator or a time to live.

The decision is `TopicPositions.newest_before`: a binary search over all ledgers for the newest entry older than a time, by
the broker's timestamp of the entry or its publish time. An expiry acknowledges everything up to that entry.
"""

from __future__ import annotations

from broker.model.errors import BrokerError
from broker.model.position import Position
from broker.service.subscription import Subscription


class NotExpired(BrokerError):
    """Nothing can expire now; Pulsar's status."""

    status = 409


async def expire_older(subscription: Subscription, before_ms: int) -> int:
    """Acknowledges each entry older than the time (ms since 1970) and returns their number.

    NotExpired without a backlog, or while another expiry of the subscription runs.
    """
    topic = subscription.topic
    if not subscription.cursor.backlog or subscription.expired.running:
        raise NotExpired(
            f"Expire message by timestamp not issued on topic {topic.name} for subscription {subscription.name} due to"
            " ongoing message expiration not finished or subscription almost catch  up. If it's performed on a"
            " partitioned topic operation might succeeded on other partitions, please check stats of individual partition."
        )
    subscription.expired.running = True
    try:
        newest = await topic.positions.newest_before(before_ms)
    finally:
        subscription.expired.running = False
    return 0 if newest is None else _acknowledge(subscription, newest)


def expire_through(subscription: Subscription, position: Position) -> int:
    """Acknowledges each entry through the position and returns their number.

    NotExpired for a position behind the last entry, or while another expiry of the subscription runs.
    """
    topic = subscription.topic
    if position > topic.ledger.last_confirmed or subscription.expired.running:
        raise NotExpired(
            f"Expire message by position not issued on topic {topic.name} for subscription {subscription.name} due to"
            " ongoing message expiration not finished or invalid message position provided."
        )
    return _acknowledge(subscription, position)


def _acknowledge(subscription: Subscription, through: Position) -> int:
    before = subscription.cursor.backlog
    subscription.acknowledge_through(through)
    count = before - subscription.cursor.backlog
    subscription.expired.count(count, subscription.topic.ledger.environment.wall_ms())
    return count
