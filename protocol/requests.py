"""Encodes a client's commands to a broker: one function per command, from plain values to a whole frame.

The other direction of `protocol.answers`. The caller numbers requests, consumers and producers. Used by
`pyspark_pulsar`. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocol import pulsar_api_pb2 as api
from protocol.frame import SIZES, command_frame

PROTOCOL_VERSION = 21
"""Protocol version that the client announces."""


def _unsigned(number: int) -> int:
    # Ids are int64 in Pulsar and uint64 on the wire; -1 stands for "before everything".
    return number & 0xFFFF_FFFF_FFFF_FFFF


def connect(client_version: str, *, auth: tuple[str, bytes] | None, proxy_to: str | None) -> bytes:
    """CONNECT. `auth`: method name and data. `proxy_to`: URL of the broker to reach through a proxy."""
    command = api.BaseCommand(type=api.BaseCommand.CONNECT)
    request = command.connect
    request.client_version = client_version
    request.protocol_version = PROTOCOL_VERSION
    # Without the flag a broker closes the connection when the credentials expire, instead of asking for new ones.
    request.feature_flags.supports_auth_refresh = True
    if auth is not None:
        request.auth_method_name, request.auth_data = auth
    if proxy_to is not None:
        request.proxy_to_broker_url = proxy_to
    return command_frame(command)


def auth_response(client_version: str, auth: tuple[str, bytes] | None) -> bytes:
    """AUTH_RESPONSE: new credentials for an AUTH_CHALLENGE; `auth` as in `connect`."""
    command = api.BaseCommand(type=api.BaseCommand.AUTH_RESPONSE)
    answer = command.authResponse
    answer.client_version = client_version
    answer.protocol_version = PROTOCOL_VERSION
    answer.response.SetInParent()
    if auth is not None:
        answer.response.auth_method_name, answer.response.auth_data = auth
    return command_frame(command)


def partitions(request_id: int, topic: str, *, create: bool) -> bytes:
    """PARTITIONED_METADATA; `create` allows the broker to create the topic."""
    command = api.BaseCommand(type=api.BaseCommand.PARTITIONED_METADATA)
    request = command.partitionMetadata
    request.topic = topic
    request.request_id = request_id
    request.metadata_auto_creation_enabled = create
    return command_frame(command)


def lookup(request_id: int, topic: str, *, authoritative: bool) -> bytes:
    """LOOKUP; `authoritative` marks one that another broker redirected."""
    command = api.BaseCommand(type=api.BaseCommand.LOOKUP)
    request = command.lookupTopic
    request.topic = topic
    request.request_id = request_id
    request.authoritative = authoritative
    return command_frame(command)


def topics_of_namespace(request_id: int, namespace: str) -> bytes:
    """GET_TOPICS_OF_NAMESPACE: persistent topics of `tenant/namespace`, each partition by its own name."""
    command = api.BaseCommand(type=api.BaseCommand.GET_TOPICS_OF_NAMESPACE)
    request = command.getTopicsOfNamespace
    request.request_id = request_id
    request.namespace = namespace
    request.mode = api.CommandGetTopicsOfNamespace.PERSISTENT
    return command_frame(command)


def schema(request_id: int, topic: str, version: bytes | None) -> bytes:
    """GET_SCHEMA; `version` None requests the newest."""
    command = api.BaseCommand(type=api.BaseCommand.GET_SCHEMA)
    request = command.getSchema
    request.request_id = request_id
    request.topic = topic
    if version is not None:
        request.schema_version = version
    return command_frame(command)


def subscribe_reader(
    request_id: int,
    consumer_id: int,
    topic: str,
    subscription: str,
    start: tuple[int, int],
    *,
    rollback_s: int = 0,
) -> bytes:
    """SUBSCRIBE of a reader, which starts at the entry `start` (ledger, entry).

    (-1, -1) is the first entry. `rollback_s` above 0 overrides it: start with entries published so many seconds ago.
    A missing topic is not created.
    """
    command = api.BaseCommand(type=api.BaseCommand.SUBSCRIBE)
    request = command.subscribe
    request.topic = topic
    request.subscription = subscription
    request.subType = api.CommandSubscribe.Exclusive
    request.consumer_id = consumer_id
    request.request_id = request_id
    request.durable = False
    request.force_topic_creation = False
    request.start_message_id.ledgerId = _unsigned(start[0])
    request.start_message_id.entryId = _unsigned(start[1])
    if rollback_s:
        request.start_message_rollback_duration_sec = rollback_s
    return command_frame(command)


def subscribe_durable(
    request_id: int, consumer_id: int, topic: str, subscription: str, *, earliest: bool
) -> bytes:
    """SUBSCRIBE of a durable Failover subscription; a new one starts at the first entry or behind the last one."""
    command = api.BaseCommand(type=api.BaseCommand.SUBSCRIBE)
    request = command.subscribe
    request.topic = topic
    request.subscription = subscription
    request.subType = api.CommandSubscribe.Failover
    request.consumer_id = consumer_id
    request.request_id = request_id
    if earliest:
        request.initialPosition = api.CommandSubscribe.Earliest
    request.force_topic_creation = False
    return command_frame(command)


def flow(consumer_id: int, messages: int) -> bytes:
    """FLOW: permits for so many messages."""
    command = api.BaseCommand(type=api.BaseCommand.FLOW)
    command.flow.consumer_id = consumer_id
    command.flow.messagePermits = messages
    return command_frame(command)


def acknowledge_up_to(request_id: int, consumer_id: int, position: tuple[int, int]) -> bytes:
    """ACK of everything up to (ledger id, entry id), with an answer."""
    command = api.BaseCommand(type=api.BaseCommand.ACK)
    request = command.ack
    request.consumer_id = consumer_id
    request.ack_type = api.CommandAck.Cumulative
    message_id = request.message_id.add()
    message_id.ledgerId = _unsigned(position[0])
    message_id.entryId = _unsigned(position[1])
    request.request_id = request_id
    return command_frame(command)


def last_message_id(request_id: int, consumer_id: int) -> bytes:
    """GET_LAST_MESSAGE_ID."""
    command = api.BaseCommand(type=api.BaseCommand.GET_LAST_MESSAGE_ID)
    command.getLastMessageId.consumer_id = consumer_id
    command.getLastMessageId.request_id = request_id
    return command_frame(command)


def seek(request_id: int, consumer_id: int, entry: tuple[int, int]) -> bytes:
    """SEEK to (ledger id, entry id); the broker closes the subscription's consumers."""
    command = api.BaseCommand(type=api.BaseCommand.SEEK)
    command.seek.consumer_id = consumer_id
    command.seek.request_id = request_id
    command.seek.message_id.ledgerId = _unsigned(entry[0])
    command.seek.message_id.entryId = _unsigned(entry[1])
    return command_frame(command)


def close_consumer(request_id: int, consumer_id: int) -> bytes:
    """CLOSE_CONSUMER."""
    command = api.BaseCommand(type=api.BaseCommand.CLOSE_CONSUMER)
    command.close_consumer.consumer_id = consumer_id
    command.close_consumer.request_id = request_id
    return command_frame(command)


def producer(
    request_id: int,
    producer_id: int,
    topic: str,
    name: str,
    *,
    schema: api.Schema | None,
    metadata: Mapping[str, str],
) -> bytes:
    """PRODUCER with a name of the client's; `metadata` are its properties."""
    command = api.BaseCommand(type=api.BaseCommand.PRODUCER)
    request = command.producer
    request.topic = topic
    request.producer_id = producer_id
    request.request_id = request_id
    request.producer_name = name
    request.user_provided_producer_name = True
    if schema is not None:
        request.schema.CopyFrom(schema)
    for key, value in metadata.items():
        pair = request.metadata.add()
        pair.key, pair.value = key, value
    return command_frame(command)


def close_producer(request_id: int, producer_id: int) -> bytes:
    """CLOSE_PRODUCER."""
    command = api.BaseCommand(type=api.BaseCommand.CLOSE_PRODUCER)
    command.close_producer.producer_id = producer_id
    command.close_producer.request_id = request_id
    return command_frame(command)


def send_head(
    producer_id: int, sequence_id: int, highest_sequence_id: int, messages: int, body_bytes: int
) -> bytes:
    """SEND up to the body: the caller writes `body_bytes` of checksum, metadata and payload behind it."""
    command = api.BaseCommand(type=api.BaseCommand.SEND)
    request = command.send
    request.producer_id = producer_id
    request.sequence_id = sequence_id
    request.highest_sequence_id = highest_sequence_id
    request.num_messages = messages
    packed = command.SerializeToString()
    return SIZES.pack(4 + len(packed) + body_bytes, len(packed)) + packed
