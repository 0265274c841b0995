"""Operations of administrators on all topics of a namespace, or on those of one of its bundles.

They take topics in turn or in small slices, and the loop serves clients between them: a namespace may have many thousands
of topics. The error of a topic keeps the work from no other one. The first error is raised at the end, and the operation
can be repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

from broker.service.internal_cursors import INTERNAL_CURSORS
from broker.service.namespaces.bundles import Bundle, OwnedBundles, bundles_of
from broker.service.successor import Successor
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic_registry import CLOSINGS_AT_ONCE, TopicRegistry
from foundation.loop.slices import in_slices
from foundation.model.errors import BrokerError, TopicNotFound
from foundation.model.topic_name import parse_topic_name

log = logging.getLogger("magnetar")


class SubscriptionInUse(BrokerError):
    """The subscription to be deleted has consumers."""

    status = 412
    """HTTP status of the answer."""


def find_owned_bundles(registry: TopicRegistry, owned: OwnedBundles) -> Iterator[None]:
    """Adds the bundles that have open or dormant topics, in slices."""
    namespaces = registry.namespaces
    for namespace in [one for tenant in namespaces.tenants() for one in namespaces.names(tenant)]:
        open_ones = (str(topic.name) for topic in registry.open_in(namespace))
        # A namespace may be deleted between two slices.
        if namespaces.exists(namespace):
            bundles = bundles_of(namespaces, namespace)
            yield from owned.add(namespace, bundles, open_ones)
            yield from owned.add(namespace, bundles, registry.dormant.names(namespace))
            yield


async def unload(
    registry: TopicRegistry, namespace: str, bundle: Bundle | None = None, successor: Successor | None = None
) -> None:
    """Closes the open topics, some at a time; clients open them again, where the successor is.

    Raises the first error once all are closed: a broker that has lost the bundle must not keep the others open.
    """
    # Those that are being opened would be open afterwards.
    await registry.openings_ended(namespace)
    # Over a copy: unloading waits, and topics may come and go meanwhile.
    chosen = [
        topic
        async for topic in in_slices(registry.open_in(namespace), registry.now_ns)
        if bundle is None or bundle.has(str(topic.name))
    ]
    errors: list[BaseException] = []
    for first in range(0, len(chosen), CLOSINGS_AT_ONCE):
        open_ones = [
            registry.unload(topic.name, successor)
            for topic in chosen[first : first + CLOSINGS_AT_ONCE]
            if registry.topics.get(str(topic.name)) is topic
        ]
        outcomes = await asyncio.gather(*open_ones, return_exceptions=True)
        # One that closed by itself meanwhile is not found.
        errors += [one for one in outcomes if one is not None and not isinstance(one, TopicNotFound)]
    if errors:
        raise errors[0]


async def clear_backlog(
    registry: TopicRegistry, namespace: str, bundle: Bundle | None = None, subscription: str | None = None
) -> None:
    """Acknowledges every stored message of one subscription, or of all. A topic without it is no error.

    The cursors of the broker's own are none of all. NotAllowed for one that is named; its position follows by itself.
    """

    async def clear(topic: PersistentTopic) -> None:
        for name, one in list(topic.subscriptions.items()):
            if name == subscription or (subscription is None and name not in INTERNAL_CURSORS):
                one.acknowledge_through(topic.ledger.last_confirmed)

    await _with_each(registry, namespace, bundle, clear)


async def check_unused(
    registry: TopicRegistry, namespace: str, bundle: Bundle | None, subscription: str
) -> None:
    """Raises SubscriptionInUse where a subscription has consumers on one of the topics."""
    async for open_topic in in_slices(registry.open_in(namespace), registry.now_ns):
        # One that was closed meanwhile may have been taken apart.
        found = None if open_topic.closed else open_topic.subscriptions.get(subscription)
        if found is not None and found.consumers and (bundle is None or bundle.has(str(open_topic.name))):
            raise SubscriptionInUse("Subscription has active connected consumers")


async def unsubscribe(
    registry: TopicRegistry, namespace: str, bundle: Bundle | None, subscription: str
) -> None:
    """Deletes a subscription from every topic that has it. SubscriptionInUse if it has consumers on one of them."""
    # All topics are looked at before the first deletion, so that a refusal changes none of them.
    await check_unused(registry, namespace, bundle, subscription)

    async def delete(topic: PersistentTopic) -> None:
        one = topic.subscriptions.get(subscription)
        if one is not None:
            await topic.subscribing.delete(one, None, force=True)

    await _with_each(registry, namespace, bundle, delete)


async def _with_each(
    registry: TopicRegistry,
    namespace: str,
    bundle: Bundle | None,
    work: Callable[[PersistentTopic], Awaitable[None]],
) -> None:
    """Does the work with each persistent topic, opened where need be; those of brokers themselves are left out.

    Raises the first error, after the last topic.
    """
    failed: list[tuple[str, BrokerError]] = []
    async for text in in_slices(await registry.names(namespace, non_persistent=False), registry.now_ns):
        name = parse_topic_name(text)
        if name.is_system or (bundle is not None and not bundle.has(text)):
            continue
        try:
            topic = await registry.get(name, create=False)
            if isinstance(topic, PersistentTopic):
                await work(topic)
        except TopicNotFound:
            continue  # Deleted meanwhile.
        except BrokerError as error:
            failed.append((text, error))
    if failed:
        first, refusal = failed[0]
        # One line: a storage that fails would bring one for each of many thousands of topics.
        log.warning(
            "! a request about %s failed for %d topics, the first is %s: %s",
            *(namespace, len(failed), first, refusal),
        )
        raise refusal
