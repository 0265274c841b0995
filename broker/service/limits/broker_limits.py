"""BrokerLimits: the limits over all topics of the broker; TopicRates: those of one topic, made when a policy asks for them.

BrokerLimits   publish, dispatch, unacknowledged messages: one object per broker
GroupLimits    publish, dispatch: one per resource group, shared by the topics of its namespaces
TopicRates     publish, dispatch, subscribe: one per topic; a topic without limits holds no bucket
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from broker.service.limits.dispatch_limit import DispatchLimit, DispatchLimits
from broker.service.limits.publish_limit import PublishLimit
from broker.service.limits.subscribe_limit import ConsumerKey, SubscribeLimit
from broker.service.limits.unacked_limit import UnackedLimit
from broker.service.policies import table
from broker.service.policies.effective_policies import EffectivePolicies
from broker.service.policies.values import DispatchRate, PublishRate, ResourceGroupRates
from broker.service.settings import ServiceSettings
from foundation.loop.clock import CallLater
from foundation.model.topic_name import TopicName


class GroupLimits(NamedTuple):
    """Limits that the topics of the namespaces in one resource group share."""

    publish: PublishLimit
    """Messages published to them together."""
    dispatch: DispatchLimit
    """Messages delivered from those that are persistent."""

    def change(self, rates: ResourceGroupRates, now_ns: int) -> None:
        """Sets other rates."""
        self.publish.change(PublishRate(rates.publish_messages, rates.publish_bytes))
        self.dispatch.change(_dispatch_rate(rates), now_ns)

    def take_share(self, share: ResourceGroupRates, now_ns: int) -> None:
        """Goes on with another part of the rates, where several brokers divide them."""
        self.publish.take_share(PublishRate(share.publish_messages, share.publish_bytes))
        self.dispatch.take_share(_dispatch_rate(share), now_ns)


def _dispatch_rate(rates: ResourceGroupRates) -> DispatchRate:
    return DispatchRate(rates.dispatch_messages, rates.dispatch_bytes, period_s=1)


class BrokerLimits:
    """Limits that many topics of the broker share."""

    def __init__(
        self, settings: ServiceSettings, *, now_ns: Callable[[], int], call_later: CallLater
    ) -> None:
        self.now_ns = now_ns
        """Monotonic clock."""
        self.call_later = call_later
        """Starts timers."""
        self.publish = PublishLimit(now_ns, call_later)
        """Messages published to all topics together."""
        self.dispatch = DispatchLimit()
        """Messages delivered from all persistent topics together."""
        self._groups: dict[str, GroupLimits] = {}
        self.unacked: UnackedLimit | None = None
        """Unacknowledged messages of all subscriptions; None without a limit, which keeps it off the dispatchers."""
        if settings.unacked_max_per_broker:
            self.unacked = UnackedLimit(settings.unacked_max_per_broker, settings.unacked_share_when_blocked)
        self.reconfigure(settings)

    def reconfigure(self, settings: ServiceSettings) -> None:
        """Takes new rates."""
        self.publish.change(PublishRate(settings.broker_publish_messages, settings.broker_publish_bytes))
        self.dispatch.change(
            DispatchRate(settings.broker_dispatch_messages, settings.broker_dispatch_bytes, period_s=1),
            self.now_ns(),
        )

    def group(self, name: str | None) -> GroupLimits | None:
        """Returns the limits of a resource group; None for none, and for a group that does not exist."""
        return None if name is None else self._groups.get(name)

    def set_group(self, name: str, rates: ResourceGroupRates) -> None:
        """Sets the rates of a resource group; the topics that share them keep the same limits."""
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = GroupLimits(
                PublishLimit(self.now_ns, self.call_later), DispatchLimit()
            )
        group.change(rates, self.now_ns())

    def forget_group(self, name: str) -> None:
        """Forgets a resource group that no namespace is in."""
        self._groups.pop(name, None)


class LimitedTopic(Protocol):
    """The topic, as far as its rates use it."""

    messages_in: int
    """Messages published to it."""
    bytes_in: int
    """Bytes of those."""


class TopicRateLimits:
    """The rates of one topic, as its policies set them."""

    __slots__ = ("_broker", "_group", "_subscribe", "_topic", "dispatch", "publish")

    def __init__(self, broker: BrokerLimits, topic: LimitedTopic) -> None:
        self._broker = broker
        self._topic = topic
        self.publish: PublishLimit | None = None
        """The topic's own publish limit; None until a policy sets one."""
        self.dispatch: DispatchLimit | None = None
        """The topic's own dispatch limit; None until a policy sets one."""
        self._subscribe: SubscribeLimit | None = None
        self._group: GroupLimits | None = None

    @property
    def unacked(self) -> UnackedLimit | None:
        """The broker's limit of unacknowledged messages."""
        return self._broker.unacked

    def renew(self, policies: EffectivePolicies, name: TopicName) -> None:
        """Takes the rates that hold now."""
        self._group = self._broker.group(policies.resource_group(name.namespace))
        rate = policies.of(name, table.PUBLISH)
        if self.publish is None and rate.is_limit:
            self.publish = PublishLimit(self._broker.now_ns, self._broker.call_later)
        if self.publish is not None:
            self.publish.change(rate)
        self.dispatch = self._changed(self.dispatch, policies.of(name, table.DISPATCH))
        subscribe = policies.of(name, table.SUBSCRIBE)
        if self._subscribe is None and subscribe.per_consumer > 0:
            self._subscribe = SubscribeLimit()
        if self._subscribe is not None:
            self._subscribe.change(subscribe)

    def publish_limits(self) -> tuple[PublishLimit, ...]:
        """Returns the limits that each message is counted against; () without any."""
        group = self._group.publish if self._group else None
        return tuple(limit for limit in (self._broker.publish, group, self.publish) if limit and limit.active)

    def limit_of(self, limit: DispatchLimit | None, rate: DispatchRate) -> DispatchLimit | None:
        """Returns a subscription's own limit with another rate, made if need be."""
        return self._changed(limit, rate)

    def dispatch_limits(self, own: DispatchLimit | None) -> DispatchLimits | None:
        """Returns all rates over a subscription whose own limit is `own`; None without any."""
        group = self._group.dispatch if self._group else None
        limits = tuple(
            limit for limit in (self._broker.dispatch, group, self.dispatch, own) if limit and limit.active
        )
        return DispatchLimits(limits) if limits else None

    def dispatch_events(self, own: DispatchLimit | None) -> dict[str, DispatchLimit | None]:
        """Returns the limits over a subscription by Pulsar's words for them in statistics."""
        return {"Broker": self._broker.dispatch, "Topic": self.dispatch, "Subscription": own}

    def check_subscribe(self, consumer: ConsumerKey) -> None:
        """Counts one subscribe request. Raises NotAllowed above the rate."""
        if self._subscribe is not None:
            self._subscribe.check(consumer, self._broker.now_ns())

    def _published(self) -> tuple[int, int]:
        return self._topic.messages_in, self._topic.bytes_in

    def _changed(self, limit: DispatchLimit | None, rate: DispatchRate) -> DispatchLimit | None:
        if limit is None and rate.is_limit:
            limit = DispatchLimit(self._published)
        if limit is not None:
            limit.change(rate, self._broker.now_ns())
        return limit
