"""Encodes the broker's commands to clients: one function per command, from plain values to a whole frame.

Fields are set or left out as Pulsar 4.2.4 does, recorded on the wire. Some clients fail on an absent field although its
default would do: Java on `schema_version`, C++ on `server_version`. Used by `broker/net`. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from protocol import pulsar_api_pb2 as api
from protocol.frame import frame_of, frame_of_parts, message_id_of

NO_REQUEST_ID = 2**64 - 1
"""Request id of commands that answer no request."""

PROTOCOL_VERSION_MAX = 21
"""Highest protocol version that the broker speaks."""


def connected(
    server_version: str,
    protocol_version: int,
    message_bytes_max: int,
    *,
    topic_watchers: bool = True,
    scalable_topics: bool = False,
    coordinators_watched: bool = False,
) -> bytes:
    """CONNECTED: the answer to CONNECT. `message_bytes_max` is `maxMessageSize`.

    `topic_watchers`: without this flag, clients with a pattern ask for the list of topics again and again.
    `scalable_topics`, `coordinators_watched`: flags without which clients of Pulsar 5.0 close the connection, or refuse to
    begin transactions.
    """
    return frame_of(
        api.CommandConnected(
            server_version=server_version,
            protocol_version=protocol_version,
            max_message_size=message_bytes_max,
            # The same flags for every client version, as recorded of Pulsar 4.2.4.
            feature_flags=api.FeatureFlags(
                supports_topic_watchers=topic_watchers,
                supports_get_partitioned_metadata_without_auto_creation=True,
                supports_repl_dedup_by_lid_and_eid=True,
                supports_topic_watcher_reconcile=topic_watchers,
                supports_scalable_topics=scalable_topics or None,
                supports_tc_metadata_discovery=coordinators_watched or None,
            ),
        )
    )


def auth_challenge(server_version: str, protocol_version: int, method: str) -> bytes:
    """AUTH_CHALLENGE: asks for new credentials of the method; the text in it is Pulsar's."""
    return frame_of(
        api.CommandAuthChallenge(
            server_version=server_version,
            protocol_version=protocol_version,
            challenge=api.AuthData(auth_method_name=method, auth_data=b"PulsarAuthRefresh"),
        )
    )


def ping() -> bytes:
    """PING."""
    return frame_of(api.CommandPing())


def pong() -> bytes:
    """PONG: the answer to PING."""
    return frame_of(api.CommandPong())


PING = ping()
"""The frame of `ping`, which is always the same."""
PONG = pong()
"""The frame of `pong`, which is always the same."""


def success(request_id: int) -> bytes:
    """SUCCESS: the answer to a request that returns nothing."""
    return frame_of(api.CommandSuccess(request_id=request_id))


def error(request_id: int, code: int, message: str) -> bytes:
    """ERROR: the answer to a failed request; `code` is a number of ServerError."""
    return frame_of(
        api.CommandError(request_id=request_id, error=api.ServerError.ValueType(code), message=message)
    )


def send_error(producer_id: int, sequence_id: int, code: int, message: str) -> bytes:
    """SEND_ERROR: the message with this sequence id is not stored."""
    return frame_of(
        api.CommandSendError(
            producer_id=producer_id,
            sequence_id=sequence_id,
            error=api.ServerError.ValueType(code),
            message=message,
        )
    )


def partitions(request_id: int, count: int) -> bytes:
    """PARTITIONED_METADATA_RESPONSE: `count` partitions, 0 = the topic is not partitioned."""
    return frame_of(
        api.CommandPartitionedTopicMetadataResponse(
            request_id=request_id,
            partitions=count,
            response=api.CommandPartitionedTopicMetadataResponse.Success,
        )
    )


def partitions_failed(request_id: int, code: int, message: str) -> bytes:
    """PARTITIONED_METADATA_RESPONSE with an error."""
    return frame_of(
        api.CommandPartitionedTopicMetadataResponse(
            request_id=request_id,
            response=api.CommandPartitionedTopicMetadataResponse.Failed,
            error=api.ServerError.ValueType(code),
            message=message,
        )
    )


def lookup(
    request_id: int, service_url: str, service_url_tls: str = "", *, through_service_url: bool = True
) -> bytes:
    """LOOKUP_RESPONSE of the type Connect: the URLs of the broker that owns the topic; an empty URL is left out.

    A client that came by TLS uses `service_url_tls`, any other one `service_url`. `through_service_url`: it names that URL
    to the broker, and connects to the address of the lookup.
    """
    answer = api.CommandLookupTopicResponse(
        response=api.CommandLookupTopicResponse.Connect,
        authoritative=True,
        proxy_through_service_url=through_service_url,
    )
    return _with_urls(answer, request_id, service_url, service_url_tls)


def lookup_redirect(
    request_id: int, service_url: str, service_url_tls: str = "", *, authoritative: bool
) -> bytes:
    """LOOKUP_RESPONSE of the type Redirect: the URLs of the broker to ask next.

    `authoritative` goes into that request, and makes the asked broker the owner.
    """
    answer = api.CommandLookupTopicResponse(
        response=api.CommandLookupTopicResponse.Redirect,
        authoritative=authoritative,
        proxy_through_service_url=False,
    )
    return _with_urls(answer, request_id, service_url, service_url_tls)


def _with_urls(
    answer: api.CommandLookupTopicResponse, request_id: int, service_url: str, service_url_tls: str
) -> bytes:
    answer.request_id = request_id
    if service_url:
        answer.brokerServiceUrl = service_url
    if service_url_tls:
        answer.brokerServiceUrlTls = service_url_tls
    return frame_of(answer)


def lookup_failed(request_id: int, code: int, message: str) -> bytes:
    """LOOKUP_RESPONSE with an error."""
    return frame_of(
        api.CommandLookupTopicResponse(
            request_id=request_id,
            response=api.CommandLookupTopicResponse.Failed,
            error=api.ServerError.ValueType(code),
            message=message,
        )
    )


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
    return frame_of(
        api.CommandProducerSuccess(
            request_id=request_id,
            producer_name=name,
            # Both are always set, also to -1 and to nothing: Java fails on an absent version.
            last_sequence_id=last_sequence_id,
            schema_version=schema_version,
            # Pulsar sets it for the exclusive modes alone; the first epoch is 0, so 0 is no stand-in for "none".
            topic_epoch=topic_epoch,
            producer_ready=ready,
        )
    )


def close_producer(producer_id: int, url: str = "", url_tls: str = "") -> bytes:
    """CLOSE_PRODUCER: the client looks the topic up again, or connects to the broker of these URLs (PIP-307)."""
    return frame_of(
        api.CommandCloseProducer(
            producer_id=producer_id,
            request_id=NO_REQUEST_ID,
            assignedBrokerServiceUrl=url or None,
            assignedBrokerServiceUrlTls=url_tls or None,
        )
    )


def close_consumer(consumer_id: int, url: str = "", url_tls: str = "") -> bytes:
    """CLOSE_CONSUMER: the client looks the topic up again, or connects to the broker of these URLs (PIP-307)."""
    return frame_of(
        api.CommandCloseConsumer(
            consumer_id=consumer_id,
            request_id=NO_REQUEST_ID,
            assignedBrokerServiceUrl=url or None,
            assignedBrokerServiceUrlTls=url_tls or None,
        )
    )


def active_consumer_change(consumer_id: int, *, active: bool) -> bytes:
    """ACTIVE_CONSUMER_CHANGE of a Failover subscription."""
    return frame_of(api.CommandActiveConsumerChange(consumer_id=consumer_id, is_active=active))


def reached_end_of_topic(consumer_id: int) -> bytes:
    """REACHED_END_OF_TOPIC: the topic is terminated and everything is acknowledged."""
    return frame_of(api.CommandReachedEndOfTopic(consumer_id=consumer_id))


def ack_response(consumer_id: int, request_id: int, failure: tuple[int, str] | None = None) -> bytes:
    """ACK_RESPONSE; `failure` is (code, message), None = the acknowledgement is durable."""
    code, message = failure or (None, None)
    error = None if code is None else api.ServerError.ValueType(code)
    return frame_of(
        api.CommandAckResponse(consumer_id=consumer_id, request_id=request_id, error=error, message=message)
    )


def last_message_id(
    request_id: int,
    last: tuple[int, int],
    *,
    partition: int,
    batch_index: int,
    mark_delete: tuple[int, int] | None,
) -> bytes:
    """GET_LAST_MESSAGE_ID_RESPONSE. Positions are (ledger id, entry id); -1 stands for "none"."""
    return frame_of(
        api.CommandGetLastMessageIdResponse(
            request_id=request_id,
            last_message_id=message_id_of(last, partition=partition, batch_index=batch_index),
            # No `partition` in this one, as recorded.
            consumer_mark_delete_position=None if mark_delete is None else message_id_of(mark_delete),
        )
    )


def names_of_namespace(topics: Sequence[str]) -> bytes:
    """Encodes a part of the list of `topics_of_namespace`."""
    return api.CommandGetTopicsOfNamespaceResponse(topics=topics).SerializePartialToString()


def topics_of_namespace(
    request_id: int, topics: Iterable[bytes], topics_hash: str, *, filtered: bool, changed: bool
) -> bytes:
    """GET_TOPICS_OF_NAMESPACE_RESPONSE. `topics`: parts of the list; none with `changed` False, as the client has it."""
    return frame_of_parts(
        api.CommandGetTopicsOfNamespaceResponse(request_id=request_id),
        topics,
        api.CommandGetTopicsOfNamespaceResponse(filtered=filtered, topics_hash=topics_hash, changed=changed),
    )


def watched_names(topics: Sequence[str]) -> bytes:
    """Encodes a part of the list of `watch_topic_list_success`."""
    return api.CommandWatchTopicListSuccess(topic=topics).SerializePartialToString()


def watch_topic_list_success(
    request_id: int, watcher_id: int, topics: Iterable[bytes], topics_hash: str
) -> bytes:
    """WATCH_TOPIC_LIST_SUCCESS with the topics that match now, in parts of `watched_names`."""
    return frame_of_parts(
        api.CommandWatchTopicListSuccess(request_id=request_id, watcher_id=watcher_id),
        topics,
        api.CommandWatchTopicListSuccess(topics_hash=topics_hash),
    )


def watch_topic_update(
    watcher_id: int, new: Sequence[str], deleted: Sequence[str], topics_hash: str
) -> bytes:
    """WATCH_TOPIC_UPDATE: topics that were created and deleted."""
    return frame_of(
        api.CommandWatchTopicUpdate(
            watcher_id=watcher_id, new_topics=new, deleted_topics=deleted, topics_hash=topics_hash
        )
    )


def schema(request_id: int, schema: api.Schema, version: bytes) -> bytes:
    """GET_SCHEMA_RESPONSE: the schema in its version, eight bytes."""
    return frame_of(
        api.CommandGetSchemaResponse(request_id=request_id, schema=schema, schema_version=version)
    )


def schema_failed(request_id: int, code: int, message: str) -> bytes:
    """GET_SCHEMA_RESPONSE with an error; TopicNotFound stands for "no schema"."""
    return frame_of(
        api.CommandGetSchemaResponse(
            request_id=request_id, error_code=api.ServerError.ValueType(code), error_message=message
        )
    )


def schema_accepted(request_id: int, version: bytes) -> bytes:
    """GET_OR_CREATE_SCHEMA_RESPONSE; the client puts the version into its messages, b"" = none."""
    return frame_of(api.CommandGetOrCreateSchemaResponse(request_id=request_id, schema_version=version))


def schema_refused(request_id: int, code: int, message: str) -> bytes:
    """GET_OR_CREATE_SCHEMA_RESPONSE with an error."""
    return frame_of(
        api.CommandGetOrCreateSchemaResponse(
            request_id=request_id, error_code=api.ServerError.ValueType(code), error_message=message
        )
    )
