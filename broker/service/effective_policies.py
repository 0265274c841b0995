"""EffectivePolicies: the value that holds for a topic, chosen between namespace policies and broker settings.

Law: the narrower level wins, so a namespace's policy overrides the setting of broker.conf. Nothing is kept here: each call
reads the current values, so a changed policy or setting acts at the next call. A policy of a single topic, once there is
one, is looked up in these methods before the namespace's.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.model.topic_name import TopicName
from broker.service.namespaces import Namespaces
from broker.service.settings import ServiceSettings


class DelayPolicy(NamedTuple):
    """How a topic delays deliveries."""

    active: bool
    """False delivers every message at once."""
    tick_ms: int
    """Time between two looks at delayed messages, at least 1."""
    delay_max_ms: int
    """Longest delay that a producer may ask for; 0 or less = no limit."""


class EffectivePolicies:
    """Limits and permissions of topics; one object for all topics of a broker."""

    __slots__ = ("_namespaces", "settings")

    def __init__(self, namespaces: Namespaces, settings: ServiceSettings) -> None:
        self._namespaces = namespaces
        self.settings = settings
        """The broker's settings, renewed by the topic registry."""

    def _limit(self, name: TopicName, policy: str, setting: int) -> int:
        value = self._namespaces.policy(name.namespace, policy)
        # Also 0, which lifts the limit of the setting; only an absent policy leaves the setting in force.
        return value if isinstance(value, int) else setting

    def producers_max(self, name: TopicName) -> int:
        """Producers of one topic; 0 = no limit."""
        return self._limit(name, "max_producers_per_topic", self.settings.producers_max)

    def consumers_max(self, name: TopicName) -> int:
        """Consumers of one topic, all subscriptions together; 0 = no limit."""
        return self._limit(name, "max_consumers_per_topic", self.settings.consumers_max_per_topic)

    def consumers_max_per_subscription(self, name: TopicName) -> int:
        """Consumers of one subscription; 0 = no limit."""
        setting = self.settings.consumers_max_per_subscription
        return self._limit(name, "max_consumers_per_subscription", setting)

    def subscriptions_max(self, name: TopicName) -> int:
        """Subscriptions of one topic; 0 = no limit."""
        return self._limit(name, "max_subscriptions_per_topic", self.settings.subscriptions_max)

    def encryption_required(self, name: TopicName) -> bool:
        """Returns True when producers must encrypt their messages."""
        return self._namespaces.policy(name.namespace, "encryption_required") is True

    def delayed_delivery(self, name: TopicName) -> DelayPolicy:
        """Returns how the topic delays deliveries."""
        policy = self._namespaces.topic_policy(str(name.base), "delayedDelivery")
        if not isinstance(policy, dict):
            policy = self._namespaces.policy(name.namespace, "delayed_delivery_policies")
        if not isinstance(policy, dict):
            settings = self.settings
            return DelayPolicy(settings.delayed_delivery, settings.delayed_tick_ms, settings.delay_max_ms)
        tick_ms, delay_max_ms = policy.get("tickTime"), policy.get("maxDeliveryDelayInMillis")
        return DelayPolicy(
            policy.get("active") is True,
            # Without a tick the timer of a topic would never rest.
            max(1, tick_ms) if isinstance(tick_ms, int) else self.settings.delayed_tick_ms,
            delay_max_ms if isinstance(delay_max_ms, int) else 0,
        )

    def deduplicates(self, name: TopicName) -> bool:
        """Returns True when the topic drops messages that it has already (PIP-6)."""
        policy = self._namespaces.policy(name.namespace, "deduplication")
        return policy if isinstance(policy, bool) else self.settings.deduplication

    def may_create_subscriptions(self, name: TopicName) -> bool:
        """Returns True when SUBSCRIBE creates a missing durable subscription."""
        policy = self._namespaces.policy(name.namespace, "autoSubscriptionCreationOverride")
        if isinstance(policy, dict):
            return policy.get("allowAutoSubscriptionCreation") is True
        return self.settings.auto_subscription_creation

    def may_create_topics(self, namespace: str) -> bool:
        """Returns True when a lookup, producer or consumer creates a missing topic."""
        policy = self._namespaces.policy(namespace, "autoTopicCreation")
        if isinstance(policy, dict):
            return policy.get("allowAutoTopicCreation") is True
        return self.settings.auto_topic_creation

    def default_partitions(self, namespace: str) -> int:
        """Partitions of a topic that is created automatically; 0 = a topic without partitions."""
        policy = self._namespaces.policy(namespace, "autoTopicCreation")
        if isinstance(policy, dict):
            count = policy.get("defaultNumPartitions")
            return count if policy.get("topicType") == "partitioned" and isinstance(count, int) else 0
        return self.settings.auto_topic_partitions
