"""The table of commands: handler and right of each. A command without a row ends the connection: it is not for a broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from broker.net import (
    consumer_handlers,
    handshake,
    lookup_handlers,
    producer_handlers,
    scalable_handlers,
    schema_handlers,
    sends,
    transaction_handlers,
)
from broker.net.ports import Connection
from broker.net.rights import NoRight, OwnTransaction, Right
from protocol.pulsar_api_pb2 import BaseCommand

CommandHandler = Callable[[Connection, BaseCommand], None]
"""Runs inside the event loop's callback; requests that have to wait start a task with `Connection.run`."""

ALLOWED_BEFORE_CONNECT: Final = frozenset({BaseCommand.CONNECT, BaseCommand.PING, BaseCommand.PONG})
"""Any other command before CONNECT ends the connection; PING gets its PONG, as recorded of Pulsar 4.2.4."""


class CommandRow(NamedTuple):
    """A command type: its handler and its right."""

    handler: CommandHandler | None
    """None = `ServerCnx` handles it itself."""
    right: Right | NoRight | OwnTransaction
    """`ServerCnx.run` asks for it before the command's work; `OwnTransaction` is asked by the handler."""


_HANDSHAKE: Final = NoRight("the handshake: it finds the role, or keeps the connection alive")
_OWN_PRODUCER: Final = NoRight(
    "its producer on this connection has the right, and is closed when the right ends"
)
_OWN_CONSUMER: Final = NoRight(
    "its consumer on this connection has the right, and is closed when the right ends"
)
_OWN_WATCH: Final = NoRight("it ends what this connection has begun")

ROWS: Final[Mapping[BaseCommand.Type.ValueType, CommandRow]] = {
    # SEND has no handler on purpose: `ServerCnx` passes it to its producer directly.
    BaseCommand.SEND: CommandRow(None, sends.RIGHT),
    BaseCommand.CONNECT: CommandRow(handshake.connect, _HANDSHAKE),
    BaseCommand.PING: CommandRow(handshake.ping, _HANDSHAKE),
    BaseCommand.PONG: CommandRow(handshake.pong, _HANDSHAKE),
    BaseCommand.AUTH_RESPONSE: CommandRow(handshake.auth_response, _HANDSHAKE),
    BaseCommand.PARTITIONED_METADATA: CommandRow(
        lookup_handlers.partitioned_metadata, lookup_handlers.partitioned_access
    ),
    BaseCommand.LOOKUP: CommandRow(lookup_handlers.lookup, lookup_handlers.lookup_access),
    BaseCommand.GET_TOPICS_OF_NAMESPACE: CommandRow(
        lookup_handlers.topics_of_namespace, lookup_handlers.topics_access
    ),
    BaseCommand.WATCH_TOPIC_LIST: CommandRow(lookup_handlers.watch_topic_list, lookup_handlers.watch_access),
    BaseCommand.WATCH_TOPIC_LIST_CLOSE: CommandRow(lookup_handlers.watch_topic_list_close, _OWN_WATCH),
    BaseCommand.PRODUCER: CommandRow(producer_handlers.producer, producer_handlers.producer_access),
    BaseCommand.CLOSE_PRODUCER: CommandRow(producer_handlers.close_producer, _OWN_PRODUCER),
    BaseCommand.SUBSCRIBE: CommandRow(consumer_handlers.subscribe, consumer_handlers.subscribe_access),
    BaseCommand.FLOW: CommandRow(consumer_handlers.flow, _OWN_CONSUMER),
    # Nor has ACK, whose run may go on in the next frames.
    BaseCommand.ACK: CommandRow(None, transaction_handlers.ACK_RIGHT),
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: CommandRow(consumer_handlers.redeliver, _OWN_CONSUMER),
    BaseCommand.UNSUBSCRIBE: CommandRow(consumer_handlers.unsubscribe, _OWN_CONSUMER),
    BaseCommand.CLOSE_CONSUMER: CommandRow(consumer_handlers.close_consumer, _OWN_CONSUMER),
    BaseCommand.SEEK: CommandRow(consumer_handlers.seek, _OWN_CONSUMER),
    BaseCommand.GET_LAST_MESSAGE_ID: CommandRow(consumer_handlers.last_message_id, _OWN_CONSUMER),
    BaseCommand.CONSUMER_STATS: CommandRow(consumer_handlers.consumer_stats, _OWN_CONSUMER),
    BaseCommand.GET_SCHEMA: CommandRow(schema_handlers.get_schema, schema_handlers.read_access),
    BaseCommand.GET_OR_CREATE_SCHEMA: CommandRow(
        schema_handlers.get_or_create_schema, schema_handlers.write_access
    ),
    BaseCommand.SCALABLE_TOPIC_LOOKUP: CommandRow(scalable_handlers.layout, scalable_handlers.layout_access),
    BaseCommand.SCALABLE_TOPIC_CLOSE: CommandRow(scalable_handlers.close, _OWN_WATCH),
    BaseCommand.SCALABLE_TOPIC_SUBSCRIBE: CommandRow(
        scalable_handlers.subscribe, scalable_handlers.subscribe_access
    ),
    BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE: CommandRow(scalable_handlers.unsubscribe, _OWN_WATCH),
    BaseCommand.WATCH_SCALABLE_TOPICS: CommandRow(
        scalable_handlers.watch_topics, scalable_handlers.watch_access
    ),
    BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE: CommandRow(scalable_handlers.close, _OWN_WATCH),
    BaseCommand.WATCH_TC_ASSIGNMENTS: CommandRow(
        scalable_handlers.watch_coordinators,
        NoRight("it tells the addresses of brokers, which every role knows that connected to one"),
    ),
    BaseCommand.WATCH_TC_ASSIGNMENTS_CLOSE: CommandRow(scalable_handlers.close_coordinators, _OWN_WATCH),
    BaseCommand.TC_CLIENT_CONNECT_REQUEST: CommandRow(
        transaction_handlers.handle,
        NoRight(
            "every role may begin transactions; a superuser alone opens coordinators that no lookup tells"
        ),
    ),
    BaseCommand.NEW_TXN: CommandRow(
        transaction_handlers.handle,
        NoRight("every role may begin transactions; what one contains needs a right to each topic"),
    ),
    BaseCommand.ADD_PARTITION_TO_TXN: CommandRow(
        transaction_handlers.handle, transaction_handlers.topics_access
    ),
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN: CommandRow(
        transaction_handlers.handle, transaction_handlers.subscriptions_access
    ),
    BaseCommand.END_TXN: CommandRow(transaction_handlers.handle, transaction_handlers.end_access),
    BaseCommand.END_TXN_ON_PARTITION: CommandRow(
        transaction_handlers.handle, transaction_handlers.end_on_topic_access
    ),
    BaseCommand.END_TXN_ON_SUBSCRIPTION: CommandRow(
        transaction_handlers.handle, transaction_handlers.end_on_subscription_access
    ),
}
"""Handler and right of each command type."""

HANDLERS: Final[Mapping[int, CommandHandler]] = {
    kind: row.handler for kind, row in ROWS.items() if row.handler is not None
}
"""Handler of each command type: one dictionary, because every FLOW and ACK looks into it."""
