"""Requests about replication and offloading of a topic, answered as a broker with one cluster and no offloader does.

A topic may name this cluster alone: another one would get no messages. Shadow topics are checked as Pulsar checks them, and
then refused with 501.
"""

from __future__ import annotations

from aiohttp import web

from broker.admin.http.answers import (
    BadRequest,
    NotBuilt,
    PreconditionFailed,
    answer,
    body_of,
    done,
    empty,
    is_true,
    message_id,
    topic_of,
)
from broker.admin.http.request_path import TOPIC
from broker.admin.policy_owner import existing_topic
from broker.admin.service_view import BROKER
from broker.admin.topics.topic_access import existing_persistent
from broker.service.namespaces.namespaces import GLOBAL, Json
from foundation.model.errors import BrokerError, InvalidTopicName, NotAllowed
from foundation.model.position import EARLIEST
from foundation.model.topic_name import parse_topic_name

_CLUSTERS = "replicationClusters"
"""Key of the clusters in the stored policies of a topic."""
NO_OFFLOADER = (
    "org.apache.bookkeeper.mledger.ManagedLedgerException: [NullLedgerOffloader] does not support offload"
)
"""The error that Pulsar shows after an offload without an offloader; clients print it."""


class NotAllowedName(BrokerError):
    """The name of a shadow topic is no topic name; Pulsar's status."""

    status = 403


def _key(request: web.Request) -> str:
    return GLOBAL + _CLUSTERS if is_true(request, "isGlobal") else _CLUSTERS


async def _names_in(request: web.Request) -> list[str]:
    value = await body_of(request)
    names = [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
    if value is not None and (not isinstance(value, list) or len(names) != len(value)):
        raise BadRequest("The body must be a JSON list of names")
    return names


async def clusters(request: web.Request) -> web.Response:
    """Returns the clusters of the topic, with `applied=true` those of its namespace where it has none."""
    broker, name = request.app[BROKER], await existing_topic(request)
    found = broker.namespaces.topic_policy(str(name.base), _key(request))
    if found is None and is_true(request, "applied"):
        stored = broker.namespaces.policies(name.namespace).get("replication_clusters")
        return answer(stored or [broker.namespaces.cluster])
    return empty() if found is None else answer(found)


async def set_clusters(request: web.Request) -> web.Response:
    """Keeps the clusters of the topic. 412 without this cluster, 501 with another one."""
    broker, name = request.app[BROKER], await existing_topic(request)
    wanted, own = await _names_in(request), broker.namespaces.cluster
    if not wanted:
        raise PreconditionFailed("ClusterIds should not be null or empty")
    if own not in wanted:
        raise PreconditionFailed(
            "Can not remove local cluster from the local topic-level replication clusters policy"
        )
    if set(wanted) != {own}:
        raise NotBuilt(f"replication: this version of Magnetar does not replicate; name {own} alone")
    stored: list[Json] = [own]
    await broker.namespaces.set_topic_policy(str(name.base), _key(request), stored)
    return done()


async def remove_clusters(request: web.Request) -> web.Response:
    """Removes the clusters of the topic; those of its namespace hold."""
    name = await existing_topic(request)
    await request.app[BROKER].namespaces.set_topic_policy(str(name.base), _key(request), None)
    return done()


async def shadow_topics(request: web.Request) -> web.Response:
    """Returns no shadow topics: none can be set."""
    await existing_topic(request)
    return empty()


async def set_shadow_topics(request: web.Request) -> web.Response:
    """Checks the shadow topics as Pulsar does, and refuses them with 501."""
    broker, name = request.app[BROKER], await existing_topic(request)
    if not name.is_persistent:
        raise PreconditionFailed("Only persistent source topic is supported with shadow topics.")
    wanted = await _names_in(request)
    if not wanted:
        raise PreconditionFailed("Cannot specify empty shadow topics, please use remove command instead.")
    for text in wanted:
        try:
            shadow = parse_topic_name(text)
        except InvalidTopicName:
            raise NotAllowedName(f"Invalid shadow topic name: {text[:100]}") from None
        if not await broker.registry.exists(shadow):
            raise PreconditionFailed(f"Shadow topic [{shadow}] not exists.")
    raise NotBuilt(
        "shadowTopics: this version of Magnetar does not replicate to shadow topics; leave them unset"
    )


async def remove_shadow_topics(request: web.Request) -> web.Response:
    """Accepts the removal: there are none."""
    await existing_topic(request)
    return done()


class Offloads:
    """The topics whose ledgers were to be offloaded; each attempt fails, as in Pulsar without an offloader."""

    def __init__(self) -> None:
        self._failed: set[str] = set()

    async def start(self, request: web.Request) -> web.Response:
        """Accepts the request, which then fails: 204, and `status` says so."""
        broker, name = request.app[BROKER], topic_of(request)
        if not name.is_persistent:
            raise NotAllowed("Offload on a non-persistent topic is not allowed")
        await existing_persistent(broker, name)
        value = await body_of(request)
        if not isinstance(value, dict):
            raise BadRequest("messageId is null" if value is None else "Give the message id as a JSON object")
        # Those of topics that were closed or deleted leave, so the set has at most as many names as topics are open.
        self._failed = {one for one in self._failed if one in broker.registry.topics} | {str(name)}
        return done()

    async def status(self, request: web.Request) -> web.Response:
        """Returns the state of the topic's last offload."""
        broker, name = request.app[BROKER], topic_of(request)
        if not name.is_persistent:
            raise NotAllowed("Offload on a non-persistent topic is not allowed")
        await existing_persistent(broker, name)
        failed = str(name) in self._failed
        return answer(
            {
                "status": "ERROR" if failed else "NOT_RUN",
                "lastError": NO_OFFLOADER if failed else "",
                "firstUnoffloadedMessage": message_id(EARLIEST),
            }
        )


def replication_routes() -> tuple[web.RouteDef, ...]:
    """Returns the routes, with a memory of failed offloads for one server."""
    offloads = Offloads()
    return (
        web.get(TOPIC + "/replication", clusters),
        web.post(TOPIC + "/replication", set_clusters),
        web.delete(TOPIC + "/replication", remove_clusters),
        web.get(TOPIC + "/shadowTopics", shadow_topics),
        web.put(TOPIC + "/shadowTopics", set_shadow_topics),
        web.delete(TOPIC + "/shadowTopics", remove_shadow_topics),
        web.put(TOPIC + "/offload", offloads.start),
        web.get(TOPIC + "/offload", offloads.status),
    )
