"""`…/subscriptions` and `…/subscription/{name}`: lists, creates, deletes and resets subscriptions.

On a partitioned topic each handler works on all partitions.
"""

from __future__ import annotations

import contextlib

from aiohttp import web

from broker.admin.http.answers import (
    BadRequest,
    Conflict,
    PreconditionFailed,
    answer,
    body_of,
    done,
    is_true,
    object_of,
    position_of,
    topic_of,
)
from broker.admin.service_view import BROKER
from broker.admin.topics.topic_access import existing_parts, parts, subscription_of
from broker.model.errors import ConsumerBusy, NotAllowed, SubscriptionNotFound
from broker.service.namespaces import Json
from broker.service.persistent_topic import PersistentTopic

_TOPIC = "/admin/v2/{domain:persistent|non-persistent}/{tenant}/{namespace}/{topic}"
_SUBSCRIPTION = _TOPIC + "/subscription/{subscription}"


async def names(request: web.Request) -> web.Response:
    """Returns the names of the subscriptions, sorted."""
    topics = await existing_parts(request.app[BROKER], topic_of(request))
    return answer([*sorted({name for topic in topics for name in topic.subscriptions})])


async def create(request: web.Request) -> web.Response:
    """Creates a subscription that begins at the position in the body, without a body at the latest.

    409 if it exists; on a partitioned topic only if each partition has it, as in Pulsar. Otherwise the request creates
    it on the other partitions, so that a repeated request completes one that failed halfway.
    """
    broker, name = request.app[BROKER], request.match_info["subscription"]
    initial = position_of(await body_of(request))
    # All partitions are opened first: one that cannot be opened then leaves no subscription on the others.
    topics = [
        await broker.registry.get(part, create=True, by_admin=True)
        for part in await parts(broker, topic_of(request))
    ]
    created = 0
    for topic in topics:
        # The partitions of a topic have one domain, so this refuses the first one or none.
        if not isinstance(topic, PersistentTopic):
            raise NotAllowed(f"{topic.name} is not persistent")
        with contextlib.suppress(ConsumerBusy):  # The partition has the subscription.
            await topic.subscribing.create(name, initial)
            created += 1
    if not created:
        raise Conflict("Subscription already exists for topic")
    return done()


async def delete(request: web.Request) -> web.Response:
    """Deletes a subscription; 412 while consumers are connected, unless `force` is set."""
    name, force = request.match_info["subscription"], is_true(request, "force")
    topics = await existing_parts(request.app[BROKER], topic_of(request))
    # It may be missing on some partitions: those that were added after it was created.
    found = [(topic, topic.subscriptions[name]) for topic in topics if name in topic.subscriptions]
    if not found:
        raise SubscriptionNotFound("Subscription not found")
    # All partitions are looked at before the first deletion, so that a refusal changes none of them.
    if any(subscription.consumers for _, subscription in found) and not force:
        raise PreconditionFailed("Subscription has active connected consumers")
    for topic, subscription in found:
        await topic.subscribing.delete(subscription, None, force=True)
    return done()


async def reset_to_time(request: web.Request) -> web.Response:
    """Moves the subscription to the first message not older than the time in the path, in ms since 1970.

    Its consumers are disconnected and subscribe again.
    """
    text, name = request.match_info["timestamp"], request.match_info["subscription"]
    for topic in await existing_parts(request.app[BROKER], topic_of(request)):
        await subscription_of(topic, name).seek(await topic.positions.first_since(int(text)))
    return done()


async def reset_to_message(request: web.Request) -> web.Response:
    """Moves the subscription to the position in the body; its consumers subscribe again."""
    name, position = request.match_info["subscription"], position_of(await body_of(request))
    for topic in await existing_parts(request.app[BROKER], topic_of(request)):
        await subscription_of(topic, name).seek(position)
    return done()


async def skip_all(request: web.Request) -> web.Response:
    """Acknowledges every message that is stored now."""
    name = request.match_info["subscription"]
    for topic in await existing_parts(request.app[BROKER], topic_of(request)):
        subscription_of(topic, name).skip_all()
    return done()


async def properties(request: web.Request) -> web.Response:
    """Returns the properties of the subscription."""
    name = request.match_info["subscription"]
    found: dict[str, Json] = {}
    for topic in await existing_parts(request.app[BROKER], topic_of(request)):
        found.update(subscription_of(topic, name).properties)
    return answer(found)


async def set_properties(request: web.Request) -> web.Response:
    """Replaces the properties of the subscription by those in the body; 400 unless all values are text."""
    name, wanted = request.match_info["subscription"], await object_of(request)
    texts = {key: value for key, value in wanted.items() if isinstance(value, str)}
    if len(texts) != len(wanted):
        raise BadRequest("The value of each property is a text")
    for topic in await existing_parts(request.app[BROKER], topic_of(request)):
        await subscription_of(topic, name).keep_properties(texts)
    return done()


SUBSCRIPTION_ROUTES = (
    web.get(_TOPIC + "/subscriptions", names),
    web.put(_SUBSCRIPTION, create),
    web.delete(_SUBSCRIPTION, delete),
    web.post(_SUBSCRIPTION + "/resetcursor", reset_to_message),
    web.post(_SUBSCRIPTION + "/resetcursor/{timestamp:[0-9]{1,18}}", reset_to_time),
    web.post(_SUBSCRIPTION + "/skip_all", skip_all),
    web.get(_SUBSCRIPTION + "/properties", properties),
    web.put(_SUBSCRIPTION + "/properties", set_properties),
)
