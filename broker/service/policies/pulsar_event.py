"""The Avro schema of `PulsarEvent`, the messages of `__change_events`, as Apache Pulsar 4.2.4 registers it, to the byte.

A schema of other bytes would be one more version of the topic's schema. Every object is a union with null; Java's primitive
members are not. Fields of a record are in alphabetical order.
"""

from __future__ import annotations

import json
from typing import Final, TypeAlias

from broker.schemas.schema import Schema, SchemaType

_Type: TypeAlias = "str | list[_Type] | dict[str, object]"
_DATA: Final = "org.apache.pulsar.common.policies.data"
_IMPL: Final = f"{_DATA}.impl"
_RATE: Final = f"{_IMPL}.DispatchRateImpl"


def _record(name: str, namespace: str = "", /, **fields: _Type) -> dict[str, object]:
    """Returns a record; an empty namespace is that of the record around it."""
    listed = [
        {"name": field, "type": kind} | ({"default": None} if isinstance(kind, list) else {})
        for field, kind in fields.items()
    ]
    return {"type": "record", "name": name, **_in(namespace), "fields": listed}


def _enum(name: str, *symbols: str, namespace: str = "") -> list[_Type]:
    return ["null", {"type": "enum", "name": name, **_in(namespace), "symbols": [*symbols]}]


def _in(namespace: str) -> dict[str, str]:
    return {"namespace": namespace} if namespace else {}


def _array(items: _Type, kind: str = "List") -> list[_Type]:
    return ["null", {"type": "array", "items": items, "java-class": f"java.util.{kind}"}]


def _map(values: _Type) -> list[_Type]:
    return ["null", {"type": "map", "values": values}]


_BOOLEAN: Final[list[_Type]] = ["null", "boolean"]
_INT: Final[list[_Type]] = ["null", "int"]
_LONG: Final[list[_Type]] = ["null", "long"]
_TEXT: Final[list[_Type]] = ["null", "string"]

_QUOTA: Final = _record(
    "BacklogQuotaImpl",
    _IMPL,
    limit="long",
    limitSize=_LONG,
    limitTime="int",
    policy=_enum(
        "RetentionPolicy",
        *("producer_request_hold", "producer_exception", "consumer_backlog_eviction"),
        namespace=f"{_DATA}.BacklogQuota",
    ),
)
_OFFLOAD: Final = _record(
    "OffloadPoliciesImpl",
    fileSystemProfilePath=_TEXT,
    fileSystemURI=_TEXT,
    gcsManagedLedgerOffloadBucket=_TEXT,
    gcsManagedLedgerOffloadMaxBlockSizeInBytes=_INT,
    gcsManagedLedgerOffloadReadBufferSizeInBytes=_INT,
    gcsManagedLedgerOffloadRegion=_TEXT,
    gcsManagedLedgerOffloadServiceAccountKeyFile=_TEXT,
    managedLedgerExtraConfigurations=_map("string"),
    managedLedgerOffloadBucket=_TEXT,
    managedLedgerOffloadDeletionLagInMillis=_LONG,
    managedLedgerOffloadDriver=_TEXT,
    managedLedgerOffloadMaxBlockSizeInBytes=_INT,
    managedLedgerOffloadMaxThreads=_INT,
    managedLedgerOffloadPrefetchRounds=_INT,
    managedLedgerOffloadReadBufferSizeInBytes=_INT,
    managedLedgerOffloadReadThreads=_INT,
    managedLedgerOffloadRegion=_TEXT,
    managedLedgerOffloadServiceEndpoint=_TEXT,
    managedLedgerOffloadThresholdInBytes=_LONG,
    managedLedgerOffloadThresholdInSeconds=_LONG,
    managedLedgerOffloadedReadPriority=_enum(
        "OffloadedReadPriority", "BOOKKEEPER_FIRST", "TIERED_STORAGE_FIRST"
    ),
    offloadersDirectory=_TEXT,
    s3ManagedLedgerOffloadBucket=_TEXT,
    s3ManagedLedgerOffloadCredentialId=_TEXT,
    s3ManagedLedgerOffloadCredentialSecret=_TEXT,
    s3ManagedLedgerOffloadMaxBlockSizeInBytes=_INT,
    s3ManagedLedgerOffloadReadBufferSizeInBytes=_INT,
    s3ManagedLedgerOffloadRegion=_TEXT,
    s3ManagedLedgerOffloadRole=_TEXT,
    s3ManagedLedgerOffloadRoleSessionName=_TEXT,
    s3ManagedLedgerOffloadServiceEndpoint=_TEXT,
)
_POLICIES: Final = _record(
    "TopicPolicies",
    _DATA,
    autoSubscriptionCreationOverride=[
        "null",
        _record("AutoSubscriptionCreationOverrideImpl", _IMPL, allowAutoSubscriptionCreation="boolean"),
    ],
    backLogQuotaMap=_map(_QUOTA),
    compactionThreshold=_LONG,
    deduplicationEnabled=_BOOLEAN,
    deduplicationSnapshotIntervalSeconds=_INT,
    delayedDeliveryEnabled=_BOOLEAN,
    delayedDeliveryMaxDelayInMillis=_LONG,
    delayedDeliveryTickTimeMillis=_LONG,
    dispatchRate=[
        "null",
        _record(
            "DispatchRateImpl",
            _IMPL,
            dispatchThrottlingRateInByte="long",
            dispatchThrottlingRateInMsg="int",
            ratePeriodInSecond="int",
            relativeToPublishRate="boolean",
        ),
    ],
    dispatcherPauseOnAckStatePersistentEnabled=_BOOLEAN,
    entryFilters=["null", _record("EntryFilters", entryFilterNames=_TEXT)],
    inactiveTopicPolicies=[
        "null",
        _record(
            "InactiveTopicPolicies",
            deleteWhileInactive="boolean",
            inactiveTopicDeleteMode=_enum(
                "InactiveTopicDeleteMode",
                "delete_when_no_subscriptions",
                "delete_when_subscriptions_caught_up",
            ),
            maxInactiveDurationSeconds="int",
        ),
    ],
    isGlobal=_BOOLEAN,
    maxConsumerPerTopic=_INT,
    maxConsumersPerSubscription=_INT,
    maxMessageSize=_INT,
    maxProducerPerTopic=_INT,
    maxSubscriptionsPerTopic=_INT,
    maxUnackedMessagesOnConsumer=_INT,
    maxUnackedMessagesOnSubscription=_INT,
    messageTTLInSeconds=_INT,
    offloadPolicies=["null", _OFFLOAD],
    persistence=[
        "null",
        _record(
            "PersistencePolicies",
            bookkeeperAckQuorum="int",
            bookkeeperEnsemble="int",
            bookkeeperWriteQuorum="int",
            managedLedgerMaxMarkDeleteRate="double",
            managedLedgerStorageClassName=_TEXT,
        ),
    ],
    publishRate=[
        "null",
        _record("PublishRate", publishThrottlingRateInByte="long", publishThrottlingRateInMsg="int"),
    ],
    replicationClusters=_array("string"),
    replicatorDispatchRate=["null", _RATE],
    retentionPolicies=[
        "null",
        _record("RetentionPolicies", retentionSizeInMB="long", retentionTimeInMinutes="int"),
    ],
    schemaCompatibilityStrategy=_enum(
        "SchemaCompatibilityStrategy",
        *("UNDEFINED", "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL"),
        *("BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"),
    ),
    schemaValidationEnforced=_BOOLEAN,
    shadowTopics=_array("string"),
    subscribeRate=[
        "null",
        _record("SubscribeRate", ratePeriodInSecond="int", subscribeThrottlingRatePerConsumer="int"),
    ],
    subscriptionDispatchRate=["null", _RATE],
    subscriptionExpirationTimeInMinutes=_INT,
    subscriptionPolicies=_map(_record("SubscriptionPolicies", dispatchRate=["null", _RATE])),
    subscriptionTypesEnabled=_array(
        {
            "type": "enum",
            "name": "SubType",
            "namespace": "org.apache.pulsar.common.api.proto.CommandSubscribe",
            "symbols": ["Exclusive", "Shared", "Failover", "Key_Shared"],
        }
    ),
)
_EVENT: Final = _record(
    "PulsarEvent",
    "org.apache.pulsar.common.events",
    actionType=_enum("ActionType", "INSERT", "DELETE", "UPDATE", "NONE"),
    eventType=_enum(
        "EventType",
        "TOPIC_POLICY",
        "TRANSACTION_BUFFER_SNAPSHOT",
        "TRANSACTION_BUFFER_SNAPSHOT_SEGMENTS",
        "TRANSACTION_BUFFER_SNAPSHOT_INDEXES",
    ),
    replicateTo=_array("string", "HashSet"),
    topicPoliciesEvent=[
        "null",
        _record(
            "TopicPoliciesEvent",
            domain=_TEXT,
            namespace=_TEXT,
            policies=["null", _POLICIES],
            tenant=_TEXT,
            topic=_TEXT,
        ),
    ],
)
EVENT_SCHEMA: Final = Schema(
    SchemaType.AVRO,
    json.dumps(_EVENT, separators=(",", ":")).encode(),
    {"__jsr310ConversionEnabled": "false", "__alwaysAllowNull": "true"},
)
"""The schema with which Magnetar writes events."""
