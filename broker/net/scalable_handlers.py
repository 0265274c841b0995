"""Handlers of the commands that clients of Pulsar 5.0 send for ordinary topics.

Such a client sees each topic as segments. An ordinary topic's segments are its partitions, or the topic itself, and never
change; so a lookup is answered once and keeps no session. Registered consumers are kept (`partition_shares.py`). Scalable
topics (`topic://`) do not exist here. Transactions go to the ordinary coordinators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from broker.net.connection_limits import SHARES_MAX, check_count
from broker.net.lookup_handlers import NAMESPACE, run_lookup
from broker.net.partition_shares import ShareRegistration
from broker.net.ports import UNSENT_BYTES_MAX, Connection
from broker.net.stored_shares import GroupKey, Share
from broker.security.authorization.access import Access, consume, list_topics, look_up
from broker.service.lifecycle.coordinator_watches import Assignments, CoordinatorWatch
from foundation.model.errors import BrokerError, InvalidTopicName, NotAllowed, TopicNotFound
from foundation.model.topic_name import SCALABLE, TopicName, parse_topic_name
from protocol import answers, scalable_answers
from protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandScalableTopicLookup,
    CommandWatchScalableTopics,
    CommandWatchTcAssignments,
)
from protocol.scalable_answers import HashSegment

NAME_LENGTH_MAX: Final = 1_024
"""Characters of the names in SCALABLE_TOPIC_SUBSCRIBE, which outlive the connection."""


def layout(cnx: Connection, command: BaseCommand) -> None:
    """Answers SCALABLE_TOPIC_LOOKUP with the segments of a topic."""
    request = command.scalableTopicLookup

    def refuse(error: BrokerError) -> bytes:
        return scalable_answers.layout_failed(request.session_id, error.code, str(error))

    run_lookup(cnx, command, _layout(cnx, request), refuse)


def layout_access(cnx: Connection, command: BaseCommand) -> Iterator[Access]:
    """Yields the look-up of the topic."""
    yield look_up(_ordinary(cnx, command.scalableTopicLookup.topic))


async def _layout(cnx: Connection, request: CommandScalableTopicLookup) -> None:
    name = _ordinary(cnx, request.topic)
    segments = await _segments(cnx, name)
    scalable_name = f"{SCALABLE}{name.namespace}/{name.local}"
    now_ms = cnx.context.wall_ms()
    cnx.send(scalable_answers.layout(request.session_id, scalable_name, segments, now_ms))


def _ordinary(cnx: Connection, topic: str) -> TopicName:
    """Returns the name of an ordinary topic. NotAllowed, InvalidTopicName; TopicNotFound for `topic://` and a partition."""
    _check_enabled(cnx)
    if topic.startswith(SCALABLE):
        raise TopicNotFound(
            f"Topic {topic} does not exist: this broker has no scalable topics; name it persistent://{topic[8:]}"
        )
    name = parse_topic_name(topic)
    if not name.is_persistent:
        raise NotAllowed(f"{topic} is not persistent; clients of version 5 need a persistent topic")
    if name.partition >= 0:
        raise TopicNotFound(f"{topic} is one partition; name the topic, {name.base}")
    return name


def _check_enabled(cnx: Connection) -> None:
    if not cnx.context.settings.scalable_topics:
        raise NotAllowed("Clients of version 5 are not served: scalableTopicsEnabled=false")


async def _segments(cnx: Connection, name: TopicName) -> list[HashSegment]:
    """Returns the segments of a topic. One that does not exist has one segment: its first producer creates it."""
    registry = cnx.context.registry
    if not registry.namespaces.exists(name.namespace):
        raise TopicNotFound("Namespace not found")
    count = await registry.partitions.count(name)
    topics = [str(name.with_partition(number)) for number in range(count)]
    return scalable_answers.segments_of(topics or [str(name)])


def subscribe(cnx: Connection, command: BaseCommand) -> None:
    """Answers SCALABLE_TOPIC_SUBSCRIBE with the consumer's share of the partitions; reports later shares."""
    request = command.scalableTopicSubscribe

    def refuse(error: BrokerError) -> bytes:
        return scalable_answers.subscribe_failed(request.request_id, error.code, str(error))

    run_lookup(cnx, command, _subscribe(cnx, command), refuse)


def subscribe_access(cnx: Connection, command: BaseCommand) -> Iterator[Access]:
    """Yields consuming through the subscription."""
    request = command.scalableTopicSubscribe
    yield consume(_ordinary(cnx, request.topic), request.subscription)


async def _subscribe(cnx: Connection, command: BaseCommand) -> None:
    # In the order of the commands: a consumer that leaves at once must not join afterwards.
    async with cnx.sharing:
        await _join(cnx, command)


async def _join(cnx: Connection, command: BaseCommand) -> None:
    request = command.scalableTopicSubscribe
    name = _ordinary(cnx, request.topic)
    segments = await _segments(cnx, name)
    shares = cnx.context.partition_shares
    await shares.open()
    # Again after the wait: the right may have been withdrawn, and a lost connection has left its groups already.
    cnx.require(command)
    if not cnx.is_open:
        return
    for text in (request.consumer_name, request.subscription):
        if len(text) > NAME_LENGTH_MAX:
            raise NotAllowed(f"A name has {len(text)} characters; at most {NAME_LENGTH_MAX} are allowed")
    consumer_id = request.consumer_id
    former = cnx.shares.get(consumer_id)
    check_count(len(cnx.shares) - (former is not None), SHARES_MAX, "consumers that share partitions")
    group = GroupKey(str(name), request.subscription, request.consumer_type)
    registration = ShareRegistration(group, request.consumer_name, _teller(cnx, consumer_id))
    shares.join(registration, segments)
    cnx.shares[consumer_id] = registration
    if former is not None:
        # After the new one has joined: of the same name it has taken the share, of another one it gives it up.
        shares.leave(former)
    cnx.send(scalable_answers.subscribed(request.request_id, registration.share))


def _teller(cnx: Connection, consumer_id: int) -> Callable[[Share], None]:
    """Returns the function that reports new shares of a consumer.

    A client that does not read gets the newest share alone, once it reads again: others may join and leave without end.
    """
    outbox = cnx.outbox

    def send_newest() -> None:
        registration = cnx.shares.get(consumer_id)
        if registration is not None:
            cnx.send(scalable_answers.assigned(consumer_id, registration.share))

    def tell(share: Share) -> None:
        if outbox.writable and outbox.unsent_bytes < UNSENT_BYTES_MAX:
            cnx.send(scalable_answers.assigned(consumer_id, share))
        else:
            outbox.when_writable(send_newest)

    return tell


def unsubscribe(cnx: Connection, command: BaseCommand) -> None:
    """Handles SCALABLE_TOPIC_UNSUBSCRIBE: the others get the share. An unknown consumer id is answered with success too."""
    request_id = command.scalableTopicUnsubscribe.request_id
    cnx.run(command, _leave(cnx, command), lambda error: answers.error(request_id, error.code, str(error)))


async def _leave(cnx: Connection, command: BaseCommand) -> None:
    request = command.scalableTopicUnsubscribe
    async with cnx.sharing:
        registration = cnx.shares.pop(request.consumer_id, None)
        if registration is not None:
            cnx.context.partition_shares.leave(registration)
        cnx.send(answers.success(request.request_id))


def watch_topics(cnx: Connection, command: BaseCommand) -> None:
    """Answers WATCH_SCALABLE_TOPICS with an empty list, which stays empty."""
    request = command.watchScalableTopics

    def refuse(error: BrokerError) -> bytes:
        return scalable_answers.watch_failed(request.watch_id, error.code, str(error))

    run_lookup(cnx, command, _watch_topics(cnx, request), refuse)


def watch_access(cnx: Connection, command: BaseCommand) -> Iterator[Access]:
    """Yields the list of the namespace's topics."""
    _check_enabled(cnx)
    namespace = command.watchScalableTopics.namespace
    if not NAMESPACE.fullmatch(namespace):
        raise InvalidTopicName(f"'{namespace}' is no namespace: tenant/namespace is expected")
    yield list_topics(namespace)


async def _watch_topics(cnx: Connection, request: CommandWatchScalableTopics) -> None:
    cnx.send(scalable_answers.no_scalable_topics(request.watch_id))


def watch_coordinators(cnx: Connection, command: BaseCommand) -> None:
    """Answers WATCH_TC_ASSIGNMENTS with the addresses of the coordinators, which any LOOKUP tells too, and of later ones."""
    request = command.watchTcAssignments

    def refuse(error: BrokerError) -> bytes:
        return scalable_answers.coordinators_failed(request.watch_id, error.code, str(error))

    run_lookup(cnx, command, _watch_coordinators(cnx, request), refuse)


async def _watch_coordinators(cnx: Connection, request: CommandWatchTcAssignments) -> None:
    _check_enabled(cnx)
    watches = cnx.context.coordinator_watches
    found = await watches.assignments()
    if not cnx.context.settings.coordinators_watched:
        raise NotAllowed(
            "Clients of version 5 have no transactions: transactionCoordinatorScalableTopicsEnabled=false"
        )
    if not cnx.is_open:
        return  # The connection has lost its watches already; a later one would never end.
    watch_id, outbox = request.watch_id, cnx.outbox

    def tell(owners: Assignments) -> None:
        cnx.send(scalable_answers.coordinators(watch_id, owners))

    watches.add(cnx, watch_id, CoordinatorWatch(found, lambda: outbox.writable, tell))
    tell(found)


def close_coordinators(cnx: Connection, command: BaseCommand) -> None:
    """Handles WATCH_TC_ASSIGNMENTS_CLOSE; no answer is expected."""
    cnx.context.coordinator_watches.end(cnx, command.watchTcAssignmentsClose.watch_id)


def close(cnx: Connection, command: BaseCommand) -> None:
    """Handles the CLOSE of a lookup and of the watch of topics: nothing was kept, and no answer is expected."""
