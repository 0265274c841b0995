"""A metadata store that refuses, answers late, or hangs, while data is removed.

Clients go on with what needs no metadata, the removal goes on afterwards, nothing leaks, and tasks do not pile up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import Versioned, Write
from broker.service.lifecycle.hole_rounds import HoleRounds
from broker.service.lifecycle.rounds import TopicRounds
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.errors import MetadataError
from foundation.model.position import EARLIEST
from foundation.model.topic_name import parse_topic_name
from magnetar.audit.facts import gather, judge
from tests.fakes.stage import SHARED, TOPIC, Stage
from tests.sim.lives.store import walk

LATE_TURNS = 30
"""Turns of the loop that a late answer takes."""
ROUNDS = 20
OTHER = "persistent://public/default/other"
SERVED = "persistent://public/default/served"


class TroubledMetadata(MemoryMetadataStore):
    """Refuses every request, answers it late, or not before `mend`."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble = ""
        self.keeps_keys = False
        """Refuses to delete, which leaves a deletion that was decided."""
        self._mended = asyncio.Event()

    def mend(self) -> None:
        self.trouble = ""
        self._mended.set()

    async def _meet(self) -> None:
        if self.trouble == "lost":
            raise MetadataError("the session with the metadata store is lost")
        if self.trouble == "late":
            for _ in range(LATE_TURNS):
                await asyncio.sleep(0)
        if self.trouble == "hangs":
            await self._mended.wait()

    async def get(self, key: str) -> Versioned | None:
        await self._meet()
        return await super().get(key)

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        await self._meet()
        return await super().put(key, value, expected)

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        await self._meet()
        return await super().put_all(puts)

    async def delete(self, key: str, expected: int | None = None) -> None:
        await self._meet()
        if self.keeps_keys:
            raise MetadataError("refused by the test")
        await super().delete(key, expected)

    async def children(self, key: str) -> list[str]:
        await self._meet()
        return await super().children(key)


@dataclass
class Play:
    stage: Stage
    store: TroubledMetadata
    topic: PersistentTopic
    other: PersistentTopic


async def _begin() -> Play:
    """Two topics with messages in several ledgers, and one that clients use all the time."""
    store = TroubledMetadata()
    stage = Stage(entries_per_ledger=5, metadata=store)
    topic, other = await stage.open(TOPIC), await stage.open(OTHER)
    for one in (topic, other):
        await stage.run(one.subscribing.create("s", EARLIEST, {}))
        await stage.publish(one, 23)
    return Play(stage, store, topic, other)


async def _expire(play: Play) -> None:
    rounds = TopicRounds(play.stage.registry, "expiry", lambda topic: topic.expiry.look())
    await rounds.run()


async def _trim(play: Play) -> None:
    subscription = play.topic.subscriptions["s"]
    subscription.acknowledge_through(play.topic.ledger.last_confirmed)
    play.topic.ledger.trimming.trim(play.stage.wall_ms)


async def _resume(play: Play) -> None:
    await play.stage.deletions.resume()


Removal = Callable[[Play], Awaitable[None]]
REMOVALS: dict[str, tuple[Removal, Callable[[Play], bool]]] = {
    "expiry": (_expire, lambda play: play.topic.subscriptions["s"].cursor.backlog == 0),
    "trimming": (_trim, lambda play: len(play.topic.ledger.ledgers) <= 2),
    "deletion": (_resume, lambda play: not play.stage.deletions.intents.pending),
}


@pytest.mark.parametrize("trouble", ["lost", "late", "hangs"])
@pytest.mark.parametrize("name", REMOVALS)
async def test_removal_goes_on_after_trouble_with_the_metadata_store(
    name: str, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    play = await _begin()
    stage, store = play.stage, play.store
    remove, is_done = REMOVALS[name]
    if name == "expiry":
        await stage.namespaces.set_topic_policy(TOPIC, "messageTTLInSeconds", 60)
    if name == "deletion":
        store.keeps_keys = True
        with pytest.raises(MetadataError):
            await stage.run(stage.deletions.topic(parse_topic_name(OTHER), force=True))
        store.keeps_keys = False
    served = await stage.open(SERVED)
    _, _, port = await stage.consume(served, SHARED, permits=1000)
    await stage.publish(served, 1)
    await stage.pass_time(120_000)
    caplog.set_level(logging.WARNING)
    caplog.clear()
    tasks_before = len(asyncio.all_tasks())
    store.trouble = trouble
    begun: list[asyncio.Future[None]] = []
    for number in range(ROUNDS):
        begun.append(asyncio.ensure_future(remove(play)))
        await stage.pass_time(60_000)
        if number == ROUNDS // 2:
            assert len((await stage.publish(served, 2)).receipts) == 2
    assert len(port.got) == 3, "what needs no metadata is served"
    waiting = sum(not one.done() for one in begun)
    assert len(asyncio.all_tasks()) - tasks_before - waiting <= 10
    if trouble == "hangs":
        assert waiting <= 2, "rounds that wait do not pile up"
    store.mend()
    for _ in range(3):
        await asyncio.wait([asyncio.ensure_future(stage.settle()), *begun], timeout=60)
        await stage.run(asyncio.ensure_future(remove(play)))
        # As the periodic check does.
        play.topic.ledger.trimming.trim(stage.wall_ms, without_cursors=True)
        await stage.pass_time(60_000)
    assert is_done(play)
    for one in begun:
        assert one.exception() is None or isinstance(one.exception(), MetadataError)
    await stage.run(stage.registry.close())
    assert list(judge(gather(await walk(store)))) == []
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) <= ROUNDS + 2, "a line for each try at most"
    assert not [record for record in lines if record.exc_info], "no traceback"


@pytest.mark.parametrize("trouble", ["lost", "late", "hangs"])
async def test_lost_entries_are_delivered_again_without_metadata(trouble: str) -> None:
    play = await _begin()
    stage = play.stage
    await stage.namespaces.set_topic_policy(
        TOPIC, "magnetar:unackedHoleRedelivery", {"enabled": True, "periodSeconds": 60}
    )
    rounds = HoleRounds(stage.registry, lambda: stage.now_ns)
    _, _, port = await stage.consume(play.topic, SHARED, permits=1000)
    play.store.trouble = trouble
    for _ in range(3):
        await asyncio.wait_for(rounds.run(), 60)
        await stage.pass_time(60_000)
    assert not rounds.running
    assert len(port.got) == 23
    play.store.mend()
    await stage.run(stage.registry.close())


async def test_round_logs_one_line_for_all_topics_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    play = await _begin()

    async def fail(topic: PersistentTopic) -> None:
        raise MetadataError("the session with the metadata store is lost")

    await TopicRounds(play.stage.registry, "expiry", fail).run()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == (
        f"! expiry of {TOPIC}, and of 1 more topics failed, tried again in the next round: "
        "the session with the metadata store is lost"
    )
