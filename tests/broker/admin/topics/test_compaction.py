"""Requests about compactions."""

from __future__ import annotations

from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.topic_name import parse_topic_name

ROOT = "/admin/v2/persistent/public/default"


async def status(admin: ClientSession, method: str, path: str) -> int:
    async with admin.request(method, path) as answer:
        return answer.status


async def create(broker: BrokerService, name: str) -> PersistentTopic:
    topic = await broker.registry.get(parse_topic_name(f"persistent://public/default/{name}"), create=True)
    assert isinstance(topic, PersistentTopic)
    return topic


async def test_state_follows_the_compaction(broker: BrokerService, admin: ClientSession) -> None:
    topic = await create(broker, "t")
    path = f"{ROOT}/t/compaction"
    async with admin.get(path) as answer:
        assert await answer.json() == {"status": "NOT_RUN", "lastError": ""}
    assert await status(admin, "PUT", path) == 204
    assert await status(admin, "PUT", path) in (204, 409)
    await topic.compaction.wait()
    async with admin.get(path) as answer:
        assert await answer.json() == {"status": "SUCCESS", "lastError": ""}
    async with admin.get(f"{ROOT}/t/subscriptions") as answer:
        assert await answer.json() == ["__compaction"]


async def test_second_request_is_refused_while_one_runs(broker: BrokerService, admin: ClientSession) -> None:
    topic = await create(broker, "t")
    topic.compaction.start()
    async with admin.put(f"{ROOT}/t/compaction") as answer:
        refused = answer.status == 409 and await answer.json() == {"reason": "Compaction already in progress"}
        # The compaction of an empty topic may have ended before the request came.
        assert refused or answer.status == 204
    await topic.compaction.wait()


async def test_partitions_are_asked_together(broker: BrokerService, admin: ClientSession) -> None:
    async with admin.put(f"{ROOT}/p/partitions", data="2") as answer:
        assert answer.status == 204
    topics = [await create(broker, f"p-partition-{index}") for index in range(2)]
    assert await status(admin, "PUT", f"{ROOT}/p/compaction") == 204
    for topic in topics:
        await topic.compaction.wait()
        assert topic.compaction.status == "SUCCESS"
    assert await status(admin, "GET", f"{ROOT}/p/compaction") == 404


async def test_missing_and_non_persistent_topics_are_refused(
    broker: BrokerService, admin: ClientSession
) -> None:
    assert await status(admin, "PUT", f"{ROOT}/absent/compaction") == 404
    assert await status(admin, "GET", f"{ROOT}/absent/compaction") == 404
    assert await status(admin, "PUT", "/admin/v2/persistent/public/absent/t/compaction") == 404
    await broker.registry.get(parse_topic_name("non-persistent://public/default/n"), create=True)
    assert await status(admin, "PUT", "/admin/v2/non-persistent/public/default/n/compaction") == 405


async def test_position_of_the_subscription_cannot_be_moved(
    broker: BrokerService, admin: ClientSession
) -> None:
    topic = await create(broker, "t")
    topic.compaction.start()
    await topic.compaction.wait()
    own = f"{ROOT}/t/subscription/__compaction"
    assert await status(admin, "POST", f"{own}/skip_all") == 405
    assert await status(admin, "POST", f"{own}/resetcursor/1") == 405
    assert await status(admin, "DELETE", own) == 204
