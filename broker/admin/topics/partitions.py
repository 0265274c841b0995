"""`…/partitions`: the numbers of partitions of topics, which clients read and administrators set."""

from __future__ import annotations

import re
from functools import partial

from aiohttp import web

from broker.admin.http.answers import (
    Conflict,
    NotAcceptable,
    PreconditionFailed,
    answer,
    body_of,
    done,
    is_true,
    topic_of,
    whole_number,
)
from broker.admin.http.request_path import TOPIC
from broker.admin.service_view import BROKER
from broker.admin.topics.over_owners import check_unused_elsewhere, copy_subscriptions
from broker.admin.topics.topic_access import clients, partitioned_shown, parts
from broker.service.namespaces.namespaces import NamespaceNotFound
from foundation.model.errors import BrokerError, TopicNotFound

_NUMBER = re.compile(r"-?[0-9]{1,10}")
"""A number in quotes. No longer one is in the range of an int, and Python refuses to read thousands of digits."""


class Unprocessable(BrokerError):
    """Pulsar's status for a number of partitions that is not above the present one."""

    status = 422


async def get(request: web.Request) -> web.Response:
    """Returns the number of partitions, 0 for a topic without partitions.

    404 for a topic that does not exist, unless `checkAllowAutoCreation` is set: then the topic is created if the
    policies allow it.
    """
    broker, name = request.app[BROKER], topic_of(request)
    if not broker.namespaces.exists(name.namespace):
        raise NamespaceNotFound("Namespace not found")
    if is_true(request, "checkAllowAutoCreation"):
        await broker.partitioned.count_or_create(name, create=True)
    elif not await broker.registry.exists(name):
        raise TopicNotFound(f"Topic {name} not found")
    return answer(await partitioned_shown(broker, name))


async def create(request: web.Request) -> web.Response:
    """Creates a partitioned topic with all its partitions; 409 if it exists."""
    broker, name = request.app[BROKER], topic_of(request)
    count = await _count(request)
    if count < 1:
        raise NotAcceptable("Number of partitions should be more than 0")
    await broker.partitioned.create(name, count, await _properties(request))
    return done()


async def grow(request: web.Request) -> web.Response:
    """Raises the number of partitions; 422 unless it is above the present one."""
    broker, name = request.app[BROKER], topic_of(request)
    if name.partition >= 0:
        raise PreconditionFailed("Partitioned Topic Name should not contain '-partition-'")
    count = await _count(request)
    before = await broker.registry.partitions.count(name)
    if not before:
        raise Conflict(f"Topic {name} is not partitioned topic")
    if count <= before:
        raise Unprocessable(f"Expect partitions {count} can't less than current partitions {before}.")
    is_shared = broker.registry.ownership.is_shared
    await broker.partitioned.grow(
        name, count, partial(copy_subscriptions, broker, name) if is_shared else None
    )
    return done()


async def delete(request: web.Request) -> web.Response:
    """Deletes all partitions; 412 while clients are connected, unless `force` is set."""
    broker, name, force = request.app[BROKER], topic_of(request), is_true(request, "force")
    if not await broker.registry.partitions.count(name):
        if await broker.registry.exists(name):
            raise Conflict(
                f"{name} is a non-partitioned topic. Instead of calling delete-partitioned-topic please call delete."
            )
        raise TopicNotFound(f"Topic {name} not found.")
    await broker.registry.shadows.check_deletable(name)
    # All partitions are checked before the first is deleted, so that a refusal leaves the topic whole.
    for part in await parts(broker, name):
        topic = broker.registry.topics.get(str(part))
        if topic is not None and any(clients(topic)) and not force:
            raise PreconditionFailed(f"Topic {part} has connected clients")
    if broker.registry.ownership.is_shared and not force:
        await check_unused_elsewhere(broker, name)
    # The topic first, then its policies, as for a topic without partitions.
    await broker.partitioned.delete(name, force=force)
    return done()


async def create_missed(request: web.Request) -> web.Response:
    """Creates those partitions of the topic that do not exist."""
    broker, name = request.app[BROKER], topic_of(request)
    if not await broker.registry.partitions.count(name):
        raise TopicNotFound(f"Topic {name} does not exist")
    await broker.partitioned.create_missed(name)
    return done()


async def _count(request: web.Request) -> int:
    """Returns the number of partitions in the body.

    It is a number, a number in quotes as one client sends it, or an object with `partitions`.
    """
    body = await body_of(request)
    if isinstance(body, dict):
        body = body.get("partitions")
    if isinstance(body, str) and _NUMBER.fullmatch(body):
        body = int(body)
    return whole_number(body, "partitions")


async def _properties(request: web.Request) -> dict[str, str]:
    body = await body_of(request)
    given = body.get("properties") if isinstance(body, dict) else None
    return {key: str(value) for key, value in given.items()} if isinstance(given, dict) else {}


PARTITION_ROUTES = (
    web.get(TOPIC + "/partitions", get),
    web.put(TOPIC + "/partitions", create),
    web.post(TOPIC + "/partitions", grow),
    web.delete(TOPIC + "/partitions", delete),
    web.post(TOPIC + "/createMissedPartitions", create_missed),
)
