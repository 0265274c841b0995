"""The values of policies that have several members, with Pulsar's names in JSON.

Source of names, defaults and refusals: Apache Pulsar 4.2.4, asked over its admin API.
"""

from __future__ import annotations

from typing import Final

from broker.service.policies.forms import (
    ANY_LONG,
    Choice,
    Flag,
    Fraction,
    PolicyRefused,
    Structure,
    Text,
    Whole,
    WrongCombination,
    member,
)
from broker.service.policies.partition_limit import PARTITIONS_MAX
from foundation.settings.keys import INT_MAX
from foundation.value import Value

_ANY_INT: Final = Whole(-INT_MAX - 1, INT_MAX)
PARTITIONED: Final = "partitioned"
"""`topicType` of topics that are created with partitions."""
NON_PARTITIONED: Final = "non-partitioned"
"""`topicType` of topics that are created without partitions."""


class Retention(Value):
    """How long, and up to which size, acknowledged messages stay; -1 = without limit, both 0 = not at all."""

    minutes: int = member("retentionTimeInMinutes", _ANY_INT, 0)
    """Minutes after the acknowledgement."""
    mib: int = member("retentionSizeInMB", ANY_LONG, 0)
    """MiB of acknowledged messages."""


class HoleRedelivery(Value):
    """Delivers entries again that are unacknowledged for too long. A policy of Magnetar's own."""

    active: bool = member("enabled", Flag(), True)
    """True to deliver them."""
    period_s: int = member("periodSeconds", Whole(1, INT_MAX), 180)
    """Seconds since an entry was read."""
    pending_s: int = member("pendingSeconds", Whole(0, INT_MAX), 0)
    """Seconds for which an entry before acknowledged ones is pending at a connected consumer; 0 = it stays there."""


HOLE_REDELIVERY: Final = Structure(HoleRedelivery)
"""Form of `HoleRedelivery`."""


def _check_retention(value: Retention) -> None:
    for name, number in (("size", value.mib), ("time", value.minutes)):
        if number < -1:
            raise WrongCombination(f"Invalid retention policy: {name} limit must be >= -1")
    if (value.minutes == 0) != (value.mib == 0):
        raise WrongCombination(
            "Invalid retention policy: Setting a single time or size limit to 0 is invalid when one of the limits has"
            " a non-zero value. Use the value of -1 instead of 0 to ignore a specific limit. To disable retention both"
            " limits must be set to 0."
        )


RETENTION: Final = Structure(Retention, _check_retention)
"""Form of `Retention`."""


class Persistence(Value):
    """Bookies per ledger, copies per entry, and writes of acknowledgements."""

    ensemble: int = member("bookkeeperEnsemble", _ANY_INT, 2)
    """Bookies of a ledger."""
    write_quorum: int = member("bookkeeperWriteQuorum", _ANY_INT, 2)
    """Bookies that get each entry."""
    ack_quorum: int = member("bookkeeperAckQuorum", _ANY_INT, 2)
    """Bookies that must confirm an entry."""
    mark_delete_rate: float = member("managedLedgerMaxMarkDeleteRate", Fraction(), -1.0)
    """Writes of a cursor's position per second; below 0 = the broker's setting."""


def _check_persistence(value: Persistence) -> None:
    for name, number in (
        ("Ensemble", value.ensemble),
        ("WriteQuorum", value.write_quorum),
        ("AckQuorum", value.ack_quorum),
    ):
        if not 0 < number <= 5:
            raise WrongCombination(f"Bookkeeper-{name} must be <= 5 and > 0.")
    if not value.ensemble >= value.write_quorum >= value.ack_quorum:
        raise WrongCombination(
            f"Bookkeeper Ensemble ({value.ensemble}) >= WriteQuorum ({value.write_quorum}) >= AckQuorum"
            f" ({value.ack_quorum})"
        )


PERSISTENCE: Final = Structure(Persistence, _check_persistence)
"""Form of `Persistence`."""


class BookieAffinity(Value):
    """Groups of bookies that get the ledgers of a namespace."""

    primary: str | None = member("bookkeeperAffinityGroupPrimary", Text(), None)
    """Groups that are taken first, separated by commas."""
    secondary: str | None = member("bookkeeperAffinityGroupSecondary", Text(), None)
    """Groups for what the first ones lack."""


BOOKIE_AFFINITY_GROUPS: Final = Structure(BookieAffinity)
"""Form of `BookieAffinity`."""


class DispatchRate(Value):
    """Messages and bytes that may be delivered per period; 0 or less = no limit."""

    messages: int = member("dispatchThrottlingRateInMsg", _ANY_INT, 0)
    """Messages per period."""
    size: int = member("dispatchThrottlingRateInByte", ANY_LONG, 0)
    """Bytes per period."""
    relative: bool = member("relativeToPublishRate", Flag(), False)
    """Add the rate at which messages come in."""
    period_s: int = member("ratePeriodInSecond", _ANY_INT, 0)
    """Length of a period in seconds; Pulsar takes 0 for 1."""

    @property
    def is_limit(self) -> bool:
        """True when messages or bytes are limited."""
        return self.messages > 0 or self.size > 0


class PublishRate(Value):
    """Messages and bytes that may be published per second; 0 or less = no limit."""

    messages: int = member("publishThrottlingRateInMsg", _ANY_INT, -1)
    """Messages per second."""
    size: int = member("publishThrottlingRateInByte", ANY_LONG, -1)
    """Bytes per second."""

    @property
    def is_limit(self) -> bool:
        """True when messages or bytes are limited."""
        return self.messages > 0 or self.size > 0


class SubscribeRate(Value):
    """Subscribe requests that one consumer may send per period; 0 or less = no limit."""

    per_consumer: int = member("subscribeThrottlingRatePerConsumer", _ANY_INT, -1)
    """Requests per period."""
    period_s: int = member("ratePeriodInSecond", _ANY_INT, 30)
    """Length of a period in seconds."""


DISPATCH_RATE: Final = Structure(DispatchRate)
"""Form of `DispatchRate`."""
PUBLISH_RATE: Final = Structure(PublishRate)
"""Form of `PublishRate`."""
SUBSCRIBE_RATE: Final = Structure(SubscribeRate)
"""Form of `SubscribeRate`."""


class DelayedDeliveryPolicies(Value):
    """Delivery of messages at a time that their producer named."""

    tick_ms: int = member("tickTime", ANY_LONG, 0)
    """Precision in milliseconds."""
    active: bool = member("active", Flag(), False)
    """False delivers at once."""
    delay_max_ms: int = member("maxDeliveryDelayInMillis", ANY_LONG, 0)
    """Longest delay in milliseconds; 0 or less = no limit."""


DELAYED_DELIVERY: Final = Structure(DelayedDeliveryPolicies)
"""Form of `DelayedDeliveryPolicies`."""


WITHOUT_SUBSCRIPTIONS: Final = "delete_when_no_subscriptions"
"""The mode that keeps a topic while it has a subscription."""


class InactiveTopics(Value):
    """Deletion of topics that are not used."""

    mode: str | None = member(
        "inactiveTopicDeleteMode",
        Choice(WITHOUT_SUBSCRIPTIONS, "delete_when_subscriptions_caught_up"),
        None,
    )
    """Condition under which a topic counts as unused; None = the broker's."""
    after_s: int = member("maxInactiveDurationSeconds", _ANY_INT, 0)
    """Seconds without use."""
    enabled: bool = member("deleteWhileInactive", Flag(), False)
    """False keeps unused topics."""


INACTIVE_TOPICS: Final = Structure(InactiveTopics)
"""Form of `InactiveTopics`."""


class AutoTopicCreation(Value):
    """Creation of topics by their first client."""

    allowed: bool = member("allowAutoTopicCreation", Flag(), False)
    """False refuses missing topics."""
    # Any text is read, so that a value stored before there was a check is still understood.
    kind: str | None = member("topicType", Text(), None)
    """`partitioned` or `non-partitioned`; must be given where creation is allowed."""
    partitions: int | None = member("defaultNumPartitions", _ANY_INT, None)
    """Partitions of a partitioned topic."""


def _check_auto_topic_creation(value: AutoTopicCreation) -> None:
    if not value.allowed:
        return
    count, detail = value.partitions, ""
    if value.kind not in (PARTITIONED, NON_PARTITIONED):
        detail = f"Unknown topic type [{'null' if value.kind is None else value.kind}]"
    elif value.kind == NON_PARTITIONED and count is not None:
        detail = "[defaultNumPartitions] is not allowed to be set when the type is non-partition."
    elif value.kind == PARTITIONED and count is None:
        detail = "[defaultNumPartitions] cannot be null when the type is partitioned."
    elif count is not None and count < 1:
        detail = "[defaultNumPartitions] cannot be less than 1 for partition type."
    elif count is not None and count > PARTITIONS_MAX:
        detail = f"[defaultNumPartitions] {count}: allowed is 1 to {PARTITIONS_MAX}."
    if detail:
        raise PolicyRefused(f"Invalid configuration for autoTopicCreationOverride. the detail is {detail}")


AUTO_TOPIC_CREATION: Final = Structure(AutoTopicCreation, _check_auto_topic_creation)
"""Form of `AutoTopicCreation`."""


class AutoSubscriptionCreation(Value):
    """Creation of durable subscriptions by their first consumer."""

    allowed: bool = member("allowAutoSubscriptionCreation", Flag(), False)
    """False refuses missing subscriptions."""


AUTO_SUBSCRIPTION_CREATION: Final = Structure(AutoSubscriptionCreation)
"""Form of `AutoSubscriptionCreation`."""


class ResourceGroupRates(Value):
    """Rates that the topics of several namespaces share, per second; 0 or less = no limit."""

    publish_messages: int = member("publishRateInMsgs", _ANY_INT, -1)
    """Messages that producers publish."""
    publish_bytes: int = member("publishRateInBytes", ANY_LONG, -1)
    """Bytes that producers publish."""
    dispatch_messages: int = member("dispatchRateInMsgs", _ANY_INT, -1)
    """Messages that consumers get."""
    dispatch_bytes: int = member("dispatchRateInBytes", ANY_LONG, -1)
    """Bytes that consumers get."""


RESOURCE_GROUP_RATES: Final = Structure(ResourceGroupRates)
"""Form of `ResourceGroupRates`."""


class EntryFilters(Value):
    """Filters through which a subscription's entries pass before their delivery."""

    names: str = member("entryFilterNames", Text(), "")
    """Names, separated by commas."""


def _check_entry_filters(value: EntryFilters) -> None:
    names = [name.strip() for name in value.names.split(",") if name.strip()]
    if not names:
        raise WrongCombination(
            "entryFilterNames can't be empty. To remove entry filters use the remove method."
        )
    raise WrongCombination(f"Entry filter '{names[0][:100]}' not found")


ENTRY_FILTERS_FORM: Final = Structure(EntryFilters, _check_entry_filters)
"""Form of `EntryFilters`."""
