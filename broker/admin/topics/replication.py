"""Requests about replication and offloading of a topic, answered as a broker with one cluster does.

A topic may name this cluster alone: another one would get no messages.
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
    position_of,
    topic_of,
)
from broker.admin.http.request_path import TOPIC
from broker.admin.policy_owner import existing_topic
from broker.admin.service_view import BROKER
from broker.admin.topics.shadow_topics import names_in
from broker.admin.topics.topic_access import existing_persistent
from broker.service.namespaces.namespaces import GLOBAL, Json
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.errors import NotAllowed
from foundation.model.position import EARLIEST

_CLUSTERS = "replicationClusters"
"""Key of the clusters in the stored policies of a topic."""


def _key(request: web.Request) -> str:
    return GLOBAL + _CLUSTERS if is_true(request, "isGlobal") else _CLUSTERS


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
    wanted, own = await names_in(request), broker.namespaces.cluster
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


async def start_offload(request: web.Request) -> web.Response:
    """Begins to offload the ledgers before a message. 409 while an offload is under way."""
    topic = await _offloading(request)
    value = await body_of(request)
    if not isinstance(value, dict):
        raise BadRequest("messageId is null" if value is None else "Give the message id as a JSON object")
    topic.ledger.own_offloads().start(position_of(value))
    return done()


async def offload_status(request: web.Request) -> web.Response:
    """Returns the state of the topic's last offload."""
    offloads = (await _offloading(request)).ledger.offloads
    return answer(
        {
            "status": "NOT_RUN" if offloads is None else offloads.status,
            "lastError": "" if offloads is None else offloads.last_error,
            "firstUnoffloadedMessage": message_id(
                EARLIEST if offloads is None else offloads.first_unoffloaded
            ),
        }
    )


async def _offloading(request: web.Request) -> PersistentTopic:
    broker, name = request.app[BROKER], topic_of(request)
    if not name.is_persistent:
        raise NotAllowed("Offload on a non-persistent topic is not allowed")
    topic = await existing_persistent(broker, name)
    if topic.ledger.source is not None:
        raise NotAllowed("The ledgers of a shadow topic are those of its source: offload that one")
    return topic


def replication_routes() -> tuple[web.RouteDef, ...]:
    """Returns the routes."""
    return (
        web.get(TOPIC + "/replication", clusters),
        web.post(TOPIC + "/replication", set_clusters),
        web.delete(TOPIC + "/replication", remove_clusters),
        web.put(TOPIC + "/offload", start_offload),
        web.get(TOPIC + "/offload", offload_status),
    )
