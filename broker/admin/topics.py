"""`/admin/v2/persistent` and `/admin/v2/non-persistent`: single topics, and lists of them."""

from __future__ import annotations

import logging

from aiohttp import web

from broker.admin.answers import (
    BadRequest,
    Conflict,
    PreconditionFailed,
    answer,
    body_of,
    done,
    is_true,
    message_id,
    namespace_of,
    topic_of,
)
from broker.admin.service_view import BROKER, RATES
from broker.admin.stats import internal_stats, topic_stats
from broker.admin.topic_access import clients, existing, existing_parts, existing_persistent, parts
from broker.model.errors import NotAllowed, TopicNotFound
from broker.service.namespaces import AlreadyExists, Json, NamespaceNotFound

_LIST = "/admin/v2/{domain:persistent|non-persistent}/{tenant}/{namespace}"
_TOPIC = _LIST + "/{topic}"
log = logging.getLogger("magnetar")
MESSAGE_SIZE = "maxMessageSize"


async def names(request: web.Request) -> web.Response:
    broker, namespace = request.app[BROKER], namespace_of(request)
    broker.namespaces.policies(namespace)
    persistent = request.match_info["domain"] == "persistent"
    found = await broker.registry.names(namespace, persistent=persistent, non_persistent=not persistent)
    return answer(list(found))


async def partitioned_names(request: web.Request) -> web.Response:
    broker, namespace = request.app[BROKER], namespace_of(request)
    broker.namespaces.policies(namespace)
    found = await broker.registry.partitions.names(namespace, request.match_info["domain"])
    return answer(list(found))


async def create(request: web.Request) -> web.Response:
    broker, name = request.app[BROKER], topic_of(request)
    if not broker.namespaces.exists(name.namespace):
        raise NamespaceNotFound("Namespace not found")
    if await broker.registry.exists(name):
        raise AlreadyExists("This topic already exists")
    await broker.registry.get(name, create=True, by_admin=True)
    return done()


async def delete(request: web.Request) -> web.Response:
    broker, name, force = request.app[BROKER], topic_of(request), is_true(request, "force")
    if await broker.registry.partitions.count(name):
        raise Conflict(
            f"{name} is a partitioned topic, instead of calling delete topic, please call delete-partitioned-topic."
        )
    consumers, producers = clients(await existing(broker, name))
    if (consumers or producers) and not force:
        raise PreconditionFailed(
            f"Topic has {consumers + producers} client connected Including {consumers} consumers,"
            f" {producers} producers, and 0 replicators."
        )
    await broker.registry.delete(name, force=force)
    await broker.namespaces.forget_topic(str(name))
    return done()


async def unload(request: web.Request) -> web.Response:
    broker, name = request.app[BROKER], topic_of(request)
    for part in await parts(broker, name):
        if not await broker.registry.exists(part):
            raise TopicNotFound(f"Topic {name} not found")
        if str(part) in broker.registry.topics:
            await broker.registry.unload(part)
    return done()


async def terminate(request: web.Request) -> web.Response:
    broker, name = request.app[BROKER], topic_of(request)
    if await broker.registry.partitions.count(name):
        raise NotAllowed("Termination of a partitioned topic is not allowed")
    topic = await existing_persistent(broker, name)
    return answer(message_id(await topic.terminate()))


async def terminate_partitions(request: web.Request) -> web.Response:
    topics = await existing_parts(request.app[BROKER], topic_of(request))
    return answer({str(index): message_id(await topic.terminate()) for index, topic in enumerate(topics)})


async def last_message_id(request: web.Request) -> web.Response:
    topic = await existing_persistent(request.app[BROKER], topic_of(request))
    return answer(message_id(topic.ledger.last_confirmed))


async def stats(request: web.Request) -> web.Response:
    broker, name = request.app[BROKER], topic_of(request)
    topic = await existing(broker, name)
    return answer(topic_stats(topic, broker.addresses.admin_url, request.app[RATES](str(name))))


async def internal(request: web.Request) -> web.Response:
    return answer(internal_stats(await existing_persistent(request.app[BROKER], topic_of(request))))


# The one policy of a single topic that is kept so far; it is not acted upon yet


async def message_size(request: web.Request) -> web.Response:
    value = request.app[BROKER].namespaces.topic_policy(str(topic_of(request)), MESSAGE_SIZE)
    return done() if value is None else answer(value)


async def set_message_size(request: web.Request) -> web.Response:
    value = await body_of(request)
    if type(value) is not int or value < 0:
        raise BadRequest("maxMessageSize must be a number of bytes")
    await _set_policy(request, value)
    log.warning("maxMessageSize of %s is kept, but not acted upon yet", topic_of(request))
    return done()


async def remove_message_size(request: web.Request) -> web.Response:
    await _set_policy(request, None)
    return done()


async def _set_policy(request: web.Request, value: Json) -> None:
    broker, name = request.app[BROKER], topic_of(request)
    if not await broker.registry.exists(name):
        raise TopicNotFound(f"Topic {name} not found")
    await broker.namespaces.set_topic_policy(str(name), MESSAGE_SIZE, value)


TOPIC_ROUTES = (
    web.get(_LIST, names),
    web.get(_LIST + "/partitioned", partitioned_names),
    web.put(_TOPIC, create),
    web.delete(_TOPIC, delete),
    web.put(_TOPIC + "/unload", unload),
    web.post(_TOPIC + "/terminate", terminate),
    web.post(_TOPIC + "/terminate/partitions", terminate_partitions),
    web.get(_TOPIC + "/lastMessageId", last_message_id),
    web.get(_TOPIC + "/stats", stats),
    web.get(_TOPIC + "/internalStats", internal),
    web.get(f"{_TOPIC}/{MESSAGE_SIZE}", message_size),
    web.post(f"{_TOPIC}/{MESSAGE_SIZE}", set_message_size),
    web.delete(f"{_TOPIC}/{MESSAGE_SIZE}", remove_message_size),
)
