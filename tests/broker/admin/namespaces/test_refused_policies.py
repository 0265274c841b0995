"""The reasons of refused policies: Pulsar's own sentences, which clients and their tests look for.

Each sentence is the answer of Apache Pulsar 4.2.4 to the same request.
"""

from __future__ import annotations

from typing import Final

import pytest
from aiohttp import ClientSession

from tests.broker.admin.test_rest import call, refusal

NAMESPACE: Final = "/admin/v2/namespaces/public/default"
TOPIC: Final = "/admin/v2/persistent/public/default/t"
BELOW_ZERO: Final = {
    f"POST {NAMESPACE}/maxTopicsPerNamespace": "maxTopicsPerNamespace must be 0 or more",
    f"POST {NAMESPACE}/maxProducersPerTopic": "maxProducersPerTopic must be 0 or more",
    f"POST {NAMESPACE}/maxUnackedMessagesPerConsumer": "maxUnackedMessagesPerConsumer must be 0 or more",
    f"POST {NAMESPACE}/messageTTL": "Invalid value for message TTL, message TTL must >= 0",
    f"POST {NAMESPACE}/subscriptionExpirationTime": "Invalid value for subscription expiration time",
    f"POST {NAMESPACE}/deduplicationSnapshotInterval": "interval must be greater than or equal to 0",
    f"PUT {NAMESPACE}/compactionThreshold": "compactionThreshold must be 0 or more",
    f"POST {TOPIC}/maxProducers": "maxProducers must be 0 or more",
    f"POST {TOPIC}/maxConsumersPerSubscription": "Invalid value for maxConsumersPerSubscription",
    f"POST {TOPIC}/maxUnackedMessagesOnConsumer": "maxUnackedNum must be 0 or more",
    f"POST {TOPIC}/maxUnackedMessagesOnSubscription": "maxUnackedNum must be 0 or more",
    f"POST {TOPIC}/deduplicationSnapshotInterval": "interval must be 0 or more",
    f"POST {TOPIC}/compactionThreshold": "Invalid value for compactionThreshold",
    f"POST {TOPIC}/messageTTL?messageTTL=-1": "Invalid value for message TTL",
    f"POST {TOPIC}/subscriptionExpirationTime?subscriptionExpirationTime=-1": (
        "Invalid value for subscription expiration time"
    ),
    f"POST {TOPIC}/maxMessageSize": (
        "topic-level maxMessageSize must be greater than or equal to 0 and must be smaller than that in the broker-level"
    ),
}
_AUTO: Final = "Invalid configuration for autoTopicCreationOverride. the detail is "
_ONE_ZERO: Final = (
    "Invalid retention policy: Setting a single time or size limit to 0 is invalid when one of the limits has a non-zero"
    " value. Use the value of -1 instead of 0 to ignore a specific limit. To disable retention both limits must be set"
    " to 0."
)


@pytest.fixture(autouse=True)
async def topic(admin: ClientSession) -> None:
    assert (await call(admin, f"PUT {TOPIC}"))[0] == 204


@pytest.mark.parametrize(("line", "reason"), BELOW_ZERO.items())
async def test_number_below_zero_is_refused_with_pulsars_sentence(
    admin: ClientSession, line: str, reason: str
) -> None:
    assert await refusal(admin, line, -1) == (412, reason)


@pytest.mark.parametrize("base", [NAMESPACE, TOPIC])
@pytest.mark.parametrize(
    ("minutes", "mib", "reason"),
    [
        (-2, 5, "Invalid retention policy: time limit must be >= -1"),
        (5, -2, "Invalid retention policy: size limit must be >= -1"),
        (-2, -2, "Invalid retention policy: size limit must be >= -1"),
        (0, 5, _ONE_ZERO),
        (5, 0, _ONE_ZERO),
    ],
)
async def test_wrong_retention_is_refused_with_pulsars_sentence(
    admin: ClientSession, base: str, minutes: int, mib: int, reason: str
) -> None:
    value = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": mib}
    assert await refusal(admin, f"POST {base}/retention", value) == (400, reason)


@pytest.mark.parametrize("base", [NAMESPACE, TOPIC])
@pytest.mark.parametrize(
    ("ensemble", "write", "ack", "reason"),
    [
        (0, 0, 0, "Bookkeeper-Ensemble must be <= 5 and > 0."),
        (2, 2, 0, "Bookkeeper-AckQuorum must be <= 5 and > 0."),
        (1, 2, 2, "Bookkeeper Ensemble (1) >= WriteQuorum (2) >= AckQuorum (2)"),
    ],
)
async def test_wrong_persistence_is_refused_with_pulsars_sentence(
    admin: ClientSession, base: str, ensemble: int, write: int, ack: int, reason: str
) -> None:
    value = {"bookkeeperEnsemble": ensemble, "bookkeeperWriteQuorum": write, "bookkeeperAckQuorum": ack}
    assert await refusal(admin, f"POST {base}/persistence", value) == (400, reason)


@pytest.mark.parametrize(
    ("kind", "partitions", "detail"),
    [
        (None, None, "Unknown topic type [null]"),
        ("x", None, "Unknown topic type [x]"),
        ("partitioned", None, "[defaultNumPartitions] cannot be null when the type is partitioned."),
        ("partitioned", 0, "[defaultNumPartitions] cannot be less than 1 for partition type."),
        (
            "non-partitioned",
            3,
            "[defaultNumPartitions] is not allowed to be set when the type is non-partition.",
        ),
    ],
)
async def test_wrong_creation_of_topics_is_refused_with_pulsars_sentence(
    admin: ClientSession, kind: str | None, partitions: int | None, detail: str
) -> None:
    value = {"allowAutoTopicCreation": True, "topicType": kind, "defaultNumPartitions": partitions}
    assert await refusal(admin, f"POST {NAMESPACE}/autoTopicCreation", value) == (412, _AUTO + detail)


@pytest.mark.parametrize("base", [NAMESPACE, TOPIC])
async def test_quota_without_an_action_is_refused_with_pulsars_sentence(
    admin: ClientSession, base: str
) -> None:
    reason = (
        "Set namespace[public/default] backlog quota failed because the data validation failed."
        " the attribute policy cannot be null"
    )
    assert await refusal(admin, f"POST {base}/backlogQuota", {"limitSize": 5}) == (400, reason)


@pytest.mark.parametrize(
    ("base", "reason"),
    [
        (NAMESPACE, "Retention Quota must exceed configured backlog quota for namespace."),
        (
            TOPIC,
            "Retention Quota must exceed configured backlog quota for topic. Please increase retention quota and retry",
        ),
    ],
)
async def test_retention_below_the_quota_is_refused_with_pulsars_sentence(
    admin: ClientSession, base: str, reason: str
) -> None:
    quota = {"limitSize": 10 << 20, "limitTime": -1, "policy": "producer_request_hold"}
    assert (await call(admin, f"POST {base}/backlogQuota", quota))[0] == 204
    value = {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1}
    assert await refusal(admin, f"POST {base}/retention", value) == (412, reason)


async def test_limit_of_topics_is_zero_when_it_is_not_set(admin: ClientSession) -> None:
    assert await call(admin, f"GET {NAMESPACE}/maxTopicsPerNamespace") == (200, 0)
