"""Rows of the broker's table: topics, deduplication, subscriptions, dispatching.

Names and defaults are Pulsar's: its configuration class of release 4.2, and columns where 4.0 and 5.0 differ. The
words are ours. `foundation.settings.keys.Key` explains the columns.
"""

from __future__ import annotations

from foundation.settings.keys import Key, Section
from foundation.units import MIB

# fmt: off
# The formatter would give each argument a line of its own; a key's facts and words read better as one row.

TOPICS = Section("Topics", (
    Key("enablePersistentTopics", "bool", True,
        doc="Serve topics of the domain persistent."),
    Key("enableNonPersistentTopics", "bool", True,
        doc="Serve topics of the domain non-persistent."),
    Key("allowAutoTopicCreation", "bool", True, dynamic=True,
        doc="Create a topic when the first producer or consumer asks for it."),
    Key("allowAutoTopicCreationType", "string", "non-partitioned",
        choices=("non-partitioned", "partitioned"), dynamic=True,
        doc="Kind of a topic that is created automatically."),
    Key("defaultNumPartitions", "int", 1, "partitions", low=1, dynamic=True,
        doc="Partitions of a partitioned topic that is created automatically."),
    Key("maxNumPartitionsPerPartitionedTopic", "int", 0, "partitions", low=0, dynamic=True,
        doc="Partitions that one topic may have; 0 means no limit."),
    Key("topicLevelPoliciesEnabled", "bool", True,
        doc="Policies may be set per topic and outrank those of the namespace."),
    Key("brokerDeleteInactiveTopicsEnabled", "bool", True, dynamic=True,
        doc="Delete unused topics with everything in them. A policy of a namespace or topic outranks this key."),
    Key("brokerCloseInactiveTopicsEnabled", "bool", False, dynamic=True,
        doc="Close unused topics, which keep everything stored and are opened again for their next client, in place of "
            "deleting them. Needs brokerDeleteInactiveTopicsEnabled=false and "
            "brokerDeleteInactiveTopicsMode=delete_when_no_subscriptions, and outranks policies that delete."),
    Key("brokerDeleteInactiveTopicsFrequencySeconds", "int", 60, "s", low=1, dynamic=True,
        doc="Seconds between two searches for unused topics."),
    Key("dormantTopicsAfterSeconds", "int", 0, "s", low=0, dynamic=True, ours=True,
        doc="Seconds without a client, a request and other work after which a persistent topic falls asleep, at the latest "
            "after twice that time: it is closed, and a record of it is kept. Its next client or request opens it, and so "
            "does the time at which something of it is due. 0: topics stay open."),
    Key("brokerDeleteInactiveTopicsMode", "string", "delete_when_no_subscriptions",
        choices=("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"), dynamic=True,
        doc="Condition under which a topic without producers counts as unused: no subscription at all, or "
            "none with a backlog."),
    Key("brokerDeleteInactiveTopicsMaxInactiveDurationSeconds", "int", None, "s", low=1, dynamic=True,
        computed="brokerDeleteInactiveTopicsFrequencySeconds",
        doc="Seconds without use after which a topic is deleted."),
    Key("brokerDeleteInactivePartitionedTopicMetadataEnabled", "bool", False, dynamic=True,
        doc="Delete a partitioned topic as well when the last of its partitions was deleted as unused."),
    Key("maxProducersPerTopic", "int", 0, "producers", low=0,
        doc="Producers that one topic accepts; 0 means no limit."),
    Key("maxConsumersPerTopic", "int", 0, "consumers", low=0,
        doc="Consumers that one topic accepts over all its subscriptions; 0 means no limit."),
    Key("maxConsumerMetadataSize", "int", 1024, "characters", low=0,
        doc="Keys and values of the metadata that a consumer may bring."),
    Key("maxSubscriptionsPerTopic", "int", 0, "subscriptions", low=0,
        doc="Subscriptions that one topic may have; 0 means no limit."),
    Key("maxConsumersPerSubscription", "int", 0, "consumers", low=0,
        doc="Consumers that one subscription accepts; 0 means no limit."),
    Key("maxTopicsPerNamespace", "int", 0, "topics", low=0, dynamic=True,
        doc="Topics that one namespace may have, each partition counted; 0 means no limit."),
    Key("subscriptionBacklogScanMaxEntries", "int", 10_000, "entries", low=1,
        doc="Entries that one request to analyze a backlog reads."),
    Key("subscriptionBacklogScanMaxTimeMs", "int", 120_000, "ms", low=1,
        doc="Time after which such a request answers with what it has counted."),
    Key("maxTenants", "int", 0, "tenants", low=0, dynamic=True,
        doc="Tenants that may be created; 0 means no limit."),
    Key("maxNamespacesPerTenant", "int", 0, "namespaces", low=0, dynamic=True,
        doc="Namespaces that one tenant may have; 0 means no limit."),
    Key("forceDeleteTenantAllowed", "bool", False, dynamic=True,
        doc="Tenants may be deleted with their namespaces and topics."),
    Key("forceDeleteNamespaceAllowed", "bool", False, dynamic=True,
        doc="Namespaces may be deleted with their topics."),
    Key("defaultNumberOfNamespaceBundles", "int", 4, "bundles", v50=32, low=1, high=10_000, dynamic=True,
        doc="Bundles of a namespace that is created without a number of them."),
    Key("encryptionRequireOnProducer", "bool", False,
        doc="Refuse producers that do not encrypt their messages."),
    Key("enableBrokerSideSubscriptionPatternEvaluation", "bool", True,
        doc="Choose the topics of a pattern in the broker, with RE2. Otherwise clients get all names and "
            "choose themselves, and watching a pattern is refused."),
    Key("enableBrokerTopicListWatcher", "bool", True,
        doc="Tell clients in CONNECTED that they may watch the topics of a pattern. Otherwise they ask for the list "
            "again and again (patternAutoDiscoveryPeriod); one that watches all the same is answered, as by Pulsar."),
    Key("scalableTopicsEnabled", "bool", True,
        doc="Answer clients of Pulsar 5.0 on ordinary and partitioned topics. Otherwise CONNECTED lacks the flags that they "
            "ask for, and they say so. Scalable topics themselves (topic://) do not exist here."),
    Key("scalableTopicConsumerSessionGracePeriodSeconds", "int", 60, "s", low=0,
        doc="Seconds for which a Stream consumer, or a Checkpoint consumer of a group, keeps its partitions after its "
            "connection was lost or the broker has stopped; then the others get them."),
    Key("subscriptionPatternMaxLength", "int", 50, "characters", low=0,
        doc="Characters of a topic pattern that the broker evaluates. With a longer one a client gets all "
            "names and chooses itself; watching it is refused."),
))

_STRATEGIES = (
    "UNDEFINED", "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL",
    "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE",
)

SCHEMAS = Section("Schemas", (
    Key("schemaCompatibilityStrategy", "string", "FULL", choices=_STRATEGIES,
        doc="Comparison of a new schema with those that its topic has, where no policy names one: BACKWARD "
            "lets the new one read old data, FORWARD the old ones new data, FULL both; the TRANSITIVE ones "
            "compare with all versions instead of the newest."),
    Key("systemTopicSchemaCompatibilityStrategy", "string", "ALWAYS_COMPATIBLE", choices=_STRATEGIES[1:],
        doc="The same for system topics."),
    Key("isAllowAutoUpdateSchemaEnabled", "bool", True, dynamic=True,
        doc="Producers and consumers may add a version to a topic's schema. With false the admin interface "
            "alone adds versions."),
    Key("replicatorPrefix", "string", "pulsar.repl",
        doc="Replicators of other clusters give their producers names that begin with this and a dot; a policy may let them "
            "add versions to schemas where others may not."),
    Key("isSchemaValidationEnforced", "bool", False,
        doc="Refuse producers without a schema on topics that have one."),
))

DEDUPLICATION = Section("Deduplication", (
    Key("brokerDeduplicationEnabled", "bool", False,
        doc="Confirm, but do not store, a message whose producer has already sent that sequence id or a "
            "later one."),
    Key("brokerDeduplicationMaxNumberOfProducers", "int", 10_000, "producers", low=1,
        doc="Producers of one topic whose last sequence ids a deduplication snapshot keeps."),
    Key("brokerDeduplicationSnapshotFrequencyInSeconds", "int", 120, "s",
        doc="Seconds between two searches for topics whose deduplication snapshot is due by time; 0 or less: never."),
    Key("brokerDeduplicationSnapshotIntervalSeconds", "int", 120, "s",
        doc="Seconds after which a deduplication snapshot is due even if few entries came; 0 or less: never "
            "by time."),
    Key("brokerDeduplicationEntriesInterval", "int", 1000, "entries", low=1,
        doc="Entries after which a deduplication snapshot is due. Fewer snapshots cost less, and a restart "
            "then reads more entries again."),
    Key("brokerDeduplicationProducerInactivityTimeoutMinutes", "int", 360, "min", low=0, used=False,
        doc="Minutes after which a producer that left is forgotten."),
))

DELAYS = Section("Delayed delivery", (
    Key("delayedDeliveryEnabled", "bool", True,
        doc="Hold messages of Shared and Key_Shared subscriptions back until the time that their producer "
            "asked for. A namespace's or topic's policy overrides it."),
    Key("delayedDeliveryTickTimeMillis", "int", 1000, "ms", low=1,
        doc="Time between two checks of delayed messages, and so the accuracy of their delivery. A policy "
            "overrides it."),
    Key("isDelayedDeliveryDeliverAtTimeStrict", "bool", False,
        doc="Never deliver before the time asked for, but up to a tick after it; otherwise up to a tick before "
            "it, too."),
    Key("delayedDeliveryMaxDelayInMillis", "int", 0, "ms", low=0,
        doc="Longest delay that a producer may ask for, counted from the publish time; a message with a "
            "longer one is refused. 0 means no limit. A policy overrides it."),
    Key("delayedDeliveryFixedDelayDetectionLookahead", "int", 50_000, "messages", low=0,
        doc="Delayed messages at which a subscription reads no further, as long as all messages of the topic "
            "have the same delay; 0 means never."),
    Key("delayedDeliveryMinIndexCountPerBucket", "int", 50_000, "messages", low=1, high=10_000_000,
        doc="Delayed messages at which their times and positions are stored in a ledger of their own, so that "
            "a restart need not read these messages. Up to so many are read again after a crash."),
    Key("delayedDeliveryMaxIndexesPerBucketSnapshotSegment", "int", 5000, "messages", low=1, high=100_000,
        doc="Delayed messages of one entry of such a ledger, and of one sorted array in memory."),
))

COMPACTION = Section("Topic compaction", (
    Key("brokerServiceCompactionThresholdInBytes", "long", 0, "bytes", low=0,
        doc="Bytes published since the last compaction of a topic at which the next one begins by itself; "
            "0: never."),
    Key("brokerServiceCompactionMonitorIntervalInSeconds", "int", 60, "s", low=1,
        doc="Seconds between two searches for topics that have reached that threshold."),
    Key("brokerServiceCompactionPhaseOneLoopTimeInSeconds", "long", 30, "s", low=1,
        doc="Seconds after which a compaction fails that waits for one read of the topic."),
    Key("topicCompactionRetainNullKey", "bool", False,
        doc="Keep messages without a key; otherwise compaction removes them."),
    Key("magnetarCompactionMemoryLimitMB", "int", 256, "MiB", low=1, ours=True,
        doc="Memory for the keys of one compaction. More keys take more rounds over the topic's entries; "
            "1,000,000 keys of 10 characters take 180 MiB."),
))

SUBSCRIPTIONS = Section("Subscriptions", (
    Key("allowAutoSubscriptionCreation", "bool", True, dynamic=True,
        doc="Create a subscription when the first consumer asks for it."),
    Key("subscriptionTypesEnabled", "list", ("Exclusive", "Shared", "Failover", "Key_Shared"), dynamic=True,
        choices=("Exclusive", "Shared", "Failover", "Key_Shared"),
        doc="Subscription types that are allowed."),
    Key("subscriptionKeySharedEnable", "bool", True, dynamic=True,
        doc="Allow Key_Shared subscriptions."),
    Key("acknowledgmentAtBatchIndexLevelEnabled", "bool", True, v40=False,
        doc="Accept acknowledgments of single messages inside a batch; otherwise a batch is acknowledged as "
            "a whole."),
    Key("subscriptionRedeliveryTrackerEnabled", "bool", True, dynamic=True,
        doc="Count the redeliveries of a message and tell the consumer."),
    Key("subscriptionKeySharedUseConsistentHashing", "bool", True,
        doc="Assign keys to Key_Shared consumers by consistent hashing instead of splitting ranges of "
            "hashes in two."),
    Key("subscriptionKeySharedConsistentHashingReplicaPoints", "int", 100, "points", low=1,
        doc="Points per consumer on the hash ring: more spread keys more evenly."),
    Key("keySharedLookAheadMsgInReplayThresholdPerConsumer", "int", 2000, "messages", v50=4000,
        dynamic=True,
        doc="Messages per consumer that may wait for their key while later ones are read; 0 or less: no "
            "such limit."),
    Key("keySharedLookAheadMsgInReplayThresholdPerSubscription", "int", 20_000, "messages", v50=40_000,
        dynamic=True,
        doc="Messages of the whole subscription that may wait for their key while later ones are read; 0 or "
            "less: no such limit."),
    Key("keySharedUnblockingIntervalMs", "long", 10, "ms", low=0, dynamic=True, used=False,
        doc="Milliseconds after which a freed key leads to another attempt at dispatching; 0: only on "
            "request."),
    Key("activeConsumerFailoverDelayTimeMillis", "int", 1000, "ms", low=0,
        doc="Milliseconds between choosing another active consumer of a Failover subscription and the first "
            "message to it."),
    Key("activeConsumerFailoverConsistentHashing", "bool", False,
        doc="Choose the active consumer of non-partitioned topics by a hash ring over consumer names."),
    Key("maxUnackedMessagesPerConsumer", "int", 50_000, "messages", low=0,
        doc="Unacknowledged messages at which a consumer of a Shared or Key_Shared subscription receives no "
            "further ones; 0: no limit."),
    Key("maxUnackedMessagesPerSubscription", "int", 200_000, "messages", low=0,
        doc="Unacknowledged messages at which the whole subscription pauses, until half of them are left; "
            "0: no limit."),
    Key("maxUnackedMessagesPerBroker", "int", 0, "messages", low=0,
        doc="Unacknowledged messages in the broker at which the largest subscriptions pause, until fewer than half "
            "are left; 0: no limit."),
    Key("maxUnackedMessagesPerSubscriptionOnBrokerBlocked", "double", 0.16, "share", low=0, high=1,
        doc="Share of maxUnackedMessagesPerBroker above which a subscription pauses when that limit is "
            "reached."),
))

DISPATCH = Section("Dispatching", (
    Key("dispatcherMaxReadBatchSize", "int", 100, "entries", v50=500, low=1, dynamic=True,
        doc="Entries that one read for a subscription asks for at most."),
    Key("dispatcherMinReadBatchSize", "int", 1, "entries", low=1, dynamic=True, used=False,
        doc="Entries that a read asks for after a failed one; it doubles with every success."),
    Key("dispatcherMaxReadSizeBytes", "int", 5 * MIB, "bytes", low=1, dynamic=True,
        doc="Bytes that one read may bring."),
    Key("dispatcherMaxRoundRobinBatchSize", "int", 20, "messages", low=1, dynamic=True,
        doc="Messages that one consumer of a Shared subscription gets before the next consumer's turn."),
    Key("dispatcherPauseOnAckStatePersistentEnabled", "bool", False, dynamic=True,
        doc="Deliver nothing more to a subscription while it has more ranges of acknowledged messages than are "
            "stored. A policy of a namespace or topic outranks this key."),
    Key("dispatcherReadFailureBackoffInitialTimeInMs", "int", 15_000, "ms", low=1, dynamic=True, used=False,
        doc="Milliseconds until a failed read is tried again; doubles from failure to failure."),
    Key("dispatcherReadFailureBackoffMaxTimeInMs", "int", 60_000, "ms", low=1, dynamic=True, used=False,
        doc="Milliseconds that this wait reaches at most."),
))

RATES = Section("Rates", (
    Key("brokerPublisherThrottlingMaxMessageRate", "int", 0, "messages", dynamic=True,
        doc="Messages per second that all producers of the broker may publish together; above, connections are "
            "not read for a while. 0: no limit."),
    Key("brokerPublisherThrottlingMaxByteRate", "long", 0, "bytes", dynamic=True,
        doc="Bytes per second that all producers of the broker may publish together; 0: no limit."),
    Key("maxPublishRatePerTopicInMessages", "int", 0, "messages", dynamic=True,
        doc="Messages per second that the producers of one topic may publish; 0: no limit."),
    Key("maxPublishRatePerTopicInBytes", "long", 0, "bytes", dynamic=True,
        doc="Bytes per second that the producers of one topic may publish; 0: no limit."),
    Key("dispatchThrottlingRateInMsg", "int", 0, "messages", dynamic=True,
        doc="Messages per second that consumers of all persistent topics get together; 0: no limit."),
    Key("dispatchThrottlingRateInByte", "long", 0, "bytes", dynamic=True,
        doc="Bytes per second that consumers of all persistent topics get together; 0: no limit."),
    Key("dispatchThrottlingRatePerTopicInMsg", "int", 0, "messages", dynamic=True,
        doc="Messages per second that all subscriptions of one topic get together; 0: no limit."),
    Key("dispatchThrottlingRatePerTopicInByte", "long", 0, "bytes", dynamic=True,
        doc="Bytes per second that all subscriptions of one topic get together; 0: no limit."),
    Key("dispatchThrottlingRatePerSubscriptionInMsg", "int", 0, "messages", dynamic=True,
        doc="Messages per second that one subscription gets; 0: no limit."),
    Key("dispatchThrottlingRatePerSubscriptionInByte", "long", 0, "bytes", dynamic=True,
        doc="Bytes per second that one subscription gets; 0: no limit."),
    Key("dispatchThrottlingRateRelativeToPublishRate", "bool", False, dynamic=True,
        doc="Add a topic's publish rate to the delivery rates of topics and subscriptions."),
    Key("dispatchThrottlingOnNonBacklogConsumerEnabled", "bool", True, dynamic=True,
        doc="Hold delivery rates for all subscriptions; otherwise only for those with a backlog above "
            "managedLedgerCursorBackloggedThreshold."),
    Key("dispatchThrottlingOnBatchMessageEnabled", "bool", False, dynamic=True,
        doc="Count a batch as one message in delivery rates."),
    Key("subscribeThrottlingRatePerConsumer", "int", 0, "requests", dynamic=True,
        doc="Subscribe requests that one consumer may send per period; 0: no limit."),
    Key("subscribeRatePeriodPerConsumerInSecond", "int", 30, "s", low=1, dynamic=True,
        doc="Seconds of that period."),
))

# fmt: on
