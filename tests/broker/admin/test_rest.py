"""The admin interface against a whole broker in memory: what scripts and client libraries ask, word for word."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from aiohttp import ClientSession
from yarl import URL

from broker.compose.broker_service import BrokerService
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.errors import NotAllowed
from foundation.model.position import LATEST, Position
from foundation.model.topic_name import parse_topic_name

TOPICS = "/admin/v2/persistent/public/default"
PERSISTENT = "persistent://public/default"


async def call(
    admin: ClientSession, line: str, body: object = None, headers: Mapping[str, str] | None = None
) -> tuple[int, object]:
    """`line` = method and path; answers status and JSON, or text where the answer is none."""
    method, path = line.split(" ", 1)
    data = None if body is None else json.dumps(body)
    async with admin.request(
        method, URL(path, encoded=True), data=data, headers=headers, allow_redirects=False
    ) as answer:
        text = await answer.text()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text


async def refusal(admin: ClientSession, line: str, body: object = None) -> tuple[int, str]:
    status, answer = await call(admin, line, body)
    assert isinstance(answer, dict), answer
    return status, answer["reason"]


async def persistent(broker: BrokerService, name: str) -> PersistentTopic:
    topic = await broker.registry.get(parse_topic_name(f"{PERSISTENT}/{name}"), create=False)
    assert isinstance(topic, PersistentTopic)
    return topic


# Cluster, broker


async def test_health_ready_and_version_answer(admin: ClientSession) -> None:
    assert await call(admin, "GET /admin/v2/clusters") == (200, ["standalone"])
    assert await call(admin, "GET /admin/v2/brokers/health") == (200, "ok")
    assert await call(admin, "GET /admin/v2/brokers/ready") == (200, "ok")
    assert await call(admin, "GET /admin/v2/brokers/version") == (200, "1.2.3")
    assert await call(admin, "GET /admin/v2/namespaces/public") == (200, ["public/default"])


async def test_answers_have_the_content_type_of_pulsar(admin: ClientSession) -> None:
    async with admin.get("/admin/v2/clusters") as answer:
        assert answer.headers["Content-Type"] == "application/json"
    async with admin.put("/admin/v2/namespaces/public/typed") as answer:
        assert answer.status == 204
        assert "Content-Type" not in answer.headers
    async with admin.get("/admin/v2/namespaces/public/typed/deduplication") as answer:
        assert (answer.status, await answer.text()) == (200, "")
        assert "Content-Type" not in answer.headers
    async with admin.get("/admin/v2/nothing") as answer:
        assert answer.status == 404
        assert answer.headers["Content-Type"] == "text/html;charset=iso-8859-1"
    async with admin.post("/admin/v2/clusters") as answer:
        assert answer.status == 405
        assert "GET" in answer.headers["Allow"]
    async with admin.put("/admin/v2/tenants/x", data="{") as answer:
        assert answer.status == 400
        assert answer.headers["Content-Type"] == "text/plain"


async def test_clusters_are_listed_stored_and_deleted(admin: ClientSession, broker: BrokerService) -> None:
    status, own = await call(admin, "GET /admin/v2/clusters/standalone")
    assert status == 200
    assert isinstance(own, dict)
    assert own["brokerServiceUrl"] == broker.addresses.service_url
    assert await refusal(admin, "GET /admin/v2/clusters/nope") == (404, "Cluster does not exist")
    assert await call(admin, "PUT /admin/v2/clusters/west", {"serviceUrl": "http://w"}) == (200, "")
    assert await call(admin, "GET /admin/v2/clusters") == (200, ["standalone", "west"])
    assert await refusal(admin, "PUT /admin/v2/clusters/a%20b", {}) == (412, "Cluster name is not valid")
    assert (await call(admin, "DELETE /admin/v2/clusters/west"))[0] == 204
    assert await call(admin, "GET /admin/v2/clusters") == (200, ["standalone"])


@pytest.mark.parametrize(
    "path",
    ["a%0Ab", "a%1Bb", "a%0Ab/partitions", "plain/subscription/a%0Ab"],
)
async def test_name_with_control_characters_is_not_created(admin: ClientSession, path: str) -> None:
    url = URL(f"/admin/v2/persistent/public/default/{path}", encoded=True)
    async with admin.put(url, json=2 if path.endswith("partitions") else None) as answer:
        assert answer.status == 412
        assert "has control characters" in await answer.text()


async def test_runtime_configuration_shows_effective_values(admin: ClientSession) -> None:
    status, values = await call(admin, "GET /admin/v2/brokers/configuration/runtime")
    assert status == 200
    assert isinstance(values, dict)
    assert values["clusterName"] == "standalone"
    assert values["webServicePort"] == "0"


# Tenants, namespaces


async def test_tenants_are_created_updated_and_deleted(admin: ClientSession) -> None:
    tenant = {"adminRoles": ["a"], "allowedClusters": ["standalone"]}
    assert await call(admin, "PUT /admin/v2/tenants/shop", tenant) == (204, "")
    assert await call(admin, "GET /admin/v2/tenants/shop") == (200, tenant)
    assert await refusal(admin, "PUT /admin/v2/tenants/shop", tenant) == (409, "Tenant already exist")
    assert await refusal(admin, "PUT /admin/v2/tenants/x") == (412, "TenantInfo is null")
    no_clusters: dict[str, list[str]] = {"allowedClusters": []}
    refused = await refusal(admin, "PUT /admin/v2/tenants/x", no_clusters)
    assert refused == (412, "Clusters cannot be empty or blank")
    assert (await call(admin, "PUT /admin/v2/namespaces/shop/orders"))[0] == 204
    assert (await refusal(admin, "DELETE /admin/v2/tenants/shop"))[0] == 409
    assert (await call(admin, "DELETE /admin/v2/namespaces/shop/orders"))[0] == 204
    assert (await call(admin, "DELETE /admin/v2/tenants/shop"))[0] == 204
    assert await refusal(admin, "GET /admin/v2/tenants/shop") == (404, "Tenant does not exist")


async def test_namespaces_are_created_listed_and_deleted(admin: ClientSession) -> None:
    assert await call(admin, "PUT /admin/v2/namespaces/public/n", {"bundles": {"numBundles": 8}}) == (204, "")
    status, policies = await call(admin, "GET /admin/v2/namespaces/public/n")
    assert status == 200
    assert isinstance(policies, dict)
    assert policies["bundles"]["boundaries"][1:3] == ["0x20000000", "0x40000000"]
    assert policies["replication_clusters"] == ["standalone"]
    refused = await refusal(admin, "PUT /admin/v2/namespaces/public/n")
    assert refused == (409, "Namespace already exists")
    assert (await refusal(admin, "GET /admin/v2/namespaces/nope"))[0] == 404
    assert (await call(admin, "PUT /admin/v2/persistent/public/n/t"))[0] == 204
    refused = await refusal(admin, "DELETE /admin/v2/namespaces/public/n")
    assert refused == (409, "Cannot delete non empty namespace")
    topics = await call(admin, "GET /admin/v2/namespaces/public/n/topics")
    assert topics == (200, ["persistent://public/n/t"])


async def test_policy_reaches_open_topics(admin: ClientSession, broker: BrokerService) -> None:
    await call(admin, f"PUT {TOPICS}/t")
    topic = await persistent(broker, "t")
    assert topic.deduplication is None
    await call(admin, "POST /admin/v2/namespaces/public/default/deduplication", True)
    assert topic.deduplication is not None


@pytest.mark.parametrize("given", [{"limitSize": 10}, {"limit": 10}, {"limit": "10"}])
async def test_backlog_quotas_are_stored_and_removed(admin: ClientSession, given: dict[str, object]) -> None:
    path = "/admin/v2/namespaces/public/default"
    policy = {"policy": "producer_exception"}
    assert (await call(admin, f"POST {path}/backlogQuota", {**given, **policy}))[0] == 204
    assert await call(admin, f"GET {path}/backlogQuotaMap") == (
        200,
        {"destination_storage": {"limit": 10, "limitSize": 10, **policy}},
    )
    assert (await call(admin, f"DELETE {path}/backlogQuota"))[0] == 204
    assert await call(admin, f"GET {path}/backlogQuotaMap") == (200, {})


# Topics


async def test_topic_is_created_unloaded_and_deleted(admin: ClientSession, broker: BrokerService) -> None:
    assert await call(admin, f"PUT {TOPICS}/t") == (204, "")
    assert await refusal(admin, f"PUT {TOPICS}/t") == (409, "This topic already exists")
    assert await call(admin, f"GET {TOPICS}") == (200, [f"{PERSISTENT}/t"])
    assert await call(admin, f"PUT {TOPICS}/t/unload") == (204, "")
    assert f"{PERSISTENT}/t" not in broker.registry.topics
    status, last = await call(admin, f"GET {TOPICS}/t/lastMessageId")
    assert status == 200
    assert isinstance(last, dict)
    assert (last["entryId"], last["partitionIndex"]) == (-1, -1)
    assert await call(admin, f"POST {TOPICS}/t/terminate") == (200, last)
    assert (await persistent(broker, "t")).is_terminated
    assert await call(admin, f"DELETE {TOPICS}/t") == (204, "")
    assert await call(admin, f"GET {TOPICS}") == (200, [])


async def test_topic_is_refused_when_its_name_or_namespace_is_wrong(admin: ClientSession) -> None:
    not_found = (404, f"Topic {PERSISTENT}/nope not found")
    for line in ("DELETE {}", "PUT {}/unload", "POST {}/terminate", "GET {}/stats", "GET {}/lastMessageId"):
        assert await refusal(admin, line.format(f"{TOPICS}/nope")) == not_found
    refused = await refusal(admin, "PUT /admin/v2/persistent/public/nope/t")
    assert refused == (404, "Namespace not found")
    refused = await refusal(admin, f"PUT {TOPICS}/with%2Fslash")
    assert refused == (412, "Topic name is not valid")
    refused = await refusal(admin, "GET /admin/v2/persistent/public/nope")
    assert refused == (404, "Namespace does not exist")


async def test_partitioned_topic_is_created_grown_and_deleted(admin: ClientSession) -> None:
    path = f"{TOPICS}/p/partitions"
    assert await refusal(admin, f"GET {path}") == (404, f"Topic {PERSISTENT}/p not found")
    asked = await call(admin, f"GET {path}?checkAllowAutoCreation=true")
    assert asked == (200, {"partitions": 0, "deleted": False})
    assert (await refusal(admin, f"PUT {path}", 0))[0] == 406
    assert await call(admin, f"PUT {path}", "2") == (204, "")
    assert await call(admin, f"GET {path}") == (200, {"partitions": 2, "deleted": False})
    assert (await refusal(admin, f"POST {path}", 1))[0] == 422
    assert await call(admin, f"POST {path}", 3) == (204, "")
    assert await call(admin, f"GET {TOPICS}") == (200, [f"{PERSISTENT}/p-partition-{n}" for n in range(3)])
    assert await call(admin, f"GET {TOPICS}/partitioned") == (200, [f"{PERSISTENT}/p"])
    assert (await refusal(admin, f"DELETE {TOPICS}/p"))[0] == 409
    assert (await refusal(admin, f"POST {TOPICS}/p/terminate"))[0] == 405
    assert (await call(admin, f"PUT {TOPICS}/p/unload"))[0] == 204
    assert await call(admin, f"DELETE {path}") == (204, "")
    assert await call(admin, f"GET {TOPICS}") == (200, [])


async def test_number_of_partitions_is_read_in_all_three_forms(admin: ClientSession) -> None:
    kind = {"Content-Type": "application/vnd.partitioned-topic-metadata+json"}
    for name, body in (("a", 2), ("b", "2"), ("c", {"partitions": 2, "properties": {}, "deleted": False})):
        assert (await call(admin, f"PUT {TOPICS}/{name}/partitions", body, kind))[0] == 204
        assert (await call(admin, f"GET {TOPICS}/{name}/partitions"))[1] == {
            "partitions": 2,
            "deleted": False,
        }


# Subscriptions


async def test_subscription_is_created_reset_and_deleted(admin: ClientSession, broker: BrokerService) -> None:
    await call(admin, f"PUT {TOPICS}/t")
    assert (await call(admin, f"PUT {TOPICS}/t/subscription/a%2Fb%20c", "earliest"))[0] == 204
    assert (await call(admin, f"PUT {TOPICS}/t/subscription/s"))[0] == 204
    refused = await refusal(admin, f"PUT {TOPICS}/t/subscription/s", "latest")
    assert refused == (409, "Subscription already exists for topic")
    assert await call(admin, f"GET {TOPICS}/t/subscriptions") == (200, ["a/b c", "s"])
    refused = await refusal(admin, f"POST {TOPICS}/t/subscription/nope/resetcursor/0")
    assert refused == (404, f"Subscription nope not found for topic {PERSISTENT}/t")
    assert (await call(admin, f"POST {TOPICS}/t/subscription/s/resetcursor/0"))[0] == 204
    reset = {"ledgerId": 0, "entryId": 0}
    assert (await call(admin, f"POST {TOPICS}/t/subscription/s/resetcursor", reset))[0] == 204
    assert (await call(admin, f"DELETE {TOPICS}/t/subscription/s"))[0] == 204
    refused = await refusal(admin, f"DELETE {TOPICS}/t/subscription/s")
    assert refused == (404, f"Subscription s not found for topic {PERSISTENT}/t")
    assert list((await persistent(broker, "t")).subscriptions) == ["a/b c"]


async def test_subscription_of_a_partitioned_topic_is_on_every_partition(
    admin: ClientSession, broker: BrokerService
) -> None:
    await call(admin, f"PUT {TOPICS}/p/partitions", 2)
    assert (await call(admin, f"PUT {TOPICS}/p/subscription/s", "latest"))[0] == 204
    for part in range(2):
        assert "s" in (await persistent(broker, f"p-partition-{part}")).subscriptions
    assert await call(admin, f"GET {TOPICS}/p/subscriptions") == (200, ["s"])


async def test_subscription_that_some_partitions_have_is_created_on_the_others(
    admin: ClientSession, broker: BrokerService
) -> None:
    await call(admin, f"PUT {TOPICS}/p/partitions", 3)
    # As a request leaves it that failed halfway, or a consumer of one partition.
    await (await persistent(broker, "p-partition-1")).subscribing.create("s", LATEST)
    assert (await call(admin, f"PUT {TOPICS}/p/subscription/s", "latest"))[0] == 204
    for part in range(3):
        assert "s" in (await persistent(broker, f"p-partition-{part}")).subscriptions
    refused = await refusal(admin, f"PUT {TOPICS}/p/subscription/s", "latest")
    assert refused == (409, "Subscription already exists for topic")


async def test_stats_of_an_idle_topic_have_pulsars_fields(admin: ClientSession) -> None:
    await call(admin, f"PUT {TOPICS}/t")
    await call(admin, f"PUT {TOPICS}/t/subscription/s", "earliest")
    status, stats = await call(admin, f"GET {TOPICS}/t/stats")
    assert status == 200
    assert isinstance(stats, dict)
    assert (stats["msgInCounter"], stats["publishers"], stats["storageSize"]) == (0, [], 0)
    # No consumer has come, so the type is not known.
    assert stats["subscriptions"]["s"]["type"] == "None"
    assert stats["subscriptions"]["s"]["isDurable"] is True
    status, internal = await call(admin, f"GET {TOPICS}/t/internalStats")
    assert status == 200
    assert isinstance(internal, dict)
    assert internal["numberOfEntries"] == 0
    assert list(internal["cursors"]) == ["s"]


async def test_lookup_returns_the_address_of_the_listener(
    admin: ClientSession, broker: BrokerService
) -> None:
    path = "/lookup/v2/topic/persistent/public/default/t"
    status, answer = await call(admin, f"GET {path}")
    url = broker.addresses.service_url
    assert status == 200
    assert answer == {
        "brokerUrl": url,
        "httpUrl": broker.addresses.admin_url,
        "nativeUrl": url,
        "brokerUrlSsl": "",
    }
    assert (await refusal(admin, f"GET {path}?listenerName=nope"))[0] == 412
    refused = await refusal(admin, "GET /lookup/v2/topic/persistent/public/nope/t")
    assert refused == (404, "Namespace not found")
    assert await call(admin, f"GET {path}/bundle") == (200, "0x80000000_0xc0000000")


def test_message_id_has_the_form_that_clients_read() -> None:
    from broker.admin.http.answers import BadRequest, message_id, position_of

    assert position_of(message_id(Position(3, 4))) == Position(3, 4)
    with pytest.raises(BadRequest):
        position_of({"ledgerId": "x"})


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_name_of_a_partition_is_refused_without_its_partitioned_topic(
    admin: ClientSession, broker: BrokerService, domain: str
) -> None:
    path = f"/admin/v2/{domain}/public/default"
    assert (await refusal(admin, f"PUT {path}/x-partition-0"))[0] == 412
    name = parse_topic_name(f"{domain}://public/default/x-partition-0")
    with pytest.raises(NotAllowed, match="Partition metadata not found"):
        await broker.registry.get(name, create=True)
    assert (await call(admin, f"PUT {path}/x/partitions", 1))[0] == 204
    await broker.registry.get(name, create=True)
    assert (await refusal(admin, f"PUT {path}/x-partition-1"))[0] == 412


async def test_path_with_a_null_character_is_refused(admin: ClientSession) -> None:
    assert (await call(admin, "PUT /admin/v2/persistent/public/default/a%00b"))[0] == 400
    assert (await call(admin, "GET /admin/v2/persistent/public/default"))[1] == []


async def test_options_tells_the_methods_of_a_path(admin: ClientSession) -> None:
    for path, methods in (
        (f"{TOPICS}/t/stats", ["GET", "HEAD", "OPTIONS"]),
        (f"{TOPICS}/t", ["DELETE", "OPTIONS", "PUT"]),
        ("/admin/v2/tenants/public", ["DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"]),
    ):
        async with admin.options(path) as answer:
            assert (answer.status, answer.content_type) == (200, "text/plain")
            assert sorted(answer.headers["Allow"].split(",")) == methods
            assert await answer.text() == ", ".join(methods)
            assert not [name for name in answer.headers if name.startswith("Access-Control")]
    async with admin.options("/admin/v2/nonsense") as answer:
        assert answer.status == 404


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("text/html", 415),
        ("application/xml", 415),
        ("application/octet-stream", 415),
        ("nonsense", 400),
        ("application/json;charset=utf-8", 204),
        ("application/vnd.partitioned-topic-metadata+json", 204),
    ],
)
async def test_body_of_another_type_than_json_is_refused(
    admin: ClientSession, kind: str, status: int
) -> None:
    for line in (
        f"PUT {TOPICS}/t/partitions",
        "POST /admin/v2/namespaces/public/default/maxTopicsPerNamespace",
        "POST /admin/v2/namespaces/public/default/antiAffinity",
    ):
        assert (await call(admin, line, 2, {"Content-Type": kind}))[0] == status
    # A body that no route reads has no type to check, in Pulsar too.
    path = "/admin/v2/namespaces/public/default/unload"
    assert (await call(admin, f"PUT {path}", None, {"Content-Type": kind}))[0] == 204


async def test_body_without_a_type_is_refused(broker: BrokerService) -> None:
    async with ClientSession(
        base_url=broker.addresses.admin_url, skip_auto_headers=["Content-Type"]
    ) as plain:
        assert (await refusal(plain, f"PUT {TOPICS}/t/partitions", 2))[0] == 415
        assert (await call(plain, f"PUT {TOPICS}/t"))[0] == 204
        assert (await call(plain, "POST /admin/v2/namespaces/public/default/antiAffinity", "g"))[0] == 204
