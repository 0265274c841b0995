"""Statistics of topics and partitions, their ledgers and cursors, and lists of topics."""

from __future__ import annotations

import zlib
from typing import cast

from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from foundation.model.position import EARLIEST, Position
from tests.broker.admin.publishing import FIRST_PUBLISH_MS, publish_plain
from tests.broker.admin.test_rest import PERSISTENT, TOPICS, call, persistent, refusal
from tests.support.raw_client import RawConnection

NON_PERSISTENT = "/admin/v2/non-persistent/public/default"


async def got(admin: ClientSession, path: str) -> dict[str, object]:
    status, answer = await call(admin, f"GET {path}")
    assert status == 200, answer
    return cast("dict[str, object]", answer)


async def subscription_stats(
    admin: ClientSession, query: str = ""
) -> tuple[dict[str, object], dict[str, object]]:
    stats = await got(admin, f"{TOPICS}/t/stats{query}")
    subscriptions = cast("dict[str, dict[str, object]]", stats["subscriptions"])
    return stats, subscriptions["s"]


async def test_parameters_choose_the_parts_of_the_statistics(
    admin: ClientSession, broker: BrokerService
) -> None:
    await publish_plain(broker, f"{PERSISTENT}/t", 4)
    topic = await persistent(broker, "t")
    one = await topic.subscribing.create("s", EARLIEST)
    ledger_id = topic.ledger.last_confirmed.ledger_id
    one.cursor.acknowledge([(ledger_id, 0), (ledger_id, 2)])
    stats, shown = await subscription_stats(admin)
    assert (shown["msgBacklog"], shown["nonContiguousDeletedMessagesRanges"], shown["type"]) == (2, 1, "None")
    assert shown["backlogSize"] == topic.ledger.ledgers.size_bytes * 3 // 4 == stats["backlogSize"]
    assert shown["earliestMsgPublishTimeInBacklog"] == 0
    created, published = (
        cast("int", stats["topicCreationTimeStamp"]),
        cast("int", stats["lastPublishTimeStamp"]),
    )
    assert 0 < created <= published + 1
    _, shown = await subscription_stats(admin, "?subscriptionBacklogSize=false")
    assert shown["backlogSize"] == -1
    stats, shown = await subscription_stats(admin, "?getEarliestTimeInBacklog=true")
    earliest = FIRST_PUBLISH_MS + 1000
    assert shown["earliestMsgPublishTimeInBacklog"] == stats["earliestMsgPublishTimeInBacklogs"] == earliest
    one.acknowledge_through(topic.ledger.last_confirmed)
    _, shown = await subscription_stats(admin, "?getEarliestTimeInBacklog=true")
    assert shown["earliestMsgPublishTimeInBacklog"] == -1


async def test_consumed_entries_are_those_added_and_not_in_the_backlog(
    admin: ClientSession, broker: BrokerService
) -> None:
    await publish_plain(broker, f"{PERSISTENT}/t", 4)
    topic = await persistent(broker, "t")
    one = await topic.subscribing.create("s", EARLIEST)
    one.cursor.acknowledge([(topic.ledger.last_confirmed.ledger_id, 0)])
    cursors = cast("dict[str, dict[str, object]]", (await got(admin, f"{TOPICS}/t/internalStats"))["cursors"])
    assert cursors["s"]["messagesConsumedCounter"] == 1


async def test_counts_of_a_deleted_subscription_stay_in_the_topic(
    admin: ClientSession, broker: BrokerService
) -> None:
    await publish_plain(broker, f"{PERSISTENT}/t", 1)
    topic = await persistent(broker, "t")
    one = await topic.subscribing.create("s", EARLIEST)
    one.retired_messages_out, one.retired_bytes_out = 3, 40
    await topic.subscribing.delete(one, None, force=False)
    stats = await got(admin, f"{TOPICS}/t/stats")
    assert (stats["msgOutCounter"], stats["bytesOutCounter"], stats["subscriptions"]) == (3, 40, {})


async def test_creation_time_is_kept_over_an_unload(admin: ClientSession, broker: BrokerService) -> None:
    await publish_plain(broker, f"{PERSISTENT}/t", 1)
    before = (await got(admin, f"{TOPICS}/t/stats"))["topicCreationTimeStamp"]
    await call(admin, f"PUT {TOPICS}/t/unload")
    stats = await got(admin, f"{TOPICS}/t/stats")
    assert (stats["topicCreationTimeStamp"], stats["lastPublishTimeStamp"]) == (before, 0)


async def test_statistics_of_partitions_are_added_up(admin: ClientSession, broker: BrokerService) -> None:
    await call(admin, f"PUT {TOPICS}/p/partitions", 3)
    await call(admin, f"PUT {TOPICS}/p/subscription/s", "earliest")
    for index in range(2):
        await publish_plain(broker, f"{PERSISTENT}/p-partition-{index}", 2 + index)
    stats = await got(admin, f"{TOPICS}/p/partitioned-stats")
    subscription = cast("dict[str, dict[str, object]]", stats["subscriptions"])["s"]
    assert (stats["msgInCounter"], subscription["msgBacklog"]) == (5, 5)
    assert subscription["type"] == "None"
    # A limit of each partition is no sum.
    assert stats["backlogQuotaLimitSize"] == -1
    partitions = cast("dict[str, dict[str, object]]", stats["partitions"])
    assert [one["msgInCounter"] for one in partitions.values()] == [2, 3, 0]
    inner = cast("dict[str, dict[str, object]]", partitions[f"{PERSISTENT}/p-partition-0"]["subscriptions"])
    assert inner["s"]["msgBacklog"] == 2
    stats = await got(admin, f"{TOPICS}/p/partitioned-stats?perPartition=false")
    assert (stats["partitions"], stats["metadata"]) == ({}, {"partitions": 3, "deleted": False})
    missing = await refusal(admin, f"GET {TOPICS}/missing/partitioned-stats")
    assert missing == (404, f"Partitioned Topic {PERSISTENT}/missing not found")
    assert (await refusal(admin, f"GET {TOPICS}/p-partition-0/partitioned-stats"))[0] == 412


async def test_statistics_of_partitions_show_a_property_that_is_no_utf8(
    admin: ClientSession, broker: BrokerService
) -> None:
    await call(admin, f"PUT {TOPICS}/p/partitions", 2)
    await call(admin, f"PUT {TOPICS}/p/subscription/s", "earliest")
    # Half of a pair, as JSON can write it. Requests with one are refused, but a store may have it from before.
    properties = {"a": "\ud800"}
    assert (await call(admin, f"PUT {TOPICS}/p/subscription/s/properties", properties))[0] == 400
    topic = await persistent(broker, "p-partition-0")
    topic.subscriptions["s"].cursor.store.keep_properties(properties)
    partitions = (await got(admin, f"{TOPICS}/p/partitioned-stats"))["partitions"]
    first = cast("dict[str, dict[str, object]]", partitions)[f"{PERSISTENT}/p-partition-0"]
    shown = cast("dict[str, dict[str, object]]", first["subscriptions"])["s"]
    assert shown["subscriptionProperties"] == properties


async def test_internal_statistics_show_ledgers_and_cursors(
    admin: ClientSession, broker: BrokerService
) -> None:
    await publish_plain(broker, f"{PERSISTENT}/t", 3)
    await call(admin, f"PUT {TOPICS}/t/unload")
    await publish_plain(broker, f"{PERSISTENT}/t", 2)
    topic = await persistent(broker, "t")
    await topic.subscribing.create("s", Position(0, 0))
    shown = await got(admin, f"{TOPICS}/t/internalStats?metadata=true")
    ledgers = cast("list[dict[str, object]]", shown["ledgers"])
    # As in Pulsar, the ledger that is written shows no counts of its own.
    assert [one["entries"] for one in ledgers] == [3, 0]
    assert (shown["numberOfEntries"], shown["currentLedgerEntries"]) == (5, 2)
    assert all("password=OMITTED" in str(one["metadata"]) for one in ledgers)
    cursor = cast("dict[str, dict[str, object]]", shown["cursors"])["s"]
    assert (cursor["active"], cursor["numberOfEntriesSinceFirstNotAckedMessage"]) == (False, 1)
    info = await got(admin, f"{TOPICS}/t/internal-info")
    assert [one.get("entries") for one in cast("list[dict[str, object]]", info["ledgers"])] == [3, None]
    assert list(cast("dict[str, object]", info["cursors"])) == ["s"]
    await call(admin, f"PUT {TOPICS}/p/partitions", 2)
    for path in ("partitioned-internalStats", "internal-info"):
        partitions = (await got(admin, f"{TOPICS}/p/{path}"))["partitions"]
        assert list(cast("dict[str, object]", partitions)) == [
            f"{PERSISTENT}/p-partition-{n}" for n in range(2)
        ]


async def test_internal_statistics_of_a_non_persistent_topic_are_empty(admin: ClientSession) -> None:
    await call(admin, f"PUT {NON_PERSISTENT}/n")
    shown = await got(admin, f"{NON_PERSISTENT}/n/internalStats")
    assert (shown["numberOfEntries"], shown["cursors"]) == (0, {})


async def test_bundles_divide_the_topics_of_a_namespace(admin: ClientSession) -> None:
    names = [f"t{index}" for index in range(20)]
    for name in names:
        await call(admin, f"PUT {TOPICS}/{name}")
        await call(admin, f"PUT {NON_PERSISTENT}/{name}")
    bounds = ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"]
    found: list[str] = []
    for index in range(4):
        bundle = f"{bounds[index]}_{bounds[index + 1]}"
        status, listed = await call(admin, f"GET {TOPICS}?bundle={bundle}")
        assert status == 200
        assert isinstance(listed, list)
        assert all(zlib.crc32(one.encode()) >> 30 == index for one in listed)
        found += listed
        of_bundle = await call(admin, f"GET {NON_PERSISTENT}/{bundle}")
        assert of_bundle == await call(admin, f"GET {NON_PERSISTENT}?bundle={bundle}")
    assert sorted(found) == sorted(f"{PERSISTENT}/{name}" for name in names)
    assert await call(admin, f"GET {TOPICS}?bundle=foo") == (200, [])
    assert (await refusal(admin, f"GET {NON_PERSISTENT}/0x00000000_0x80000000"))[0] == 412
    assert (await refusal(admin, f"GET {NON_PERSISTENT}/foo"))[0] == 412


async def test_system_topics_are_listed_when_asked_for(admin: ClientSession) -> None:
    for name in ("t", "__change_events", "__mine"):
        await call(admin, f"PUT {TOPICS}/{name}")
    assert await call(admin, f"GET {TOPICS}") == (200, [f"{PERSISTENT}/__mine", f"{PERSISTENT}/t"])
    status, listed = await call(admin, f"GET {TOPICS}?includeSystemTopic=true")
    assert (status, f"{PERSISTENT}/__change_events" in cast("list[str]", listed)) == (200, True)


async def test_counts_of_a_non_persistent_topic_stay_when_its_consumers_leave(
    admin: ClientSession, broker: BrokerService
) -> None:
    name = "non-persistent://public/default/n"
    consumer = await RawConnection.open(broker.addresses.service_url)
    await consumer.connect()
    consumer.send("LOOKUP", topic=name, request_id=0)
    await consumer.receive("LOOKUP_RESPONSE")
    consumer.send("SUBSCRIBE", topic=name, subscription="s", subType="Shared", consumer_id=1, request_id=1)
    await consumer.receive("SUCCESS")
    consumer.send("FLOW", consumer_id=1, messagePermits=10)
    consumer.send("CONSUMER_STATS", request_id=2, consumer_id=1)
    await consumer.receive("CONSUMER_STATS_RESPONSE")
    await publish_plain(broker, name, 3)
    before = await got(admin, f"{NON_PERSISTENT}/n/stats")
    consumer.send("CLOSE_CONSUMER", consumer_id=1, request_id=3)
    while (await consumer.receive("MESSAGE", "SUCCESS")).type_name != "SUCCESS":
        pass
    after = await got(admin, f"{NON_PERSISTENT}/n/stats")
    assert (before["msgOutCounter"], after["msgOutCounter"], after["subscriptions"]) == (3, 3, {})
    assert after["bytesOutCounter"] == before["bytesOutCounter"]
    await consumer.close()
