"""The answer of `…/stats`: the numbers of a topic under Pulsar's names.

Fields of features that this broker does not have yet, such as offloading, have the values that Pulsar shows where
these are not in use. Rates are those of the metrics' last whole window.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from broker.numbers.readings import SUBSCRIPTIONS, TOPICS
from broker.numbers.windows import TopicWindow, Window
from broker.service.consumer import Consumer, KeySharedMeta, SubscriptionType
from broker.service.entry_facts import facts_of
from broker.service.internal_cursors import COMPACTION_CURSOR
from broker.service.namespaces.namespaces import Json
from broker.service.producer import Producer
from broker.service.subscriptions.backlog.open_runs import nth_open
from broker.service.subscriptions.backlog.sizes import bytes_after
from broker.service.subscriptions.dispatch.shared_dispatcher import SharedDispatcher
from broker.service.subscriptions.dispatch.single_active_dispatcher import SingleActiveDispatcher
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.non_persistent_topic import NonPersistentSubscription, NonPersistentTopic
from broker.service.topics.persistent_topic import PersistentTopic, transaction_buffer
from broker.service.topics.topic import Topic
from broker.service.topics.topic_subscriptions import TopicSubscriptions

RatesOf = Callable[[str], TopicWindow]
"""Returns the rates of a topic by its full name."""
TOPIC_RATES: Final = {
    "msgRateIn": "pulsar_rate_in",
    "msgThroughputIn": "pulsar_throughput_in",
    "msgRateOut": "pulsar_rate_out",
    "msgThroughputOut": "pulsar_throughput_out",
}
"""Rates of a topic under Pulsar's names, by their metric."""
SUBSCRIPTION_RATES: Final = {
    "msgRateOut": "pulsar_subscription_msg_rate_out",
    "msgThroughputOut": "pulsar_subscription_msg_throughput_out",
    "msgRateRedeliver": "pulsar_subscription_msg_rate_redeliver",
    "messageAckRate": "pulsar_subscription_msg_ack_rate",
}
"""Rates of a subscription."""
rates_of_topic: Final = TOPICS.picker(TOPIC_RATES)
"""Returns the rates of a topic from the row of its window."""
_rates_of_subscription: Final = SUBSCRIPTIONS.picker(SUBSCRIPTION_RATES)
_drop_rate: Final = SUBSCRIPTIONS.picker({"msgDropRate": "pulsar_subscription_msg_drop_rate"})


@dataclass(frozen=True, slots=True)
class StatsOptions:
    """The parts of the statistics that a request asks for."""

    backlog_sizes: bool = True
    """With the bytes of each backlog; -1 without."""
    earliest_times: bool = False
    """With the publish time of each subscription's first unacknowledged entry, which is read for that."""
    publishers: bool = True
    """With the list of producers."""
    consumers: bool = True
    """With the lists of consumers."""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> StatsOptions:
        """Returns the options of a query; each value but `true` is false, as in Pulsar."""

        def flag(name: str, default: str) -> bool:
            return query.get(name, default).lower() == "true"

        # getPreciseBacklog changes nothing: backlogs are always counted exactly.
        return cls(
            backlog_sizes=flag("subscriptionBacklogSize", "true"),
            earliest_times=flag("getEarliestTimeInBacklog", "false"),
            publishers=not flag("excludePublishers", "false"),
            consumers=not flag("excludeConsumers", "false"),
        )


ALL_PARTS = StatsOptions()
"""The parts that a request without parameters gets."""


async def topic_stats(
    topic: Topic, owner: str, rates: TopicWindow, options: StatsOptions = ALL_PARTS
) -> dict[str, Json]:
    """Returns the body of `…/stats`. `owner` is the admin URL of the broker that serves the topic."""
    stats = stats_now(topic, owner, rates, options)
    if options.earliest_times:
        await add_earliest_times(stats, topic)
    return stats


def stats_now(
    topic: Topic, owner: str, rates: TopicWindow, options: StatsOptions = ALL_PARTS
) -> dict[str, Json]:
    """Returns the statistics that are in memory; the earliest times are 0."""
    subscriptions = _subscriptions(topic, rates, options)
    publishers: list[Json] = []
    if options.publishers:
        publishers += [_publisher(one) for one in topic.access.producers.values()]
    stats: dict[str, Json] = {
        **NOT_HERE,
        **rates_of_topic(rates.row),
        "bytesInCounter": topic.bytes_in,
        "msgInCounter": topic.messages_in,
        "bytesOutCounter": _sum(subscriptions, "bytesOutCounter"),
        "msgOutCounter": _sum(subscriptions, "msgOutCounter"),
        "averageMsgSize": rates.mean_size,
        "publishers": publishers,
        "waitingPublishers": len(topic.access.waiting),
        "subscriptions": dict(subscriptions),
        "replication": {},
        "publishRateLimitedTimes": topic.publish_rate_limited,
        "ownerBroker": owner.partition("://")[2],
        "nonContiguousDeletedMessagesRanges": _sum(subscriptions, "nonContiguousDeletedMessagesRanges"),
    }
    before: NonPersistentTopic | TopicSubscriptions | None = None
    if isinstance(topic, PersistentTopic):
        _add_log(stats, topic)
        before = topic.subscribing
    else:
        stats["msgDropRate"] = 0.0
        before = topic if isinstance(topic, NonPersistentTopic) else None
    if before is not None:
        # A topic's counts never fall, so those of deleted subscriptions count on.
        stats["bytesOutCounter"] = _int(stats, "bytesOutCounter") + before.bytes_out_before
        stats["msgOutCounter"] = _int(stats, "msgOutCounter") + before.messages_out_before
    return stats


def _add_log(stats: dict[str, Json], topic: PersistentTopic) -> None:
    """Adds the numbers of a topic that is stored."""
    log, buffer = topic.ledger, transaction_buffer(topic)
    positions = (one.cursor.mark_delete_position for one in topic.subscriptions.values())
    slowest = min(positions, default=None)
    stats["storageSize"] = log.ledgers.size_bytes
    stats["backlogSize"] = 0 if slowest is None else bytes_after(log.ledgers, slowest)
    stats["backlogQuotaLimitSize"] = topic.quotas.size.size_max
    stats["backlogQuotaLimitTime"] = topic.quotas.age.age_max_s
    stats["oldestBacklogMessageAgeSeconds"] = topic.quotas.oldest_age_s
    if buffer is not None:
        stats["ongoingTxnCount"] = len(buffer.open)
        stats["committedTxnCount"] = buffer.commits
        stats["abortedTxnCount"] = buffer.aborts
    stats["delayedMessageIndexSizeInBytes"] = topic.delays.entries.size_bytes
    stats["deduplicationStatus"] = "Disabled" if topic.deduplication is None else "Enabled"
    stats["compaction"] = _compaction(topic)
    stats["topicCreationTimeStamp"] = log.store.created_ms
    stats["lastPublishTimeStamp"] = _last_publish_ms(topic)


def _last_publish_ms(topic: PersistentTopic) -> int:
    """Returns the wall clock of the last confirmed entry; 0 = none since the topic was opened."""
    environment, last_ns = topic.ledger.environment, topic.ledger.stats.last_added_ns
    return environment.wall_ms() - (environment.now_ns() - last_ns) // 1_000_000 if last_ns else 0


def _compaction(topic: PersistentTopic) -> dict[str, Json]:
    counts = topic.compaction.counts
    return {
        "lastCompactionRemovedEventCount": counts.last_removed,
        "lastCompactionSucceedTimestamp": counts.last_succeeded_ms,
        "lastCompactionFailedTimestamp": counts.last_failed_ms,
        "lastCompactionDurationTimeInMills": counts.last_duration_ms,
    }


async def add_earliest_times(stats: dict[str, Json], topic: Topic) -> None:
    """Adds the publish time of the first unacknowledged entry of each subscription; -1 without a backlog."""
    if not isinstance(topic, PersistentTopic):
        return
    shown = stats["subscriptions"]
    assert isinstance(shown, dict)
    times = []
    for name, subscription in list(topic.subscriptions.items()):
        one = shown.get(name)
        time_ms = await earliest_publish_ms(topic, subscription)
        if isinstance(one, dict):
            one["earliestMsgPublishTimeInBacklog"] = time_ms
        times.append(time_ms)
    stats["earliestMsgPublishTimeInBacklogs"] = min((ms for ms in times if ms > 0), default=0)


async def earliest_publish_ms(topic: PersistentTopic, subscription: Subscription) -> int:
    """Returns the publish time of the first unacknowledged entry, -1 without one; reads it past no cursor."""
    place = await nth_open(subscription.cursor, 1)
    if place is None:
        return -1
    facts = facts_of(await topic.ledger.read_entry(place))
    return -1 if facts is None else facts.publish_time_ms


def _subscriptions(topic: Topic, rates: TopicWindow, options: StatsOptions) -> dict[str, Json]:
    # Both kinds of topics have subscriptions, of different classes; their common base has none.
    found = getattr(topic, "subscriptions", {})
    return {
        name: _subscription(one, rates.subscriptions.get((name, 0)), options) for name, one in found.items()
    }


def _subscription(
    subscription: Subscription | NonPersistentSubscription,
    rates: Window | None,
    options: StatsOptions,
) -> dict[str, Json]:
    connected = subscription.consumers
    stats: dict[str, Json] = {**NO_SUBSCRIPTION_NUMBERS, "type": subscription.kind.label, "consumers": []}
    # Both are missing for most subscriptions of a topic with a thousand partitions.
    if rates is not None:
        stats |= _rates_of_subscription(rates.row)
    if connected:
        stats["bytesOutCounter"] = sum(one.bytes_out for one in connected)
        stats["msgOutCounter"] = sum(one.messages_out for one in connected)
        stats["blockedSubscriptionOnUnackedMsgs"] = any(one.blocked for one in connected)
        stats["unackedMessages"] = sum(one.unacked for one in connected)
        stats["lastConsumedFlowTimestamp"] = max(one.last_consumed_flow_ms for one in connected)
        if options.consumers:
            stats["consumers"] = [_consumer(one) for one in connected]
    wish = _key_shared(subscription)
    if wish is not None:
        stats["keySharedMode"] = "STICKY" if wish.sticky else "AUTO_SPLIT"
        stats["allowOutOfOrderDelivery"] = wish.out_of_order
    # Consumers that have left are no longer in the list, but the subscription has kept their counts.
    stats["bytesOutCounter"] = _int(stats, "bytesOutCounter") + subscription.retired_bytes_out
    stats["msgOutCounter"] = _int(stats, "msgOutCounter") + subscription.retired_messages_out
    if isinstance(subscription, Subscription):
        _add_cursor(stats, subscription, options)
    else:
        stats |= _drop_rate(SUBSCRIPTIONS.no_window if rates is None else rates.row)
    return stats


def _key_shared(subscription: Subscription | NonPersistentSubscription) -> KeySharedMeta | None:
    """Returns the mode of a Key_Shared subscription, also that of consumers that have left; None for other types."""
    if subscription.consumers and subscription.kind is SubscriptionType.KEY_SHARED:
        return subscription.consumers[0].options.key_shared
    dispatcher = subscription.dispatcher if isinstance(subscription, Subscription) else None
    keys = dispatcher.keys if isinstance(dispatcher, SharedDispatcher) else None
    return None if keys is None else keys.meta


def _add_cursor(stats: dict[str, Json], subscription: Subscription, options: StatsOptions) -> None:
    log, backlog = subscription.topic.ledger, subscription.cursor.backlog
    delayed, dispatcher = subscription.delayed, subscription.dispatcher
    if dispatcher is None and subscription.name != COMPACTION_CURSOR:
        # No consumer has come since the topic was opened, so the type is not known.
        stats["type"] = "None"
    elif isinstance(dispatcher, SingleActiveDispatcher) and dispatcher.active is not None:
        stats["activeConsumerName"] = dispatcher.active.name
    stats["msgBacklog"], stats["msgBacklogNoDelayed"] = backlog, backlog - delayed
    stats["msgDelayed"] = delayed
    stats["delayedMessageIndexSizeInBytes"] = subscription.delayed_index_bytes
    stats["backlogSize"] = (
        bytes_after(log.ledgers, subscription.cursor.mark_delete_position) if options.backlog_sizes else -1
    )
    topic = subscription.topic
    age_s = topic.quotas.age_of(subscription.name) if isinstance(topic, PersistentTopic) else -1
    if age_s >= 0:
        # Pulsar 4.2 has no such field, and nothing is known without exposeSubscriptionBacklogAgeInPrometheus.
        stats["oldestBacklogMessageAgeSeconds"] = age_s
    stats["nonContiguousDeletedMessagesRanges"] = subscription.cursor.acks.beyond.count_ranges()
    for word, limit in subscription.topic.rates.dispatch_events(subscription.dispatch_limit).items():
        if limit is not None:
            stats[f"dispatchThrottledMsgEventsBy{word}Limit"] = limit.throttled_by_messages
            stats[f"dispatchThrottledBytesEventsBy{word}Limit"] = limit.throttled_by_bytes
    # Consumers that have left are no longer in the list, but the subscription has kept their last FLOW.
    flow_ms = max(_int(stats, "lastConsumedFlowTimestamp"), subscription.retired_flow_ms)
    stats["lastConsumedFlowTimestamp"] = flow_ms
    stats["msgInReplay"] = subscription.waiting_for_redelivery
    stats["totalMsgExpired"] = subscription.expired.total
    stats["lastExpireTimestamp"] = subscription.expired.last_ms
    # Pulsar prints this field, and replication's above, under both names.
    stats["isDurable"] = stats["durable"] = subscription.durable
    stats["isReplicated"] = stats["replicated"] = subscription.replicated
    stats["subscriptionProperties"] = dict(subscription.properties)


def _time(ms: int) -> str:
    """Formats a wall clock time as Pulsar does; the Go admin client refuses a number."""
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat().replace("+00:00", "Z")


def _consumer(consumer: Consumer) -> dict[str, Json]:
    options = consumer.options
    return {
        **_NO_CONSUMER_NUMBERS,
        "consumerName": consumer.name,
        "msgOutCounter": consumer.messages_out,
        "bytesOutCounter": consumer.bytes_out,
        "availablePermits": consumer.permits,
        "unackedMessages": consumer.unacked,
        "avgMessagesPerEntry": round(consumer.messages_per_entry),
        "blockedConsumerOnUnackedMsgs": consumer.blocked,
        "lastConsumedFlowTimestamp": consumer.last_consumed_flow_ms,
        "address": consumer.port.address,
        "clientVersion": options.client_version,
        "connectedSince": _time(options.connected_at_ms),
        "metadata": dict(options.metadata),
    }


def _publisher(producer: Producer) -> dict[str, Json]:
    # `WAIT_FOR_EXCLUSIVE` is `WaitForExclusive` in Pulsar's JSON.
    mode = "".join(word.capitalize() for word in producer.access_mode.name.split("_"))
    return {
        **_NO_PUBLISHER_NUMBERS,
        "accessMode": mode,
        "producerId": producer.producer_id,
        "producerName": producer.name,
        "msgInCounter": producer.messages_in,
        "bytesInCounter": producer.bytes_in,
        "address": producer.address,
        "clientVersion": producer.client_version,
        "connectedSince": _time(producer.connected_at_ms),
        "metadata": dict(producer.metadata),
    }


def _int(values: Json, key: str) -> int:
    assert isinstance(values, dict)
    value = values[key]
    assert isinstance(value, int)
    return value


def _sum(subscriptions: Mapping[str, Json], key: str) -> int:
    return sum(_int(one, key) for one in subscriptions.values())


NOT_HERE: dict[str, Json] = {
    "systemTopicBytesInCounter": 0,
    "bytesOutInternalCounter": 0,
    "msgChunkPublished": False,
    "storageSize": 0,
    "backlogSize": 0,
    "backlogQuotaLimitSize": 0,
    "backlogQuotaLimitTime": 0,
    "oldestBacklogMessageAgeSeconds": 0,
    "earliestMsgPublishTimeInBacklogs": 0,
    "offloadedStorageSize": 0,
    "lastOffloadLedgerId": 0,
    "lastOffloadSuccessTimeStamp": 0,
    "lastOffloadFailureTimeStamp": 0,
    "ongoingTxnCount": 0,
    "abortedTxnCount": 0,
    "committedTxnCount": 0,
    "delayedMessageIndexSizeInBytes": 0,
    "nonContiguousDeletedMessagesRanges": 0,
    "nonContiguousDeletedMessagesRangesSerializedSize": 0,
    "topicCreationTimeStamp": 0,
    "lastPublishTimeStamp": 0,
    "compaction": {
        "lastCompactionRemovedEventCount": 0,
        "lastCompactionSucceedTimestamp": 0,
        "lastCompactionFailedTimestamp": 0,
        "lastCompactionDurationTimeInMills": 0,
    },
}
"""Values of a non-persistent topic, and of features that do not exist here."""
NO_SUBSCRIPTION_NUMBERS: dict[str, Json] = {
    "lastMarkDeleteAdvancedTimestamp": 0,
    "earliestMsgPublishTimeInBacklog": 0,
    "msgRateOut": 0.0,
    "msgThroughputOut": 0.0,
    "msgRateRedeliver": 0.0,
    "messageAckRate": 0.0,
    "bytesOutCounter": 0,
    "msgOutCounter": 0,
    "blockedSubscriptionOnUnackedMsgs": False,
    "unackedMessages": 0,
    "lastConsumedFlowTimestamp": 0,
    "msgBacklog": 0,
    "msgBacklogNoDelayed": 0,
    "backlogSize": 0,
    "msgInReplay": 0,
    "isDurable": False,
    "durable": False,
    "isReplicated": False,
    "replicated": False,
    "msgDelayed": 0,
    "msgRateExpired": 0.0,
    "msgExpired": 0,
    "totalMsgExpired": 0,
    "chunkedMessageRate": 0.0,
    "lastExpireTimestamp": 0,
    "lastConsumedTimestamp": 0,
    "lastAckedTimestamp": 0,
    "allowOutOfOrderDelivery": False,
    "consumersAfterMarkDeletePosition": {},
    "drainingHashesCount": 0,
    "drainingHashesClearedTotal": 0,
    "drainingHashesUnackedMessages": 0,
    "nonContiguousDeletedMessagesRanges": 0,
    "nonContiguousDeletedMessagesRangesSerializedSize": 0,
    "filterProcessedMsgCount": 0,
    "filterAcceptedMsgCount": 0,
    "filterRejectedMsgCount": 0,
    "filterRescheduledMsgCount": 0,
    "subscriptionProperties": {},
    "delayedMessageIndexSizeInBytes": 0,
    "dispatchThrottledMsgEventsBySubscriptionLimit": 0,
    "dispatchThrottledBytesEventsBySubscriptionLimit": 0,
    "dispatchThrottledMsgEventsByTopicLimit": 0,
    "dispatchThrottledBytesEventsByTopicLimit": 0,
    "dispatchThrottledMsgEventsByBrokerLimit": 0,
    "dispatchThrottledBytesEventsByBrokerLimit": 0,
}
"""Values of a subscription without a cursor, and of numbers that are not counted here."""
_NO_CONSUMER_NUMBERS: dict[str, Json] = {
    "msgRateOut": 0.0,
    "msgThroughputOut": 0.0,
    "msgRateRedeliver": 0.0,
    "messageAckRate": 0.0,
    "chunkedMessageRate": 0.0,
    "drainingHashesCount": 0,
    "drainingHashesClearedTotal": 0,
    "drainingHashesUnackedMessages": 0,
    "lastAckedTimestamp": 0,
    "lastConsumedTimestamp": 0,
    "firstMessagesSentTimestamp": 0,
    "firstConsumedFlowTimestamp": 0,
    "lastAckedTime": "1970-01-01T00:00:00Z",
    "lastConsumedTime": "1970-01-01T00:00:00Z",
}
"""Numbers of a consumer that are not counted: each would cost a look at the clock per message or batch."""
_NO_PUBLISHER_NUMBERS: dict[str, Json] = {
    "msgRateIn": 0.0,
    "msgThroughputIn": 0.0,
    "averageMsgSize": 0.0,
    "chunkedMessageRate": 0.0,
    "supportsPartialProducer": False,
}
"""Numbers of a producer that are not counted."""
