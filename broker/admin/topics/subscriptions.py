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
    reset_data_of,
    topic_of,
)
from broker.admin.http.request_path import SUBSCRIPTION, TOPIC
from broker.admin.service_view import BROKER
from broker.admin.topics.topic_access import (
    check_namespace,
    existing_parts,
    one_persistent,
    parts,
    subscription_of,
    with_each,
)
from broker.service.subscriptions.replicated_subscriptions import keep_replicated
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import Topic, hold
from foundation.model.errors import ConsumerBusy, NotAllowed, SubscriptionNotFound, TopicNotFound
from foundation.model.position import LATEST
from foundation.value import Json


async def names(request: web.Request) -> web.Response:
    """Returns the names of the subscriptions, sorted; of a non-persistent topic those that are connected here."""
    broker, name = request.app[BROKER], topic_of(request)
    if name.is_persistent:
        topics: list[Topic] = [*await existing_parts(broker, name)]
    else:
        check_namespace(broker, name)
        if not await broker.registry.exists(name):
            raise TopicNotFound(f"Topic {name} not found")
        # A topic that is not open has no subscription, and opening it for this request would create it.
        found = [broker.registry.topics.get(str(part)) for part in await parts(broker, name)]
        topics = [topic for topic in found if topic is not None]
    return answer([*sorted({one for topic in topics for one in topic.subscriptions})])


async def create(request: web.Request) -> web.Response:
    """Creates a subscription that begins at the position in the body, without a body at the latest.

    409 if it exists; on a partitioned topic only if each partition has it, as in Pulsar. Otherwise the request creates
    it on the other partitions, so that a repeated request completes one that failed halfway.
    """
    broker, name, topic_name = request.app[BROKER], request.match_info["subscription"], topic_of(request)
    check_namespace(broker, topic_name)
    if not topic_name.is_persistent:
        raise BadRequest("Create subscription on non-persistent topic can only be done through client")
    wanted = await reset_data_of(request, default=LATEST)
    # All partitions are opened first: one that cannot be opened then leaves no subscription on the others.
    topics: list[Topic] = []
    for part in await parts(broker, topic_name):
        topics.append(await broker.registry.get(part, create=True, by_admin=True))
        hold(topics[-1])
    created = 0
    for topic in topics:
        assert isinstance(topic, PersistentTopic), "checked by its name"
        with contextlib.suppress(ConsumerBusy):  # The partition has the subscription.
            await topic.subscribing.create(
                name, wanted.start, wanted.properties, replicated=is_true(request, "replicated")
            )
            created += 1
    if not created:
        raise Conflict("Subscription already exists for topic")
    return done()


async def delete(request: web.Request) -> web.Response:
    """Deletes a subscription; 412 while consumers are connected, unless `force` is set."""
    broker, name, force = request.app[BROKER], request.match_info["subscription"], is_true(request, "force")
    topics = await existing_parts(broker, topic_of(request))
    # It may be missing on some partitions: those that were added after it was created.
    found = [(topic, topic.subscriptions[name]) for topic in topics if name in topic.subscriptions]
    if not found:
        partitioned = await broker.registry.partitions.count(topic_of(request))
        # Pulsar's two texts.
        raise SubscriptionNotFound(
            "Subscription not found"
            if partitioned
            else f"Subscription {name} not found for topic {topics[0].name}"
        )
    # All partitions are looked at before the first deletion, so that a refusal changes none of them.
    if any(subscription.consumers for _, subscription in found) and not force:
        raise PreconditionFailed("Subscription has active connected consumers")
    await with_each(found, lambda one: one[0].subscribing.delete(one[1], None, force=True))
    return done()


async def reset_to_time(request: web.Request) -> web.Response:
    """Moves the subscription to the first message not older than the time in the path, in ms since 1970.

    Its consumers are disconnected and subscribe again.
    """
    text, name = request.match_info["timestamp"], request.match_info["subscription"]
    topics = await existing_parts(request.app[BROKER], topic_of(request))
    # Looked up in all partitions first, so that a missing one moves none.
    found = [(topic, subscription_of(topic, name)) for topic in topics]

    async def seek(one: tuple[PersistentTopic, Subscription]) -> None:
        topic, subscription = one
        await subscription.seek(await topic.positions.first_since(int(text)))

    await with_each(found, seek)
    return done()


async def reset_to_message(request: web.Request) -> web.Response:
    """Moves the subscription to the position in the body, or after it; its consumers subscribe again."""
    broker, name = request.app[BROKER], topic_of(request)
    if await broker.registry.partitions.count(name):
        raise NotAllowed("Reset-cursor at position is not allowed for partitioned-topic")
    topic = await one_persistent(broker, name, "Reset-cursor")
    wanted = await reset_data_of(request)
    await subscription_of(topic, request.match_info["subscription"]).seek(wanted.start)
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


async def replicated(request: web.Request) -> web.Response:
    """Returns by topic or partition if the subscription's position is to be replicated."""
    broker, name = request.app[BROKER], topic_of(request)
    if not name.is_persistent:
        raise NotAllowed("Cannot get replicated subscriptions on non-persistent topics")
    wanted = request.match_info["subscription"]
    topics = await existing_parts(broker, name)
    return answer({str(topic.name): subscription_of(topic, wanted).replicated for topic in topics})


async def set_replicated(request: web.Request) -> web.Response:
    """Keeps and shows that the position is to be replicated; this broker has no other cluster to send it to."""
    broker, name = request.app[BROKER], topic_of(request)
    wanted = await body_of(request)
    if wanted is None:
        raise BadRequest("The request entity cannot be empty.")
    if not isinstance(wanted, bool):
        raise BadRequest("The body must be true or false")
    if not name.is_persistent:
        raise NotAllowed("Cannot enable/disable replicated subscriptions on non-persistent topics")
    subscription = request.match_info["subscription"]
    for topic in await existing_parts(broker, name):
        await keep_replicated(subscription_of(topic, subscription), wanted)
    return done()


SUBSCRIPTION_ROUTES = (
    web.get(TOPIC + "/subscriptions", names),
    web.put(SUBSCRIPTION, create),
    web.delete(SUBSCRIPTION, delete),
    web.post(SUBSCRIPTION + "/resetcursor", reset_to_message),
    web.post(SUBSCRIPTION + "/resetcursor/{timestamp:-?[0-9]{1,18}}", reset_to_time),
    web.get(SUBSCRIPTION + "/properties", properties),
    web.put(SUBSCRIPTION + "/properties", set_properties),
    web.get(SUBSCRIPTION + "/replicatedSubscriptionStatus", replicated),
    web.post(SUBSCRIPTION + "/replicatedSubscriptionStatus", set_replicated),
)
