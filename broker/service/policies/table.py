"""The table of policies: one row for each, with its names, type, broker setting, REST routes and effect.

A policy is set on a namespace, on a topic, or on both; the topic's value wins over the namespace's, and that over the
broker's setting (`EffectivePolicies`). `acts` says the effect of each, or that it is stored and shown alone.

Names, verbs and answers are those of Apache Pulsar 4.2.4.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from broker.service.namespaces.namespaces import Json
from broker.service.policies.backlog_quota import AGE, SIZE, BacklogQuota, Quotas
from broker.service.policies.forms import (
    Choice,
    Flag,
    Form,
    Names,
    Subset,
    Text,
    Texts,
    Whole,
)
from broker.service.policies.offload import Offloading
from broker.service.policies.values import (
    AUTO_SUBSCRIPTION_CREATION,
    AUTO_TOPIC_CREATION,
    BOOKIE_AFFINITY_GROUPS,
    DELAYED_DELIVERY,
    DISPATCH_RATE,
    ENTRY_FILTERS_FORM,
    INACTIVE_TOPICS,
    NON_PARTITIONED,
    PARTITIONED,
    PERSISTENCE,
    PUBLISH_RATE,
    RETENTION,
    SUBSCRIBE_RATE,
    AutoSubscriptionCreation,
    AutoTopicCreation,
    DelayedDeliveryPolicies,
    DispatchRate,
    EntryFilters,
    HoleRedelivery,
    InactiveTopics,
    Persistence,
    PublishRate,
    Retention,
    SubscribeRate,
)
from broker.service.policies.values import (
    HOLE_REDELIVERY as HOLE_REDELIVERY_FORM,
)
from broker.service.settings import ServiceSettings
from foundation.settings.keys import LONG_MAX
from foundation.value import Value

T = TypeVar("T")


class Unset(NamedTuple):
    """The answer to a read while the policy is not set: a JSON value, or a status without a body."""

    value: Json = None
    """JSON of the answer; None = no body."""
    status: Literal[200, 204] = 200
    """Status of an answer without a body."""


EMPTY: Final = Unset()
"""200 without a body, Pulsar's usual answer."""
NO_CONTENT: Final = Unset(status=204)
"""204, which Pulsar answers for some policies."""


class PolicyRight(Enum):
    """The role that may use the routes of a policy. The status for another role is Pulsar's, which differs."""

    ADMIN = "administrator of the tenant"
    """Others get 403."""
    ADMIN_401 = "administrator of the tenant, by another status"
    """Others get 401."""
    SUPERUSER = "superuser"
    """Others get 401."""


ADMIN: Final = PolicyRight.ADMIN
ADMIN_401: Final = PolicyRight.ADMIN_401
SUPERUSER: Final = PolicyRight.SUPERUSER


class Rest(NamedTuple):
    """The routes of a policy at one level."""

    word: str
    """Last part of the path."""
    right: PolicyRight
    """Needed to read, set and remove it."""
    set_right: PolicyRight | None = None
    """Needed to set and remove it, where that is another one."""
    verb: Literal["POST", "PUT"] = "POST"
    """Method that sets the policy."""
    unset: Unset = EMPTY
    """Answer while it is not set."""
    removable: bool = True
    """False where Pulsar has no DELETE."""
    applied: bool = False
    """True where `?applied=true` asks for the value in force."""
    in_query: bool = False
    """True where the value is a parameter of the query, named like the path's word."""
    raw: bool = False
    """True where the body and the answer are the text itself, without the quotes of JSON."""
    empty_removes: bool = False
    """True where an empty body removes the policy, as one of Pulsar's tools asks for it."""
    bodiless: bool = False
    """True where the request sets true and has no body; only DELETE ends it."""
    refusal: str = ""
    """Pulsar's whole sentence for a number out of range; empty = `WORD must be 0 or more`."""


class Policy(Value, Generic[T], kw_only=True):
    """One policy with its facts."""

    title: str
    """Its name for people."""
    name: str = ""
    """Its key in the stored policies of a namespace, or in the local ones (`LOCAL`); empty = not for namespaces."""
    topic_name: str = ""
    """Its key in the stored policies of a topic; empty = not for topics."""
    form: Form[T]
    """Type, range and JSON of the value."""
    namespace: Rest | None = None
    """Routes below a namespace."""
    topic: Rest | None = None
    """Routes below a topic."""
    key: str = ""
    """The broker's key whose value holds where the policy is not set."""
    setting: Callable[[ServiceSettings], T] | None = None
    """Reads that value; None = this broker has no such setting yet."""
    at_most: str = ""
    """A broker's key that limits the value."""
    acts: str
    """The effect on clients, in a sentence."""


def _delayed_delivery(settings: ServiceSettings) -> DelayedDeliveryPolicies:
    return DelayedDeliveryPolicies(
        settings.delayed_tick_ms, active=settings.delayed_delivery, delay_max_ms=settings.delay_max_ms
    )


# fmt: off
# The formatter would give each argument a line of its own; a policy's facts read better as a few.

# Limits that are checked when a client comes

MAX_PRODUCERS: Final = Policy(
    title="producers of a topic", form=Whole(),
    name="max_producers_per_topic", namespace=Rest("maxProducersPerTopic", ADMIN),
    topic_name="maxProducerPerTopic", topic=Rest("maxProducers", ADMIN, applied=True),
    key="maxProducersPerTopic", setting=lambda settings: settings.producers_max,
    acts="A producer above the limit is refused; connected ones stay. 0 = no limit.")
MAX_CONSUMERS: Final = Policy(
    title="consumers of a topic", form=Whole(),
    name="max_consumers_per_topic", namespace=Rest("maxConsumersPerTopic", ADMIN),
    topic_name="maxConsumerPerTopic", topic=Rest("maxConsumers", ADMIN, applied=True),
    key="maxConsumersPerTopic", setting=lambda settings: settings.consumers_max_per_topic,
    acts="A consumer above the limit is refused; connected ones stay. 0 = no limit.")
MAX_CONSUMERS_PER_SUBSCRIPTION: Final = Policy(
    title="consumers of a subscription", form=Whole(),
    name="max_consumers_per_subscription", namespace=Rest("maxConsumersPerSubscription", ADMIN),
    topic_name="maxConsumersPerSubscription", topic=Rest(
        "maxConsumersPerSubscription", ADMIN, unset=NO_CONTENT, refusal="Invalid value for maxConsumersPerSubscription"),
    key="maxConsumersPerSubscription", setting=lambda settings: settings.consumers_max_per_subscription,
    acts="A consumer above the limit is refused; connected ones stay. 0 = no limit.")
MAX_SUBSCRIPTIONS: Final = Policy(
    title="subscriptions of a topic", form=Whole(),
    name="max_subscriptions_per_topic", namespace=Rest("maxSubscriptionsPerTopic", ADMIN),
    topic_name="maxSubscriptionsPerTopic", topic=Rest("maxSubscriptionsPerTopic", ADMIN, unset=NO_CONTENT),
    key="maxSubscriptionsPerTopic", setting=lambda settings: settings.subscriptions_max,
    acts="A subscription above the limit is not created. 0 = no limit.")
MAX_TOPICS: Final = Policy(
    title="topics of a namespace", form=Whole(),
    name="max_topics_per_namespace", namespace=Rest("maxTopicsPerNamespace", ADMIN, unset=Unset(0)),
    key="maxTopicsPerNamespace", setting=lambda settings: settings.topics_max_per_namespace,
    acts="A persistent topic above the limit is not created; each partition counts. 0 = no limit.")
_TYPES: Final = Subset("Failover", "Key_Shared", "Exclusive", "Shared")
SUBSCRIPTION_TYPES: Final = Policy(
    title="subscription types", form=_TYPES,
    name="subscription_types_enabled", namespace=Rest("subscriptionTypesEnabled", ADMIN, unset=Unset([])),
    topic_name="subscriptionTypesEnabled", topic=Rest("subscriptionTypesEnabled", ADMIN, unset=NO_CONTENT),
    key="subscriptionTypesEnabled", setting=lambda settings: _TYPES.read(list(settings.subscription_types)),
    acts="A consumer of another type is refused; connected ones stay. An empty list sets nothing.")
ENCRYPTION_REQUIRED: Final = Policy(
    title="encryption", form=Flag(),
    name="encryption_required", namespace=Rest("encryptionRequired", ADMIN, unset=Unset(False), removable=False),
    key="encryptionRequireOnProducer", setting=lambda settings: settings.encryption_required,
    acts="A producer that does not encrypt is refused, and disconnected when the policy is set.")
AUTO_SUBSCRIPTIONS: Final = Policy(
    title="automatic creation of subscriptions", form=AUTO_SUBSCRIPTION_CREATION,
    name="autoSubscriptionCreationOverride", namespace=Rest("autoSubscriptionCreation", ADMIN),
    topic_name="autoSubscriptionCreationOverride", topic=Rest("autoSubscriptionCreation", ADMIN, applied=True),
    key="allowAutoSubscriptionCreation",
    setting=lambda settings: AutoSubscriptionCreation(settings.auto_subscription_creation),
    acts="A durable subscription is created for its first consumer, or refused.")
AUTO_TOPICS: Final = Policy(
    title="automatic creation of topics", form=AUTO_TOPIC_CREATION,
    name="autoTopicCreationOverride", namespace=Rest("autoTopicCreation", ADMIN),
    key="allowAutoTopicCreation",
    setting=lambda settings: AutoTopicCreation(
        settings.auto_topic_creation,
        PARTITIONED if settings.auto_topic_partitions else NON_PARTITIONED,
        settings.auto_topic_partitions or None),
    acts="A topic is created for its first client, with partitions or without, or refused.")

# Messages

MAX_MESSAGE_SIZE: Final = Policy(
    title="bytes of a message", form=Whole(), at_most="maxMessageSize",
    topic_name="maxMessageSize", topic=Rest(
        "maxMessageSize", ADMIN_401, unset=NO_CONTENT,
        refusal="topic-level maxMessageSize must be greater than or equal to 0 and must be smaller than that in the"
                " broker-level"),
    setting=lambda settings: 0,
    acts="A message or batch above the limit is refused; chunks are not checked. 0 = the broker's limit.")
DEDUPLICATION: Final = Policy(
    title="deduplication", form=Flag(),
    name="deduplicationEnabled", namespace=Rest("deduplication", ADMIN),
    topic_name="deduplicationEnabled", topic=Rest("deduplicationEnabled", ADMIN, applied=True),
    key="brokerDeduplicationEnabled", setting=lambda settings: settings.deduplication,
    acts="A message that its producer has sent before is confirmed and not stored again.")
MAX_UNACKED_PER_CONSUMER: Final = Policy(
    title="unacknowledged messages of a consumer", form=Whole(),
    name="max_unacked_messages_per_consumer", namespace=Rest("maxUnackedMessagesPerConsumer", ADMIN),
    topic_name="maxUnackedMessagesOnConsumer", topic=Rest(
        "maxUnackedMessagesOnConsumer", ADMIN, applied=True, refusal="maxUnackedNum must be 0 or more"),
    key="maxUnackedMessagesPerConsumer", setting=lambda settings: settings.unacked_max_per_consumer,
    acts="A consumer of a Shared or Key_Shared subscription gets no further message at the limit. 0 = no limit.")
MAX_UNACKED_PER_SUBSCRIPTION: Final = Policy(
    title="unacknowledged messages of a subscription", form=Whole(),
    name="max_unacked_messages_per_subscription", namespace=Rest("maxUnackedMessagesPerSubscription", ADMIN),
    topic_name="maxUnackedMessagesOnSubscription", topic=Rest(
        "maxUnackedMessagesOnSubscription", ADMIN, applied=True, refusal="maxUnackedNum must be 0 or more"),
    key="maxUnackedMessagesPerSubscription", setting=lambda settings: settings.unacked_max_per_subscription,
    acts="A Shared or Key_Shared subscription pauses at the limit until half are left. 0 = no limit.")
DISPATCHER_PAUSE: Final = Policy(
    title="pause while acknowledgements cannot be stored", form=Flag(),
    name="dispatcherPauseOnAckStatePersistentEnabled",
    namespace=Rest("dispatcherPauseOnAckStatePersistent", ADMIN, unset=Unset(False), bodiless=True),
    topic_name="dispatcherPauseOnAckStatePersistentEnabled",
    topic=Rest("dispatcherPauseOnAckStatePersistent", ADMIN, unset=Unset(False), bodiless=True, applied=True),
    key="dispatcherPauseOnAckStatePersistentEnabled", setting=lambda settings: settings.pause_on_ack_state,
    acts="A Shared or Key_Shared subscription gets no further message while it has more ranges of acknowledged "
         "messages than are stored (`managedLedgerMaxUnackedRangesToPersist`).")
HOLE_REDELIVERY: Final = Policy(
    title="redelivery of lost messages", form=HOLE_REDELIVERY_FORM,
    topic_name="unackedHoleRedelivery", topic=Rest("unackedHoleRedelivery", ADMIN, applied=True),
    key="unackedHoleRedeliveryEnabled",
    setting=lambda settings: HoleRedelivery(
        settings.hole_redelivery, settings.hole_period_s, settings.hole_pending_s),
    acts="Messages that were read so long ago, are unacknowledged and are pending at no connected consumer are delivered "
         "again; with `pendingSeconds` above 0 also those that are pending at one for so long while later ones are "
         "acknowledged. Magnetar's own policy.")
DEDUPLICATION_SNAPSHOTS: Final = Policy(
    title="seconds between two snapshots of deduplication", form=Whole(),
    name="deduplicationSnapshotIntervalSeconds",
    namespace=Rest(
        "deduplicationSnapshotInterval", ADMIN, removable=False, empty_removes=True,
        refusal="interval must be greater than or equal to 0"),
    topic_name="deduplicationSnapshotIntervalSeconds",
    topic=Rest("deduplicationSnapshotInterval", ADMIN, refusal="interval must be 0 or more"),
    key="brokerDeduplicationSnapshotIntervalSeconds",
    setting=lambda settings: settings.deduplication_snapshot_s,
    acts="Sequence ids are saved after so much time too, not only after many entries. 0 = not by time.")
DELAYED: Final = Policy(
    title="delayed delivery", form=DELAYED_DELIVERY,
    name="delayed_delivery_policies", namespace=Rest("delayedDelivery", ADMIN, set_right=SUPERUSER),
    topic_name="delayedDelivery", topic=Rest("delayedDelivery", ADMIN, applied=True),
    key="delayedDeliveryEnabled", setting=_delayed_delivery,
    acts="Shared and Key_Shared subscriptions hold messages back until their time; a longer delay is refused.")

# Rates

_NO_REPLICATION: Final = "Stored and shown. There is nothing to slow down: this broker does not replicate."
DISPATCH: Final = Policy(
    title="delivery rate of a topic", form=DISPATCH_RATE,
    name="topicDispatchRate", namespace=Rest("dispatchRate", ADMIN),
    topic_name="dispatchRate", topic=Rest("dispatchRate", ADMIN, applied=True),
    key="dispatchThrottlingRatePerTopicInMsg",
    setting=lambda settings: DispatchRate(
        settings.topic_dispatch_messages, settings.topic_dispatch_bytes, settings.dispatch_relative, 1),
    acts="All subscriptions of a persistent topic together get so many messages and bytes per period. 0 = no limit.")
SUBSCRIPTION_DISPATCH: Final = Policy(
    title="delivery rate of a subscription", form=DISPATCH_RATE,
    name="subscriptionDispatchRate", namespace=Rest("subscriptionDispatchRate", ADMIN),
    topic_name="subscriptionDispatchRate", topic=Rest("subscriptionDispatchRate", ADMIN, applied=True),
    key="dispatchThrottlingRatePerSubscriptionInMsg",
    setting=lambda settings: DispatchRate(
        settings.subscription_dispatch_messages, settings.subscription_dispatch_bytes,
        settings.dispatch_relative, 1),
    acts="Each subscription of a persistent topic gets so many messages and bytes per period. 0 = no limit.")
REPLICATOR_DISPATCH: Final = Policy(
    title="delivery rate of a replicator", form=DISPATCH_RATE,
    name="replicatorDispatchRate", namespace=Rest("replicatorDispatchRate", ADMIN),
    topic_name="replicatorDispatchRate", topic=Rest("replicatorDispatchRate", ADMIN, applied=True),
    setting=lambda settings: DispatchRate(period_s=1), acts=_NO_REPLICATION)
PUBLISH: Final = Policy(
    title="publish rate of a topic", form=PUBLISH_RATE,
    name="publishMaxMessageRate", namespace=Rest("publishRate", ADMIN),
    topic_name="publishRate", topic=Rest("publishRate", ADMIN, unset=NO_CONTENT),
    key="maxPublishRatePerTopicInMessages",
    setting=lambda settings: PublishRate(settings.topic_publish_messages, settings.topic_publish_bytes),
    acts="Connections of producers above the rate are not read until it is kept. 0 or less = no limit.")
SUBSCRIBE: Final = Policy(
    title="subscribe rate of a consumer", form=SUBSCRIBE_RATE,
    name="clusterSubscribeRate", namespace=Rest("subscribeRate", ADMIN),
    topic_name="subscribeRate", topic=Rest("subscribeRate", ADMIN, applied=True),
    key="subscribeThrottlingRatePerConsumer",
    setting=lambda settings: SubscribeRate(settings.subscribes_per_consumer, settings.subscribe_period_s),
    acts="A consumer of a persistent topic that subscribes more often in a period is refused. 0 or less = no limit.")

# How long messages and topics stay

SHADOW_TOPICS: Final = "shadowTopics"
"""Pulsar's name of the policy of a topic that lists the topics which read its log."""
RETAINED: Final = Policy(
    title="retention", form=RETENTION,
    name="retention_policies", namespace=Rest("retention", ADMIN),
    topic_name="retentionPolicies", topic=Rest("retention", ADMIN, applied=True),
    key="defaultRetentionTimeInMinutes",
    setting=lambda settings: Retention(settings.retention_minutes, settings.retention_mib),
    acts="Ledgers whose entries are all acknowledged stay so long, or up to so much. Those over a lowered limit go at "
         "the next check.")
MESSAGE_TTL: Final = Policy(
    title="seconds until an unread message expires", form=Whole(),
    name="message_ttl_in_seconds", namespace=Rest(
        "messageTTL", ADMIN, refusal="Invalid value for message TTL, message TTL must >= 0"),
    topic_name="messageTTLInSeconds",
    topic=Rest("messageTTL", ADMIN, applied=True, in_query=True, refusal="Invalid value for message TTL"),
    key="ttlDurationDefaultInSeconds", setting=lambda settings: settings.ttl_s,
    acts="A message of this age counts as acknowledged from the next check on, but not before its delivery time. "
         "0 = never.")
SUBSCRIPTION_EXPIRATION: Final = Policy(
    title="minutes until an unused subscription is deleted", form=Whole(),
    name="subscription_expiration_time_minutes", namespace=Rest(
        "subscriptionExpirationTime", ADMIN, refusal="Invalid value for subscription expiration time"),
    topic_name="subscriptionExpirationTime",
    topic=Rest("subscriptionExpirationTime", ADMIN, applied=True, in_query=True,
               refusal="Invalid value for subscription expiration time"),
    key="subscriptionExpirationTimeMinutes", setting=lambda settings: settings.subscription_expires_min,
    acts="A subscription without a consumer for so long is deleted. 0 = never.")
BACKLOG: Final = Policy(
    title="backlog quotas", form=Quotas(),
    name="backlog_quota_map", topic_name="backLogQuotaMap",
    key="backlogQuotaDefaultLimitBytes",
    # As in Pulsar, one quota for both types; each type looks at its own limit.
    setting=lambda settings: dict.fromkeys((SIZE, AGE), BacklogQuota(
        size=settings.quota_bytes, age_s=settings.quota_age_s, reaction=settings.quota_reaction)),
    acts="At the limit producers are held or refused, or the oldest messages go, from the next check on.")
INACTIVE: Final = Policy(
    title="deletion of unused topics", form=INACTIVE_TOPICS,
    name="inactive_topic_policies", namespace=Rest("inactiveTopicPolicies", ADMIN),
    topic_name="inactiveTopicPolicies", topic=Rest("inactiveTopicPolicies", ADMIN, applied=True),
    key="brokerDeleteInactiveTopicsEnabled",
    setting=lambda settings: InactiveTopics(
        settings.inactive_mode, settings.inactive_after_s, settings.delete_inactive),
    acts="A topic that is not used for so long is deleted with its messages.")
STORED: Final = Policy(
    title="bookies of a ledger", form=PERSISTENCE,
    name="persistence", namespace=Rest("persistence", ADMIN),
    topic_name="persistence", topic=Rest("persistence", ADMIN, applied=True),
    key="managedLedgerDefaultEnsembleSize",
    setting=lambda settings: Persistence(
        settings.ensemble_size, settings.write_quorum, settings.ack_quorum, settings.mark_delete_rate),
    acts="The next ledger has so many bookies and copies, unless the broker has one bookie; positions are written at "
         "this rate at once.")
BOOKIE_AFFINITY: Final = Policy(
    title="groups of bookies for new ledgers", form=BOOKIE_AFFINITY_GROUPS,
    name="bookieAffinityGroup", namespace=Rest("persistence/bookieAffinity", SUPERUSER),
    acts="The next ledger takes bookies of the primary groups, then of the secondary ones, then bookies without a group.")
COMPACTION: Final = Policy(
    title="bytes of backlog at which a topic is compacted", form=Whole(0, LONG_MAX, LONG_MAX),
    name="compaction_threshold", namespace=Rest("compactionThreshold", ADMIN, verb="PUT"),
    topic_name="compactionThreshold",
    topic=Rest("compactionThreshold", ADMIN, applied=True, refusal="Invalid value for compactionThreshold"),
    key="brokerServiceCompactionThresholdInBytes",
    setting=lambda settings: settings.compaction_threshold_bytes,
    acts="A topic with more uncompacted bytes is compacted at the next check. 0 = never.")
OFFLOAD_POLICIES: Final = Policy(
    title="offloading", form=Offloading(),
    name="offload_policies", namespace=Rest("offloadPolicies", ADMIN, removable=False),
    topic_name="offloadPolicies", topic=Rest("offloadPolicies", ADMIN, applied=True),
    acts="Storage, thresholds and deletion lag of copies of closed ledgers, member by member; `offloadThreshold`, "
         "`offloadThresholdInSeconds` and `offloadDeletionLagMs` are members, too. Folder and endpoint are the broker's.")

# Schemas

UNDEFINED: Final = "UNDEFINED"
"""Pulsar's word for a strategy that is not set."""
_STRATEGIES: Final = (
    UNDEFINED, "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL",
    "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE",
)
SCHEMA_COMPATIBILITY: Final = Policy(
    title="compatibility of schemas", form=Choice(*_STRATEGIES),
    name="schema_compatibility_strategy",
    namespace=Rest("schemaCompatibilityStrategy", ADMIN, verb="PUT", unset=Unset("UNDEFINED"), removable=False),
    topic_name="schemaCompatibilityStrategy",
    topic=Rest("schemaCompatibilityStrategy", ADMIN, verb="PUT", applied=True),
    key="schemaCompatibilityStrategy", setting=lambda settings: settings.schema_strategy,
    acts="A new version of a schema is compared so; versions that exist stay. UNDEFINED sets nothing.")
SCHEMA_AUTO_UPDATE: Final = Policy(
    title="compatibility of schemas, by its older name",
    form=Choice("AutoUpdateDisabled", "Backward", "Forward", "Full", "AlwaysCompatible",
                "BackwardTransitive", "ForwardTransitive", "FullTransitive"),
    name="schema_auto_update_compatibility_strategy",
    namespace=Rest("schemaAutoUpdateCompatibilityStrategy", ADMIN, verb="PUT", unset=NO_CONTENT, removable=False),
    acts="As the row above, which wins over it.")
SCHEMA_UPDATES: Final = Policy(
    title="new schemas by producers", form=Flag(),
    name="is_allow_auto_update_schema",
    namespace=Rest("isAllowAutoUpdateSchema", ADMIN, unset=Unset(True), removable=False),
    key="isAllowAutoUpdateSchemaEnabled", setting=lambda settings: settings.schema_updates,
    acts="With false a client whose schema is new is refused.")
SCHEMA_UPDATES_BY_REPLICATORS: Final = Policy(
    title="new schemas by replicators", form=Flag(),
    name="is_allow_auto_update_schema_with_replicator",
    setting=lambda settings: settings.replicators_update_schemas,
    acts="With true a producer named `pulsar.repl.…` (`replicatorPrefix`), as replicators of other clusters are, may add a "
         "compatible schema while the row above forbids it. Set by `?allowAutoUpdateSchemaWithReplicator=` of that row's "
         "request, and by the JSON that creates a namespace, in which tools of Pulsar 5.0 send true unasked. Without a "
         "value: true with `pulsarDefaults=5.0`, else false.")
SCHEMA_VALIDATION: Final = Policy(
    title="producers without a schema", form=Flag(),
    name="schema_validation_enforced",
    namespace=Rest("schemaValidationEnforced", ADMIN, unset=Unset(False), removable=False),
    topic_name="schemaValidationEnforced",
    topic=Rest("schemaValidationEnforced", ADMIN, unset=Unset(False), removable=False, applied=True),
    key="isSchemaValidationEnforced", setting=lambda settings: settings.schema_validation,
    acts="A producer without a schema is refused where the topic has one; connected ones stay.")

# Facts about a namespace

PROPERTIES: Final = Policy(
    title="properties", form=Texts(),
    name="properties", namespace=Rest("properties", ADMIN_401, verb="PUT", unset=Unset({})),
    acts="Stored and shown; their meaning is yours.")
ANTI_AFFINITY: Final = Policy(
    title="anti-affinity group", form=Text(1, 1_000),
    name="namespaceAntiAffinityGroup", namespace=Rest("antiAffinity", ADMIN, raw=True),
    acts="With several brokers: bundles go to the brokers with the fewest namespaces of the group.")
SUBSCRIPTION_AUTH: Final = Policy(
    title="names of subscriptions by role", form=Choice("None", "Prefix"),
    name="subscription_auth_mode",
    namespace=Rest("subscriptionAuthMode", ADMIN, unset=Unset("None"), removable=False),
    acts="With Prefix the name of a subscription must begin with the consumer's role, where rights are checked.")
METRIC_PROPERTIES: Final = Policy(
    title="properties of topics that metrics show", form=Names(),
    name="allowed_topic_property_keys_for_metrics",
    namespace=Rest("allowedTopicPropertyKeysForMetrics", ADMIN),
    acts="Stored and shown. Metrics have no labels from properties of topics.")
ENTRY_FILTERS: Final = Policy(
    title="entry filters", form=ENTRY_FILTERS_FORM,
    name="entryFilters", namespace=Rest("entryFilters", ADMIN),
    # Stricter than Apache for non-persistent topics, whose filters every producer and consumer may change there.
    topic_name="entryFilters", topic=Rest("entryFilters", ADMIN, applied=True),
    setting=lambda settings: EntryFilters(),
    acts="Filters are plugins in Java. There are none, so each name is refused as that of a filter that is not found.")
# fmt: on

# Collected rather than listed: a row that is missing in a second list would have no routes.
POLICIES: Final[tuple[Policy[Any], ...]] = tuple(
    row for row in list(globals().values()) if isinstance(row, Policy)
)
"""All policies, in the order of the reference page; their values have different types."""
