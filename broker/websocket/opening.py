"""Opens the topics of a session: producers and consumers on a topic, on its partitions, or on several topics."""

from __future__ import annotations

import re
import secrets
from typing import Final

from broker.security.authorization.access import consume, list_topics, produce
from broker.service.consumer import SubscribeOptions
from broker.service.lifecycle.partitioned_topics import PartitionedTopics
from broker.service.producer import Producer
from broker.service.topics.topic import hold
from broker.service.topics.topic_lists import TopicsPattern
from broker.service.topics.topic_registry import TopicRegistry
from broker.websocket.consumer_lane import ConsumerLane
from broker.websocket.consuming import ConsumerSession
from broker.websocket.dead_letters import DeadLetters
from broker.websocket.errors import InvalidQuery
from broker.websocket.parameters import dead_letter_topic
from broker.websocket.producing import ProducerLane, ProducerSession
from broker.websocket.rights import SessionRights
from foundation.loop.slices import in_slices
from foundation.model.errors import BrokerError, TopicNotFound
from foundation.model.topic_name import PERSISTENT, TopicName, parse_topic_name

TOPICS_MAX: Final = 1000
"""Topics and partitions that one session may consume."""
_VERSION: Final = "WebSocket"
"""Client version in statistics."""
_NAMESPACE: Final = re.compile(r"(?P<domain>(non-)?persistent)://(?P<namespace>[^/]+/[^/]+)/.+")


async def open_producers(session: ProducerSession, name: TopicName) -> None:
    """Adds a producer for the topic, or for each partition. BrokerErrors refuse; nothing stays open then."""
    registry = session.context.registry
    producer_name = session.parameters.name or session.context.producer_name()
    session.rights.require(produce(name))
    try:
        for partition, part in await parts_of(session.context.partitioned, name):
            topic = await registry.get(part, create=True)
            hold(topic)
            # Again, because the right may have been withdrawn while the topic was opened.
            session.rights.hold(produce(part))
            topic.check_may_publish(encrypted=False)
            schema_version = await registry.schemas.for_producer(part, None)
            lane = ProducerLane(session, partition)
            producer = Producer(
                topic,
                lane,
                producer_id=len(session.lanes),
                name=producer_name,
                connection=session,
                address=session.address,
                client_version=_VERSION,
                schema_version=schema_version,
                connected_at_ms=session.context.wall_ms(),
            )
            await topic.add_producer(producer)
            last = max(topic.last_sequence_id(producer_name), session.parameters.initial_sequence_id)
            lane.start(producer, last + 1)
            session.lanes.append(lane)
    except BrokerError:
        await session.leave()
        raise


async def open_consumers(session: ConsumerSession, names: list[TopicName], subscription: str) -> None:
    """Adds a consumer for each topic and partition. BrokerErrors refuse; nothing stays open then."""
    registry, parameters = session.context.registry, session.parameters
    consumer_name = parameters.name or secrets.token_hex(3)[:5]
    checked = None if session.reads else subscription
    try:
        dead_letters = _dead_letter_topic(session, names[0], subscription)
        for name in names:
            # Before the topic is looked at: a client without the right must not create one.
            session.rights.require(consume(name, checked))
            for partition, part in await parts_of(session.context.partitioned, name):
                if len(session.lanes) >= TOPICS_MAX:
                    raise InvalidQuery(f"more than {TOPICS_MAX} topics and partitions")
                topic = await registry.get(part, create=True)
                hold(topic)
                lane = ConsumerLane(session, topic, partition)
                options = SubscribeOptions(
                    subscription=subscription,
                    kind=parameters.kind,
                    consumer_id=len(session.lanes),
                    consumer_name=consumer_name,
                    priority=parameters.priority,
                    durable=parameters.durable,
                    start=parameters.start,
                    earliest=parameters.earliest,
                    client_version=_VERSION,
                    connected_at_ms=session.context.wall_ms(),
                )
                # Again, because the right may have been withdrawn while the topic was opened.
                session.rights.hold(consume(part, checked))
                lane.subscription, lane.consumer = await topic.subscribe(lane, options)
                session.lanes.append(lane)
    except BrokerError:
        await session.leave()
        raise
    if dead_letters is not None:
        session.dead_letters = DeadLetters(session, dead_letters)
    session.start()


def _dead_letter_topic(session: ConsumerSession, name: TopicName, subscription: str) -> TopicName | None:
    """Returns the dead letter topic, None without one. Forbidden unless the client may publish to it."""
    text = dead_letter_topic(session.parameters, name, subscription)
    if text is None:
        return None
    topic = parse_topic_name(text)
    session.rights.hold(produce(topic))
    return topic


async def topics_of(
    registry: TopicRegistry, rights: SessionRights, topics: str | None, pattern: str | None
) -> list[TopicName]:
    """Returns the topics that a list of names, or a pattern, stands for. A pattern is evaluated once."""
    if topics:
        return [parse_topic_name(name.strip()) for name in topics.split(",") if name.strip()]
    if not pattern:
        raise InvalidQuery("Should set topics or topicsPattern")
    match = _NAMESPACE.fullmatch(pattern)
    if match is None:
        raise InvalidQuery(f"topicsPattern {pattern[:100]!r} must begin with domain://tenant/namespace/")
    # Before anything is looked up: a refusal would tell otherwise which namespaces and topics exist.
    rights.require(list_topics(match["namespace"]))
    if not registry.namespaces.exists(match["namespace"]):
        raise TopicNotFound("Namespace not found")
    persistent = match["domain"] == PERSISTENT
    stored = await registry.names(match["namespace"], persistent=persistent, non_persistent=not persistent)
    found = await TopicsPattern(pattern).choose(stored)
    if not found:
        raise TopicNotFound(f"no topic matches {pattern[:100]!r}")
    # A partition fits by the name of its topic, which stands for all partitions.
    bases = {parse_topic_name(name).base: None async for name in in_slices(found, registry.now_ns)}
    return [*bases]


async def parts_of(partitioned: PartitionedTopics, name: TopicName) -> list[tuple[int, TopicName]]:
    """Returns index and name of each partition; (-1, name) for a topic without partitions."""
    count = await partitioned.count_or_create(name, create=True)
    if not count:
        return [(name.partition, name)]
    return [(index, name.with_partition(index)) for index in range(count)]
