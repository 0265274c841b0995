"""Requests about backlogs: skip, expire, analyze, their size, and truncating or trimming a topic.

Expiry here is an administrator's request. The time to live of a policy uses the same functions
(`broker/service/subscriptions/backlog`).
"""

from __future__ import annotations

from urllib.parse import urlsplit

from aiohttp import web

from broker.admin.http.answers import (
    BadRequest,
    Conflict,
    PreconditionFailed,
    answer,
    body_of,
    done,
    empty,
    position_in,
    reset_data_of,
    topic_of,
)
from broker.admin.http.principal import PRINCIPAL
from broker.admin.http.request_path import SUBSCRIPTION, TOPIC
from broker.admin.service_view import BROKER, BrokerView
from broker.admin.topics.topic_access import (
    check_namespace,
    existing_parts,
    existing_persistent,
    one_persistent,
    owner_url,
    parts,
    subscription_of,
    with_each,
)
from broker.service.internal_cursors import INTERNAL_CURSORS
from broker.service.namespaces.namespaces import Json
from broker.service.subscriptions.backlog.analysis import analyze
from broker.service.subscriptions.backlog.open_runs import nth_open
from broker.service.subscriptions.backlog.requested_expiry import expire_older, expire_through
from broker.service.subscriptions.backlog.sizes import bytes_after
from broker.service.subscriptions.subscription import Subscription
from foundation.model.errors import NotAllowed, SubscriptionNotFound, Unauthorized
from foundation.model.position import Position
from foundation.model.topic_name import TopicName

_LONG = "-?[0-9]{1,18}"


async def subscriptions_of_parts(broker: BrokerView, name: TopicName, wanted: str) -> list[Subscription]:
    """Returns the subscription in each partition that has it. SubscriptionNotFound if none has."""
    topics = await existing_parts(broker, name)
    # A subscription may be missing in partitions that were added after it was made.
    found = [topic.subscriptions[wanted] for topic in topics if wanted in topic.subscriptions]
    if not found:
        raise SubscriptionNotFound(f"Subscription {wanted} not found for topic {name}")
    return found


async def _one_subscription(request: web.Request, work: str) -> Subscription:
    topic = await one_persistent(request.app[BROKER], topic_of(request), work)
    return subscription_of(topic, request.match_info["subscription"])


async def skip_all(request: web.Request) -> web.Response:
    """Acknowledges every message that is stored now."""
    broker, name = request.app[BROKER], topic_of(request)
    _refuse_non_persistent(broker, name, "Skip messages")
    for one in await subscriptions_of_parts(broker, name, request.match_info["subscription"]):
        one.acknowledge_through(one.topic.ledger.last_confirmed)
    return done()


async def skip(request: web.Request) -> web.Response:
    """Acknowledges the next so many unacknowledged entries; a batch counts as one."""
    subscription = await _one_subscription(request, "Skip messages")
    number = int(request.match_info["count"])
    if number > 0:
        seeks = subscription.cursor.seeks
        place = await nth_open(subscription.cursor, number)
        if subscription.cursor.seeks != seeks:
            raise Conflict(
                f"A seek moved subscription {subscription.name} while its messages were counted, so none was skipped; ask"
                " again to skip messages at the new position"
            )
        subscription.acknowledge_through(place or subscription.topic.ledger.last_confirmed)
    return done()


async def expire(request: web.Request) -> web.Response:
    """Acknowledges entries older than so many seconds; 409 where nothing can expire."""
    broker, name = request.app[BROKER], topic_of(request)
    _refuse_non_persistent(broker, name, "Expire messages")
    return await _expire_all(
        request, await subscriptions_of_parts(broker, name, request.match_info["subscription"])
    )


async def _expire_all(request: web.Request, subscriptions: list[Subscription]) -> web.Response:
    before_ms = request.app[BROKER].environment.wall_ms() - int(request.match_info["seconds"]) * 1000
    await with_each(subscriptions, lambda one: expire_older(one, before_ms))
    return done()


async def expire_everywhere(request: web.Request) -> web.Response:
    """Acknowledges entries older than so many seconds in all subscriptions; 409 where one has none.

    401 unless the client may use each of these subscriptions; nothing expires then.
    """
    broker, name = request.app[BROKER], topic_of(request)
    _refuse_non_persistent(broker, name, "Expire messages for all subscriptions")
    found = [
        one
        for topic in await existing_parts(broker, name)
        for one in topic.subscriptions.values()
        if one.name not in INTERNAL_CURSORS
    ]
    for one in found:
        # The table of rights knows the topic alone; a subscription may be granted to other roles.
        if not broker.authorizer.may_consume(request[PRINCIPAL], one.topic.name, one.name):
            raise Unauthorized(
                f"Unauthorized to expire messages of subscription {one.name}: it needs consume"
            )
    return await _expire_all(request, found)


async def expire_to_position(request: web.Request) -> web.Response:
    """Acknowledges everything through the position in the body.

    `isExcluded` changes nothing: Pulsar expires one entry more then, although its tools say that it keeps the position.
    """
    broker, name = request.app[BROKER], topic_of(request)
    if await broker.registry.partitions.count(name):
        raise NotAllowed("Expire message at position is not supported for partitioned-topic")
    subscription = await _one_subscription(request, "Expire messages")
    expire_through(subscription, (await reset_data_of(request)).position)
    return done()


async def analyze_backlog(request: web.Request) -> web.Response:
    """Counts the entries and messages of a backlog by reading them, within the broker's limits."""
    broker = request.app[BROKER]
    subscription = await _one_subscription(request, "Analyze backlog")
    body = await body_of(request)
    start = None if body is None else position_in(body)
    found = await analyze(
        subscription.cursor,
        start,
        entries_max=broker.settings.int("subscriptionBacklogScanMaxEntries"),
        time_max_ms=broker.settings.int("subscriptionBacklogScanMaxTimeMs"),
    )
    # Without entry filters every entry is accepted.
    shown: dict[str, Json] = {
        "entries": found.entries,
        "messages": found.messages,
        "markerMessages": found.markers,
        "filterRejectedEntries": 0,
        "filterAcceptedEntries": found.entries,
        "filterRescheduledEntries": 0,
        "filterRejectedMessages": 0,
        "filterAcceptedMessages": found.messages,
        "filterRescheduledMessages": 0,
        "aborted": found.aborted,
    }
    if found.first is not None:
        shown["firstMessageId"] = str(found.first)
        shown["lastMessageId"] = str(found.last)
    return answer(shown)


async def backlog_size(request: web.Request) -> web.Response:
    """Returns the bytes after a message id; those of an entry are its ledger's mean."""
    broker, name = request.app[BROKER], topic_of(request)
    if await broker.registry.partitions.count(name):
        raise NotAllowed("calculate backlog size is not allowed for partitioned-topic")
    topic = await one_persistent(broker, name, "Calculate backlog size")
    value = await body_of(request)
    if value is None:
        raise BadRequest("Give the message id in the body")
    place, ledgers = position_in(value), topic.ledger.ledgers
    # As in Pulsar, a ledger that the topic does not have stands for the beginning.
    if place.ledger_id not in ledgers:
        return answer(ledgers.size_bytes)
    return answer(bytes_after(ledgers, Position(place.ledger_id, max(-1, place.entry_id))))


async def stored_backlog(request: web.Request) -> web.Response:
    """Returns the ledgers of a topic and the entries that each subscription has not acknowledged.

    Pulsar makes this estimate for topics that are not open, and never answers for some that are. Here a topic is opened,
    and the numbers are exact.
    """
    broker, name = request.app[BROKER], topic_of(request)
    topic = await one_persistent(broker, name, "Get backlog")
    cursors = {
        one.name: one.cursor for one in topic.subscriptions.values() if one.name not in INTERNAL_CURSORS
    }
    ledgers: list[Json] = [
        {
            "entries": info.entries,
            "timestamp": info.closed_at_ms or 0,
            "size": info.size_bytes,
            "ledgerId": info.ledger_id,
        }
        for info in topic.ledger.ledgers.infos()
    ]
    return answer(
        {
            "topicName": f"{name.namespace}/{name.domain}/{name.local}",
            "brokerName": urlsplit(owner_url(broker)).hostname,
            "storageSize": topic.ledger.ledgers.size_bytes,
            "totalMessages": topic.ledger.ledgers.entries,
            "messageBacklog": sum(cursor.backlog for cursor in cursors.values()),
            "dataLedgerDetails": ledgers,
            "cursorDetails": {
                one: {"cursorBacklog": cursor.backlog, "cursorLedgerId": cursor.store.ledger[0]}
                for one, cursor in cursors.items()
            },
            "statGeneratedAt": broker.environment.wall_ms(),
        }
    )


async def truncate(request: web.Request) -> web.Response:
    """Moves all subscriptions to the end and removes every ledger but the current one."""
    broker, name = request.app[BROKER], topic_of(request)
    check_namespace(broker, name)
    if not name.is_persistent:
        raise PreconditionFailed("unsupport truncate")

    async def truncate_part(part: TopicName) -> None:
        topic = await existing_persistent(broker, part)
        for one in list(topic.subscriptions.values()):
            if one.name not in INTERNAL_CURSORS:
                one.acknowledge_through(topic.ledger.last_confirmed)
        await broker.registry.shadows.trim(topic, without_retention=True)

    await with_each(await parts(broker, name), truncate_part)
    return done()


async def trim(request: web.Request) -> web.Response:
    """Removes ledgers that no subscription and no retention keeps, now and not at the next check."""
    broker, name = request.app[BROKER], topic_of(request)
    _refuse_non_persistent(broker, name, "Trim")
    await with_each(await existing_parts(broker, name), broker.registry.shadows.trim)
    return empty()


def _refuse_non_persistent(broker: BrokerView, name: TopicName, work: str) -> None:
    check_namespace(broker, name)
    if not name.is_persistent:
        raise NotAllowed(f"{work} on a non-persistent topic is not allowed")


BACKLOG_ROUTES = (
    web.post(SUBSCRIPTION + "/skip_all", skip_all),
    web.post(f"{SUBSCRIPTION}/skip/{{count:{_LONG}}}", skip),
    web.post(SUBSCRIPTION + "/expireMessages", expire_to_position),
    web.post(f"{SUBSCRIPTION}/expireMessages/{{seconds:{_LONG}}}", expire),
    web.post(f"{TOPIC}/all_subscription/expireMessages/{{seconds:{_LONG}}}", expire_everywhere),
    web.post(SUBSCRIPTION + "/analyzeBacklog", analyze_backlog),
    web.put(TOPIC + "/backlogSize", backlog_size),
    web.get(TOPIC + "/backlog", stored_backlog),
    web.delete(TOPIC + "/truncate", truncate),
    web.post(TOPIC + "/trim", trim),
)
"""Requests about backlogs."""
