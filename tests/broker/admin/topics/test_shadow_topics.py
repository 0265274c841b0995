"""Requests about shadow topics: their creation, the list of a source, refusals, as recorded from Apache 4.2.4."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from foundation.model.position import EARLIEST, Position
from foundation.model.topic_name import TopicName, parse_topic_name
from tests.broker.admin.publishing import publish_plain
from tests.broker.admin.test_rest import PERSISTENT, TOPICS, call, persistent, refusal

SOURCE = "PULSAR.SHADOW_SOURCE"


async def test_shadow_is_created_shown_and_deleted(admin: ClientSession) -> None:
    await call(admin, f"PUT {TOPICS}/t")
    wanted = {SOURCE: f"{PERSISTENT}/t", "mine": "x"}
    assert (await call(admin, f"PUT {TOPICS}/shadow", wanted))[0] == 204
    assert await call(admin, f"GET {TOPICS}/shadow/properties") == (200, wanted)
    assert await call(admin, f"GET {TOPICS}/t/shadowTopics") == (200, [f"{PERSISTENT}/shadow"])
    status, reason = await refusal(admin, f"DELETE {TOPICS}/t?force=true")
    assert status == 422
    assert reason.startswith(f"Delete forbidden. Topic {PERSISTENT}/t is replicated to shadow topics.")
    assert f"{PERSISTENT}/shadow" in reason
    assert (await call(admin, f"DELETE {TOPICS}/shadow"))[0] == 204
    assert (await call(admin, f"DELETE {TOPICS}/t"))[0] == 204


async def test_list_of_shadow_topics_is_checked_as_pulsar_does(admin: ClientSession) -> None:
    for name in ("t", "other"):
        await call(admin, f"PUT {TOPICS}/{name}")
    path = f"{TOPICS}/t/shadowTopics"
    assert await call(admin, f"GET {path}") == (200, "")
    empty = "Cannot specify empty shadow topics, please use remove command instead."
    assert await refusal(admin, f"PUT {path}", []) == (412, empty)
    assert await refusal(admin, f"PUT {path}", ["a/b/c/d/e/f"]) == (
        403,
        "Invalid shadow topic name: a/b/c/d/e/f",
    )
    missing = f"{PERSISTENT}/missing"
    assert await refusal(admin, f"PUT {path}", [missing]) == (412, f"Shadow topic [{missing}] not exists.")
    only = "Only persistent topic can be set as shadow topic"
    assert await refusal(admin, f"PUT {path}", ["non-persistent://public/default/x"]) == (412, only)
    assert (await call(admin, f"PUT {path}", [1]))[0] == 400
    assert (await call(admin, f"PUT {path}", [f"{PERSISTENT}/other"]))[0] == 204
    assert await call(admin, f"GET {path}") == (200, [f"{PERSISTENT}/other"])
    # An ordinary topic in the list reads nothing of the source.
    assert (await call(admin, f"DELETE {TOPICS}/t"))[0] == 204


async def test_removed_list_lets_the_source_be_deleted(admin: ClientSession) -> None:
    await call(admin, f"PUT {TOPICS}/t")
    await call(admin, f"PUT {TOPICS}/shadow", {SOURCE: f"{PERSISTENT}/t"})
    assert (await call(admin, f"DELETE {TOPICS}/t/shadowTopics"))[0] == 204
    assert await call(admin, f"GET {TOPICS}/t/shadowTopics") == (200, "")
    assert (await call(admin, f"DELETE {TOPICS}/t"))[0] == 204


async def with_backlog(admin: ClientSession, broker: BrokerService) -> TopicName:
    """Makes a source of ten entries and a shadow whose subscription has acknowledged four; returns the source."""
    await publish_plain(broker, f"{PERSISTENT}/t", 10)
    for name in ("shadow", "other"):
        await call(admin, f"PUT {TOPICS}/{name}", {SOURCE: f"{PERSISTENT}/t"})
    shadow = await persistent(broker, "shadow")
    subscription = await shadow.subscribing.create("s", EARLIEST)
    subscription.acknowledge_through(Position(shadow.ledger.last_confirmed.ledger_id, 3))
    await subscription.cursor.store.flush()
    return parse_topic_name(f"{PERSISTENT}/t")


LOSS = (
    f"{PERSISTENT}/t keeps nothing more for {PERSISTENT}/shadow, which is not among its shadow topics: subscription s may"
    " lose 6 entries"
)


@pytest.mark.parametrize("listed", [None, [f"{PERSISTENT}/other"]])
async def test_removal_from_the_list_of_a_closed_source_says_what_is_lost(
    admin: ClientSession, broker: BrokerService, caplog: pytest.LogCaptureFixture, listed: list[str] | None
) -> None:
    source = await with_backlog(admin, broker)
    await broker.registry.unload(source)
    assert broker.registry.topics == {}
    # A shadow that stays in the list loses nothing.
    names = [f"{PERSISTENT}/shadow", f"{PERSISTENT}/other"]
    assert (await call(admin, f"PUT {TOPICS}/t/shadowTopics", names))[0] == 204
    assert "may lose" not in caplog.text
    assert (await call(admin, f"{'PUT' if listed else 'DELETE'} {TOPICS}/t/shadowTopics", listed))[0] == 204
    assert [one.getMessage() for one in caplog.records if "lose" in one.getMessage()] == [f"! {LOSS}"]


async def test_loss_is_counted_through_the_open_ledger_of_another_broker(
    admin: ClientSession, broker: BrokerService, caplog: pytest.LogCaptureFixture
) -> None:
    source = await with_backlog(admin, broker)
    # As a broker counts that does not have the source open.
    await broker.registry.shadows.before_removal(source, None)
    assert LOSS in caplog.text


async def test_source_of_a_topic_is_given_at_its_creation_alone(admin: ClientSession) -> None:
    for name in ("t", "other"):
        await call(admin, f"PUT {TOPICS}/{name}")
    assert (await refusal(admin, f"PUT {TOPICS}/other/properties", {SOURCE: f"{PERSISTENT}/t"}))[0] == 412
    assert (await refusal(admin, f"DELETE {TOPICS}/other/properties?key={SOURCE}"))[0] == 412
    assert (await refusal(admin, f"PUT {TOPICS}/bad", {SOURCE: f"{PERSISTENT}/missing"}))[0] == 405
