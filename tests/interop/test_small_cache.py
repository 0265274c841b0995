"""A cache smaller than what is published in a moment, whose periodic pass is a minute away."""

from __future__ import annotations

import os

import pulsar

from tests.interop.support import Admin, numbered, publish, receive

SETTINGS = {"managedLedgerCacheSizeMB": "1", "managedLedgerCacheEvictionIntervalMs": "60000"}
Earliest = pulsar.InitialPosition.Earliest


def test_a_full_cache_evicts_in_the_turn_of_the_insert(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    """Neither an idle broker's rare look nor the pass of each minute would do it in time."""
    tail = client.subscribe(topic, "tail")
    producer = client.create_producer(topic)
    bodies = [number + os.urandom(64 * 1024) for number in numbered(128)]
    publish(producer, bodies)
    assert receive(tail, len(bodies)) == bodies
    assert admin.metric("pulsar_ml_cache_used_size") <= 1024 * 1024
    assert admin.metric("pulsar_ml_cache_evicted_entries_total") >= 112
    assert receive(client.subscribe(topic, "late", initial_position=Earliest), len(bodies)) == bodies
