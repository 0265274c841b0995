"""`…/shadowTopics`: the topics that read the log of another one (PIP-180), and the creation of such topics."""

from __future__ import annotations

from aiohttp import web

from broker.admin.http.answers import BadRequest, PreconditionFailed, answer, body_of, done, empty
from broker.admin.http.request_path import TOPIC
from broker.admin.policy_owner import existing_topic
from broker.admin.service_view import BROKER, BrokerView
from broker.admin.topics.topic_access import parts
from broker.service.namespaces.namespaces import Json
from broker.service.policies.table import SHADOW_TOPICS
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.errors import BrokerError, InvalidTopicName
from foundation.model.topic_name import TopicName, parse_topic_name


class NotAllowedName(BrokerError):
    """The name of a shadow topic is no topic name; Pulsar's status."""

    status = 403


async def names_in(request: web.Request) -> list[str]:
    """Returns the names in a body, [] without one. Raises BadRequest for other values."""
    value = await body_of(request)
    names = [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
    if value is not None and (not isinstance(value, list) or len(names) != len(value)):
        raise BadRequest("The body must be a JSON list of names")
    return names


async def shadow_topics(request: web.Request) -> web.Response:
    """Returns the shadow topics as they were set; nothing where none are."""
    name = await existing_topic(request)
    found = request.app[BROKER].namespaces.topic_policy(str(name.base), SHADOW_TOPICS)
    return answer(found) if found else empty()


async def set_shadow_topics(request: web.Request) -> web.Response:
    """Sets the shadow topics of a source; each must exist."""
    broker, name = request.app[BROKER], await existing_topic(request)
    if not name.is_persistent:
        raise PreconditionFailed("Only persistent source topic is supported with shadow topics.")
    wanted = await names_in(request)
    if not wanted:
        raise PreconditionFailed("Cannot specify empty shadow topics, please use remove command instead.")
    for text in wanted:
        try:
            shadow = parse_topic_name(text)
        except InvalidTopicName:
            raise NotAllowedName(f"Invalid shadow topic name: {text[:100]}") from None
        if not shadow.is_persistent:
            raise PreconditionFailed("Only persistent topic can be set as shadow topic")
        if not await broker.registry.exists(shadow):
            raise PreconditionFailed(f"Shadow topic [{shadow}] not exists.")
    await _keep(broker, name, [*wanted])
    return done()


async def remove_shadow_topics(request: web.Request) -> web.Response:
    """Lists no shadow topic any more; the source keeps nothing for them from here on."""
    await _keep(request.app[BROKER], await existing_topic(request), None)
    return done()


async def _keep(broker: BrokerView, source: TopicName, value: Json) -> None:
    topics, shadows = broker.registry.topics, broker.registry.shadows
    sources = await parts(broker, source)
    for part in sources:
        if str(part) not in topics:
            await shadows.before_removal(part, value)
    await broker.namespaces.set_topic_policy(str(source.base), SHADOW_TOPICS, value)
    for part in sources:
        topic = topics.get(str(part))
        if isinstance(topic, PersistentTopic):
            await shadows.refresh(topic)


SHADOW_ROUTES = (
    web.get(TOPIC + "/shadowTopics", shadow_topics),
    web.put(TOPIC + "/shadowTopics", set_shadow_topics),
    web.delete(TOPIC + "/shadowTopics", remove_shadow_topics),
)
"""The routes."""
