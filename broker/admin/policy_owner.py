"""PolicyOwner: the namespace or the topic whose policies a request reads or sets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from aiohttp import web

from broker.admin.http.answers import PreconditionFailed, is_true, namespace_of, topic_of
from broker.admin.service_view import BROKER, BrokerView
from broker.service.namespaces.bundles import bundles_of
from broker.service.namespaces.namespaces import GLOBAL, NamespaceNotFound
from broker.service.namespaces.stored_forms import LOCAL
from broker.service.policies.table import Policy
from foundation.model.errors import NotAllowed, TopicNotFound
from foundation.model.topic_name import TopicName
from foundation.value import Json

T = TypeVar("T")


class PolicyOwner(NamedTuple):
    """A namespace or a topic, with the store of its policies."""

    broker: BrokerView
    """The broker."""
    namespace: str
    """The namespace, or that of the topic."""
    topic: TopicName | None = None
    """None for a namespace."""
    prefix: str = ""
    """Stands in front of the keys of a topic's policies: GLOBAL for those with `isGlobal=true`."""

    @property
    def word(self) -> str:
        """`namespace` or `topic`, for error texts."""
        return "namespace" if self.topic is None else "topic"

    def get(self, policy: Policy[T]) -> Json:
        """Returns the stored value, None where none is set. NamespaceNotFound for an unknown namespace."""
        if self.topic is None:
            self.broker.namespaces.policies(self.namespace)  # Raises NamespaceNotFound.
            return self.broker.namespaces.policy(self.namespace, policy.name)
        return self.broker.namespaces.topic_policy(str(self.topic.base), self.prefix + policy.topic_name)

    def in_force(self, policy: Policy[T]) -> T:
        """Returns the value in force; the policy must have a setting."""
        policies = self.broker.registry.policies
        if self.topic is None:
            return policies.of_namespace(self.namespace, policy)
        return policies.of(self.topic, policy)

    async def set(self, policy: Policy[T], value: Json) -> None:
        """Stores a value; None removes it."""
        await self.change(policy, lambda _: value)

    async def change(self, policy: Policy[T], changed: Callable[[Json], Json]) -> None:
        """Stores a value that follows from the stored one, also where two requests change it at once."""
        namespaces = self.broker.namespaces
        if self.topic is None and policy.name in LOCAL:
            known = bundles_of(namespaces, self.namespace).json()
            await namespaces.change_local_policy(self.namespace, policy.name, changed, known)
        elif self.topic is None:
            await namespaces.change_policy(self.namespace, policy.name, changed)
        else:
            key = self.prefix + policy.topic_name
            await namespaces.change_topic_policy(str(self.topic.base), key, changed)


FindOwner = Callable[[web.Request], Awaitable[PolicyOwner]]
"""Returns the owner in a path after checking that policies may be set on it."""


def existing_namespace(request: web.Request) -> str:
    """Returns the namespace of the path. Raises NamespaceNotFound."""
    namespace = namespace_of(request)
    if not request.app[BROKER].namespaces.exists(namespace):
        raise NamespaceNotFound("Namespace does not exist")
    return namespace


async def existing_topic(request: web.Request) -> TopicName:
    """Returns the topic. Raises NotAllowed, PreconditionFailed or TopicNotFound where it can have no policies."""
    broker, name = request.app[BROKER], topic_of(request)
    if not broker.settings.bool("topicLevelPoliciesEnabled"):
        raise NotAllowed("topicLevelPoliciesEnabled is false; set it to true to use policies of topics")
    if not broker.namespaces.exists(name.namespace):
        raise NamespaceNotFound("Namespace not found")
    if name.partition >= 0 and await broker.registry.partitions.count(name.base):
        raise PreconditionFailed(f"Not allowed to set/get topic policy for a partition; use {name.base}")
    if not await broker.registry.exists(name):
        raise TopicNotFound(f"Topic {name} not found")
    await broker.namespaces.stored.of_topics.load(name)
    return name


async def namespace_owner(request: web.Request) -> PolicyOwner:
    """Returns the namespace of the path. Raises NamespaceNotFound."""
    return PolicyOwner(request.app[BROKER], existing_namespace(request))


async def topic_owner(request: web.Request) -> PolicyOwner:
    """Returns the topic of the path. Errors as for `existing_topic`."""
    name = await existing_topic(request)
    prefix = GLOBAL if is_true(request, "isGlobal") else ""
    return PolicyOwner(request.app[BROKER], name.namespace, name, prefix)
