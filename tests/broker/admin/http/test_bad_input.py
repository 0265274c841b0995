"""Requests with values out of range: Pulsar's 4xx, nothing stored, no traceback."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from io import BytesIO

import pytest
from aiohttp import ClientSession

from broker.admin.http.bounded_json import DEPTH_MAX, VALUES_MAX, parse_json
from broker.compose.broker_service import BrokerService
from broker.service.namespaces.bundles import BUNDLES_MAX
from broker.service.policies.partition_limit import PARTITIONS_MAX
from foundation.value import Json

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPICS = "/admin/v2/persistent/public/default"
HUGE = 10**23


@pytest.fixture(autouse=True)
def no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [record for record in caplog.records if record.exc_info] == []
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def status_of(admin: ClientSession, line: str, text: str | BytesIO) -> int:
    method, path = line.split(" ", 1)
    async with admin.request(method, path, data=text) as answer:
        await answer.read()
        return answer.status


# JSON


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 3000 + b"]" * 3000,
        b'{"a":' * 3000 + b"1" + b"}" * 3000,
        b"[" * 500_000,
        b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1),
        b"[" + b"[]," * VALUES_MAX + b"0]",
        b"1" * 5000,
        b"100000000000000000000000",
        b"NaN",
        b'{"a": -Infinity}',
        b"\xff",
        b"[1",
        b'{"\\ud800": 1}',
        b'"a\xed\xa0\x80"',
    ],
)
def test_json_beyond_the_limits_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # Decoding errors are ValueErrors too.
        parse_json(text)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -(2**63),
        2**63 - 1,
        1.5,
        "[" * 5000,
        [[]] * 5000,
        {"a": {"b": [1, {"c": "d"}]}},
        "\U0001f600 \ud7ff",
    ],
)
def test_json_within_the_limits_is_read(value: Json) -> None:
    assert parse_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize("depth", [1, 99, DEPTH_MAX])
def test_json_as_deep_as_the_limit_is_read(depth: int) -> None:
    assert parse_json(b"[" * depth + b"]" * depth + b" " * 200) is not None


# Policies


@pytest.mark.parametrize(
    ("line", "text", "status"),
    [
        ("POST /maxProducersPerTopic", HUGE, 400),
        ("POST /maxProducersPerTopic", 2**31, 400),
        ("POST /maxProducersPerTopic", -1, 412),
        ("POST /maxConsumersPerTopic", "1" * 5000, 400),
        ("POST /maxSubscriptionsPerTopic", "[" * 3000 + "]" * 3000, 400),
        ("POST /maxConsumersPerSubscription", "true", 400),
        ("POST /deduplication", "[" * 3000 + "]" * 3000, 400),
        ("POST /autoTopicCreation", '{"a":' * 3000 + "1" + "}" * 3000, 400),
        ("POST /autoTopicCreation", {"allowAutoTopicCreation": "x"}, 400),
        ("POST /autoTopicCreation", {"allowAutoTopicCreation": True, "topicType": "weird"}, 412),
        ("POST /autoTopicCreation", {"allowAutoTopicCreation": True, "topicType": "partitioned"}, 412),
        *(
            (
                "POST /autoTopicCreation",
                {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": count},
                status,
            )
            for count, status in ((0, 412), (-1, 412), (PARTITIONS_MAX + 1, 412), (HUGE, 400))
        ),
        (
            "POST /autoTopicCreation",
            {"allowAutoTopicCreation": True, "topicType": "non-partitioned", "defaultNumPartitions": 3},
            412,
        ),
        ("POST /autoSubscriptionCreation", {"allowAutoSubscriptionCreation": "x"}, 400),
        ("POST /backlogQuota", {"limit": HUGE, "policy": "producer_exception"}, 400),
        ("POST /backlogQuota", {"limitTime": 10**12, "policy": "producer_exception"}, 400),
        ("POST /backlogQuota", {"limitSize": 5, "policy": "weird"}, 400),
        ("POST /backlogQuota", {"limitSize": 5}, 400),
        (
            "POST /backlogQuota?backlogQuotaType=weird",
            {"limitSize": 5, "policy": "producer_exception"},
            404,
        ),
    ],
)
async def test_policy_out_of_range_is_refused_and_not_stored(
    admin: ClientSession, broker: BrokerService, line: str, text: object, status: int
) -> None:
    method, path = line.split(" ", 1)
    body = text if isinstance(text, str) else json.dumps(text)
    assert await status_of(admin, f"{method} {NAMESPACE}{path}", body) == status
    assert broker.namespaces.policies("public/default") == {"replication_clusters": ["standalone"]}


@pytest.mark.parametrize("count", [3_000_000, BUNDLES_MAX + 1, 2**31, HUGE, True, "8", 2.5])
async def test_number_of_bundles_out_of_range_creates_no_namespace(
    admin: ClientSession, broker: BrokerService, count: object
) -> None:
    text = json.dumps({"bundles": {"numBundles": count}})
    assert await status_of(admin, "PUT /admin/v2/namespaces/public/n", text) == 400
    assert not broker.namespaces.exists("public/n")


@pytest.mark.parametrize(("given", "shown"), [(0, 4), (-5, 4), (None, 4), (1, 1), (BUNDLES_MAX, BUNDLES_MAX)])
async def test_number_of_bundles_below_one_is_pulsars_default(
    admin: ClientSession, given: object, shown: int
) -> None:
    text = json.dumps({"bundles": {"numBundles": given}})
    assert await status_of(admin, "PUT /admin/v2/namespaces/public/n", text) == 204
    async with admin.get("/admin/v2/namespaces/public/n") as answer:
        bundles = (await answer.json())["bundles"]
    assert (bundles["numBundles"], len(bundles["boundaries"])) == (shown, shown + 1)


async def test_bundles_stored_by_an_older_version_are_shown_as_the_default(
    admin: ClientSession, broker: BrokerService
) -> None:
    for count in (0, 3_000_000):
        await broker.namespaces.create(f"public/n{count}", {"bundles": {"numBundles": count}})
        async with admin.get(f"/admin/v2/namespaces/public/n{count}") as answer:
            assert (await answer.json())["bundles"]["numBundles"] == 4


@pytest.mark.parametrize("clusters", [5, "standalone", [5], {"a": 1}])
async def test_replication_clusters_that_are_no_names_create_no_namespace(
    admin: ClientSession, broker: BrokerService, clusters: object
) -> None:
    text = json.dumps({"replication_clusters": clusters})
    assert await status_of(admin, "PUT /admin/v2/namespaces/public/n", text) == 400
    assert not broker.namespaces.exists("public/n")


@pytest.mark.parametrize(
    "info", [{"adminRoles": 5, "allowedClusters": ["c"]}, {"adminRoles": [], "allowedClusters": [5]}]
)
async def test_tenant_with_lists_of_other_things_is_refused(
    admin: ClientSession, broker: BrokerService, info: object
) -> None:
    assert await status_of(admin, "PUT /admin/v2/tenants/t", json.dumps(info)) == 400
    assert not broker.namespaces.tenant_exists("t")


# Topics


@pytest.mark.parametrize(
    ("count", "status"),
    [
        (20_000_000, 406),
        (PARTITIONS_MAX + 1, 406),
        (2**31, 400),
        (HUGE, 400),
        ('"' + "9" * 5000 + '"', 400),
        (-1, 406),
        (0, 406),
    ],
)
async def test_number_of_partitions_out_of_range_creates_nothing(
    admin: ClientSession, broker: BrokerService, count: object, status: int
) -> None:
    assert await status_of(admin, f"PUT {TOPICS}/p/partitions", str(count)) == status
    assert broker.registry.topics == {}
    assert await broker.registry.partitions.names("public/default") == []


@pytest.mark.parametrize(("size", "status"), [(HUGE, 400), (-1, 412), (2**31, 400), (2**31 - 1, 412)])
async def test_message_size_out_of_range_is_not_stored(
    admin: ClientSession, broker: BrokerService, size: int, status: int
) -> None:
    assert await status_of(admin, f"PUT {TOPICS}/t", "") == 204
    assert await status_of(admin, f"POST {TOPICS}/t/maxMessageSize", str(size)) == status
    assert broker.namespaces.topic_policy("persistent://public/default/t", "maxMessageSize") is None


async def test_time_of_thousands_of_digits_is_no_path(admin: ClientSession) -> None:
    line = f"POST {TOPICS}/t/subscription/s/resetcursor/{'9' * 5000}"
    assert await status_of(admin, line, "") in (400, 404, 405)


async def test_body_above_the_limit_is_refused(admin: ClientSession) -> None:
    assert await status_of(admin, f"POST {NAMESPACE}/deduplication", BytesIO(b" " * (2 << 20))) == 413
