"""The answers of `…/stats` and `…/internalStats`: the numbers of a topic under Pulsar's names.

Fields of features that this broker does not have yet (transactions, offloading) have the values that Pulsar shows where
these are not in use. Rates are those of the metrics' last whole window.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Container, Mapping
from types import MappingProxyType
from typing import Protocol

from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.model.position import Position
from broker.model.range_set import RangeSet
from broker.service.compaction.compacted_ledger import CompactedLedger
from broker.service.consumer import Consumer
from broker.service.namespaces import Json
from broker.service.non_persistent_topic import NonPersistentSubscription
from broker.service.persistent_topic import PersistentTopic
from broker.service.producer import Producer
from broker.service.subscription import Subscription
from broker.service.topic import Topic


class SubscriptionRates(Protocol):
    """Rates of a subscription per second; the metrics room's windows have them."""

    rate_out: float
    """Messages sent."""
    throughput_out: float
    """Bytes sent."""
    redeliver_rate: float
    """Messages sent again."""
    ack_rate: float
    """Messages acknowledged."""
    drop_rate: float
    """Messages of a non-persistent topic that no consumer could take."""


class TopicRates(Protocol):
    """Rates of a topic per second."""

    rate_in: float
    """Messages published."""
    throughput_in: float
    """Bytes published."""
    rate_out: float
    """Messages sent."""
    throughput_out: float
    """Bytes sent."""
    average_msg_size: float
    """Mean bytes of a published message."""

    @property
    def subscriptions(self) -> Mapping[str, SubscriptionRates]:
        """By name; a subscription without a whole window is missing."""
        ...


class _NoRates:
    rate_in = throughput_in = rate_out = throughput_out = average_msg_size = 0.0
    subscriptions: Mapping[str, SubscriptionRates] = MappingProxyType({})


NO_RATES: TopicRates = _NoRates()
"""All 0, for a server without metrics."""
RatesOf = Callable[[str], TopicRates]
"""Returns the rates of a topic by its full name."""


def topic_stats(topic: Topic, owner: str, rates: TopicRates) -> dict[str, Json]:
    """Returns the body of `…/stats`. `owner` is the admin URL of the broker that serves the topic."""
    subscriptions = _subscriptions(topic, rates)
    publishers: list[Json] = [_publisher(one) for one in topic.access.producers.values()]
    stats: dict[str, Json] = {
        "msgRateIn": rates.rate_in,
        "msgThroughputIn": rates.throughput_in,
        "msgRateOut": rates.rate_out,
        "msgThroughputOut": rates.throughput_out,
        "bytesInCounter": topic.bytes_in,
        "msgInCounter": topic.messages_in,
        "bytesOutCounter": _sum(subscriptions, "bytesOutCounter"),
        "msgOutCounter": _sum(subscriptions, "msgOutCounter"),
        "averageMsgSize": rates.average_msg_size,
        "storageSize": topic.ledger.ledgers.size_bytes if isinstance(topic, PersistentTopic) else 0,
        "backlogSize": max((_int(one, "backlogSize") for one in subscriptions.values()), default=0),
        **_quotas(topic),
        "publishers": publishers,
        "waitingPublishers": len(topic.access.waiting),
        "subscriptions": dict(subscriptions),
        "replication": {},
        "publishRateLimitedTimes": topic.publish_rate_limited,
        "ownerBroker": owner.partition("://")[2],
        **_NOT_HERE,
    }
    if isinstance(topic, PersistentTopic):
        buffer = topic.transactions.buffer
        if buffer is not None:
            stats["ongoingTxnCount"] = len(buffer.open)
            stats["committedTxnCount"] = buffer.commits
            stats["abortedTxnCount"] = buffer.aborts
        stats["delayedMessageIndexSizeInBytes"] = topic.delays.entries.size_bytes
        stats["deduplicationStatus"] = "Disabled" if topic.deduplication is None else "Enabled"
        stats["compaction"] = _compaction(topic)
    else:
        stats["msgDropRate"] = 0.0
    return stats


def _compaction(topic: PersistentTopic) -> dict[str, Json]:
    counts = topic.compaction.counts
    return {
        "lastCompactionRemovedEventCount": counts.last_removed,
        "lastCompactionSucceedTimestamp": counts.last_succeeded_ms,
        "lastCompactionFailedTimestamp": counts.last_failed_ms,
        "lastCompactionDurationTimeInMills": counts.last_duration_ms,
    }


def _subscriptions(topic: Topic, rates: TopicRates) -> dict[str, Json]:
    # Both kinds of topics have subscriptions, of different classes; their common base has none.
    found = getattr(topic, "subscriptions", {})
    return {name: _subscription(one, rates.subscriptions.get(name)) for name, one in found.items()}


def _subscription(
    subscription: Subscription | NonPersistentSubscription, rates: SubscriptionRates | None
) -> dict[str, Json]:
    consumers: list[Json] = [_consumer(one) for one in subscription.consumers]
    stats: dict[str, Json] = {
        "msgRateOut": rates.rate_out if rates else 0.0,
        "msgThroughputOut": rates.throughput_out if rates else 0.0,
        "msgRateRedeliver": rates.redeliver_rate if rates else 0.0,
        "messageAckRate": rates.ack_rate if rates else 0.0,
        "bytesOutCounter": sum(one.bytes_out for one in subscription.consumers),
        "msgOutCounter": sum(one.messages_out for one in subscription.consumers),
        "msgBacklog": 0,
        "msgBacklogNoDelayed": 0,
        "backlogSize": 0,
        "blockedSubscriptionOnUnackedMsgs": any(one.blocked for one in subscription.consumers),
        "unackedMessages": sum(one.unacked for one in subscription.consumers),
        "msgInReplay": 0,
        "type": subscription.kind.label,
        "consumers": consumers,
        "isDurable": False,
        "durable": False,
        "isReplicated": False,
        "replicated": False,
        **_NO_SUBSCRIPTION_NUMBERS,
    }
    if isinstance(subscription, Subscription):
        _add_cursor(stats, subscription)
    else:
        stats["msgDropRate"] = rates.drop_rate if rates else 0.0
    return stats


def _quotas(topic: Topic) -> dict[str, Json]:
    if not isinstance(topic, PersistentTopic):
        # Pulsar's numbers for topics that keep nothing.
        return {"backlogQuotaLimitSize": 0, "backlogQuotaLimitTime": 0, "oldestBacklogMessageAgeSeconds": 0}
    return {
        "backlogQuotaLimitSize": topic.quotas.size.size_max,
        "backlogQuotaLimitTime": topic.quotas.age.age_max_s,
        "oldestBacklogMessageAgeSeconds": topic.quotas.oldest_age_s,
    }


def _add_cursor(stats: dict[str, Json], subscription: Subscription) -> None:
    log, backlog = subscription.topic.ledger, subscription.cursor.backlog
    delayed = subscription.delayed
    stats["msgBacklog"], stats["msgBacklogNoDelayed"] = backlog, backlog - delayed
    stats["msgDelayed"] = delayed
    stats["delayedMessageIndexSizeInBytes"] = subscription.delayed_index_bytes
    # An estimate by the mean size of an entry, like that of the metrics.
    stats["backlogSize"] = log.ledgers.size_bytes * backlog // log.ledgers.entries if backlog else 0
    for word, limit in subscription.topic.rates.dispatch_events(subscription.dispatch_limit).items():
        stats[f"dispatchThrottledMsgEventsBy{word}Limit"] = limit.throttled_by_messages if limit else 0
        stats[f"dispatchThrottledBytesEventsBy{word}Limit"] = limit.throttled_by_bytes if limit else 0
    # Consumers that have left are no longer in the list, but the subscription has kept their counts.
    stats["bytesOutCounter"] = _int(stats, "bytesOutCounter") + subscription.retired_bytes_out
    stats["msgOutCounter"] = _int(stats, "msgOutCounter") + subscription.retired_messages_out
    stats["msgInReplay"] = subscription.waiting_for_redelivery
    stats["totalMsgExpired"], stats["lastExpireTimestamp"] = (
        subscription.expired.total,
        subscription.expired.last_ms,
    )
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
        "consumerName": consumer.name,
        "msgOutCounter": consumer.messages_out,
        "bytesOutCounter": consumer.bytes_out,
        "availablePermits": consumer.permits,
        "unackedMessages": consumer.unacked,
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


def internal_stats(topic: PersistentTopic) -> dict[str, Json]:
    """Returns the body of `…/internalStats`: the ledgers and cursors of the topic's log."""
    active = {name for name, one in topic.subscriptions.items() if one.consumers}
    return {
        **ledger_stats(topic.ledger, active),
        "compactedLedger": _compacted_ledger(topic.compaction.current),
    }


def ledger_stats(log: ManagedLedger, active: Container[str]) -> dict[str, Json]:
    """Returns the ledgers and cursors of a managed ledger; `active` are names of cursors in use."""
    infos = log.ledgers.infos()
    cursors: dict[str, Json] = {
        name: {
            "markDeletePosition": _text(cursor.mark_delete_position),
            "readPosition": _text(cursor.read_position),
            "individuallyDeletedMessages": _ranges(cursor.acks.beyond),
            "numberOfEntriesSinceFirstNotAckedMessage": cursor.backlog,
            "properties": dict(cursor.acks.properties),
            "active": name in active,
        }
        for name, cursor in log.cursors.by_name.items()
    }
    return {
        "entriesAddedCounter": log.stats.entries_added,
        "numberOfEntries": log.ledgers.entries,
        "totalSize": log.ledgers.size_bytes,
        "currentLedgerEntries": infos[-1].entries,
        "currentLedgerSize": infos[-1].size_bytes,
        "lastConfirmedEntry": _text(log.last_confirmed),
        "state": "Terminated" if log.is_terminated else "LedgerOpened",
        "ledgers": [
            {"ledgerId": one.ledger_id, "entries": one.entries, "size": one.size_bytes, "offloaded": False}
            for one in infos
        ],
        "cursors": cursors,
        "properties": dict(log.properties),
    }


def _compacted_ledger(compacted: CompactedLedger | None) -> dict[str, Json]:
    known = (compacted.ledger_id, compacted.entries, compacted.size_bytes) if compacted else (-1, -1, -1)
    ledger_id, entries, size = known
    return {"ledgerId": ledger_id, "entries": entries, "size": size, "offloaded": False}


def _ranges(acknowledged: RangeSet) -> str:
    """Returns the ranges as Pulsar writes them: open at the front, closed at the end."""
    ranges = (
        f"({one.ledger_id}:{one.first - 1}..{one.ledger_id}:{one.last}]" for one in acknowledged.ranges()
    )
    return f"[{','.join(ranges)}]"


def _text(position: Position) -> str:
    return f"{position.ledger_id}:{position.entry_id}"


def _int(values: Json, key: str) -> int:
    assert isinstance(values, dict)
    value = values[key]
    assert isinstance(value, int)
    return value


def _sum(subscriptions: Mapping[str, Json], key: str) -> int:
    return sum(_int(one, key) for one in subscriptions.values())


_NOT_HERE: dict[str, Json] = {
    "systemTopicBytesInCounter": 0,
    "bytesOutInternalCounter": 0,
    "msgChunkPublished": False,
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
}
"""Fields of a topic's features that do not exist here."""
_NO_SUBSCRIPTION_NUMBERS: dict[str, Json] = {
    "msgDelayed": 0,
    "msgRateExpired": 0.0,
    "msgExpired": 0,
    "totalMsgExpired": 0,
    "chunkedMessageRate": 0.0,
    "lastExpireTimestamp": 0,
    "subscriptionProperties": {},
    "delayedMessageIndexSizeInBytes": 0,
}
"""Fields of a subscription's features that do not exist here."""
