"""Handlers of a consumer's commands: SUBSCRIBE, FLOW, ACK, REDELIVER, SEEK and requests about its subscription."""

from __future__ import annotations

import datetime
import heapq
import logging
import os
import sys
from collections.abc import Coroutine, Iterator, Sequence
from itertools import islice

from broker.managed_ledger.managed_ledger_info import NO_PROPERTIES
from broker.net.connection_limits import CONSUMERS_MAX, check_count, check_metadata
from broker.net.ports import Connection, ConsumerOnConnection
from broker.net.schema_handlers import schema_of
from broker.net.slices import IDS_PER_SLICE, run_in_slices
from broker.security.authorization.access import Access, consume
from broker.service.consumer import ALL_KEYS, Consumer, KeySharedMeta, SubscribeOptions, SubscriptionType
from broker.service.subscriptions.dispatch.shared_dispatcher import SharedDispatcher
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.topic import Topic, hold
from foundation.model.errors import (
    BrokerError,
    ConsumerAssignError,
    ConsumerBusy,
    MetadataError,
    ProducerBusy,
    ServiceNotReady,
    Unauthorized,
)
from foundation.model.position import Position
from foundation.model.topic_name import parse_topic_name
from protocol import answers
from protocol.errors import ProtocolError
from protocol.frame import command_frame
from protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandSeek,
    CommandSubscribe,
    KeySharedMode,
    MessageIdData,
    Schema,
)

log = logging.getLogger("magnetar.net")

_TOP_BIT = 1 << 63
LastMessage = tuple[Position, int]
"""(position of an entry, index of its last message in the batch, -1 outside of one)"""


def _signed(number: int) -> int:
    # Ids are int64 in Pulsar and uint64 on the wire: -1, "before everything", arrives as 2**64 - 1.
    return number - (1 << 64) if number & _TOP_BIT else number


def position_of(message_id: MessageIdData) -> Position:
    """Returns the position; -1 arrives as an unsigned number."""
    return Position(_signed(message_id.ledgerId), _signed(message_id.entryId))


# SUBSCRIBE


def subscribe(cnx: Connection, command: BaseCommand) -> None:
    """Handles SUBSCRIBE: opens the topic and adds a consumer to the subscription.

    A repeated request for an open consumer is answered with success, as in Pulsar.
    """
    request = command.subscribe
    port = cnx.consumers.get(request.consumer_id)
    if port is not None:
        if port.consumer is not None:
            cnx.send(answers.success(request.request_id))
        else:
            message = "Consumer is already present on the connection and being opened"
            cnx.send(answers.error(request.request_id, ServiceNotReady.code, message))
        return

    # Parsed before the task: the port needs the partition, because every MESSAGE carries it.
    try:
        partition = parse_topic_name(request.topic).partition
        check_count(len(cnx.consumers), CONSUMERS_MAX, "consumers")
        check_metadata(request.metadata, cnx.context.settings.consumer_metadata_max)
    except BrokerError as error:
        cnx.send(answers.error(request.request_id, error.code, str(error)))
        return
    epoch = request.consumer_epoch if request.HasField("consumer_epoch") else None
    # Messages carry the epoch on Exclusive and Failover alone (PIP-84).
    in_order = request.subType in (CommandSubscribe.Exclusive, CommandSubscribe.Failover)
    port = ConsumerOnConnection(cnx, request.consumer_id, partition, epoch if in_order else None)
    # Entered before the topic is opened, so that CLOSE_CONSUMER and a repeated SUBSCRIBE find it. By the port's own number:
    # each read of `request.consumer_id` makes another, of 32 bytes.
    cnx.consumers[port.consumer_id] = port

    def refuse(error: BrokerError) -> bytes:
        port.forget()
        return answers.error(request.request_id, error.code, str(error))

    cnx.run(command, _subscribe(cnx, port, command), refuse)


def subscribe_access(cnx: Connection, command: BaseCommand) -> Iterator[Access]:
    """Yields consuming through the subscription. Raises ProducerBusy for a subscription without a name."""
    request = command.subscribe
    name = parse_topic_name(request.topic)
    if not request.subscription:
        # The code of a producer's error is Pulsar's answer, as recorded.
        raise ProducerBusy("Empty subscription name")
    yield consume(name, request.subscription)


async def _subscribe(cnx: Connection, port: ConsumerOnConnection, command: BaseCommand) -> None:
    request, registry = command.subscribe, cnx.context.registry
    name = parse_topic_name(request.topic)
    if not registry.namespaces.exists(name.namespace):
        raise ServiceNotReady(
            f"Namespace of topic ({name}) not served by this instance. Please redo the lookup."
        )
    topic = await registry.get(name, create=request.force_topic_creation)
    hold(topic)
    options = _options(cnx, request, port.consumer_id)
    await registry.schemas.check_consumer(topic, schema_of(request))
    try:
        subscription, consumer = await topic.subscribe(port, options)
    except ConsumerBusy:
        # An Exclusive subscription may be held by an earlier connection of the same client; see `_place_is_free`.
        if not await _place_is_free(cnx, topic, options.subscription):
            raise
        subscription, consumer = await topic.subscribe(port, options)
    # The client closed the consumer, or its connection broke, while this request waited. It was answered then.
    if not cnx.is_open or cnx.consumers.get(request.consumer_id) is not port:
        subscription.remove_consumer(consumer)
        return
    try:
        # Again, because the right may have been withdrawn while the topic was opened.
        cnx.require(command)
    except Unauthorized:
        subscription.remove_consumer(consumer)
        raise
    port.topic, port.subscription, port.consumer = name, subscription, consumer
    log.info("+ %s consumer %s on %s %s", cnx.address, consumer.name, name, request.subscription)
    cnx.send(answers.success(request.request_id))


async def _place_is_free(cnx: Connection, topic: Topic, subscription: str) -> bool:
    """Returns True when the one consumer in the way is gone: its client did not answer a PING."""
    held = topic.consumers_of(subscription)
    if len(held) != 1 or not isinstance(held[0].port, ConsumerOnConnection) or held[0].port.cnx is cnx:
        return False
    return not await held[0].port.cnx.still_there()


def _options(cnx: Connection, request: CommandSubscribe, consumer_id: int) -> SubscribeOptions:
    start = None
    # A durable subscription starts where its cursor is.
    if request.HasField("start_message_id") and not request.durable:
        start = position_of(request.start_message_id)
    return SubscribeOptions(
        # Most topics have subscriptions of the same few names.
        subscription=sys.intern(request.subscription),
        kind=SubscriptionType(request.subType),
        consumer_id=consumer_id,
        # Five characters, like the names that Pulsar's clients make.
        consumer_name=request.consumer_name or os.urandom(3).hex()[:5],
        priority=request.priority_level,
        durable=request.durable,
        start=start,
        rollback_ms=request.start_message_rollback_duration_sec * 1000,
        earliest=request.initialPosition == CommandSubscribe.Earliest,
        epoch=request.consumer_epoch if request.HasField("consumer_epoch") else None,
        key_shared=_key_shared(request),
        takes_any_schema=request.HasField("schema") and request.schema.type == Schema.AutoConsume,
        read_compacted=request.read_compacted,
        metadata={pair.key: pair.value for pair in request.metadata} or NO_PROPERTIES,
        properties={pair.key: pair.value for pair in request.subscription_properties} or NO_PROPERTIES,
        replicated=request.replicate_subscription_state,
        client_version=cnx.client_version,
        connected_at_ms=cnx.context.wall_ms(),
    )


def _key_shared(request: CommandSubscribe) -> KeySharedMeta:
    meta = request.keySharedMeta
    ranges = tuple((hash_range.start, hash_range.end) for hash_range in meta.hashRanges)
    sticky = request.HasField("keySharedMeta") and meta.keySharedMode == KeySharedMode.STICKY
    if sticky and not ranges:
        raise ConsumerAssignError("Ranges for KeyShared policy must not be empty.")
    for first, last in ranges:
        if first < 0 or last < first:
            raise ConsumerAssignError(f"Invalid hash range {first}-{last}")
    if not (sticky or ranges or meta.allowOutOfOrderDelivery):
        return ALL_KEYS
    return KeySharedMeta(sticky=sticky, ranges=ranges, out_of_order=meta.allowOutOfOrderDelivery)


def _open_consumer(cnx: Connection, consumer_id: int) -> tuple[Subscription, Consumer] | None:
    """Returns an open consumer of a persistent topic, else None: commands for others are ignored."""
    port = cnx.consumers.get(consumer_id)
    if port is None or port.consumer is None or not isinstance(port.subscription, Subscription):
        return None
    return port.subscription, port.consumer


# The stream of messages


def flow(cnx: Connection, command: BaseCommand) -> None:
    """Handles FLOW: adds permits. ProtocolError for 0 permits; an unknown consumer is ignored."""
    permits = command.flow.messagePermits
    # As recorded of Pulsar 4.2.4, which closes the connection too. 0 also stands for a missing number.
    if permits == 0:
        raise ProtocolError("FLOW lacks permits")
    if not command.flow.HasField("consumer_id"):
        raise ProtocolError("FLOW lacks its consumer id")
    port = cnx.consumers.get(command.flow.consumer_id)
    if port is not None and port.consumer is not None and port.subscription is not None:
        port.consumer.last_consumed_flow_ms = cnx.context.wall_ms()
        port.subscription.flow(port.consumer, permits)


def redeliver(cnx: Connection, command: BaseCommand) -> None:
    """Handles REDELIVER_UNACKNOWLEDGED_MESSAGES; without positions it stands for all pending ones."""
    request = command.redeliverUnacknowledgedMessages
    found = _open_consumer(cnx, request.consumer_id)
    if found is None:
        return
    subscription, consumer = found
    message_ids = request.message_ids
    epoch = request.consumer_epoch if request.HasField("consumer_epoch") else None
    if len(message_ids) > IDS_PER_SLICE and isinstance(subscription.dispatcher, SharedDispatcher):
        run_in_slices(cnx, _redeliver_many(subscription, consumer, message_ids))
        return
    # An empty list of positions stands for all pending ones. Other types than Shared and Key_Shared ignore the positions.
    keys = [(one.ledgerId, one.entryId) for one in message_ids[:IDS_PER_SLICE]]
    subscription.redeliver(consumer, keys or None, epoch)


def _redeliver_many(
    subscription: Subscription, consumer: Consumer, message_ids: Sequence[MessageIdData]
) -> Iterator[None]:
    """Asks for the positions that are pending at the consumer, a slice at a time, in the order of the log."""
    wanted: list[list[tuple[int, int]]] = []
    for first in range(0, len(message_ids), IDS_PER_SLICE):
        asked = ((one.ledgerId, one.entryId) for one in message_ids[first : first + IDS_PER_SLICE])
        wanted.append(sorted(key for key in asked if key in consumer.pending))
        yield
    # Merged, because a client may name them in any order and Key_Shared sends those of one key in that of the log.
    ordered = heapq.merge(*wanted)
    while not subscription.cursor.closed and (part := list(islice(ordered, IDS_PER_SLICE))):
        # The epoch is for Exclusive and Failover alone.
        subscription.redeliver(consumer, part, None)
        yield


# Requests about the subscription


def unsubscribe(cnx: Connection, command: BaseCommand) -> None:
    """Handles UNSUBSCRIBE: deletes the subscription."""
    request = command.unsubscribe
    port = cnx.consumers.get(request.consumer_id)
    if port is None or port.consumer is None:
        cnx.send(answers.error(request.request_id, MetadataError.code, "Consumer not found"))
        return

    def refuse(error: BrokerError) -> bytes:
        return answers.error(request.request_id, error.code, str(error))

    cnx.run(command, _unsubscribe(cnx, port, request.request_id, force=request.force), refuse)


async def _unsubscribe(cnx: Connection, port: ConsumerOnConnection, request_id: int, *, force: bool) -> None:
    subscription, consumer = port.subscription, port.consumer
    assert consumer is not None
    if isinstance(subscription, Subscription):
        await subscription.topic.subscribing.delete(subscription, consumer, force=force)
    elif subscription is not None:
        subscription.remove_consumer(consumer)
    port.forget()
    port.consumer = port.subscription = None
    cnx.send(answers.success(request_id))


def close_consumer(cnx: Connection, command: BaseCommand) -> None:
    """Handles CLOSE_CONSUMER; an unknown consumer is answered with success too."""
    request = command.close_consumer
    # The answer is SUCCESS even when the id is unknown, as recorded of Pulsar 4.2.4.
    port = cnx.consumers.pop(request.consumer_id, None)
    if port is not None and port.consumer is not None and port.subscription is not None:
        log.info("- %s consumer %s on %s", cnx.address, port.consumer.name, port.subscription.name)
        port.leave()
    cnx.send(answers.success(request.request_id))


def seek(cnx: Connection, command: BaseCommand) -> None:
    """Handles SEEK: moves the cursor to a position or a time. Success is sent after the consumers are closed."""
    request = command.seek
    found = _open_consumer(cnx, request.consumer_id)
    if found is None or not (request.HasField("message_id") or request.HasField("message_publish_time")):
        message = (
            "Consumer not found" if found is None else "Message id and message publish time were not present"
        )
        cnx.send(answers.error(request.request_id, MetadataError.code, message))
        return

    def refuse(error: BrokerError) -> bytes:
        return answers.error(request.request_id, error.code, str(error))

    cnx.run(command, _seek(cnx, found[0], request), refuse)


async def _seek(cnx: Connection, subscription: Subscription, request: CommandSeek) -> None:
    if request.HasField("message_id"):
        await subscription.seek(position_of(request.message_id), tuple(request.message_id.ack_set))
    else:
        since = await subscription.topic.positions.first_since(request.message_publish_time)
        await subscription.seek(since)
    cnx.send(answers.success(request.request_id))


def last_message_id(cnx: Connection, command: BaseCommand) -> None:
    """Handles GET_LAST_MESSAGE_ID; waits only when the last entry has to be read."""
    request = command.getLastMessageId
    port = cnx.consumers.get(request.consumer_id)
    if port is None or port.consumer is None:
        cnx.send(answers.error(request.request_id, MetadataError.code, "Consumer not found"))
        return
    if not isinstance(port.subscription, Subscription):
        message = "A non-persistent topic keeps no messages, so it has no last one"
        cnx.send(answers.error(request.request_id, 0, message))
        return

    # Clients ask again and again (`hasMessageAvailable`); without this short way each request would be a task.
    topic = port.subscription.topic
    compacted = topic.compaction.last_ledger() if port.consumer.options.read_compacted else None
    known = topic.positions.known_last_message() if compacted is None else compacted.known_last_message
    if known is not None:
        _answer_last_message(cnx, port.subscription, request.request_id, known)
        return

    def refuse(error: BrokerError) -> bytes:
        return answers.error(request.request_id, error.code, str(error))

    found = topic.positions.last_message() if compacted is None else compacted.last_message()
    work = _last_message_id(cnx, port.subscription, request.request_id, found)
    cnx.run(command, work, refuse)


async def _last_message_id(
    cnx: Connection, subscription: Subscription, request_id: int, found: Coroutine[None, None, LastMessage]
) -> None:
    _answer_last_message(cnx, subscription, request_id, await found)


def _answer_last_message(
    cnx: Connection, subscription: Subscription, request_id: int, found: LastMessage
) -> None:
    last, batch_index = found
    cnx.send(
        answers.last_message_id(
            request_id,
            last,
            partition=subscription.topic.name.partition,
            batch_index=batch_index,
            mark_delete=subscription.cursor.mark_delete_position,
        )
    )


def consumer_stats(cnx: Connection, command: BaseCommand) -> None:
    """Handles CONSUMER_STATS. Rates are 0: the broker keeps counters, and /metrics shows them."""
    request = command.consumerStats
    port = cnx.consumers.get(request.consumer_id)
    if port is None or port.consumer is None:
        # Not an error answer: Pulsar 4.2.4 closes the connection, as recorded.
        raise ProtocolError(f"CONSUMER_STATS of consumer {request.consumer_id}, which is not open here")
    consumer = port.consumer
    reply = BaseCommand(type=BaseCommand.CONSUMER_STATS_RESPONSE)
    answer = reply.consumerStatsResponse
    answer.request_id = request.request_id
    answer.msgRateOut = answer.msgThroughputOut = answer.msgRateRedeliver = 0.0
    answer.msgRateExpired = answer.messageAckRate = 0.0
    answer.consumerName = consumer.name
    answer.availablePermits = max(0, consumer.permits)
    answer.unackedMessages = consumer.unacked
    answer.blockedConsumerOnUnackedMsgs = consumer.blocked
    answer.address = f"/{cnx.address}"
    connected = datetime.datetime.fromtimestamp(consumer.options.connected_at_ms / 1000, datetime.UTC)
    answer.connectedSince = connected.isoformat()
    answer.type = consumer.options.kind.label
    backlog = port.subscription.cursor.backlog if isinstance(port.subscription, Subscription) else 0
    answer.msgBacklog = backlog
    cnx.send(command_frame(reply))
