"""The table of command handlers. A command that is missing here ends the connection: it is not for a broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from broker.net import (
    consumer_handlers,
    handshake,
    lookup_handlers,
    producer_handlers,
    scalable_handlers,
    schema_handlers,
    transaction_handlers,
)
from broker.net.ports import Connection
from protocol.pulsar_api_pb2 import BaseCommand

Handler = Callable[[Connection, BaseCommand], None]
"""Runs inside the event loop's callback; requests that have to wait start a task with `Connection.run`."""

ALLOWED_BEFORE_CONNECT: Final = frozenset({BaseCommand.CONNECT, BaseCommand.PING, BaseCommand.PONG})
"""Any other command before CONNECT ends the connection; PING gets its PONG, as recorded of Pulsar 4.2.4."""

HANDLERS: Final[Mapping[int, Handler]] = {
    # SEND is missing on purpose: `ServerCnx` passes it to its producer directly.
    BaseCommand.CONNECT: handshake.connect,
    BaseCommand.PING: handshake.ping,
    BaseCommand.PONG: handshake.pong,
    BaseCommand.AUTH_RESPONSE: handshake.auth_response,
    BaseCommand.PARTITIONED_METADATA: lookup_handlers.partitioned_metadata,
    BaseCommand.LOOKUP: lookup_handlers.lookup,
    BaseCommand.GET_TOPICS_OF_NAMESPACE: lookup_handlers.topics_of_namespace,
    BaseCommand.WATCH_TOPIC_LIST: lookup_handlers.watch_topic_list,
    BaseCommand.WATCH_TOPIC_LIST_CLOSE: lookup_handlers.watch_topic_list_close,
    BaseCommand.PRODUCER: producer_handlers.producer,
    BaseCommand.CLOSE_PRODUCER: producer_handlers.close_producer,
    BaseCommand.SUBSCRIBE: consumer_handlers.subscribe,
    BaseCommand.FLOW: consumer_handlers.flow,
    BaseCommand.ACK: consumer_handlers.ack,
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: consumer_handlers.redeliver,
    BaseCommand.UNSUBSCRIBE: consumer_handlers.unsubscribe,
    BaseCommand.CLOSE_CONSUMER: consumer_handlers.close_consumer,
    BaseCommand.SEEK: consumer_handlers.seek,
    BaseCommand.GET_LAST_MESSAGE_ID: consumer_handlers.last_message_id,
    BaseCommand.CONSUMER_STATS: consumer_handlers.consumer_stats,
    BaseCommand.GET_SCHEMA: schema_handlers.get_schema,
    BaseCommand.GET_OR_CREATE_SCHEMA: schema_handlers.get_or_create_schema,
    BaseCommand.SCALABLE_TOPIC_LOOKUP: scalable_handlers.layout,
    BaseCommand.SCALABLE_TOPIC_CLOSE: scalable_handlers.close,
    BaseCommand.SCALABLE_TOPIC_SUBSCRIBE: scalable_handlers.subscribe,
    BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE: scalable_handlers.unsubscribe,
    BaseCommand.WATCH_SCALABLE_TOPICS: scalable_handlers.watch_topics,
    BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE: scalable_handlers.close,
    BaseCommand.WATCH_TC_ASSIGNMENTS: scalable_handlers.watch_coordinators,
    BaseCommand.WATCH_TC_ASSIGNMENTS_CLOSE: scalable_handlers.close,
    **dict.fromkeys(transaction_handlers.COMMANDS, transaction_handlers.handle),
}
"""Handler of each command type."""
