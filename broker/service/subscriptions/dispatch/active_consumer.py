"""Chooses the active consumer of an Exclusive or Failover subscription. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from broker.service.consumer import Consumer
from broker.service.subscriptions.dispatch.key_shared import sticky_key_hash

_RING_POINTS = 100
"""Points of each consumer on the ring, as in Pulsar; another number would choose other consumers."""


def choose_active(
    consumers: Sequence[Consumer], *, partition: int, topic_name: str, consistent_hashing: bool
) -> Consumer | None:
    """Returns the active consumer, None without consumers.

    Only consumers of the best priority are candidates. Partition n takes the candidate number n by name, modulo their
    count, which spreads partitions evenly. A topic without partitions (`partition` -1), or any topic with
    `activeConsumerFailoverConsistentHashing`, takes the next candidate on a hash ring.
    """
    if not consumers:
        return None
    best = min(consumer.options.priority for consumer in consumers)
    candidates = sorted(
        (consumer for consumer in consumers if consumer.options.priority == best),
        key=lambda consumer: consumer.name,
    )
    if len(candidates) == 1:
        return candidates[0]
    if partition >= 0 and not consistent_hashing:
        return candidates[partition % len(candidates)]
    return _on_ring(candidates, topic_name)


def _on_ring(candidates: list[Consumer], topic_name: str) -> Consumer:
    """Picks a consumer by hash ring: the topic's hash picks the next point."""
    ring: dict[int, Consumer] = {}
    for consumer in candidates:
        for point in range(_RING_POINTS):
            # Pulsar's text of a point. Names sorted before: of two with one point the later name gets it.
            ring[sticky_key_hash(f"{consumer.name}{point}".encode())] = consumer
    points = sorted(ring)
    place = bisect_left(points, sticky_key_hash(topic_name.encode()))
    return ring[points[place % len(points)]]
