"""The delivery rate of one subscription over REST, with the answers of Apache Pulsar 4.2.4."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from tests.broker.admin.test_rest import call, persistent

TOPIC = "/admin/v2/persistent/public/default/t"
OWN = f"{TOPIC}/s/dispatchRate"


def rate(messages: int, period_s: int = 1) -> dict[str, object]:
    return {
        "dispatchThrottlingRateInMsg": messages,
        "dispatchThrottlingRateInByte": 0,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": period_s,
    }


@pytest.fixture(autouse=True)
async def topic(admin: ClientSession) -> None:
    assert (await call(admin, f"PUT {TOPIC}"))[0] == 204


async def test_rate_is_set_shown_and_removed(admin: ClientSession) -> None:
    assert await call(admin, f"GET {OWN}") == (200, "")
    assert await call(admin, f"GET {OWN}?applied=true") == (200, rate(0))
    assert (await call(admin, f"POST {OWN}", {"dispatchThrottlingRateInMsg": 5}))[0] == 204
    assert (await call(admin, f"POST {OWN}?isGlobal=true", rate(7)))[0] == 204
    assert await call(admin, f"GET {OWN}") == (200, rate(5, 0))
    assert await call(admin, f"GET {OWN}?isGlobal=true") == (200, rate(7))
    assert await call(admin, f"GET {OWN}?applied=true") == (200, rate(5, 0))
    assert await call(admin, f"GET {TOPIC}/other/dispatchRate?applied=true") == (200, rate(0))
    assert (await call(admin, f"DELETE {OWN}"))[0] == 204
    assert await call(admin, f"GET {OWN}") == (200, "")
    assert await call(admin, f"GET {OWN}?applied=true") == (200, rate(7))


@pytest.mark.parametrize("value", ["xx", {"dispatchThrottlingRateInMsg": 10**23}])
async def test_bad_rate_is_refused_and_not_stored(admin: ClientSession, value: object) -> None:
    assert (await call(admin, f"POST {OWN}", value))[0] in (400, 412)
    assert await call(admin, f"GET {OWN}") == (200, "")


async def test_rate_of_a_missing_topic_is_not_found(admin: ClientSession) -> None:
    assert (await call(admin, "GET /admin/v2/persistent/public/default/no/s/dispatchRate"))[0] == 404
    assert (await call(admin, "POST /admin/v2/persistent/public/default/no/s/dispatchRate", rate(1)))[
        0
    ] == 404


async def test_rate_holds_for_its_subscription_alone_and_acts_at_once(
    admin: ClientSession, broker: BrokerService
) -> None:
    opened = await persistent(broker, "t")
    for name in ("s", "other"):
        await call(admin, f"PUT {TOPIC}/subscription/{name}")
    own, other = opened.subscriptions["s"], opened.subscriptions["other"]
    await call(admin, f"POST {OWN}", rate(5))
    await call(admin, f"POST {TOPIC}/subscriptionDispatchRate", rate(9))
    assert own.dispatch_limit is not None
    assert own.dispatch_limit.rate.messages == 5
    assert other.dispatch_limit is not None
    assert other.dispatch_limit.rate.messages == 9
    await call(admin, f"DELETE {OWN}")
    assert own.dispatch_limit.rate.messages == 9
