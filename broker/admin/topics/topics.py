"""`/admin/v2/persistent` and `/admin/v2/non-persistent`: creates, deletes, unloads and ends single topics."""

from __future__ import annotations

from aiohttp import web

from broker.admin.http.answers import (
    Conflict,
    NotAcceptable,
    PreconditionFailed,
    answer,
    done,
    is_true,
    message_id,
    topic_of,
)
from broker.admin.service_view import BROKER, RATES
from broker.admin.topics.stats import StatsOptions, topic_stats
from broker.admin.topics.topic_access import (
    clients,
    existing,
    existing_parts,
    existing_persistent,
    owner_url,
    parts,
)
from broker.admin.topics.topic_properties import texts_of
from broker.managed_ledger.managed_ledger_info import SHADOW_SOURCE
from broker.service.namespaces.namespaces import AlreadyExists, NamespaceNotFound
from broker.service.topics.new_topic import create_shadow
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import hold
from broker.service.topics.topic_registry import TooManyTopics
from foundation.model.errors import NotAllowed, TopicNotFound

_LIST = "/admin/v2/{domain:persistent|non-persistent}/{tenant}/{namespace}"
_TOPIC = _LIST + "/{topic}"


async def create(request: web.Request) -> web.Response:
    """Creates a topic without partitions, with the properties of the body; 409 if it exists."""
    broker, name = request.app[BROKER], topic_of(request)
    if not broker.namespaces.exists(name.namespace):
        raise NamespaceNotFound("Namespace not found")
    if await broker.registry.exists(name):
        raise AlreadyExists("This topic already exists")
    if name.partition >= 0:
        count = await broker.registry.partitions.count(name.base)
        if name.partition >= count:
            raise PreconditionFailed(
                f'Can\'t create topic {name.local} with "-partition-" followed by a number: {name.base.local} has'
                f" {count} partitions; create a partitioned topic, or use another name"
            )
    # Read first: a refusal must leave no topic.
    wanted = await texts_of(request, is_new=True)
    if SHADOW_SOURCE in wanted:
        await create_shadow(broker.registry, name, wanted)
        return done()
    try:
        topic = await broker.registry.get(name, create=True, by_admin=True)
    except TooManyTopics as error:
        # Pulsar answers 409 here, and 412 for a partitioned topic.
        raise Conflict(str(error)) from None
    hold(topic)
    if wanted and isinstance(topic, PersistentTopic):
        await topic.ledger.set_properties({**wanted})
    return done()


async def delete(request: web.Request) -> web.Response:
    """Deletes a topic; 412 while clients are connected, unless `force` is set."""
    broker, name, force = request.app[BROKER], topic_of(request), is_true(request, "force")
    if await broker.registry.partitions.count(name):
        raise Conflict(
            f"{name} is a partitioned topic, instead of calling delete topic, please call delete-partitioned-topic."
        )
    if not name.is_persistent and not await broker.registry.exists(name):
        # Such a topic leaves no trace when its last client goes, so Pulsar calls its deletion done.
        return done()
    # Before the clients are counted, as in Pulsar.
    await broker.registry.shadows.check_deletable(name)
    if not force:
        # Opens the topic: a topic that is not open has no clients, but may not exist either.
        consumers, producers = clients(await existing(broker, name))
        if consumers or producers:
            raise PreconditionFailed(
                f"Topic has {consumers + producers} client connected Including {consumers} consumers,"
                f" {producers} producers, and 0 replicators."
            )
    # The topic first: if its deletion fails, it still exists and needs its policies.
    await broker.deletions.topic(name, force=force)
    return done()


async def unload(request: web.Request) -> web.Response:
    """Closes the topic or its partitions; the next client opens them again."""
    broker, name = request.app[BROKER], topic_of(request)
    for part in await parts(broker, name):
        if not await broker.registry.exists(part):
            raise TopicNotFound(f"Topic {name} not found")
        if str(part) in broker.registry.topics:
            await broker.registry.unload(part)
    return done()


async def terminate(request: web.Request) -> web.Response:
    """Lets the topic accept no further message; returns the id of its last one."""
    broker, name = request.app[BROKER], topic_of(request)
    if not name.is_persistent:
        raise NotAcceptable("Need to provide a persistent topic name")
    if await broker.registry.partitions.count(name):
        raise NotAllowed("Termination of a partitioned topic is not allowed")
    topic = await existing_persistent(broker, name)
    return answer(message_id(await topic.terminate()))


async def terminate_partitions(request: web.Request) -> web.Response:
    """Terminates every partition; returns the id of the last message by partition."""
    broker, name = request.app[BROKER], topic_of(request)
    if not await broker.registry.partitions.count(name):
        raise NotAllowed(
            "Termination of a non-partitioned topic is not allowed using partitioned-terminate,"
            " please use terminate commands"
        )
    topics = await existing_parts(broker, name)
    return answer({str(index): message_id(await topic.terminate()) for index, topic in enumerate(topics)})


async def stats(request: web.Request) -> web.Response:
    """Returns the topic's counters, rates, producers, subscriptions and consumers."""
    broker, name = request.app[BROKER], topic_of(request)
    topic = await existing(broker, name)
    options = StatsOptions.of(request.query)
    rates = request.app[RATES](str(name))
    return answer(await topic_stats(topic, owner_url(broker), rates, options))


TOPIC_ROUTES = (
    web.put(_TOPIC, create),
    web.delete(_TOPIC, delete),
    web.put(_TOPIC + "/unload", unload),
    web.post(_TOPIC + "/terminate", terminate),
    web.post(_TOPIC + "/terminate/partitions", terminate_partitions),
    web.get(_TOPIC + "/stats", stats),
)
