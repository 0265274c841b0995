"""The table of rights: which right each route of the admin API needs.

The rows are those of Apache Pulsar 4.2.4, from its recorded answers to eight roles and from its answers to every route of
its own list. It has rows for all of Apache's routes, also for those that no handler serves yet. Comments mark the rows
that ask for more than Apache does; `tests/vectors/explained_authz.py` has the reasons.
"""

from __future__ import annotations

from typing import Final

from broker.admin.rights.console_rows import CONSOLE_ROWS
from broker.admin.rights.needs import Need, Right, RightsTable, Rows

_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPICS: Final = "/admin/v2/{domain}/{tenant}/{namespace}"
_TOPIC: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
_SUBSCRIPTION: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/subscription/{subscription}"
_SCHEMA: Final = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
_TRANSACTIONS: Final = "/admin/v3/transactions"
_SWITCH: Final = "transactionCoordinatorEnabled"

AUTHENTICATED: Final = (Need(Right.AUTHENTICATED),)
SUPERUSER: Final = (Need(Right.SUPERUSER),)
OWN_TENANT: Final = (Need(Right.TENANT),)
WITHIN_TENANT: Final = (Need(Right.WITHIN_TENANT),)
POLICY: Final = (Need(Right.WITHIN_TENANT, 403),)
LIST_TOPICS: Final = (Need(Right.LIST_TOPICS, 403),)
LOOK_UP: Final = (Need(Right.LOOK_UP),)
PRODUCE: Final = (Need(Right.PRODUCE),)
CONSUME: Final = (Need(Right.CONSUME),)
# Pulsar says that the namespace is missing before it looks at the role.
CREATE_TOPIC: Final = (Need(Right.NAMESPACE_EXISTS, 404), Need(Right.WITHIN_TENANT, 403))
LOOK_UP_OWNER: Final = (Need(Right.NAMESPACE_EXISTS, 404), Need(Right.LOOK_UP))
# Pulsar reads the partitions, and then creates topics.
CREATE_PARTITIONS: Final = (Need(Right.LOOK_UP), Need(Right.WITHIN_TENANT, 403))

GROUPS: Final = (
    *CONSOLE_ROWS,
    # The broker and its cluster
    Rows(
        AUTHENTICATED,
        "",
        """
        GET /metrics
        GET /metrics/
        GET /status.html
        GET /openapi.json
        GET /admin/v2/brokers/ready
        GET /admin/v2/brokers/version
        GET /admin/v2/clusters
        """,
    ),
    Rows(
        SUPERUSER,
        "/admin/v2/brokers",
        """
        GET .
        GET /backlog-quota-check
        GET /configuration
        GET /configuration/runtime
        GET /configuration/values
        POST PUT /configuration/{key}/{value}
        DELETE /configuration/{key}
        GET /health
        GET /internal-configuration
        GET /leaderBroker
        POST /shutdown
        GET /{cluster}
        GET /{cluster}/{broker}/ownedNamespaces
        """,
    ),
    Rows(
        SUPERUSER,
        "/admin/v2",
        """
        * /bookies/**
        * /broker-stats/**
        * /clusters/**
        * /magnetar/**
        * /metadata/**
        * /resource-quotas
        * /resource-quotas/**
        * /resourcegroups
        * /resourcegroups/**
        GET /tenants
        """,
    ),
    # Answered with "not enabled" to everyone who has authenticated himself, as by Pulsar.
    Rows(
        AUTHENTICATED,
        "/admin",
        """
        * /v2/functions/**
        * /v2/worker/**
        * /v2/worker-stats/**
        * /v3/functions/**
        * /v3/sink/**
        * /v3/sinks/**
        * /v3/source/**
        * /v3/sources/**
        """,
    ),
    Rows(
        (Need(Right.PACKAGES),),
        "/admin/v3/packages/{type}/{tenant}/{namespace}",
        """
        GET .
        GET /{package}
        GET POST DELETE /{package}/{version}
        GET PUT /{package}/{version}/metadata
        """,
    ),
    # Apache answers 500 to every role.
    Rows(
        SUPERUSER,
        "/admin/v2/namespaces",
        """
        GET /{cluster}/antiAffinity/{group}
        """,
    ),
    # Tenants and namespaces
    Rows(
        OWN_TENANT,
        "/admin/v2/tenants",
        """
        GET PUT POST DELETE /{tenant}
        """,
    ),
    Rows(
        WITHIN_TENANT,
        "/admin/v2/namespaces/{tenant}",
        """
        GET .
        PUT DELETE /{namespace}
        GET PUT DELETE /{namespace}/properties
        GET DELETE /{namespace}/property/{key}
        PUT /{namespace}/property/{key}/{value}
        """,
    ),
    Rows(
        (Need(Right.BODY),),
        "/admin/v2/namespaces",
        """
        POST /grantPermissionsOnTopics
        POST /revokePermissionsOnTopics
        """,
    ),
    Rows(
        SUPERUSER,
        _NAMESPACE,
        """
        POST DELETE /delayedDelivery
        POST /migration
        * /persistence/bookieAffinity
        PUT /unload
        PUT /{bundle}/split
        PUT /{bundle}/unload
        """,
    ),
    Rows(
        LIST_TOPICS,
        _NAMESPACE,
        """
        GET /bundles
        GET /topics
        """,
    ),
    Rows(
        POLICY,
        _NAMESPACE,
        """
        GET .
        GET POST /allowedClusters
        GET POST DELETE /allowedTopicPropertyKeysForMetrics
        GET POST DELETE /antiAffinity
        GET POST DELETE /autoSubscriptionCreation
        GET POST DELETE /autoTopicCreation
        POST DELETE /backlogQuota
        GET /backlogQuotaMap
        GET PUT DELETE /compactionThreshold
        GET POST DELETE /deduplication
        GET POST DELETE /deduplicationSnapshotInterval
        GET /delayedDelivery
        GET POST DELETE /dispatchRate
        GET POST DELETE /dispatcherPauseOnAckStatePersistent
        GET POST DELETE /encryptionRequired
        GET POST DELETE /entryFilters
        GET POST DELETE /inactiveTopicPolicies
        GET POST DELETE /isAllowAutoUpdateSchema
        GET POST DELETE /maxConsumersPerSubscription
        GET POST DELETE /maxConsumersPerTopic
        GET POST DELETE /maxProducersPerTopic
        GET POST DELETE /maxSubscriptionsPerTopic
        GET POST DELETE /maxTopicsPerNamespace
        GET POST DELETE /maxUnackedMessagesPerConsumer
        GET POST DELETE /maxUnackedMessagesPerSubscription
        GET POST DELETE /messageTTL
        GET PUT DELETE /offloadDeletionLagMs
        GET POST DELETE /offloadPolicies
        DELETE /removeOffloadPolicies
        GET PUT DELETE /offloadThreshold
        GET PUT DELETE /offloadThresholdInSeconds
        GET /permissions
        GET /permissions/subscription
        POST /permissions/subscription/{subscription}
        POST DELETE /permissions/{role}
        DELETE /permissions/{subscription}/{role}
        GET POST DELETE /persistence
        GET POST DELETE /publishRate
        GET POST DELETE /replication
        GET POST DELETE /replicatorDispatchRate
        GET DELETE /resourcegroup
        POST /resourcegroup/{resourcegroup}
        GET POST DELETE /retention
        GET /scanOffloadedLedgers
        GET PUT DELETE /schemaAutoUpdateCompatibilityStrategy
        GET PUT DELETE /schemaCompatibilityStrategy
        GET POST DELETE /schemaValidationEnforced
        GET POST DELETE /subscribeRate
        GET POST DELETE /subscriptionAuthMode
        GET POST DELETE /subscriptionDispatchRate
        GET POST DELETE /subscriptionExpirationTime
        GET POST DELETE /subscriptionTypesEnabled
        DELETE /{bundle}
        GET /{bundle}/topicHashPositions
        """,
    ),
    # Stricter than Apache, where a consumer of one topic may drop the backlog of all subscriptions of all topics.
    Rows(
        POLICY,
        _NAMESPACE,
        """
        POST /clearBacklog
        POST /clearBacklog/{subscription}
        POST /unsubscribe/{subscription}
        POST /{bundle}/clearBacklog
        POST /{bundle}/clearBacklog/{subscription}
        POST /{bundle}/unsubscribe/{subscription}
        """,
    ),
    # Topics
    Rows(
        LIST_TOPICS,
        _TOPICS,
        """
        GET .
        GET /partitioned
        GET /{bundle}
        """,
    ),
    Rows(
        CREATE_TOPIC,
        _TOPIC,
        """
        PUT .
        PUT /partitions
        """,
    ),
    Rows(
        CREATE_PARTITIONS,
        _TOPIC,
        """
        POST /createMissedPartitions
        """,
    ),
    Rows(
        LOOK_UP,
        _TOPIC,
        """
        GET /internal-info
        GET /internalStats
        GET /partitioned-internalStats
        GET /partitioned-stats
        GET /partitions
        GET /properties
        GET /stats
        """,
    ),
    Rows(
        CONSUME,
        _TOPIC,
        """
        POST /all_subscription/expireMessages/{seconds}
        GET /backlog
        PUT /backlogSize
        GET /examinemessage
        GET /lastMessageId
        GET /ledger/{ledger}/entry/{entry}
        GET /messageid/{timestamp}
        GET /subscriptions
        """,
    ),
    # Stricter than Apache, which answers 412 to every role where entries have no index.
    Rows(
        CONSUME,
        _TOPIC,
        """
        GET /getMessageIdByIndex
        """,
    ),
    Rows(
        CONSUME,
        _SUBSCRIPTION,
        """
        PUT DELETE .
        POST /analyzeBacklog
        POST /expireMessages
        POST /expireMessages/{seconds}
        GET /position/{position}
        GET PUT /properties
        GET POST /replicatedSubscriptionStatus
        POST /resetcursor
        POST /resetcursor/{timestamp}
        POST /skip/{count}
        POST /skip_all
        """,
    ),
    Rows(
        WITHIN_TENANT,
        _TOPIC,
        """
        GET PUT /compaction
        GET POST DELETE /maxMessageSize
        GET PUT /offload
        GET /permissions
        POST DELETE /permissions/{role}
        PUT DELETE /properties
        POST /terminate
        POST /terminate/partitions
        POST /trim
        DELETE /truncate
        PUT /unload
        """,
    ),
    Rows(
        POLICY,
        _TOPIC,
        """
        DELETE .
        POST DELETE /partitions
        DELETE /policies
        GET POST DELETE /autoSubscriptionCreation
        POST DELETE /backlogQuota
        GET /backlogQuotaMap
        GET POST DELETE /compactionThreshold
        GET POST DELETE /deduplicationEnabled
        GET POST DELETE /deduplicationSnapshotInterval
        GET POST DELETE /delayedDelivery
        GET POST DELETE /dispatchRate
        GET POST DELETE /dispatcherPauseOnAckStatePersistent
        GET POST DELETE /inactiveTopicPolicies
        GET POST DELETE /maxConsumers
        GET POST DELETE /maxConsumersPerSubscription
        GET POST DELETE /maxProducers
        GET POST DELETE /maxSubscriptionsPerTopic
        GET POST DELETE /maxUnackedMessagesOnConsumer
        GET POST DELETE /maxUnackedMessagesOnSubscription
        GET POST DELETE /messageTTL
        GET POST DELETE /offloadPolicies
        GET POST DELETE /persistence
        GET POST DELETE /publishRate
        GET POST DELETE /replication
        GET POST DELETE /replicatorDispatchRate
        GET POST DELETE /retention
        GET PUT DELETE /schemaCompatibilityStrategy
        GET POST DELETE /schemaValidationEnforced
        GET PUT DELETE /shadowTopics
        GET POST DELETE /subscribeRate
        GET POST DELETE /subscriptionDispatchRate
        GET POST DELETE /subscriptionExpirationTime
        GET POST DELETE /subscriptionTypesEnabled
        GET POST DELETE /unackedHoleRedelivery
        GET POST DELETE /{subscription}/dispatchRate
        """,
    ),
    # Stricter than Apache for non-persistent topics, whose filters every producer and consumer may change there.
    Rows(
        POLICY,
        _TOPIC,
        """
        GET POST DELETE /entryFilters
        """,
    ),
    # Schemas
    Rows(
        LOOK_UP,
        _SCHEMA,
        """
        GET /metadata
        GET /schema
        GET /schema/{version}
        GET /schemas
        POST /version
        """,
    ),
    Rows(
        PRODUCE,
        _SCHEMA,
        """
        POST /schema
        """,
    ),
    Rows(
        WITHIN_TENANT,
        _SCHEMA,
        """
        POST /compatibility
        DELETE /schema
        """,
    ),
    # Lookup, and messages over HTTP and WebSocket
    Rows(
        LOOK_UP_OWNER,
        "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}",
        """
        GET .
        """,
    ),
    Rows(
        LIST_TOPICS,
        "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}",
        """
        GET /bundle
        """,
    ),
    Rows(
        PRODUCE,
        "/topics/{domain}/{tenant}/{namespace}/{topic}",
        """
        POST .
        POST /partitions/{partition}
        """,
    ),
    # The handlers check each topic again: the query may name a dead letter topic, and that of v3 has all topics.
    Rows(
        (Need(Right.PRODUCE, 403),),
        "/ws/v2",
        """
        GET /producer/{domain}/{tenant}/{namespace}/{topic}
        """,
    ),
    Rows(
        AUTHENTICATED,
        "/ws/v3",
        """
        GET /consumer/{subscription}
        """,
    ),
    Rows(
        (Need(Right.CONSUME, 403),),
        "/ws/v2",
        """
        GET /consumer/{domain}/{tenant}/{namespace}/{topic}/{subscription}
        GET /reader/{domain}/{tenant}/{namespace}/{topic}
        """,
    ),
    # Transactions
    Rows(
        (Need(Right.SUPERUSER, only_with=_SWITCH),),
        _TRANSACTIONS,
        """
        GET /coordinators
        GET /coordinatorStats
        GET /coordinatorInternalStats/{coordinator}
        GET /slowTransactions/{timeout}
        GET /transactionMetadata/{most}/{least}
        POST /abortTransaction/{most}/{least}
        POST /transactionCoordinator/replicas
        """,
    ),
    Rows(
        (Need(Right.LOOK_UP, only_with=_SWITCH),),
        _TRANSACTIONS,
        """
        GET /transactionBufferInternalStats/{tenant}/{namespace}/{topic}
        GET /transactionBufferStats/{tenant}/{namespace}/{topic}
        GET /transactionInBufferStats/{tenant}/{namespace}/{topic}/{most}/{least}
        """,
    ),
    Rows(
        (Need(Right.CONSUME, only_with=_SWITCH),),
        _TRANSACTIONS,
        """
        GET /pendingAckInternalStats/{tenant}/{namespace}/{topic}/{subscription}
        GET /pendingAckStats/{tenant}/{namespace}/{topic}/{subscription}
        GET /positionStatsInPendingAck/{tenant}/{namespace}/{topic}/{subscription}/{ledger}/{entry}
        GET /transactionInPendingAckStats/{tenant}/{namespace}/{topic}/{subscription}/{most}/{least}
        """,
    ),
)
"""All rows, by subject."""

RIGHTS: Final = RightsTable(GROUPS)
"""The table that the middleware asks."""
