"""EffectivePolicies: the value that holds for a topic, chosen between namespace policies and broker settings.

Law: the narrower level wins, so a namespace's policy overrides the setting of broker.conf. Nothing is kept here: each call
reads the current values, so a changed policy or setting acts at the next call. A policy of a single topic, once there is
one, is looked up in these methods before the namespace's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.model.topic_name import TopicName
from broker.service.namespaces import Json, Namespaces
from broker.service.settings import ServiceSettings

SCHEMA_AUTO_UPDATE: Final[Mapping[str, str]] = {
    "AutoUpdateDisabled": "ALWAYS_INCOMPATIBLE",
    "AlwaysCompatible": "ALWAYS_COMPATIBLE",
    "Backward": "BACKWARD",
    "Forward": "FORWARD",
    "Full": "FULL",
    "BackwardTransitive": "BACKWARD_TRANSITIVE",
    "ForwardTransitive": "FORWARD_TRANSITIVE",
    "FullTransitive": "FULL_TRANSITIVE",
}
"""Strategies by the words of the older policy."""


def _is_strategy(policy: Json) -> bool:
    return isinstance(policy, str) and policy != "UNDEFINED"


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

    def deduplicates(self, name: TopicName) -> bool:
        """Returns True when the topic drops messages that it has already (PIP-6)."""
        policy = self._namespaces.policy(name.namespace, "deduplication")
        return policy if isinstance(policy, bool) else self.settings.deduplication

    def schema_strategy(self, name: TopicName) -> str:
        """Returns the word for the compatibility strategy of a topic's schema."""
        if name.is_system:
            return self.settings.system_schema_strategy
        policy = self._namespaces.topic_policy(str(name.base), "schemaCompatibilityStrategy")
        if not _is_strategy(policy):
            policy = self._namespaces.policy(name.namespace, "schema_compatibility_strategy")
        if not _is_strategy(policy):
            older = self._namespaces.policy(name.namespace, "schema_auto_update_compatibility_strategy")
            policy = SCHEMA_AUTO_UPDATE.get(older) if isinstance(older, str) else None
        return policy if isinstance(policy, str) else self.settings.schema_strategy

    def allows_schema_updates(self, name: TopicName) -> bool:
        """Returns True when producers and consumers may add a version to the topic's schema."""
        policy = self._namespaces.policy(name.namespace, "is_allow_auto_update_schema")
        return name.is_system or (policy if isinstance(policy, bool) else self.settings.schema_updates)

    def enforces_schemas(self, name: TopicName) -> bool:
        """Returns True when a topic with a schema refuses producers without one."""
        policy = self._namespaces.topic_policy(str(name.base), "schemaValidationEnforced")
        if not isinstance(policy, bool):
            policy = self._namespaces.policy(name.namespace, "schema_validation_enforced")
        # The setting cannot be switched off by a policy, as in Pulsar.
        return policy is True or self.settings.schema_validation

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
