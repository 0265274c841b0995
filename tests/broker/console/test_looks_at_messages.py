"""Looks at single messages: those of tools count for the metrics and for no hit ratio, those of the console for nothing."""

from __future__ import annotations

import time
from typing import Any

import pytest
from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from broker.console import messages
from broker.console.traffic import COUNTED, LEVELS, Traffic
from broker.service.topics.persistent_topic import PersistentTopic
from entry_cache.cache_stats import PendingReadStats, ReadStats
from entry_cache.observe.miss_ratio import MissRatios
from foundation.model.position import Position
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
    assert LEVELS["hitRatio"](topic) == 1.0
    assert (cache.cursor_reads.hit_entries, cache.cursor_reads.miss_entries) == (3, 0)
    assert (cache.cursor_reads.hit_bytes, cache.cursor_reads.miss_bytes) == (cache.reads.hit_bytes, 0)
    traffic = Traffic(stage.registry.topics, stage.registry.dormant, stage.environment.changed)
    for _ in traffic.update(time.monotonic_ns()):
        pass
    assert dict(zip(COUNTED, traffic.counts.numbers, strict=True)).items() >= {"hits": 3, "reads": 3}.items()
    caches = topic.ledger.cache
    manager = stage.environment.caches
    manager.remove(caches.name)
    assert (manager.closed_reads.entries, manager.closed_cursor_reads.entries) == (18, 3)


TOPIC = "persistent/public/default/t"


def counted(service: BrokerService) -> list[object]:
    """Everything of the cache that a read changes, but for times."""
    topic = service.registry.topics[f"persistent://{TOPIC.partition('/')[2]}"]
    assert isinstance(topic, PersistentTopic)
    cache, manager = topic.ledger.cache, service.cache.manager
    entries = [entry for ledger in cache.ledgers.values() for entry in ledger.entries.values()]
    return [
        *[getattr(one, name) for one in (cache.reads, manager.closed_reads) for name in ReadStats.__slots__],
        *[str(getattr(manager.stats.pending_reads, name)) for name in PendingReadStats.__slots__],
        [(entry.entry_id, entry.accessed, entry.expected_reads) for entry in entries],
        topic.ledger.stats.storage_entries_read,
        service.cache.decisions.ring.kept,
    ]


async def test_looks_of_the_console_change_neither_counters_nor_the_curve(
    broker: BrokerService, admin: ClientSession
) -> None:
    async def asked(path: str) -> Any:
        async with admin.get(f"/admin/v2/magnetar/{path}") as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    for method, path, body in (
        ("PUT", f"/admin/v2/{TOPIC}", None),
        ("PUT", f"/admin/v2/{TOPIC}/subscription/s", None),
        ("POST", f"/topics/{TOPIC}", {"producerName": "p", "messages": [{"payload": "x"}] * 20}),
    ):
        async with admin.request(method, path, json=body) as answer:
            assert answer.status in (200, 204), await answer.text()
    topic = broker.registry.topics[f"persistent://{TOPIC.partition('/')[2]}"]
    assert isinstance(topic, PersistentTopic)
    ledger_id = topic.ledger.ledgers.current.ledger_id
    await asked("console/cache")
    for cached in (True, False):
        if not cached:
            topic.ledger.cache.clear()
        assert (topic.ledger.cache.entries > 0) is cached
        before = counted(broker)
        shown = await asked(f"console/messages/{TOPIC}/subscription/s?count=10")
        assert [one["entryId"] for one in shown["messages"]] == list(range(10))
        assert [one["index"] for one in shown["messages"]] == list(range(10))
        await asked(f"console/messages/{TOPIC}/ledger/{ledger_id}/entry/3")
        await asked(f"cache/why/{TOPIC}/{ledger_id}/3")
        assert counted(broker) == before
    curve = (await asked("console/cache"))["missRatioCurve"]
    assert (curve["reads"], curve["now"]["measured"], curve["stopped"]) == (0, None, None)
    # Looks of tools are reads for the metrics, and none for the curve.
    async with admin.get(f"/admin/v2/{TOPIC}/ledger/{ledger_id}/entry/3") as answer:
        assert answer.status == 200
    assert counted(broker) != before
    curve = (await asked("console/cache"))["missRatioCurve"]
    assert (curve["reads"], curve["now"]["measured"]) == (0, None)


async def test_curve_says_when_and_why_its_observer_stopped(
    broker: BrokerService, admin: ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def curve() -> Any:
        async with admin.get("/admin/v2/magnetar/console/cache") as answer:
            return (await answer.json())["missRatioCurve"]

    assert (await curve())["stopped"] is None

    def failing(*_: object) -> None:
        raise ZeroDivisionError("by the test")

    monkeypatch.setattr(MissRatios, "_insert", failing)
    async with admin.put(f"/admin/v2/{TOPIC}") as answer:
        assert answer.status == 204
    async with admin.put(f"/admin/v2/{TOPIC}/subscription/s") as answer:
        assert answer.status == 204
    message = {"producerName": "p", "messages": [{"payload": "x"}]}
    async with admin.post(f"/topics/{TOPIC}", json=message) as answer:
        assert answer.status == 200
    stopped = await curve()
    assert stopped["stopped"]["reason"] == "ZeroDivisionError: by the test"
    assert stopped["stopped"]["secondsAgo"] >= 0
    # The curve is that of its end, also later.
    assert (await curve())["sinceSeconds"] == stopped["sinceSeconds"]


def test_payload_with_control_characters_is_no_text() -> None:
    for body, text in ((b"\x00\x01\x02a", None), (b"line\r\n\ttab", "line\r\n\ttab"), (b"\xff", None)):
        assert messages._payload(body, None, None)["text"] == text
