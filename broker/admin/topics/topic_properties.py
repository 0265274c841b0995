"""`.../properties` of a topic: texts that its owner gave, kept with the topic and without a meaning to the broker.

A persistent topic keeps them with its list of ledgers, a partitioned topic with its number of partitions.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from broker.admin.http.answers import (
    BadRequest,
    NotAcceptable,
    PreconditionFailed,
    answer,
    done,
    object_of,
    topic_of,
)
from broker.admin.service_view import BROKER, BrokerView
from broker.admin.topics.topic_access import existing_persistent
from broker.managed_ledger.managed_ledger_info import SHADOW_SOURCE
from broker.service.topics.persistent_topic import OWN_PROPERTIES
from foundation.model.topic_name import TopicName

_PATH = "/admin/v2/{domain:persistent|non-persistent}/{tenant}/{namespace}/{topic}/properties"


async def texts_of(request: web.Request, *, is_new: bool = False) -> dict[str, str]:
    """Returns the properties of a body. Raises BadRequest for other values, PreconditionFailed for reserved names.

    `is_new`: of a new topic, which may be a shadow topic.
    """
    given = await object_of(request)
    texts = {key: value for key, value in given.items() if isinstance(value, str)}
    if len(texts) != len(given):
        raise BadRequest("The value of each property is a text")
    own = OWN_PROPERTIES if is_new else OWN_PROPERTIES | {SHADOW_SOURCE}
    if reserved := sorted(own & texts.keys()):
        raise PreconditionFailed(
            f"The properties {', '.join(reserved)} are the broker's own; use other names"
        )
    return texts


async def properties(request: web.Request) -> web.Response:
    """Returns all properties."""
    broker, name = request.app[BROKER], _persistent_name(request)
    if (stored := await broker.registry.partitions.find(name)) is not None:
        return answer(dict(stored.properties))
    return answer(dict((await existing_persistent(broker, name)).properties))


async def set_properties(request: web.Request) -> web.Response:
    """Adds the properties of the body; those of the same name are replaced."""
    await _change(request.app[BROKER], _persistent_name(request), await texts_of(request))
    return done()


async def remove_property(request: web.Request) -> web.Response:
    """Removes the property that the parameter `key` names; ignored for an unknown one."""
    key = request.query.get("key")
    if not key:
        raise PreconditionFailed("Name the property with the parameter key")
    if key in OWN_PROPERTIES or key == SHADOW_SOURCE:
        raise PreconditionFailed(f"The property {key} is the broker's own")
    await _change(request.app[BROKER], _persistent_name(request), {key: None})
    return done()


def _persistent_name(request: web.Request) -> TopicName:
    name = topic_of(request)
    if not name.is_persistent:
        raise NotAcceptable("Need to provide a persistent topic name")
    return name


async def _change(broker: BrokerView, name: TopicName, changes: Mapping[str, str | None]) -> None:
    partitions = broker.registry.partitions
    if await partitions.count(name):
        await partitions.change_properties(name, changes)
    else:
        topic = await existing_persistent(broker, name)
        await topic.ledger.set_properties(changes)


TOPIC_PROPERTY_ROUTES = (
    web.get(_PATH, properties),
    web.put(_PATH, set_properties),
    web.delete(_PATH, remove_property),
)
"""The routes."""
