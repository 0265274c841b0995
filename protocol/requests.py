"""Encodes a client's commands to a broker: one function per command, from plain values to a whole frame.

The other direction of `protocol.answers`. The caller numbers requests, consumers and producers. Used by
`pyspark_pulsar`, and by brokers towards each other. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocol import pulsar_api_pb2 as api
from protocol.frame import SIZES, frame_of, message_id_of

PROTOCOL_VERSION = 21
"""Protocol version that the client announces."""


def connect(client_version: str, *, auth: tuple[str, bytes] | None, proxy_to: str | None) -> bytes:
    """CONNECT. `auth`: method name and data. `proxy_to`: URL of the broker to reach through a proxy."""
    method, data = auth or (None, None)
    return frame_of(
        api.CommandConnect(
            client_version=client_version,
            protocol_version=PROTOCOL_VERSION,
            # Without the flag a broker closes the connection when the credentials expire, instead of asking for new ones.
            feature_flags=api.FeatureFlags(supports_auth_refresh=True),
            auth_method_name=method,
            auth_data=data,
            proxy_to_broker_url=proxy_to,
        )
    )


def auth_response(client_version: str, auth: tuple[str, bytes] | None) -> bytes:
    """AUTH_RESPONSE: new credentials for an AUTH_CHALLENGE; `auth` as in `connect`."""
    method, data = auth or (None, None)
    return frame_of(
        api.CommandAuthResponse(
            client_version=client_version,
            protocol_version=PROTOCOL_VERSION,
            response=api.AuthData(auth_method_name=method, auth_data=data),
        )
    )


def partitions(request_id: int, topic: str, *, create: bool) -> bytes:
    """PARTITIONED_METADATA; `create` allows the broker to create the topic."""
    return frame_of(
        api.CommandPartitionedTopicMetadata(
            topic=topic, request_id=request_id, metadata_auto_creation_enabled=create
        )
    )


def lookup(request_id: int, topic: str, *, authoritative: bool) -> bytes:
    """LOOKUP; `authoritative` marks one that another broker redirected."""
    return frame_of(api.CommandLookupTopic(topic=topic, request_id=request_id, authoritative=authoritative))


def topics_of_namespace(request_id: int, namespace: str) -> bytes:
    """GET_TOPICS_OF_NAMESPACE: persistent topics of `tenant/namespace`, each partition by its own name."""
    return frame_of(
        api.CommandGetTopicsOfNamespace(
            request_id=request_id, namespace=namespace, mode=api.CommandGetTopicsOfNamespace.PERSISTENT
        )
    )


def schema(request_id: int, topic: str, version: bytes | None) -> bytes:
    """GET_SCHEMA; `version` None requests the newest."""
    return frame_of(api.CommandGetSchema(request_id=request_id, topic=topic, schema_version=version))


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

    (-1, -1) is the first entry. `rollback_s` above 0 overrides it: the reader starts with entries published so many
    seconds ago.
    A missing topic is not created.
    """
    return frame_of(
        api.CommandSubscribe(
            topic=topic,
            subscription=subscription,
            subType=api.CommandSubscribe.Exclusive,
            consumer_id=consumer_id,
            request_id=request_id,
            durable=False,
            force_topic_creation=False,
            start_message_id=message_id_of(start),
            start_message_rollback_duration_sec=rollback_s or None,
        )
    )


def subscribe_durable(
    request_id: int, consumer_id: int, topic: str, subscription: str, *, earliest: bool
) -> bytes:
    """SUBSCRIBE of a durable Failover subscription; a new one starts at the first entry or after the last one."""
    return frame_of(
        api.CommandSubscribe(
            topic=topic,
            subscription=subscription,
            subType=api.CommandSubscribe.Failover,
            consumer_id=consumer_id,
            request_id=request_id,
            initialPosition=api.CommandSubscribe.Earliest if earliest else None,
            force_topic_creation=False,
        )
    )


def flow(consumer_id: int, messages: int) -> bytes:
    """FLOW: permits for so many messages."""
    return frame_of(api.CommandFlow(consumer_id=consumer_id, messagePermits=messages))


def acknowledge_up_to(request_id: int, consumer_id: int, position: tuple[int, int]) -> bytes:
    """ACK of everything up to (ledger id, entry id), with an answer."""
    return frame_of(
        api.CommandAck(
            consumer_id=consumer_id,
            ack_type=api.CommandAck.Cumulative,
            message_id=[message_id_of(position)],
            request_id=request_id,
        )
    )


def last_message_id(request_id: int, consumer_id: int) -> bytes:
    """GET_LAST_MESSAGE_ID."""
    return frame_of(api.CommandGetLastMessageId(consumer_id=consumer_id, request_id=request_id))


def seek(request_id: int, consumer_id: int, entry: tuple[int, int]) -> bytes:
    """SEEK to (ledger id, entry id); the broker closes the subscription's consumers."""
    message_id = message_id_of(entry)
    return frame_of(api.CommandSeek(consumer_id=consumer_id, request_id=request_id, message_id=message_id))


def close_consumer(request_id: int, consumer_id: int) -> bytes:
    """CLOSE_CONSUMER."""
    return frame_of(api.CommandCloseConsumer(consumer_id=consumer_id, request_id=request_id))


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
    return frame_of(
        api.CommandProducer(
            topic=topic,
            producer_id=producer_id,
            request_id=request_id,
            producer_name=name,
            user_provided_producer_name=True,
            schema=schema,
            metadata=[api.KeyValue(key=key, value=value) for key, value in metadata.items()],
        )
    )


def close_producer(request_id: int, producer_id: int) -> bytes:
    """CLOSE_PRODUCER."""
    return frame_of(api.CommandCloseProducer(producer_id=producer_id, request_id=request_id))


def send_head(
    producer_id: int, sequence_id: int, highest_sequence_id: int, messages: int, body_bytes: int
) -> bytes:
    """SEND up to the body: the caller writes `body_bytes` of checksum, metadata and payload after it."""
    command = api.BaseCommand(type=api.BaseCommand.SEND)
    request = command.send
    request.producer_id = producer_id
    request.sequence_id = sequence_id
    request.highest_sequence_id = highest_sequence_id
    request.num_messages = messages
    packed = command.SerializeToString()
    return SIZES.pack(4 + len(packed) + body_bytes, len(packed)) + packed


def end_txn_on_partition(request_id: int, topic: str, txn: tuple[int, int], *, commit: bool) -> bytes:
    """END_TXN_ON_PARTITION: a coordinator ends the transaction `txn` (most bits, least bits) on a topic."""
    return frame_of(
        api.CommandEndTxnOnPartition(
            request_id=request_id,
            txnid_most_bits=txn[0],
            txnid_least_bits=txn[1],
            topic=topic,
            txn_action=api.COMMIT if commit else api.ABORT,
        )
    )


def end_txn_on_subscription(
    request_id: int, topic: str, subscription: str, txn: tuple[int, int], *, commit: bool
) -> bytes:
    """END_TXN_ON_SUBSCRIPTION: likewise on a subscription."""
    return frame_of(
        api.CommandEndTxnOnSubscription(
            request_id=request_id,
            txnid_most_bits=txn[0],
            txnid_least_bits=txn[1],
            subscription=api.Subscription(topic=topic, subscription=subscription),
            txn_action=api.COMMIT if commit else api.ABORT,
        )
    )
