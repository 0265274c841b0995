"""`/admin/v2/persistent/…/compaction`: starts the compaction of a topic, and says how it stands."""

from __future__ import annotations

from aiohttp import web

from broker.admin.http.answers import answer, done, topic_of
from broker.admin.service_view import BROKER
from broker.admin.topics.topic_access import existing_persistent, parts
from broker.service.namespaces.namespaces import NamespaceNotFound

_COMPACTION = "/admin/v2/{domain:persistent|non-persistent}/{tenant}/{namespace}/{topic}/compaction"


async def start(request: web.Request) -> web.Response:
    """Begins the compaction of a topic, or of every partition; 409 while one runs."""
    broker, name = request.app[BROKER], topic_of(request)
    if not broker.namespaces.exists(name.namespace):
        raise NamespaceNotFound("Namespace not found")
    # All are opened first: a partition that cannot be opened then leaves none of the others compacting.
    topics = [await existing_persistent(broker, part) for part in await parts(broker, name)]
    for topic in topics:
        topic.compaction.start()
    return done()


async def status(request: web.Request) -> web.Response:
    """Returns the state of a topic's last compaction; 404 for a partitioned topic, as Pulsar."""
    topic = await existing_persistent(request.app[BROKER], topic_of(request))
    return answer({"status": topic.compaction.status.value, "lastError": topic.compaction.last_error})


COMPACTION_ROUTES = (
    web.put(_COMPACTION, start),
    web.get(_COMPACTION, status),
)
"""Requests about compactions."""
