"""Requests about backlogs: their effect on cursors and ledgers, and their refusals."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from broker.admin.topics import backlogs
from broker.compose.broker_service import BrokerService
from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.managed_ledger.managed_ledger_info import SHADOW_SOURCE
from broker.service.subscriptions.backlog.open_runs import nth_open
from broker.service.subscriptions.subscription import Subscription
from foundation.model.position import EARLIEST, LATEST, Position
from tests.broker.admin.publishing import publish_plain
from tests.broker.admin.test_rest import PERSISTENT, TOPICS, call, persistent, refusal


async def subscribed(broker: BrokerService, name: str, count: int) -> Subscription:
    await publish_plain(broker, f"{PERSISTENT}/{name}", count)
    topic = await persistent(broker, name)
    return await topic.subscribing.create("s", EARLIEST)


def at(subscription: Subscription, entry: int) -> Position:
    return Position(subscription.topic.ledger.last_confirmed.ledger_id, entry)


async def test_skip_passes_over_acknowledged_entries(admin: ClientSession, broker: BrokerService) -> None:
    one = await subscribed(broker, "t", 8)
    one.cursor.acknowledge([at(one, 1), at(one, 2)])
    assert (await call(admin, f"POST {TOPICS}/t/subscription/s/skip/2"))[0] == 204
    # Entries 0 and 3: 1 and 2 were acknowledged before.
    assert one.cursor.mark_delete_position == at(one, 3)
    assert (await call(admin, f"POST {TOPICS}/t/subscription/s/skip/0"))[0] == 204
    assert one.cursor.backlog == 4
    assert (await call(admin, f"POST {TOPICS}/t/subscription/s/skip/100"))[0] == 204
    assert one.cursor.backlog == 0


async def test_seek_during_a_skip_keeps_the_messages_sought(
    admin: ClientSession, broker: BrokerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await subscribed(broker, "t", 8)
    one.acknowledge_through(at(one, 4))

    async def counted(cursor: ManagedCursor, number: int) -> Position | None:
        found = await nth_open(cursor, number)
        await one.seek(EARLIEST)
        return found

    monkeypatch.setattr(backlogs, "nth_open", counted)
    status, reason = await refusal(admin, f"POST {TOPICS}/t/subscription/s/skip/2")
    assert (status, one.cursor.backlog) == (409, 8)
    assert reason.startswith("A seek moved subscription s while its messages were counted")


async def test_skip_all_works_on_every_partition(admin: ClientSession, broker: BrokerService) -> None:
    await call(admin, f"PUT {TOPICS}/p/partitions", 2)
    for index in range(2):
        await subscribed(broker, f"p-partition-{index}", 2)
    assert (await refusal(admin, f"POST {TOPICS}/p/subscription/s/skip/1"))[0] == 405
    assert (await call(admin, f"POST {TOPICS}/p/subscription/s/skip_all"))[0] == 204
    for index in range(2):
        assert (await persistent(broker, f"p-partition-{index}")).subscriptions["s"].cursor.backlog == 0
    missing = await refusal(admin, f"POST {TOPICS}/p/subscription/nope/skip_all")
    assert missing == (404, f"Subscription nope not found for topic {PERSISTENT}/p")


async def test_expiry_acknowledges_what_is_older(admin: ClientSession, broker: BrokerService) -> None:
    one = await subscribed(broker, "t", 4)
    path = f"POST {TOPICS}/t/subscription/s/expireMessages"
    assert (await call(admin, f"{path}/2000000000"))[0] == 204
    assert one.cursor.backlog == 4
    assert (await call(admin, f"{path}/-10"))[0] == 204
    assert one.cursor.backlog == 0
    assert one.expired.total == 4
    status, reason = await refusal(admin, f"{path}/1")
    assert (status, "ongoing message expiration" in reason) == (409, True)
    stats = (await call(admin, f"GET {TOPICS}/t/stats"))[1]
    assert isinstance(stats, dict)
    assert stats["subscriptions"]["s"]["totalMsgExpired"] == 4
    assert stats["subscriptions"]["s"]["lastExpireTimestamp"] > 0


async def test_expiry_by_position_keeps_what_is_behind(admin: ClientSession, broker: BrokerService) -> None:
    one = await subscribed(broker, "t", 4)
    path = f"POST {TOPICS}/t/subscription/s/expireMessages"
    place = {"ledgerId": at(one, 1).ledger_id, "entryId": 1}
    assert (await call(admin, path, place))[0] == 204
    assert one.cursor.mark_delete_position == at(one, 1)
    # An earlier position changes nothing, as in Pulsar.
    assert (await call(admin, path, {**place, "entryId": 0}))[0] == 204
    assert one.cursor.mark_delete_position == at(one, 1)
    assert (await refusal(admin, path, {**place, "entryId": 4}))[0] == 409
    assert (await call(admin, path, 3))[0] == 400
    assert one.cursor.backlog == 2


async def test_expiry_of_all_subscriptions_reports_one_that_is_empty(
    admin: ClientSession, broker: BrokerService
) -> None:
    one = await subscribed(broker, "t", 2)
    await one.topic.subscribing.create("late", LATEST)  # type: ignore[attr-defined]  # Of the topic's own class.
    assert (await refusal(admin, f"POST {TOPICS}/t/all_subscription/expireMessages/-10"))[0] == 409
    assert one.cursor.backlog == 0


async def test_reset_behind_a_message_leaves_it_out(admin: ClientSession, broker: BrokerService) -> None:
    one = await subscribed(broker, "t", 4)
    path = f"POST {TOPICS}/t/subscription/s/resetcursor"
    place = {"ledgerId": at(one, 1).ledger_id, "entryId": 1}
    assert (await call(admin, path, place))[0] == 204
    assert one.cursor.read_position == at(one, 1)
    assert (await call(admin, path, {**place, "excluded": True}))[0] == 204
    assert one.cursor.read_position == at(one, 2)
    await call(admin, f"PUT {TOPICS}/p/partitions", 2)
    assert (await refusal(admin, path.replace("/t/", "/p/"), "earliest"))[0] == 405


async def test_backlog_is_analyzed_within_the_limits(admin: ClientSession, broker: BrokerService) -> None:
    one = await subscribed(broker, "t", 250)
    one.cursor.acknowledge([at(one, 3)])
    path = f"POST {TOPICS}/t/subscription/s/analyzeBacklog"
    status, found = await call(admin, path)
    assert status == 200
    assert isinstance(found, dict)
    counts = (found["entries"], found["messages"], found["aborted"], found["lastMessageId"])
    assert counts == (249, 249, False, str(at(one, 249)))
    from_there = (await call(admin, path, {"ledgerId": at(one, 0).ledger_id, "entryId": 248}))[1]
    assert isinstance(from_there, dict)
    assert from_there["entries"] == 2
    assert one.cursor.backlog == 249


async def test_analysis_ends_at_the_limit_of_entries(broker: BrokerService) -> None:
    from broker.service.subscriptions.backlog.analysis import analyze

    one = await subscribed(broker, "t", 20)
    found = await analyze(one.cursor, None, entries_max=7, time_max_ms=60_000)
    assert (found.entries, found.aborted) == (7, True)


async def test_backlog_size_counts_bytes_behind_an_id(admin: ClientSession, broker: BrokerService) -> None:
    one = await subscribed(broker, "t", 4)
    total = one.topic.ledger.ledgers.size_bytes
    ledger_id = at(one, 0).ledger_id
    path = f"PUT {TOPICS}/t/backlogSize"
    assert await call(admin, path, {"ledgerId": -1, "entryId": -1}) == (200, total)
    assert await call(admin, path, {"ledgerId": ledger_id, "entryId": 1}) == (200, total // 2)
    assert await call(admin, path, {"ledgerId": ledger_id, "entryId": 99}) == (200, 0)
    assert await call(admin, path, {"ledgerId": 10**9, "entryId": 0}) == (200, total)
    assert (await call(admin, path))[0] == 400
    assert (await call(admin, path, {"ledgerId": True, "entryId": 0}))[0] == 400


async def test_truncate_empties_backlogs_and_trims(admin: ClientSession, broker: BrokerService) -> None:
    one = await subscribed(broker, "t", 4)
    first = at(one, 0).ledger_id
    await broker.registry.unload(one.topic.name)
    await publish_plain(broker, f"{PERSISTENT}/t", 2)
    topic = await persistent(broker, "t")
    topic.ledger.trimming.keep_ms = -1
    assert first in topic.ledger.ledgers
    assert (await call(admin, f"POST {TOPICS}/t/trim"))[0] == 200
    assert first in topic.ledger.ledgers
    assert (await call(admin, f"DELETE {TOPICS}/t/truncate"))[0] == 204
    assert first not in topic.ledger.ledgers
    assert topic.subscriptions["s"].cursor.backlog == 0


async def test_truncate_reads_what_a_closed_shadow_needs(admin: ClientSession, broker: BrokerService) -> None:
    one = await subscribed(broker, "t", 4)
    first = at(one, 0).ledger_id
    await broker.registry.unload(one.topic.name)
    await publish_plain(broker, f"{PERSISTENT}/t", 2)
    await call(admin, f"PUT {TOPICS}/shadow", {SHADOW_SOURCE: f"{PERSISTENT}/t"})
    shadow = await persistent(broker, "shadow")
    await shadow.subscribing.create("s", EARLIEST)
    await broker.registry.unload(shadow.name)
    topic = await persistent(broker, "t")
    topic.ledger.trimming.keep_ms = topic.ledger.trimming.keep_bytes = -1
    assert (await call(admin, f"DELETE {TOPICS}/t/truncate"))[0] == 204
    assert first in topic.ledger.ledgers
    shadow = await persistent(broker, "shadow")
    await shadow.subscribing.delete(shadow.subscriptions["s"], None, force=False)
    await broker.registry.unload(shadow.name)
    assert first in topic.ledger.ledgers
    assert (await call(admin, f"DELETE {TOPICS}/t/truncate"))[0] == 204
    assert first not in topic.ledger.ledgers


async def test_replicated_mark_is_kept_over_a_restart(admin: ClientSession, broker: BrokerService) -> None:
    await subscribed(broker, "t", 1)
    path = f"{TOPICS}/t/subscription/s/replicatedSubscriptionStatus"
    assert await call(admin, f"GET {path}") == (200, {f"{PERSISTENT}/t": False})
    assert (await call(admin, f"POST {path}", True))[0] == 204
    await call(admin, f"PUT {TOPICS}/t/unload")
    assert await call(admin, f"GET {path}") == (200, {f"{PERSISTENT}/t": True})
    assert (await call(admin, f"POST {path}", False))[0] == 204
    assert await call(admin, f"GET {path}") == (200, {f"{PERSISTENT}/t": False})
    assert (await call(admin, f"POST {path}", "x"))[0] == 400
    assert (await call(admin, f"POST {path}"))[0] == 400


async def test_stored_backlog_counts_each_subscription(admin: ClientSession, broker: BrokerService) -> None:
    one = await subscribed(broker, "t", 5)
    one.cursor.acknowledge([at(one, 0), at(one, 2)])
    status, shown = await call(admin, f"GET {TOPICS}/t/backlog")
    assert isinstance(shown, dict)
    assert (status, shown["topicName"]) == (200, "public/default/persistent/t")
    assert (shown["totalMessages"], shown["messageBacklog"]) == (5, 3)
    assert shown["cursorDetails"] == {"s": {"cursorBacklog": 3, "cursorLedgerId": -1}}
    assert sum(ledger["entries"] for ledger in shown["dataLedgerDetails"]) == 5
    assert shown["storageSize"] == sum(ledger["size"] for ledger in shown["dataLedgerDetails"]) > 0
    # Pulsar says 0 of everything for a topic that does not exist.
    assert (await refusal(admin, f"GET {TOPICS}/nope/backlog"))[0] == 404


async def test_quotas_are_compared_at_once_when_it_is_asked_for(
    admin: ClientSession, broker: BrokerService
) -> None:
    one = await subscribed(broker, "t", 5)
    quota = {"limitSize": 1, "policy": "consumer_backlog_eviction"}
    assert (await call(admin, f"POST {TOPICS}/t/backlogQuota", quota))[0] == 204
    assert one.cursor.backlog == 5
    assert await call(admin, "GET /admin/v2/brokers/backlog-quota-check") == (204, "")
    assert one.cursor.backlog == 0
