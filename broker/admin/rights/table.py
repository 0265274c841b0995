"""The table of rights: which right each route of the admin API needs.

The rows are those of Apache Pulsar 4.2.4, from its recorded answers to eight roles and from its answers to every route of
its own list. It has rows for all of Apache's routes, also for those that no handler serves yet. The rows of policies come
from the policies' table, which has their rights. Comments mark the rows that ask for more than Apache does;
`tests/vectors/explained_authz.py` has the reasons.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.admin.rights.needs import Need, Right, RightsTable, Rows, groups_of
from broker.service.policies.table import POLICIES, PolicyRight

_SWITCH: Final = "transactionCoordinatorEnabled"

NEEDS: Final = {
    "authenticated": (Need(Right.AUTHENTICATED),),
    "superuser": (Need(Right.SUPERUSER),),
    "own-tenant": (Need(Right.TENANT),),
    "within-tenant": (Need(Right.WITHIN_TENANT),),
    "policy": (Need(Right.WITHIN_TENANT, 403),),
    "list-topics": (Need(Right.LIST_TOPICS, 403),),
    "look-up": (Need(Right.LOOK_UP),),
    "produce": (Need(Right.PRODUCE),),
    "produce-403": (Need(Right.PRODUCE, 403),),
    "consume": (Need(Right.CONSUME),),
    "consume-403": (Need(Right.CONSUME, 403),),
    "packages": (Need(Right.PACKAGES),),
    "body": (Need(Right.BODY),),
    # Pulsar says that the namespace is missing before it looks at the role.
    "create-topic": (Need(Right.NAMESPACE_EXISTS, 404), Need(Right.WITHIN_TENANT, 403)),
    "look-up-owner": (Need(Right.NAMESPACE_EXISTS, 404), Need(Right.LOOK_UP)),
    # Pulsar reads the partitions, and then creates topics.
    "create-partitions": (Need(Right.LOOK_UP), Need(Right.WITHIN_TENANT, 403)),
    "superuser-of-transactions": (Need(Right.SUPERUSER, only_with=_SWITCH),),
    "look-up-in-transactions": (Need(Right.LOOK_UP, only_with=_SWITCH),),
    "consume-in-transactions": (Need(Right.CONSUME, only_with=_SWITCH),),
}
"""By the first word of a group in the table: the needs of its routes, in the order in which they are checked."""

TABLE: Final = """
# The broker and its cluster
authenticated
    GET /metrics
    GET /metrics/
    GET /status.html
    GET /admin/v2/brokers/ready
    GET /admin/v2/brokers/version
    GET /admin/v2/clusters

superuser /admin/v2/brokers
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

superuser /admin/v2
    * /bookies/**
    * /broker-stats/**
    * /clusters/**
    * /metadata/**
    * /resource-quotas
    * /resource-quotas/**
    * /resourcegroups
    * /resourcegroups/**
    GET /tenants

# Answered with "not enabled" to everyone who has authenticated himself, as by Pulsar.
authenticated /admin
    * /v2/functions/**
    * /v2/worker/**
    * /v2/worker-stats/**
    * /v3/functions/**
    * /v3/sink/**
    * /v3/sinks/**
    * /v3/source/**
    * /v3/sources/**

packages /admin/v3/packages/{type}/{tenant}/{namespace}
    GET .
    GET /{package}
    GET POST DELETE /{package}/{version}
    GET PUT /{package}/{version}/metadata

# Apache answers 500 to every role.
superuser /admin/v2/namespaces
    GET /{cluster}/antiAffinity/{group}

# Tenants and namespaces
own-tenant /admin/v2/tenants
    GET PUT POST DELETE /{tenant}

within-tenant /admin/v2/namespaces/{tenant}
    GET .
    PUT DELETE /{namespace}
    GET DELETE /{namespace}/property/{key}
    PUT /{namespace}/property/{key}/{value}

body /admin/v2/namespaces
    POST /grantPermissionsOnTopics
    POST /revokePermissionsOnTopics

superuser /admin/v2/namespaces/{tenant}/{namespace}
    POST /migration
    PUT /unload
    PUT /{bundle}/split
    PUT /{bundle}/unload

list-topics /admin/v2/namespaces/{tenant}/{namespace}
    GET /bundles
    GET /topics

policy /admin/v2/namespaces/{tenant}/{namespace}
    GET .
    GET POST /allowedClusters
    POST DELETE /backlogQuota
    GET /backlogQuotaMap
    GET PUT DELETE /offloadDeletionLagMs
    DELETE /removeOffloadPolicies
    GET PUT DELETE /offloadThreshold
    GET PUT DELETE /offloadThresholdInSeconds
    GET /permissions
    GET /permissions/subscription
    POST /permissions/subscription/{subscription}
    POST DELETE /permissions/{role}
    DELETE /permissions/{subscription}/{role}
    GET POST DELETE /replication
    GET DELETE /resourcegroup
    POST /resourcegroup/{resourcegroup}
    GET /scanOffloadedLedgers
    DELETE /{bundle}
    GET /{bundle}/topicHashPositions

# Stricter than Apache, where a consumer of one topic may drop the backlog of all subscriptions of all topics.
policy /admin/v2/namespaces/{tenant}/{namespace}
    POST /clearBacklog
    POST /clearBacklog/{subscription}
    POST /unsubscribe/{subscription}
    POST /{bundle}/clearBacklog
    POST /{bundle}/clearBacklog/{subscription}
    POST /{bundle}/unsubscribe/{subscription}

# Topics
list-topics /admin/v2/{domain}/{tenant}/{namespace}
    GET .
    GET /partitioned
    GET /{bundle}

create-topic /admin/v2/{domain}/{tenant}/{namespace}/{topic}
    PUT .
    PUT /partitions

create-partitions /admin/v2/{domain}/{tenant}/{namespace}/{topic}
    POST /createMissedPartitions

look-up /admin/v2/{domain}/{tenant}/{namespace}/{topic}
    GET /internal-info
    GET /internalStats
    GET /partitioned-internalStats
    GET /partitioned-stats
    GET /partitions
    GET /properties
    GET /stats

consume /admin/v2/{domain}/{tenant}/{namespace}/{topic}
    POST /all_subscription/expireMessages/{seconds}
    GET /backlog
    PUT /backlogSize
    GET /examinemessage
    GET /lastMessageId
    GET /ledger/{ledger}/entry/{entry}
    GET /messageid/{timestamp}
    GET /subscriptions

# Stricter than Apache, which answers 412 to every role where entries have no index.
consume /admin/v2/{domain}/{tenant}/{namespace}/{topic}
    GET /getMessageIdByIndex

consume /admin/v2/{domain}/{tenant}/{namespace}/{topic}/subscription/{subscription}
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

within-tenant /admin/v2/{domain}/{tenant}/{namespace}/{topic}
    GET PUT /compaction
    GET PUT /offload
    GET /permissions
    POST DELETE /permissions/{role}
    PUT DELETE /properties
    POST /terminate
    POST /terminate/partitions
    POST /trim
    DELETE /truncate
    PUT /unload

policy /admin/v2/{domain}/{tenant}/{namespace}/{topic}
    DELETE .
    POST DELETE /partitions
    DELETE /policies
    POST DELETE /backlogQuota
    GET /backlogQuotaMap
    GET POST DELETE /replication
    GET PUT DELETE /shadowTopics
    GET POST DELETE /{subscription}/dispatchRate

# Schemas
look-up /admin/v2/schemas/{tenant}/{namespace}/{topic}
    GET /metadata
    GET /schema
    GET /schema/{version}
    GET /schemas
    POST /version

produce /admin/v2/schemas/{tenant}/{namespace}/{topic}
    POST /schema

within-tenant /admin/v2/schemas/{tenant}/{namespace}/{topic}
    POST /compatibility
    DELETE /schema

# Lookup, and messages over HTTP and WebSocket
look-up-owner /lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}
    GET .

list-topics /lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}
    GET /bundle

produce /topics/{domain}/{tenant}/{namespace}/{topic}
    POST .
    POST /partitions/{partition}

# The handlers check each topic again: the query may name a dead letter topic, and that of v3 has all topics.
produce-403 /ws/v2
    GET /producer/{domain}/{tenant}/{namespace}/{topic}

authenticated /ws/v3
    GET /consumer/{subscription}

consume-403 /ws/v2
    GET /consumer/{domain}/{tenant}/{namespace}/{topic}/{subscription}
    GET /reader/{domain}/{tenant}/{namespace}/{topic}

# Transactions
superuser-of-transactions /admin/v3/transactions
    GET /coordinators
    GET /coordinatorStats
    GET /coordinatorInternalStats/{coordinator}
    GET /slowTransactions/{timeout}
    GET /transactionMetadata/{most}/{least}
    POST /abortTransaction/{most}/{least}
    POST /transactionCoordinator/replicas

look-up-in-transactions /admin/v3/transactions
    GET /transactionBufferInternalStats/{tenant}/{namespace}/{topic}
    GET /transactionBufferStats/{tenant}/{namespace}/{topic}
    GET /transactionInBufferStats/{tenant}/{namespace}/{topic}/{most}/{least}

consume-in-transactions /admin/v3/transactions
    GET /pendingAckInternalStats/{tenant}/{namespace}/{topic}/{subscription}
    GET /pendingAckStats/{tenant}/{namespace}/{topic}/{subscription}
    GET /positionStatsInPendingAck/{tenant}/{namespace}/{topic}/{subscription}/{ledger}/{entry}
    GET /transactionInPendingAckStats/{tenant}/{namespace}/{topic}/{subscription}/{most}/{least}

# Routes that Pulsar does not have: the API's own description, the console's, those of the entry cache, the abort of a
# role's transactions. The console's lists of topics and its stream answer every authenticated role: their handlers leave
# out what the role may not see.
authenticated
    GET /
    GET /console/{file}
    GET /openapi.json

authenticated /admin/v2/magnetar/console
    GET /events
    GET /rights
    GET /session
    GET /topics

look-up /admin/v2/magnetar/console/topics/{domain}/{tenant}/{namespace}/{topic}
    GET .

consume /admin/v2/magnetar/console/messages/{domain}/{tenant}/{namespace}/{topic}
    GET /ledger/{ledger}/entry/{entry}
    GET /subscription/{subscription}

superuser /admin/v2/magnetar
    * /**

superuser /admin/v3/transactions
    POST /abortTransactionsOfRole
"""
"""The rows, by subject, without those of the policies' table; `groups_of` explains the form."""

_POLICY_NEEDS: Final = {
    PolicyRight.ADMIN: NEEDS["policy"],
    PolicyRight.ADMIN_401: NEEDS["within-tenant"],
    PolicyRight.SUPERUSER: NEEDS["superuser"],
}


def _rows_of_policies() -> Iterator[Rows]:
    """Yields the rows of the policies' table, which says the right of each."""
    owners = "/admin/v2/namespaces/{tenant}/{namespace}", "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
    for policy in POLICIES:
        for rest, owner in zip((policy.namespace, policy.topic), owners, strict=True):
            if rest is not None:
                path = f"{owner}/{rest.word}"
                yield Rows(_POLICY_NEEDS[rest.right], path, "GET .")
                # DELETE also where Apache has none: the answer is 405 then.
                yield Rows(_POLICY_NEEDS[rest.set_right or rest.right], path, f"{rest.verb} DELETE .")


RIGHTS: Final = RightsTable((*groups_of(NEEDS, TABLE), *_rows_of_policies()))
"""The table that the middleware asks."""
