"""Requests for policies of namespaces and topics: every route of the table, and Pulsar's answers to bad ones."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from broker.service.policies.table import POLICIES, Policy, Rest
from foundation.model.topic_name import parse_topic_name
from tests.broker.admin.test_rest import call, persistent, refusal

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/t"
FULL_NAME = "persistent://public/default/t"

_DISPATCH_RATE = {
    "dispatchThrottlingRateInMsg": 10,
    "dispatchThrottlingRateInByte": 1000,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
VALUES: dict[str, object] = {
    "subscriptionTypesEnabled": ["Key_Shared", "Shared"],
    "encryptionRequired": True,
    "deduplication": True,
    "deduplicationEnabled": True,
    "autoTopicCreation": {
        "allowAutoTopicCreation": True,
        "topicType": "partitioned",
        "defaultNumPartitions": 3,
    },
    "autoSubscriptionCreation": {"allowAutoSubscriptionCreation": False},
    "replicatorDispatchRate": _DISPATCH_RATE,
    "dispatchRate": _DISPATCH_RATE,
    "subscriptionDispatchRate": _DISPATCH_RATE,
    "inactiveTopicPolicies": {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 100,
        "deleteWhileInactive": True,
    },
    "persistence": {
        "bookkeeperEnsemble": 3,
        "bookkeeperWriteQuorum": 2,
        "bookkeeperAckQuorum": 1,
        "managedLedgerMaxMarkDeleteRate": 2.0,
    },
    "retention": {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1},
    "publishRate": {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": 100},
    "subscribeRate": {"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 30},
    "unackedHoleRedelivery": {"enabled": True, "periodSeconds": 60, "pendingSeconds": 0},
    "delayedDelivery": {"tickTime": 1000, "active": True, "maxDeliveryDelayInMillis": 0},
    "properties": {"a": "b"},
    "antiAffinity": "g",
    "subscriptionAuthMode": "Prefix",
    "schemaCompatibilityStrategy": "FORWARD",
    "schemaAutoUpdateCompatibilityStrategy": "Backward",
    "isAllowAutoUpdateSchema": False,
    "schemaValidationEnforced": True,
    "dispatcherPauseOnAckStatePersistent": True,
    "allowedTopicPropertyKeysForMetrics": ["k"],
    "persistence/bookieAffinity": {
        "bookkeeperAffinityGroupPrimary": "g1",
        "bookkeeperAffinityGroupSecondary": "g2",
    },
    "offloadPolicies": {
        "offloadersDirectory": "./offloaders",
        "managedLedgerOffloadDriver": "aws-s3",
        "managedLedgerOffloadMaxThreads": 2,
        "managedLedgerOffloadReadThreads": 2,
        "managedLedgerOffloadPrefetchRounds": 1,
        "managedLedgerOffloadThresholdInBytes": 100,
        "managedLedgerExtraConfigurations": {},
        "s3ManagedLedgerOffloadRegion": "eu-west-1",
        "s3ManagedLedgerOffloadBucket": "b",
        "s3ManagedLedgerOffloadMaxBlockSizeInBytes": 67108864,
        "s3ManagedLedgerOffloadReadBufferSizeInBytes": 1048576,
        "s3ManagedLedgerOffloadRoleSessionName": "pulsar-s3-offload",
        "gcsManagedLedgerOffloadMaxBlockSizeInBytes": 134217728,
        "gcsManagedLedgerOffloadReadBufferSizeInBytes": 1048576,
        "s3Driver": True,
        "gcsDriver": False,
        "fileSystemDriver": False,
    },
}
"""A value for each word whose policy is no whole number."""

ROUTES = [
    (path, policy, rest)
    for policy in POLICIES
    for path, rest in ((NAMESPACE, policy.namespace), (TOPIC, policy.topic))
    if rest is not None
]


def name_of(value: object) -> str | None:
    return value.word if isinstance(value, Rest) else None


@pytest.fixture
async def topic(admin: ClientSession) -> None:
    assert (await call(admin, f"PUT {TOPIC}"))[0] == 204


async def test_request_for_schema_updates_also_sets_those_by_replicators(admin: ClientSession) -> None:
    """Pulsar 5.0 has no request of its own for it."""
    key, path = "is_allow_auto_update_schema_with_replicator", f"{NAMESPACE}/isAllowAutoUpdateSchema"

    async def shown() -> object:
        _, policies = await call(admin, f"GET {NAMESPACE}")
        assert isinstance(policies, dict)
        return policies.get(key)

    for query, value in (
        ("", False),
        ("?allowAutoUpdateSchemaWithReplicator=true", True),
        ("?allowAutoUpdateSchemaWithReplicator=false", False),
        ("", False),
    ):
        assert (await call(admin, f"POST {path}{query}", False))[0] == 204
        assert await shown() is value, query
    status, reason = await call(admin, f"POST {path}?allowAutoUpdateSchemaWithReplicator=false", True)
    assert (status, await shown()) == (400, False)
    assert "leave allowAutoUpdateSchemaWithReplicator=false out" in str(reason)
    assert await call(admin, f"GET {path}") == (200, False)


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    ("path", "policy", "rest"), [one for one in ROUTES if one[2].word != "entryFilters"], ids=name_of
)
async def test_policy_is_set_read_and_removed(
    admin: ClientSession, path: str, policy: Policy[Any], rest: Rest
) -> None:
    line = f"{path}/{rest.word}"
    value = VALUES.get(rest.word, 7)
    unset = await call(admin, f"GET {line}")
    assert unset[0] == (rest.unset.status if rest.unset.value is None else 200)
    assert unset[1] == ("" if rest.unset.value is None else rest.unset.value)
    if rest.in_query:
        assert await call(admin, f"{rest.verb} {line}?{rest.word}={value}") == (204, "")
    else:
        assert await call(admin, f"{rest.verb} {line}", value) == (204, "")
    assert await call(admin, f"GET {line}") == (200, value)
    if rest.removable:
        assert await call(admin, f"DELETE {line}") == (204, "")
        assert await call(admin, f"GET {line}") == unset
    elif path == NAMESPACE:
        assert await refusal(admin, f"DELETE {line}") == (412, f"Invalid bundle range: {rest.word}")


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("path", [NAMESPACE, TOPIC])
async def test_entry_filters_are_refused_because_none_exists(admin: ClientSession, path: str) -> None:
    line = f"{path}/entryFilters"
    assert await refusal(admin, f"POST {line}", {"entryFilterNames": "f"}) == (
        400,
        "Entry filter 'f' not found",
    )
    empty = "entryFilterNames can't be empty. To remove entry filters use the remove method."
    assert await refusal(admin, f"POST {line}", {"entryFilterNames": " , "}) == (400, empty)
    assert await call(admin, f"GET {line}") == (200, "")
    assert await call(admin, f"DELETE {line}") == (204, "")


@pytest.mark.usefixtures("topic")
async def test_offload_policies_need_a_driver_and_its_bucket_and_take_no_secret(
    admin: ClientSession,
) -> None:
    for path in (NAMESPACE, TOPIC):
        line = f"POST {path}/offloadPolicies"
        driver = {"managedLedgerOffloadDriver": "aws-s3"}
        assert (await refusal(admin, line, {"managedLedgerOffloadDriver": "nosuch"}))[0] == 412
        assert (await refusal(admin, line, {"managedLedgerOffloadThresholdInBytes": 7}))[0] == 412
        assert (await refusal(admin, line, driver))[0] == 412
        secret = {"managedLedgerOffloadBucket": "b", "s3ManagedLedgerOffloadCredentialSecret": "planted"}
        status, reason = await refusal(admin, line, driver | secret)
        assert (status, "planted" in reason, "keeps no secret" in reason) == (412, False, True)
        assert await call(admin, f"GET {path}/offloadPolicies") == (200, "")
        assert await call(admin, line, driver | {"managedLedgerOffloadBucket": "b"}) == (204, "")


GCS = {"gcsManagedLedgerOffloadBucket": "b"}


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("managedLedgerOffloadedReadPriority", "nonsense"),
        *(
            (f"{start}anagedLedgerOffload{size}InBytes", value)
            for start in ("m", "s3M")
            for size, value in (
                ("MaxBlockSize", -5),
                ("MaxBlockSize", 10),
                ("MaxBlockSize", (5 << 20) - 1),
                ("ReadBufferSize", -1),
                ("ReadBufferSize", 4095),
            )
        ),
        ("s3ManagedLedgerOffloadRole", "arn"),
        ("s3ManagedLedgerOffloadCredentialId", "id"),
    ],
)
async def test_offload_policies_with_a_member_that_has_no_effect_are_refused(
    admin: ClientSession, name: str, value: object
) -> None:
    body = {"managedLedgerOffloadDriver": "aws-s3", "managedLedgerOffloadBucket": "b"}
    for path in (NAMESPACE, TOPIC):
        status, found = await refusal(admin, f"POST {path}/offloadPolicies", {**body, name: value})
        assert (status, found.startswith(name)) == (412, True), found
        assert await call(admin, f"GET {path}/offloadPolicies") == (200, "")


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"managedLedgerOffloadDriver": "FileSystem"}, "fileSystemURI: .*needs file:///FOLDER"),
        ({"managedLedgerOffloadDriver": "S3"}, "s3ManagedLedgerOffloadServiceEndpoint: .*aws-s3 is Amazon's"),
        (
            {"s3ManagedLedgerOffloadServiceEndpoint": "http://stranger", "managedLedgerOffloadDriver": "s3"},
            "needs the URL",
        ),
        *(
            (
                {"managedLedgerOffloadDriver": driver, **GCS},
                f"no offloader {driver}; it has filesystem, aws-s3, S3",
            )
            for driver in ("google-cloud-storage", "azureblob", "aliyun-oss")
        ),
        ({"managedLedgerOffloadRegion": "x.evil/#"}, "s3ManagedLedgerOffloadRegion"),
        ({"managedLedgerOffloadBucket": "b/../c"}, "s3ManagedLedgerOffloadBucket"),
    ],
)
async def test_offload_policies_with_a_storage_that_the_broker_cannot_open_are_refused(
    admin: ClientSession, members: dict[str, object], reason: str
) -> None:
    body = {"managedLedgerOffloadDriver": "aws-s3", "managedLedgerOffloadBucket": "b", **members}
    for path in (NAMESPACE, TOPIC):
        status, found = await refusal(admin, f"POST {path}/offloadPolicies", body)
        assert status == 412
        assert re.search(reason, found)
        assert found.startswith("managedLedgerOffloadDriver=")
        assert await call(admin, f"GET {path}/offloadPolicies") == (200, "")


async def test_offload_thresholds_and_lag_are_members_of_the_offload_policies(admin: ClientSession) -> None:
    assert await call(admin, f"GET {NAMESPACE}/offloadThreshold") == (200, -1)
    assert await call(admin, f"GET {NAMESPACE}/offloadDeletionLagMs") == (200, "")
    for word, status in (
        ("offloadThreshold", 204),
        ("offloadThresholdInSeconds", 200),
        ("offloadDeletionLagMs", 204),
    ):
        assert await call(admin, f"PUT {NAMESPACE}/{word}", 7) == (status, "")
        assert await call(admin, f"GET {NAMESPACE}/{word}") == (200, 7)
        assert (await call(admin, f"PUT {NAMESPACE}/{word}", "x"))[0] == 400
    shown = (await call(admin, f"GET {NAMESPACE}/offloadPolicies"))[1]
    assert isinstance(shown, dict)
    assert (
        shown["managedLedgerOffloadThresholdInBytes"] == shown["managedLedgerOffloadDeletionLagInMillis"] == 7
    )
    assert await call(admin, f"DELETE {NAMESPACE}/offloadDeletionLagMs") == (204, "")
    assert await call(admin, f"GET {NAMESPACE}/offloadDeletionLagMs") == (200, "")
    assert await call(admin, f"DELETE {NAMESPACE}/removeOffloadPolicies") == (204, "")
    assert await call(admin, f"GET {NAMESPACE}/offloadThreshold") == (200, -1)
    assert (await call(admin, f"GET {NAMESPACE}/scanOffloadedLedgers"))[1] == {
        "objects": [],
        "total": 0,
        "errors": 0,
        "unknown": 0,
    }


@pytest.mark.usefixtures("topic")
async def test_pause_of_a_topic_comes_from_the_next_level_that_has_one(
    admin: ClientSession, broker: BrokerService
) -> None:
    name, policies = parse_topic_name(FULL_NAME), broker.registry.policies
    word = "dispatcherPauseOnAckStatePersistent"
    assert not policies.dispatcher_pause_on_ack_state_persistent(name)
    assert (await call(admin, f"POST {NAMESPACE}/{word}"))[0] == 204
    assert policies.dispatcher_pause_on_ack_state_persistent(name)
    assert await call(admin, f"GET {TOPIC}/{word}") == (200, False)
    assert await call(admin, f"GET {TOPIC}/{word}?applied=true") == (200, True)
    assert (await call(admin, f"DELETE {NAMESPACE}/{word}"))[0] == 204
    assert (await call(admin, f"POST {TOPIC}/{word}"))[0] == 204
    assert policies.dispatcher_pause_on_ack_state_persistent(name)


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(("path", "policy", "rest"), ROUTES, ids=name_of)
async def test_bad_value_is_refused_and_not_stored(
    admin: ClientSession, broker: BrokerService, path: str, policy: Policy[Any], rest: Rest
) -> None:
    line = f"{path}/{rest.word}"
    asked = f"{line}?{rest.word}=x" if rest.in_query else line
    before = await call(admin, f"GET {line}"), dict(broker.namespaces.policies("public/default"))
    # The structure comes last, because it may be stored.
    for body in ("10" + 22 * "0", "[[[[[1]]]]]", "abc", '"x"', "", '{"a": [1]}'):
        if (rest.raw and body) or (rest.empty_removes and not body) or rest.bodiless:
            continue
        async with admin.request(rest.verb, asked, data=body) as answer:
            # An object without a known member is a structure of defaults, in Pulsar too.
            if body == '{"a": [1]}' and answer.status == 204:
                assert policy.form.read(json.loads(body)) == policy.form.read({})
                return
            assert answer.status in (400, 412), body
        after = await call(admin, f"GET {line}"), dict(broker.namespaces.policies("public/default"))
        assert after == before, body


@pytest.mark.usefixtures("topic")
async def test_numbers_out_of_range_are_refused(admin: ClientSession) -> None:
    assert (await refusal(admin, f"POST {TOPIC}/maxProducers", -1))[0] == 412
    status, reason = await refusal(admin, f"POST {TOPIC}/maxMessageSize", 100_000_000)
    assert (status, "smaller than that in the broker-level" in reason) == (412, True)
    assert (await call(admin, f"POST {NAMESPACE}/maxProducersPerTopic", "5"))[0] == 204
    assert await call(admin, f"GET {NAMESPACE}/maxProducersPerTopic") == (200, 5)
    assert (await call(admin, f"POST {NAMESPACE}/maxProducersPerTopic", True))[0] == 400


async def test_policies_of_what_does_not_exist_are_not_found(admin: ClientSession) -> None:
    for verb in ("GET", "POST", "DELETE"):
        path = "/admin/v2/namespaces/public/nope/maxProducersPerTopic"
        assert await refusal(admin, f"{verb} {path}", 1) == (404, "Namespace does not exist")
        path = "/admin/v2/persistent/public/default/nope/maxProducers"
        expected = (404, "Topic persistent://public/default/nope not found")
        assert await refusal(admin, f"{verb} {path}", 1) == expected
        path = "/admin/v2/persistent/public/nope/t/maxProducers"
        assert await refusal(admin, f"{verb} {path}", 1) == (404, "Namespace not found")


@pytest.mark.usefixtures("topic")
async def test_global_policy_is_kept_beside_the_local_one(admin: ClientSession) -> None:
    line = f"{TOPIC}/maxProducers"
    await call(admin, f"POST {line}?isGlobal=true", 7)
    assert (await call(admin, f"GET {line}"))[1] == ""
    assert (await call(admin, f"GET {line}?isGlobal=true"))[1] == 7
    assert (await call(admin, f"GET {line}?applied=true"))[1] == 7
    await call(admin, f"POST {line}", 3)
    assert (await call(admin, f"GET {line}?applied=true"))[1] == 3
    assert await call(admin, f"DELETE {line}?isGlobal=true") == (204, "")
    assert (await call(admin, f"GET {line}?isGlobal=true"))[1] == ""
    assert await call(admin, f"DELETE {TOPIC}/policies") == (204, "")
    assert (await call(admin, f"GET {line}"))[1] == ""


@pytest.mark.usefixtures("topic")
async def test_value_in_force_comes_from_the_next_level_that_has_one(admin: ClientSession) -> None:
    asked = f"GET {TOPIC}/maxUnackedMessagesOnConsumer?applied=true"
    assert (await call(admin, asked))[1] == 50_000
    await call(admin, f"POST {NAMESPACE}/maxUnackedMessagesPerConsumer", 9)
    assert (await call(admin, asked))[1] == 9
    await call(admin, f"POST {TOPIC}/maxUnackedMessagesOnConsumer", 4)
    assert (await call(admin, asked))[1] == 4
    # Acknowledged messages are deleted, which is what this value says.
    kept = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    assert await call(admin, f"GET {TOPIC}/retention?applied=true") == (200, kept)
    delays = {"tickTime": 1000, "active": True, "maxDeliveryDelayInMillis": 0}
    assert await call(admin, f"GET {TOPIC}/delayedDelivery?applied=true") == (200, delays)
    assert await call(admin, f"GET {TOPIC}/offloadPolicies?applied=true") == (200, "")
    assert await call(admin, f"GET {TOPIC}/entryFilters?applied=true") == (200, {"entryFilterNames": ""})


async def test_partitions_have_the_policies_of_their_topic(
    admin: ClientSession, broker: BrokerService
) -> None:
    assert (await call(admin, f"PUT {TOPIC}/partitions", 2))[0] == 204
    assert (await call(admin, f"POST {TOPIC}/maxMessageSize", 50))[0] == 204
    for index in range(2):
        assert (await persistent(broker, f"t-partition-{index}")).message_bytes_max == 50
    assert (await refusal(admin, f"POST {TOPIC}-partition-0/maxMessageSize", 50))[0] == 412
    assert (await call(admin, f"DELETE {TOPIC}/partitions"))[0] == 204
    assert (await call(admin, f"GET {TOPIC}/maxMessageSize"))[0] == 404
    assert broker.namespaces.topic_policy(FULL_NAME, "maxMessageSize") is None


async def test_policies_of_topics_are_on_both_domains(admin: ClientSession, broker: BrokerService) -> None:
    path = "/admin/v2/non-persistent/public/default/n"
    assert (await call(admin, f"PUT {path}"))[0] == 204
    assert (await call(admin, f"POST {path}/maxMessageSize", 50))[0] == 204
    assert broker.registry.topics["non-persistent://public/default/n"].message_bytes_max == 50


async def test_namespace_shows_what_is_set_in_pulsars_json(admin: ClientSession) -> None:
    await call(admin, f"POST {NAMESPACE}/maxProducersPerTopic", 3)
    await call(admin, f"POST {NAMESPACE}/replicatorDispatchRate", VALUES["replicatorDispatchRate"])
    await call(admin, f"POST {NAMESPACE}/deduplication", True)
    status, shown = await call(admin, f"GET {NAMESPACE}")
    assert isinstance(shown, dict)
    assert (status, shown["max_producers_per_topic"], shown["deduplicationEnabled"]) == (200, 3, True)
    assert shown["replicatorDispatchRate"] == {"standalone": VALUES["replicatorDispatchRate"]}
    assert shown["topicDispatchRate"] == {}


async def test_local_policies_are_not_shown_among_the_policies(
    admin: ClientSession, broker: BrokerService
) -> None:
    await call(admin, f"POST {NAMESPACE}/antiAffinity", "g")
    await call(admin, f"POST {NAMESPACE}/dispatchRate", VALUES["dispatchRate"])
    _, shown = await call(admin, f"GET {NAMESPACE}")
    assert isinstance(shown, dict)
    assert "namespaceAntiAffinityGroup" not in shown
    assert (
        shown["topicDispatchRate"] == shown["clusterDispatchRate"] == {"standalone": VALUES["dispatchRate"]}
    )
    local = await broker.environment.metadata.get("/admin/local-policies/public/default")
    assert local is not None
    assert json.loads(local.value) == {
        "bundles": shown["bundles"],
        "migrated": False,
        "namespaceAntiAffinityGroup": "g",
    }
    await call(admin, f"DELETE {NAMESPACE}/antiAffinity")
    assert await call(admin, f"GET {NAMESPACE}/antiAffinity") == (200, "")


async def test_single_properties_of_a_namespace(admin: ClientSession) -> None:
    assert await call(admin, f"PUT {NAMESPACE}/property/k/v") == (204, "")
    assert await call(admin, f"GET {NAMESPACE}/properties") == (200, {"k": "v"})
    assert await call(admin, f"GET {NAMESPACE}/property/k") == (200, "v")
    assert await call(admin, f"GET {NAMESPACE}/property/x") == (200, "")
    assert await call(admin, f"DELETE {NAMESPACE}/property/k") == (200, "v")
    assert await call(admin, f"GET {NAMESPACE}/properties") == (200, {})


async def test_topics_above_the_limit_of_a_namespace_are_refused(admin: ClientSession) -> None:
    await call(admin, f"POST {NAMESPACE}/maxTopicsPerNamespace", 1)
    assert (await call(admin, f"PUT {TOPIC}"))[0] == 204
    # Two statuses for one reason, as Pulsar has them.
    assert (await refusal(admin, f"PUT {TOPIC}2"))[0] == 409
    assert (await refusal(admin, f"PUT {TOPIC}3/partitions", 1))[0] == 412
    path = "/admin/v2/non-persistent/public/default/n"
    assert (await call(admin, f"PUT {path}"))[0] == 204
