"""EffectivePolicies: the value that holds for a topic, chosen between topic, namespace and broker.

Law: the narrower level wins, unless the broker's setting demands encryption or schemas: the topic's own policy, the topic's
global policy, the namespace's policy, the setting of broker.conf. Nothing is kept here: each call reads the current values,
so a changed policy or setting acts at the next call. A topic that needs a value for every message keeps it and renews it in
`Topic.apply_policies`.

A partition has the policies of its partitioned topic.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal, TypeVar, cast

from bookkeeper.ensembles.racks import Affinity
from bookkeeper.ensembles.settings import Copies
from broker.managed_ledger.ledger_list import OffloadPlace
from broker.managed_ledger.settings import ManagedLedgerSettings, OffloadRules
from broker.managed_ledger.trimming import Keeper
from broker.service.namespaces.namespaces import GLOBAL, Json, Namespaces
from broker.service.policies import table
from broker.service.policies.backlog_quota import BacklogQuota
from broker.service.policies.forms import PolicyRefused
from broker.service.policies.offload import rules_of
from broker.service.policies.table import SHADOW_TOPICS, Policy
from broker.service.policies.values import PARTITIONED, WITHOUT_SUBSCRIPTIONS, DispatchRate
from broker.service.settings import ServiceSettings
from foundation.model.topic_name import TopicName, parse_topic_name
from foundation.units import MIB, MS_PER_MINUTE

T = TypeVar("T")
log = logging.getLogger("magnetar")

SUBSCRIPTION_POLICIES: Final = "subscriptionPolicies"
"""Key of a topic's policies of single subscriptions, as Pulsar has it: `{subscription: {"dispatchRate": ...}}`."""
Level = Literal["topic", "namespace", "broker"]
"""The level that sets a value, the narrowest first."""
RESOURCE_GROUP: Final = "resource_group_name"
"""Key of the resource group of a namespace in its stored policies, and in Pulsar's JSON."""
SCHEMA_AUTO_UPDATE_STRATEGIES: Final[Mapping[str, str]] = {
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


class EffectivePolicies:
    """Limits and permissions of topics; one object for all topics of a broker."""

    def __init__(self, namespaces: Namespaces, settings: ServiceSettings) -> None:
        self._namespaces = namespaces
        self.settings = settings
        """The broker's settings, renewed by the topic registry."""
        self._broker_values: dict[str, object] = {}
        """By title, the values of `_broker_values_of`."""
        self._broker_values_of = settings

    def of(self, name: TopicName, policy: Policy[T]) -> T:
        """Returns the value in force for a topic or a partition."""
        value = self._on_topic(name, policy)
        return self.of_namespace(name.namespace, policy) if value is None else value

    def of_namespace(self, namespace: str, policy: Policy[T]) -> T:
        """Returns the value in force for topics of a namespace that have none of their own."""
        value = self._in_namespace(namespace, policy)
        if value is not None:
            return value
        return self._of_broker(policy)

    def _of_broker(self, policy: Policy[T]) -> T:
        """Returns the value of the broker's settings: one object for all topics, because each keeps some of them."""
        if self._broker_values_of is not self.settings:
            self._broker_values, self._broker_values_of = {}, self.settings
        if policy.title not in self._broker_values:
            assert policy.setting is not None, f"{policy.title} has no setting of the broker"
            self._broker_values[policy.title] = policy.setting(self.settings)
        return cast(T, self._broker_values[policy.title])

    def differing(self, namespace: str, policy: Policy[T]) -> T | None:
        """Returns the value that a namespace sets; None without one, and where the broker's setting is the same."""
        value = self._in_namespace(namespace, policy)
        if value is None or policy.setting is None:
            return value
        return None if policy.form.write(value) == policy.form.write(policy.setting(self.settings)) else value

    def with_origin(self, name: TopicName, policy: Policy[T]) -> tuple[T, Level] | None:
        """Returns the value in force for a topic and the level that sets it; None where no level does."""
        value = self._on_topic(name, policy)
        if value is not None:
            return value, "topic"
        value = self._in_namespace(name.namespace, policy)
        if value is not None:
            return value, "namespace"
        return None if policy.setting is None else (policy.setting(self.settings), "broker")

    def _on_topic(self, name: TopicName, policy: Policy[T]) -> T | None:
        if policy.topic_name and self.settings.topic_policies:
            topic = str(name.base)
            stored = self._namespaces.topic_policies(topic)
            # Nearly all topics have none, and periodic looks ask for several values of each topic.
            for key in (policy.topic_name, GLOBAL + policy.topic_name) if stored else ():
                value = self._read(policy, stored.get(key), topic)
                if value is not None:
                    return value
        return None

    def _in_namespace(self, namespace: str, policy: Policy[T]) -> T | None:
        if not policy.name:
            return None
        return self._read(policy, self._namespaces.policy(namespace, policy.name), namespace)

    def _read(self, policy: Policy[T], stored: Json, owner: str) -> T | None:
        """Returns the stored value; None where there is none, or an empty list, which sets nothing."""
        if stored is None or stored == []:
            return None
        try:
            return policy.form.read(stored)
        except PolicyRefused as error:
            # Written past this broker. The wider level holds: no topic must become unusable by it.
            log.warning("! stored policy for %s of %s has no effect: %s", policy.title, owner, error)
            return None

    # Values with a meaning of their own

    def subscription_dispatch_rate(self, name: TopicName, subscription: str) -> DispatchRate:
        """Returns the delivery rate of one subscription: its own, or that of each subscription of the topic."""
        if self.settings.topic_policies:
            topic = str(name.base)
            for key in (SUBSCRIPTION_POLICIES, GLOBAL + SUBSCRIPTION_POLICIES):
                stored = self._namespaces.topic_policy(topic, key)
                own = stored.get(subscription) if isinstance(stored, dict) else None
                value = own.get("dispatchRate") if isinstance(own, dict) else None
                rate = self._read(table.SUBSCRIPTION_DISPATCH, value, topic)
                if rate is not None:
                    return rate
        return self.of(name, table.SUBSCRIPTION_DISPATCH)

    def resource_group(self, namespace: str) -> str | None:
        """Returns the name of the group whose rates the topics of a namespace share; None without one."""
        name = self._namespaces.policy(namespace, RESOURCE_GROUP)
        return name if isinstance(name, str) else None

    def dispatch_settings(self, name: TopicName) -> ServiceSettings:
        """Returns the broker's settings with the topic's policies about unacknowledged messages in them."""
        pauses = self.dispatcher_pause_on_ack_state_persistent(name)
        consumer = self.of(name, table.MAX_UNACKED_PER_CONSUMER)
        subscription = self.of(name, table.MAX_UNACKED_PER_SUBSCRIPTION)
        settings = self.settings
        if (consumer, subscription, pauses) == (
            settings.unacked_max_per_consumer,
            settings.unacked_max_per_subscription,
            settings.pause_on_ack_state,
        ):
            # The same object for all topics without a policy of their own; thousands of copies would cost memory.
            return settings
        return replace(
            settings,
            unacked_max_per_consumer=consumer,
            unacked_max_per_subscription=subscription,
            pause_on_ack_state=pauses,
        )

    def ledger_settings(self, name: TopicName, settings: ManagedLedgerSettings) -> ManagedLedgerSettings:
        """Returns the settings of a topic's managed ledger, with its policies about copies and bookies in them."""
        groups = self.differing(name.namespace, table.BOOKIE_AFFINITY)
        if groups is not None:
            settings = replace(settings, affinity=Affinity.of(groups.primary, groups.secondary))
        offload = self.offload_rules(name, settings.offload)
        if offload is not settings.offload:
            settings = replace(settings, offload=offload)
        policy = self.of(name, table.STORED)
        assert table.STORED.setting is not None
        if policy == table.STORED.setting(self.settings):
            return settings
        copies = Copies(policy.ensemble, policy.write_quorum, policy.ack_quorum)
        rate = settings.mark_delete_rate if policy.mark_delete_rate < 0 else policy.mark_delete_rate
        return replace(settings, copies=copies, mark_delete_rate=rate)

    def offload_rules(self, name: TopicName, broker: OffloadRules) -> OffloadRules:
        """Returns the rules by which a topic's ledgers are offloaded; `broker` itself where no policy says otherwise."""
        policy = table.OFFLOAD_POLICIES
        found = (self._on_topic(name, policy), self._in_namespace(name.namespace, policy))
        levels = [level for level in found if level is not None]
        # Ledgers of topics of brokers are small, and their brokers need them at every start.
        return (
            broker._replace(place=OffloadPlace(""))
            if name.is_system
            else rules_of(broker, levels)
            if levels
            else broker
        )

    def retain(self, name: TopicName, keeper: Keeper) -> None:
        """Tells the part that keeps ledgers how long acknowledged ones stay."""
        retention = self.of(name, table.RETAINED)
        keeper.keep_ms = retention.minutes * MS_PER_MINUTE if retention.minutes >= 0 else -1
        keeper.keep_bytes = retention.mib * MIB if retention.mib >= 0 else -1

    def shadow_topics(self, source: TopicName) -> list[TopicName]:
        """Returns the topics that a source lists as its shadows; of a partition, the same partitions of these."""
        stored = self._namespaces.topic_policies(str(source.base))
        return shadows_in(stored.get(SHADOW_TOPICS) if stored else None, source)

    def backlog_quota(self, name: TopicName, kind: str) -> BacklogQuota:
        """Returns the quota of one type (`backlog_quota.QUOTA_TYPES`); each level may set one type alone."""
        policy = table.BACKLOG
        for quotas in (self._on_topic(name, policy), self._in_namespace(name.namespace, policy)):
            if quotas is not None and kind in quotas:
                return quotas[kind]
        return self._of_broker(policy)[kind]

    def inactive_mode(self, name: TopicName) -> str | None:
        """Returns the mode by which a topic counts as used; None where unused topics are neither deleted nor closed."""
        policy = self.of(name, table.INACTIVE)
        mode = policy.mode or self.settings.inactive_mode
        # A policy with the other mode keeps its topics open, as in Pulsar.
        acts = mode == WITHOUT_SUBSCRIPTIONS if self.settings.close_inactive else policy.enabled
        return mode if acts else None

    def deduplicates(self, name: TopicName) -> bool:
        """Returns True when the topic drops messages that it has already (PIP-6); topics of brokers never do."""
        return not name.is_system and self.of(name, table.DEDUPLICATION)

    def dispatcher_pause_on_ack_state_persistent(self, name: TopicName) -> bool:
        """Returns True when deliveries wait while a subscription's acknowledgements cannot be stored."""
        return self.of(name, table.DISPATCHER_PAUSE)

    def encryption_required(self, name: TopicName) -> bool:
        """Returns True when producers must encrypt; a namespace cannot lift the broker's demand."""
        return self.settings.encryption_required or self.of(name, table.ENCRYPTION_REQUIRED)

    def schema_strategy(self, name: TopicName) -> str:
        """Returns the word for the compatibility strategy of a topic's schema."""
        if name.is_system:
            return self.settings.system_schema_strategy
        namespace = name.namespace
        older = self._in_namespace(namespace, table.SCHEMA_AUTO_UPDATE)
        for word in (
            self._on_topic(name, table.SCHEMA_COMPATIBILITY),
            self._in_namespace(namespace, table.SCHEMA_COMPATIBILITY),
            None if older is None else SCHEMA_AUTO_UPDATE_STRATEGIES[older],
        ):
            if word is not None and word != table.UNDEFINED:
                return word
        return self.settings.schema_strategy

    def allows_schema_updates(self, name: TopicName, *, by_replicator: bool = False) -> bool:
        """Returns True when producers and consumers may add a version to the topic's schema."""
        return (
            name.is_system
            or self.of(name, table.SCHEMA_UPDATES)
            or (by_replicator and self.of(name, table.SCHEMA_UPDATES_BY_REPLICATORS))
        )

    def enforces_schemas(self, name: TopicName) -> bool:
        """Returns True when a topic with a schema refuses producers without one; no policy lifts the broker's demand."""
        return self.settings.schema_validation or self.of(name, table.SCHEMA_VALIDATION)

    def may_create_subscriptions(self, name: TopicName) -> bool:
        """Returns True when SUBSCRIBE creates a missing durable subscription."""
        return self.of(name, table.AUTO_SUBSCRIPTIONS).allowed

    def may_create_topics(self, namespace: str) -> bool:
        """Returns True when a lookup, producer or consumer creates a missing topic."""
        return self.of_namespace(namespace, table.AUTO_TOPICS).allowed

    def default_partitions(self, namespace: str) -> int:
        """Partitions of a topic that is created automatically; 0 = a topic without partitions."""
        policy = self.of_namespace(namespace, table.AUTO_TOPICS)
        return (policy.partitions or 0) if policy.kind == PARTITIONED else 0


def shadows_in(listed: Json, source: TopicName) -> list[TopicName]:
    """Returns the topics in a value of the policy `shadowTopics`; of a partition, the same partitions of these."""
    if not isinstance(listed, list):
        return []
    names = [parse_topic_name(one) for one in listed if isinstance(one, str)]
    index = source.partition
    return [one.with_partition(index) if index >= 0 > one.partition else one for one in names]
