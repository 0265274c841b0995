"""Accesses: what a client asks for, with the question to the authorizer. The wire and WebSockets ask with the same ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker.security.authorization.authorizer import Authorizer
from broker.security.principal import Principal
from foundation.model.topic_name import TopicName


class Access(NamedTuple):
    """One access to a topic, a subscription, a namespace or the broker."""

    action: str
    """`produce`, `consume`, `look up`, `list` or `superuser`."""
    target: str
    """Names the thing in the audit trail and in the refusal."""
    is_allowed: Callable[[Authorizer, Principal], bool]
    """Reads memory only."""


def look_up(topic: TopicName) -> Access:
    """Returns the access for looking a topic up, with its partitions and schemas."""
    return Access("look up", str(topic), lambda authorizer, who: authorizer.may_look_up(who, topic))


def produce(topic: TopicName) -> Access:
    """Returns the access for publishing to a topic."""
    return Access("produce", str(topic), lambda authorizer, who: authorizer.may_produce(who, topic))


def consume(topic: TopicName, subscription: str | None) -> Access:
    """Returns the access for consuming from a topic through a subscription; None = as a reader."""
    target = f"{topic} {subscription or ''}".strip()
    return Access("consume", target, lambda authorizer, who: authorizer.may_consume(who, topic, subscription))


def list_topics(namespace: str) -> Access:
    """Returns the access for seeing the names of the topics of `tenant/namespace`."""
    return Access("list", namespace, lambda authorizer, who: authorizer.may_list_topics(who, namespace))


def superuser(target: str) -> Access:
    """Returns the access for the requests that brokers send to each other."""
    return Access("superuser", target, lambda authorizer, who: authorizer.is_superuser(who))
