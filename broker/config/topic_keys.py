"""Keys of topics and what is attached to them: creation, limits, deduplication, subscriptions, dispatching.

Names and defaults are Pulsar's (its configuration class, release 4.2, where 4.0 and 5.0 differ they have
a column); the words are ours. A key that no room of ours reads yet says so (`used=False`).
"""

from __future__ import annotations

from settings.keys import Key, Section

TOPICS: Section = (
    "Topics",
    [
        Key("enablePersistentTopics", "bool", True, "Serve topics of the domain persistent.", used=False),
        Key(
            "enableNonPersistentTopics",
            "bool",
            True,
            "Serve topics of the domain non-persistent.",
            used=False,
        ),
        Key(
            "allowAutoTopicCreation",
            "bool",
            True,
            "Create a topic when the first producer or consumer asks for it.",
            dynamic=True,
        ),
        Key(
            "allowAutoTopicCreationType",
            "string",
            "non-partitioned",
            "What such a topic becomes.",
            choices=("non-partitioned", "partitioned"),
            dynamic=True,
        ),
        Key(
            "defaultNumPartitions",
            "int",
            1,
            "Partitions of a topic that is created as a partitioned one by itself.",
            low=1,
            dynamic=True,
        ),
        Key(
            "maxNumPartitionsPerPartitionedTopic",
            "int",
            0,
            "Partitions that one topic may have; 0 means no limit.",
            low=0,
            dynamic=True,
        ),
        Key(
            "topicLevelPoliciesEnabled",
            "bool",
            True,
            "Policies may be set per topic and outrank those of the namespace.",
            used=False,
        ),
        Key(
            "brokerDeleteInactiveTopicsEnabled",
            "bool",
            True,
            "Delete topics that nobody uses.",
            dynamic=True,
            used=False,
        ),
        Key(
            "brokerDeleteInactiveTopicsFrequencySeconds",
            "int",
            60,
            "Seconds between two looks for such topics.",
            low=1,
            dynamic=True,
            used=False,
        ),
        Key(
            "brokerDeleteInactiveTopicsMode",
            "string",
            "delete_when_no_subscriptions",
            "What counts as unused, besides having no producer: no subscription at all, or none with a"
            " backlog.",
            choices=("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"),
            dynamic=True,
            used=False,
        ),
        Key(
            "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds",
            "int",
            None,
            "Seconds without use after which a topic is deleted.",
            low=1,
            dynamic=True,
            computed="brokerDeleteInactiveTopicsFrequencySeconds",
            used=False,
        ),
        Key(
            "maxProducersPerTopic",
            "int",
            0,
            "Producers that one topic accepts; 0 means no limit.",
            low=0,
        ),
        Key(
            "maxConsumersPerTopic",
            "int",
            0,
            "Consumers that one topic accepts over all its subscriptions; 0 means no limit.",
            low=0,
        ),
        Key(
            "maxSubscriptionsPerTopic",
            "int",
            0,
            "Subscriptions that one topic may have; 0 means no limit.",
            low=0,
        ),
        Key(
            "maxConsumersPerSubscription",
            "int",
            0,
            "Consumers that one subscription accepts; 0 means no limit.",
            low=0,
        ),
        Key(
            "subscriptionPatternMaxLength",
            "int",
            50,
            "Characters of a topic pattern that the broker evaluates for a client; longer ones are refused.",
            low=0,
            used=False,
        ),
    ],
)

DEDUPLICATION: Section = (
    "Deduplication",
    [
        Key(
            "brokerDeduplicationEnabled",
            "bool",
            False,
            "Confirm, but do not store, a message whose producer has already sent that sequence id or a"
            " later one.",
        ),
        Key(
            "brokerDeduplicationMaxNumberOfProducers",
            "int",
            10_000,
            "Producers of one topic whose last sequence ids a snapshot keeps.",
            low=1,
        ),
        Key(
            "brokerDeduplicationSnapshotIntervalSeconds",
            "int",
            120,
            "Seconds after which a snapshot of the sequence ids is due even if few entries came; 0 or less:"
            " never by time.",
            used=False,
        ),
        Key(
            "brokerDeduplicationEntriesInterval",
            "int",
            1000,
            "Entries after which a snapshot is due. Fewer snapshots cost less and make a restart replay"
            " more.",
            low=1,
        ),
        Key(
            "brokerDeduplicationProducerInactivityTimeoutMinutes",
            "int",
            360,
            "Minutes after which a producer that left is forgotten.",
            low=0,
            used=False,
        ),
    ],
)

SUBSCRIPTIONS: Section = (
    "Subscriptions",
    [
        Key(
            "allowAutoSubscriptionCreation",
            "bool",
            True,
            "Create a subscription when the first consumer asks for it.",
            dynamic=True,
        ),
        Key(
            "subscriptionTypesEnabled",
            "list",
            ("Exclusive", "Shared", "Failover", "Key_Shared"),
            "Subscription types that are allowed.",
            dynamic=True,
            used=False,
        ),
        Key(
            "subscriptionKeySharedEnable",
            "bool",
            True,
            "Allow Key_Shared subscriptions.",
            dynamic=True,
            used=False,
        ),
        Key(
            "acknowledgmentAtBatchIndexLevelEnabled",
            "bool",
            True,
            "Accept acknowledgments of single messages inside a batch; without it the batch is one.",
            v40=False,
        ),
        Key(
            "subscriptionRedeliveryTrackerEnabled",
            "bool",
            True,
            "Count how often a message was delivered again and tell the consumer.",
            dynamic=True,
        ),
        Key(
            "subscriptionKeySharedUseConsistentHashing",
            "bool",
            True,
            "Give keys to Key_Shared consumers by consistent hashing instead of splitting the range in"
            " halves.",
        ),
        Key(
            "subscriptionKeySharedConsistentHashingReplicaPoints",
            "int",
            100,
            "Points per consumer on the hash ring: more spread keys more evenly.",
            low=1,
        ),
        Key(
            "keySharedLookAheadMsgInReplayThresholdPerConsumer",
            "int",
            2000,
            "Messages per consumer that may wait for their key while later ones are read; 0 or less: no such"
            " limit.",
            v50=4000,
            dynamic=True,
        ),
        Key(
            "keySharedLookAheadMsgInReplayThresholdPerSubscription",
            "int",
            20_000,
            "The same limit for the whole subscription; 0 or less: no such limit.",
            v50=40_000,
            dynamic=True,
        ),
        Key(
            "keySharedUnblockingIntervalMs",
            "long",
            10,
            "Milliseconds after which a freed key leads to another attempt at dispatching; 0: only when"
            " asked for.",
            low=0,
            dynamic=True,
            used=False,
        ),
        Key(
            "activeConsumerFailoverDelayTimeMillis",
            "int",
            1000,
            "Milliseconds between choosing another active consumer of a Failover subscription and the first"
            " message to it.",
            low=0,
        ),
        Key(
            "activeConsumerFailoverConsistentHashing",
            "bool",
            False,
            "Choose the active consumer of non-partitioned topics by a hash ring over consumer names.",
        ),
        Key(
            "maxUnackedMessagesPerConsumer",
            "int",
            50_000,
            "Unacknowledged messages at which a consumer of a Shared or Key_Shared subscription gets no"
            " more; 0: no limit.",
            low=0,
        ),
        Key(
            "maxUnackedMessagesPerSubscription",
            "int",
            200_000,
            "Unacknowledged messages at which the whole subscription pauses, until half of them are left; 0:"
            " no limit.",
            low=0,
        ),
        Key(
            "maxUnackedMessagesPerBroker",
            "int",
            0,
            "Unacknowledged messages in the broker at which the largest subscriptions pause; 0: no limit.",
            low=0,
            used=False,
        ),
        Key(
            "maxUnackedMessagesPerSubscriptionOnBrokerBlocked",
            "double",
            0.16,
            "Share of maxUnackedMessagesPerBroker above which a subscription pauses when that limit is"
            " reached.",
            low=0,
            high=1,
            used=False,
        ),
    ],
)

DISPATCH: Section = (
    "Dispatching",
    [
        Key(
            "dispatcherMaxReadBatchSize",
            "int",
            100,
            "Entries that one read for a subscription asks for at most.",
            v50=500,
            low=1,
            dynamic=True,
        ),
        Key(
            "dispatcherMinReadBatchSize",
            "int",
            1,
            "Entries that a read asks for after a failed one; it doubles with every success.",
            low=1,
            dynamic=True,
            used=False,
        ),
        Key(
            "dispatcherMaxReadSizeBytes",
            "int",
            5 * 1024 * 1024,
            "Bytes that one read may bring.",
            low=1,
            dynamic=True,
        ),
        Key(
            "dispatcherMaxRoundRobinBatchSize",
            "int",
            20,
            "Messages that one consumer of a Shared subscription gets before it is the next one's turn.",
            low=1,
            dynamic=True,
        ),
        Key(
            "dispatcherReadFailureBackoffInitialTimeInMs",
            "int",
            15_000,
            "Milliseconds until a failed read is tried again; doubles from failure to failure.",
            low=1,
            dynamic=True,
            used=False,
        ),
        Key(
            "dispatcherReadFailureBackoffMaxTimeInMs",
            "int",
            60_000,
            "Milliseconds that this wait never exceeds.",
            low=1,
            dynamic=True,
            used=False,
        ),
    ],
)
