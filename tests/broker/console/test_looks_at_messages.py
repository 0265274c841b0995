"""Looks at single messages count as reads for the metrics, and not in the hit ratios of the console."""

from __future__ import annotations

import time

from broker.console.topic_rows import hit_ratio_of
from broker.console.traffic import Traffic
from broker.model.position import Position
from tests.fakes.stage import EXCLUSIVE, Stage


async def test_looks_leave_the_hit_ratio_to_the_cursors() -> None:
    stage = Stage()
    topic = await stage.open()
    await stage.consume(topic, EXCLUSIVE, permits=100)
    await stage.publish(topic, 3)
    cache = topic.ledger.cache
    cache.clear()
    first = Position(topic.ledger.ledgers.current.ledger_id, 0)
    for _ in range(15):
        await stage.run(topic.ledger.read_entry(first))
    assert (cache.reads.hit_entries, cache.reads.miss_entries) == (3, 15), "the metrics have all"
    assert hit_ratio_of(topic) == 1.0
    assert (cache.cursor_reads.hit_entries, cache.cursor_reads.miss_entries) == (3, 0)
    assert (cache.cursor_reads.hit_bytes, cache.cursor_reads.miss_bytes) == (cache.reads.hit_bytes, 0)
    traffic = Traffic(stage.registry.topics)
    for _ in traffic.walk(time.monotonic_ns()):
        pass
    assert (traffic.counts.hits, traffic.counts.reads) == (3, 3)
    caches = topic.ledger.cache
    manager = stage.environment.caches
    manager.remove(caches.name)
    assert (manager.closed_reads.entries, manager.closed_cursor_reads.entries) == (18, 3)
