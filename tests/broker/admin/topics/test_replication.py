"""Requests about replication, offloading and rates of single subscriptions."""

from __future__ import annotations

from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from foundation.model.position import EARLIEST
from tests.broker.admin.test_rest import TOPICS, call, persistent, refusal

NON_PERSISTENT = "/admin/v2/non-persistent/public/default"


async def test_topic_may_name_the_own_cluster_alone(admin: ClientSession) -> None:
    await call(admin, f"PUT {TOPICS}/t")
    path = f"{TOPICS}/t/replication"
    assert await call(admin, f"GET {path}") == (200, "")
    assert await call(admin, f"GET {path}?applied=true") == (200, ["standalone"])
    assert (await call(admin, f"POST {path}", ["standalone"]))[0] == 204
    assert await call(admin, f"GET {path}") == (200, ["standalone"])
    assert (await refusal(admin, f"POST {path}", []))[0] == 412
    assert (await refusal(admin, f"POST {path}", ["nope"]))[0] == 412
    assert (await refusal(admin, f"POST {path}", ["standalone", "other"]))[0] == 501
    assert (await call(admin, f"DELETE {path}"))[0] == 204
    assert await call(admin, f"GET {path}") == (200, "")


async def test_offload_fails_as_without_an_offloader(admin: ClientSession) -> None:
    await call(admin, f"PUT {TOPICS}/t")
    path = f"{TOPICS}/t/offload"
    before = (await call(admin, f"GET {path}"))[1]
    assert isinstance(before, dict)
    assert (before["status"], before["lastError"]) == ("NOT_RUN", "")
    assert (await call(admin, f"PUT {path}"))[0] == 400
    assert (await call(admin, f"PUT {path}", {"ledgerId": 1, "entryId": 1}))[0] == 204
    after = (await call(admin, f"GET {path}"))[1]
    assert isinstance(after, dict)
    assert (after["status"], "does not support offload" in after["lastError"]) == ("ERROR", True)
    await call(admin, f"PUT {NON_PERSISTENT}/n")
    assert (await refusal(admin, f"GET {NON_PERSISTENT}/n/offload"))[0] == 405


async def test_rate_of_one_subscription_holds_for_it_alone(
    admin: ClientSession, broker: BrokerService
) -> None:
    await call(admin, f"PUT {TOPICS}/t")
    topic = await persistent(broker, "t")
    one, other = [await topic.subscribing.create(name, EARLIEST) for name in ("one", "other")]
    path = f"{TOPICS}/t/one/dispatchRate"
    assert await call(admin, f"GET {path}") == (200, "")
    rate = {"dispatchThrottlingRateInMsg": 5, "dispatchThrottlingRateInByte": 0, "ratePeriodInSecond": 1}
    assert (await call(admin, f"POST {path}", rate))[0] == 204
    shown = (await call(admin, f"GET {path}"))[1]
    assert isinstance(shown, dict)
    assert shown["dispatchThrottlingRateInMsg"] == 5
    assert (one.dispatch_limit is not None, other.dispatch_limit) == (True, None)
    assert (await call(admin, f"POST {path}", 3))[0] == 400
    assert (await call(admin, f"DELETE {path}"))[0] == 204
    assert one.dispatch_limit is not None
    assert not one.dispatch_limit.active
    assert (await refusal(admin, f"GET {TOPICS}/missing/one/dispatchRate"))[0] == 404


async def test_requests_for_partitions_name_the_other_request(admin: ClientSession) -> None:
    await call(admin, f"PUT {TOPICS}/t")
    assert (await refusal(admin, f"DELETE {TOPICS}/t/partitions"))[0] == 409
    assert (await refusal(admin, f"POST {TOPICS}/t/terminate/partitions"))[0] == 405
    assert (await refusal(admin, f"POST {TOPICS}/t/createMissedPartitions"))[0] == 404
    assert (await refusal(admin, f"POST {TOPICS}/t-partition-0/partitions", 4))[0] == 412
    await call(admin, f"PUT {NON_PERSISTENT}/n")
    assert (await refusal(admin, f"POST {NON_PERSISTENT}/n/terminate"))[0] == 406
    assert (await refusal(admin, f"GET {NON_PERSISTENT}/n/properties"))[0] == 406


async def test_partitioned_topic_grows_after_a_compaction(
    admin: ClientSession, broker: BrokerService
) -> None:
    await call(admin, f"PUT {TOPICS}/p/partitions", 1)
    await call(admin, f"PUT {TOPICS}/p/subscription/s", "earliest")
    assert (await call(admin, f"PUT {TOPICS}/p/compaction"))[0] == 204
    await (await persistent(broker, "p-partition-0")).compaction.wait()
    assert (await call(admin, f"POST {TOPICS}/p/partitions", 2))[0] == 204
    assert list((await persistent(broker, "p-partition-1")).subscriptions) == ["s"]
