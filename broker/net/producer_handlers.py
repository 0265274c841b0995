"""Handlers of PRODUCER and CLOSE_PRODUCER."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from broker.managed_ledger.managed_ledger_info import NO_PROPERTIES
from broker.net.connection_limits import (
    PRODUCER_METADATA_CHARACTERS_MAX,
    PRODUCERS_MAX,
    check_count,
    check_metadata,
)
from broker.net.ports import Connection, ProducerOnConnection
from broker.net.schema_handlers import schema_of
from broker.security.authorization.access import Access, consume, produce
from broker.service.producer import AccessMode, Producer
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import Topic, hold
from foundation.model.errors import BrokerError, ConsumerBusy, ProducerBusy, ServiceNotReady, Unauthorized
from foundation.model.position import EARLIEST
from foundation.model.topic_name import parse_topic_name
from protocol import answers
from protocol.pulsar_api_pb2 import BaseCommand, CommandProducer

log = logging.getLogger("magnetar.net")


def producer(cnx: Connection, command: BaseCommand) -> None:
    """Handles PRODUCER: opens the topic and adds a producer. A repeated request gets the answer again."""
    request = command.producer
    port = cnx.producers.get(request.producer_id)
    if port is not None:
        _ask_again(cnx, port, request.request_id)
        return
    try:
        check_count(len(cnx.producers), PRODUCERS_MAX, "producers")
        check_metadata(request.metadata, PRODUCER_METADATA_CHARACTERS_MAX)
    except BrokerError as error:
        cnx.send(answers.error(request.request_id, error.code, str(error)))
        return
    port = _port_of(cnx, request)
    # Entered before the topic is opened, so that CLOSE_PRODUCER and a repeated PRODUCER find it. By the port's own number:
    # each read of `request.producer_id` makes another, of 32 bytes.
    cnx.producers[port.producer_id] = port
    # The client reuses an id that the broker closed: its SENDs count again.
    cnx.closed_producers.pop(port.producer_id, None)

    def refuse(error: BrokerError) -> bytes:
        port.forget()
        return answers.error(request.request_id, error.code, str(error))

    cnx.run(command, _open(cnx, port, command), refuse)


def _port_of(cnx: Connection, request: CommandProducer) -> ProducerOnConnection:
    prefix = cnx.context.registry.settings.replicator_prefix
    if (
        cnx.knows_sources
        and request.producer_name.startswith(prefix)
        and not request.topic.startswith("non-persistent://")  # Such entries have no position in a source.
    ):
        # Imported late, because few brokers meet a replicator.
        from broker.net.replicator_port import ReplicatorOnConnection

        return ReplicatorOnConnection(cnx, request.producer_id, request.request_id)
    return ProducerOnConnection(cnx, request.producer_id, request.request_id)


def producer_access(cnx: Connection, command: BaseCommand) -> Iterator[Access]:
    """Yields publishing to the topic, and consuming through the subscription that the producer creates."""
    request = command.producer
    name = parse_topic_name(request.topic)
    yield produce(name)
    if request.initial_subscription_name:
        yield consume(name, request.initial_subscription_name)


def _ask_again(cnx: Connection, port: ProducerOnConnection, request_id: int) -> None:
    """Repeats the answer, for a client that lost it or was impatient."""
    if port.producer is None:
        message = "Producer is already present on the connection and being opened"
        cnx.send(answers.error(request_id, ServiceNotReady.code, message))
        return
    known = port.producer
    cnx.send(
        answers.producer_success(
            request_id,
            known.name,
            known.topic.last_sequence_id(known.name),
            schema_version=known.schema_version,
            topic_epoch=known.topic_epoch if known.access_mode is not AccessMode.SHARED else None,
            ready=not known.waiting,
        )
    )


async def _open(cnx: Connection, port: ProducerOnConnection, command: BaseCommand) -> None:
    request, registry = command.producer, cnx.context.registry
    name = parse_topic_name(request.topic)
    if not registry.namespaces.exists(name.namespace):
        raise ServiceNotReady(
            f"Namespace of topic ({name}) not served by this instance. Please redo the lookup."
        )
    topic = await registry.get(name, create=True)
    hold(topic)
    # Before the schema: a producer that is refused anyway must not add one.
    topic.check_may_publish(encrypted=request.encrypted)
    schema_version = await registry.schemas.for_producer(name, schema_of(request), request.producer_name)
    opened = Producer(
        topic,
        port,
        producer_id=port.producer_id,
        # Present but empty is the name "", as recorded of Pulsar 4.2.4.
        name=request.producer_name
        if request.HasField("producer_name")
        else cnx.context.producer_names.next(),
        access_mode=AccessMode(request.producer_access_mode),
        topic_epoch=request.topic_epoch if request.HasField("topic_epoch") else None,
        encrypted=request.encrypted,
        connection=cnx,
        address=cnx.address,
        client_version=cnx.client_version,
        metadata={pair.key: pair.value for pair in request.metadata} or NO_PROPERTIES,
        schema_version=schema_version,
        connected_at_ms=cnx.context.wall_ms(),
    )
    if request.initial_subscription_name:
        await _create_initial_subscription(topic, request.initial_subscription_name)
    try:
        await topic.add_producer(opened)
    except ProducerBusy:
        # The name may belong to an earlier connection of the same client, which TCP still reports as open.
        if not await _place_is_free(cnx, topic, opened.name):
            raise
        await topic.add_producer(opened)
    # The client closed the producer, or its connection broke, while this request waited. It was answered then.
    if not cnx.is_open or cnx.producers.get(request.producer_id) is not port:
        await topic.remove_producer(opened)
        return
    try:
        # Again, because the right may have been withdrawn while the topic was opened.
        cnx.require(command)
    except Unauthorized:
        await topic.remove_producer(opened)
        raise
    port.producer = opened
    cnx.inbox.begin_to_produce()
    log.info("+ %s producer %s on %s", cnx.address, opened.name, name)
    _answer(cnx, request, opened)


def _answer(cnx: Connection, request: CommandProducer, opened: Producer) -> None:
    """Sends PRODUCER_SUCCESS, which says `ready=false` to a producer that waits for its turn."""
    exclusive = opened.access_mode is not AccessMode.SHARED
    cnx.send(
        answers.producer_success(
            request.request_id,
            opened.name,
            opened.topic.last_sequence_id(opened.name),
            schema_version=opened.schema_version,
            topic_epoch=opened.topic_epoch if exclusive and not opened.waiting else None,
            ready=not opened.waiting,
        )
    )


async def _place_is_free(cnx: Connection, topic: Topic, name: str) -> bool:
    """Returns True when the producer in the way is gone: its client did not answer a PING.

    A client that reconnects is often faster than TCP, which reports the old connection as open.
    """
    holder = topic.access.producers.get(name) or topic.access.exclusive
    if holder is None or holder.connection is cnx or not isinstance(holder.port, ProducerOnConnection):
        return False
    return not await holder.port.cnx.still_there()


async def _create_initial_subscription(topic: Topic, name: str) -> None:
    """Creates a subscription for a dead-letter producer. It keeps messages from the first one on."""
    if not isinstance(topic, PersistentTopic) or name in topic.subscriptions:
        return
    with contextlib.suppress(ConsumerBusy):  # Another client created it in the meantime.
        await topic.subscribing.create(name, EARLIEST)


def close_producer(cnx: Connection, command: BaseCommand) -> None:
    """Handles CLOSE_PRODUCER, after the receipts that are still to come.

    A client that has the answer treats messages without a receipt as failed.
    """
    request = command.close_producer
    # Removed at once: a SEND after the client's own CLOSE_PRODUCER ends the connection, as in Pulsar.
    port = cnx.producers.pop(request.producer_id, None)
    if port is None or port.producer is None:
        cnx.send(answers.success(request.request_id))
        return

    def refuse(error: BrokerError) -> bytes:
        return answers.error(request.request_id, error.code, str(error))

    closing = port.producer

    def close() -> None:
        cnx.run(command, _close(cnx, port, closing, request.request_id), refuse)

    if port.unanswered:
        port.when_answered(close)
    else:
        close()


async def _close(cnx: Connection, port: ProducerOnConnection, closing: Producer, request_id: int) -> None:
    await closing.topic.remove_producer(closing)
    port.producer = None
    log.info("- %s producer %s on %s", cnx.address, closing.name, closing.topic.name)
    cnx.send(answers.success(request_id))
