"""EffectivePolicies: the value that holds for a topic, chosen between namespace policies and broker settings.

Law: the narrower level wins, so a namespace's policy overrides the setting of broker.conf. Nothing is kept here: each call
reads the current values, so a changed policy or setting acts at the next call. A policy of a single topic, once there is
one, is looked up in these methods before the namespace's.
"""

from __future__ import annotations

from broker.model.topic_name import TopicName
from broker.service.namespaces import Namespaces
from broker.service.settings import ServiceSettings


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

    def compaction_threshold(self, name: TopicName) -> int:
        """Bytes published since the last compaction at which the next one begins by itself; 0 = never."""
        return self._limit(name, "compaction_threshold", self.settings.compaction_threshold_bytes)

    def encryption_required(self, name: TopicName) -> bool:
        """Returns True when producers must encrypt their messages."""
        return self._namespaces.policy(name.namespace, "encryption_required") is True

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
