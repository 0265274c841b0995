"""Encodes the broker's commands to clients: one function per command, from plain values to a whole frame.

Fields are set or left out as Pulsar 4.2.4 does, recorded on the wire. Some clients fail on an absent field although its
default would do: Java on `schema_version`, C++ on `server_version`. Used by `broker/net`. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol import pulsar_api_pb2 as api
from protocol.frame import command_frame

NO_REQUEST_ID = 2**64 - 1
"""Request id of commands that answer no request."""

PROTOCOL_VERSION_MAX = 21
"""Highest protocol version that the broker speaks."""


def connected(
    server_version: str,
    protocol_version: int,
    message_bytes_max: int,
    *,
    scalable_topics: bool = False,
    coordinators_watched: bool = False,
) -> bytes:
    """CONNECTED: the answer to CONNECT. `message_bytes_max` is `maxMessageSize`.

    `scalable_topics`, `coordinators_watched`: flags without which clients of Pulsar 5.0 close the connection, or refuse to
    begin transactions.
    """
    command = api.BaseCommand(type=api.BaseCommand.CONNECTED)
    answer = command.connected
    answer.server_version = server_version
    answer.protocol_version = protocol_version
    answer.max_message_size = message_bytes_max
    # The same flags for every client version, as recorded of Pulsar 4.2.4.
    flags = answer.feature_flags
    flags.supports_topic_watchers = True
    flags.supports_get_partitioned_metadata_without_auto_creation = True
    flags.supports_repl_dedup_by_lid_and_eid = True
    flags.supports_topic_watcher_reconcile = True
    if scalable_topics:
        flags.supports_scalable_topics = True
    if coordinators_watched:
        flags.supports_tc_metadata_discovery = True
    return command_frame(command)


def auth_challenge(server_version: str, protocol_version: int, method: str) -> bytes:
    """AUTH_CHALLENGE: asks for new credentials of the method; the text in it is Pulsar's."""
    command = api.BaseCommand(type=api.BaseCommand.AUTH_CHALLENGE)
    question = command.authChallenge
    question.server_version = server_version
    question.protocol_version = protocol_version
    question.challenge.auth_method_name = method
    question.challenge.auth_data = b"PulsarAuthRefresh"
    return command_frame(command)


def ping() -> bytes:
    """PING."""
    command = api.BaseCommand(type=api.BaseCommand.PING)
    # An empty part is left out of the bytes without this.
    command.ping.SetInParent()
    return command_frame(command)


def pong() -> bytes:
    """PONG: the answer to PING."""
    command = api.BaseCommand(type=api.BaseCommand.PONG)
    command.pong.SetInParent()
    return command_frame(command)


PING = ping()
"""The frame of `ping`, which is always the same."""
PONG = pong()
"""The frame of `pong`, which is always the same."""


def success(request_id: int) -> bytes:
    """SUCCESS: the answer to a request that returns nothing."""
    command = api.BaseCommand(type=api.BaseCommand.SUCCESS)
    command.success.request_id = request_id
    return command_frame(command)


def error(request_id: int, code: int, message: str) -> bytes:
    """ERROR: the answer to a failed request; `code` is a number of ServerError."""
    command = api.BaseCommand(type=api.BaseCommand.ERROR)
    command.error.request_id = request_id
    command.error.error = api.ServerError.ValueType(code)
    command.error.message = message
    return command_frame(command)


def send_error(producer_id: int, sequence_id: int, code: int, message: str) -> bytes:
    """SEND_ERROR: the message with this sequence id is not stored."""
    command = api.BaseCommand(type=api.BaseCommand.SEND_ERROR)
    answer = command.send_error
    answer.producer_id = producer_id
    answer.sequence_id = sequence_id
    answer.error = api.ServerError.ValueType(code)
    answer.message = message
    return command_frame(command)


def partitions(request_id: int, count: int) -> bytes:
    """PARTITIONED_METADATA_RESPONSE: `count` partitions, 0 = the topic is not partitioned."""
    command = api.BaseCommand(type=api.BaseCommand.PARTITIONED_METADATA_RESPONSE)
    answer = command.partitionMetadataResponse
    answer.request_id = request_id
    answer.partitions = count
    answer.response = api.CommandPartitionedTopicMetadataResponse.Success
    return command_frame(command)


def partitions_failed(request_id: int, code: int, message: str) -> bytes:
    """PARTITIONED_METADATA_RESPONSE with an error."""
    command = api.BaseCommand(type=api.BaseCommand.PARTITIONED_METADATA_RESPONSE)
    answer = command.partitionMetadataResponse
    answer.request_id = request_id
    answer.response = api.CommandPartitionedTopicMetadataResponse.Failed
    answer.error = api.ServerError.ValueType(code)
    answer.message = message
    return command_frame(command)


def lookup(request_id: int, service_url: str, service_url_tls: str = "") -> bytes:
    """LOOKUP_RESPONSE: connect to the broker that owns the topic; an empty URL is left out.

    A client that came by TLS uses `service_url_tls`, any other one `service_url`.
    """
    command = api.BaseCommand(type=api.BaseCommand.LOOKUP_RESPONSE)
    answer = command.lookupTopicResponse
    answer.request_id = request_id
    if service_url:
        answer.brokerServiceUrl = service_url
    if service_url_tls:
        answer.brokerServiceUrlTls = service_url_tls
    answer.response = api.CommandLookupTopicResponse.Connect
    answer.authoritative = True
    answer.proxy_through_service_url = True
    return command_frame(command)


def lookup_failed(request_id: int, code: int, message: str) -> bytes:
    """LOOKUP_RESPONSE with an error."""
    command = api.BaseCommand(type=api.BaseCommand.LOOKUP_RESPONSE)
    answer = command.lookupTopicResponse
    answer.request_id = request_id
    answer.response = api.CommandLookupTopicResponse.Failed
    answer.error = api.ServerError.ValueType(code)
    answer.message = message
    return command_frame(command)


def producer_success(
    request_id: int,
    name: str,
    last_sequence_id: int,
    *,
    schema_version: bytes = b"",
    topic_epoch: int | None,
    ready: bool,
) -> bytes:
    """PRODUCER_SUCCESS. `ready` False: the producer waits for exclusive access.

    `last_sequence_id` is -1 without deduplication; `schema_version` b"" for a producer without a schema; `topic_epoch`
    None for a shared producer.
    """
    command = api.BaseCommand(type=api.BaseCommand.PRODUCER_SUCCESS)
    answer = command.producer_success
    answer.request_id = request_id
    answer.producer_name = name
    # The fields up to `schema_version` are always set, also to -1 and to nothing: Java fails on an absent version.
    answer.last_sequence_id = last_sequence_id
    answer.schema_version = schema_version
    if topic_epoch is not None:
        # Pulsar sets it for the exclusive modes alone; the first epoch is 0, so 0 is no stand-in for "none".
        answer.topic_epoch = topic_epoch
    answer.producer_ready = ready
    return command_frame(command)


def close_producer(producer_id: int) -> bytes:
    """CLOSE_PRODUCER: the client looks the topic up again."""
    command = api.BaseCommand(type=api.BaseCommand.CLOSE_PRODUCER)
    command.close_producer.producer_id = producer_id
    command.close_producer.request_id = NO_REQUEST_ID
    return command_frame(command)


def close_consumer(consumer_id: int) -> bytes:
    """CLOSE_CONSUMER: the client looks the topic up again."""
    command = api.BaseCommand(type=api.BaseCommand.CLOSE_CONSUMER)
    command.close_consumer.consumer_id = consumer_id
    command.close_consumer.request_id = NO_REQUEST_ID
    return command_frame(command)


def active_consumer_change(consumer_id: int, *, active: bool) -> bytes:
    """ACTIVE_CONSUMER_CHANGE of a Failover subscription."""
    command = api.BaseCommand(type=api.BaseCommand.ACTIVE_CONSUMER_CHANGE)
    command.active_consumer_change.consumer_id = consumer_id
    command.active_consumer_change.is_active = active
    return command_frame(command)


def reached_end_of_topic(consumer_id: int) -> bytes:
    """REACHED_END_OF_TOPIC: the topic is terminated and everything is acknowledged."""
    command = api.BaseCommand(type=api.BaseCommand.REACHED_END_OF_TOPIC)
    command.reachedEndOfTopic.consumer_id = consumer_id
    return command_frame(command)


def ack_response(consumer_id: int, request_id: int, failure: tuple[int, str] | None = None) -> bytes:
    """ACK_RESPONSE; `failure` is (code, message), None = the acknowledgement is durable."""
    command = api.BaseCommand(type=api.BaseCommand.ACK_RESPONSE)
    answer = command.ackResponse
    answer.consumer_id = consumer_id
    answer.request_id = request_id
    if failure is not None:
        answer.error = api.ServerError.ValueType(failure[0])
        answer.message = failure[1]
    return command_frame(command)


def _unsigned(number: int) -> int:
    return number & 0xFFFF_FFFF_FFFF_FFFF


def last_message_id(
    request_id: int,
    last: tuple[int, int],
    *,
    partition: int,
    batch_index: int,
    mark_delete: tuple[int, int] | None,
) -> bytes:
    """GET_LAST_MESSAGE_ID_RESPONSE. Positions are (ledger id, entry id); -1 stands for "none"."""
    command = api.BaseCommand(type=api.BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE)
    answer = command.getLastMessageIdResponse
    answer.request_id = request_id
    answer.last_message_id.ledgerId = _unsigned(last[0])
    answer.last_message_id.entryId = _unsigned(last[1])
    # No `partition` in the mark-delete position below, as recorded.
    answer.last_message_id.partition = partition
    answer.last_message_id.batch_index = batch_index
    if mark_delete is not None:
        answer.consumer_mark_delete_position.ledgerId = _unsigned(mark_delete[0])
        answer.consumer_mark_delete_position.entryId = _unsigned(mark_delete[1])
    return command_frame(command)


def topics_of_namespace(
    request_id: int, topics: Sequence[str], topics_hash: str, *, filtered: bool, changed: bool
) -> bytes:
    """GET_TOPICS_OF_NAMESPACE_RESPONSE. `changed` False: the client has the list already, and `topics` is empty."""
    command = api.BaseCommand(type=api.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE)
    answer = command.getTopicsOfNamespaceResponse
    answer.request_id = request_id
    answer.topics.extend(topics)
    answer.filtered = filtered
    answer.topics_hash = topics_hash
    answer.changed = changed
    return command_frame(command)


def watch_topic_list_success(
    request_id: int, watcher_id: int, topics: Sequence[str], topics_hash: str
) -> bytes:
    """WATCH_TOPIC_LIST_SUCCESS with the topics that match now."""
    command = api.BaseCommand(type=api.BaseCommand.WATCH_TOPIC_LIST_SUCCESS)
    answer = command.watchTopicListSuccess
    answer.request_id = request_id
    answer.watcher_id = watcher_id
    answer.topic.extend(topics)
    answer.topics_hash = topics_hash
    return command_frame(command)


def watch_topic_update(
    watcher_id: int, new: Sequence[str], deleted: Sequence[str], topics_hash: str
) -> bytes:
    """WATCH_TOPIC_UPDATE: topics that were created and deleted."""
    command = api.BaseCommand(type=api.BaseCommand.WATCH_TOPIC_UPDATE)
    answer = command.watchTopicUpdate
    answer.watcher_id = watcher_id
    answer.new_topics.extend(new)
    answer.deleted_topics.extend(deleted)
    answer.topics_hash = topics_hash
    return command_frame(command)


def schema(request_id: int, schema: api.Schema, version: bytes) -> bytes:
    """GET_SCHEMA_RESPONSE: the schema in its version, eight bytes."""
    command = api.BaseCommand(type=api.BaseCommand.GET_SCHEMA_RESPONSE)
    answer = command.getSchemaResponse
    answer.request_id = request_id
    answer.schema.CopyFrom(schema)
    answer.schema_version = version
    return command_frame(command)


def schema_failed(request_id: int, code: int, message: str) -> bytes:
    """GET_SCHEMA_RESPONSE with an error; TopicNotFound stands for "no schema"."""
    command = api.BaseCommand(type=api.BaseCommand.GET_SCHEMA_RESPONSE)
    answer = command.getSchemaResponse
    answer.request_id = request_id
    answer.error_code = api.ServerError.ValueType(code)
    answer.error_message = message
    return command_frame(command)


def schema_accepted(request_id: int, version: bytes) -> bytes:
    """GET_OR_CREATE_SCHEMA_RESPONSE; the client puts the version into its messages, b"" = none."""
    command = api.BaseCommand(type=api.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE)
    answer = command.getOrCreateSchemaResponse
    answer.request_id = request_id
    answer.schema_version = version
    return command_frame(command)


def schema_refused(request_id: int, code: int, message: str) -> bytes:
    """GET_OR_CREATE_SCHEMA_RESPONSE with an error."""
    command = api.BaseCommand(type=api.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE)
    answer = command.getOrCreateSchemaResponse
    answer.request_id = request_id
    answer.error_code = api.ServerError.ValueType(code)
    answer.error_message = message
    return command_frame(command)
