"""Rights on the wire: the question before a command's work, and the end of clients whose right was withdrawn.

Each row of `command_table.py` has its right, or the reason for none. `ServerCnx.run` asks for it before the work of every
request, so no handler can forget to; a handler that has waited asks again. Each answer is read from memory. SEND, ACK and
FLOW are not asked for: their producer or consumer was, and it is closed when its right ends. Inside of a transaction the
handlers of SEND and ACK ask the right of their rows, `OwnTransaction`, once they know the transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple, cast

from broker.net.connection_context import ConnectionContext
from broker.net.ports import Connection, ConsumerOnConnection, ProducerOnConnection
from broker.security.authorization.access import Access
from broker.service.topics.topic import SubscriptionLike
from foundation.model.errors import TransactionNotFound, Unauthorized
from foundation.model.topic_name import TopicName, parse_topic_name
from foundation.model.txn_id import TxnId
from protocol.pulsar_api_pb2 import BaseCommand

log = logging.getLogger("magnetar.net")

Right = Callable[[Connection, BaseCommand], Iterable[Access | TxnId]]
"""Yields what a command gives access to, in the order of the questions: accesses, and transactions that must be the role's
own. Raises a BrokerError for a target that is not valid."""


class NoRight(NamedTuple):
    """Stands for a right at a command that needs none."""

    because: str
    """The reason."""


class OwnTransaction(NamedTuple):
    """The right of a command of a producer or consumer on this connection: to have begun the transaction that it names."""

    command: str
    """Name of the command."""

    def check(self, cnx: Connection, txn: TxnId) -> None:
        """Raises TransactionNotFound unless the client's role began the transaction, or is a superuser's.

        A transaction without an owner is everybody's; one that is not known is left to the caller. Acts without
        authorization too, as in Apache Pulsar.
        """
        coordinators, authorizer = cnx.context.coordinators, cnx.context.authorizer
        owner = None if coordinators is None else coordinators.owner(txn)
        if owner is None or owner == authorizer.client_role(cnx.principal):
            return
        if authorizer.enabled and authorizer.is_superuser(cnx.principal):
            return
        cnx.context.audit.refused(
            cnx.principal, cnx.address, self.command, f"transaction {txn}", "TransactionNotFound"
        )
        raise TransactionNotFound(
            f"{self.command} of transaction {txn}: another role began it; use a transaction of your own"
        )


CONNECTIONS_PER_SLICE = 100
"""Connections that are looked at before the loop serves others."""


def check_roles(cnx: Connection) -> None:
    """Raises Unauthorized for a proxy that names no client, and for a client that names another role."""
    fault = cnx.context.authorizer.connection_fault(cnx.principal)
    if fault is not None:
        cnx.context.audit.refused(cnx.principal, cnx.address, "CONNECT", "", "AuthorizationError")
        raise Unauthorized(fault)


def require(cnx: Connection, command: BaseCommand, right: Right | NoRight | OwnTransaction) -> None:
    """Raises Unauthorized or TransactionNotFound unless the client has the right, and what `right` itself raises.

    Raises ServiceNotReady while rights are too old to be in force; clients ask again then.
    """
    if isinstance(right, NoRight | OwnTransaction):
        return
    authorizer, name = cnx.context.authorizer, BaseCommand.Type.Name(command.type)
    authorizer.check_confirmed()
    for asked in right(cnx, command):
        if isinstance(asked, TxnId):
            OwnTransaction(name).check(cnx, asked)
        elif authorizer.enabled and not asked.is_allowed(authorizer, cnx.principal):
            raise _refused(cnx, name, asked.target)


def _refused(cnx: Connection, command: str, target: str) -> Unauthorized:
    cnx.context.audit.refused(cnx.principal, cnx.address, command, target, "AuthorizationError")
    return Unauthorized(
        f"{command} of {target}: the role lacks the right; an administrator of the tenant grants it"
    )


async def end_withdrawn(context: ConnectionContext) -> None:
    """Closes all producers, consumers and watchers whose role has lost its right."""
    for count, cnx in enumerate(list(context.connections)):
        # Every connection of the set is a ServerCnx; the context knows only the part that closes it.
        await end_withdrawn_of(cast("Connection", cnx))
        if count % CONNECTIONS_PER_SLICE == CONNECTIONS_PER_SLICE - 1:
            await asyncio.sleep(0)


async def end_withdrawn_of(cnx: Connection) -> None:
    """Closes what one connection has open without the right to it. Its client is told and may ask again."""
    authorizer, principal = cnx.context.authorizer, cnx.principal
    for watcher_id, watcher in list(cnx.watchers.items()):
        if not authorizer.may_list_topics(principal, watcher.namespace):
            watcher.stop()
            del cnx.watchers[watcher_id]
    for consumer_id, registration in list(cnx.shares.items()):
        group = registration.group
        # Otherwise the other consumers of the group would wait for partitions that nobody may read.
        if not authorizer.may_consume(principal, parse_topic_name(group.topic), group.subscription):
            cnx.context.partition_shares.leave(registration)
            del cnx.shares[consumer_id]
    for consumer in list(cnx.consumers.values()):
        name, subscribed = consumer.topic, consumer.subscription
        if name is None or subscribed is None:
            continue
        if not authorizer.may_consume(principal, name, subscribed.name):
            _end_consumer(cnx, consumer, name, subscribed)
    # Last, because only these wait: the list of a topic's producers may have to be stored.
    for producer in list(cnx.producers.values()):
        opened = producer.producer
        if opened is not None and not authorizer.may_produce(principal, opened.topic.name):
            await _end_producer(cnx, producer)


def _end_consumer(
    cnx: Connection, port: ConsumerOnConnection, topic: TopicName, subscribed: SubscriptionLike
) -> None:
    target = f"{topic} {subscribed.name}"
    cnx.context.audit.refused(cnx.principal, cnx.address, "withdrawn SUBSCRIBE", target, "CLOSE_CONSUMER")
    log.info("- %s consumer on %s: the right was withdrawn", cnx.address, target)
    consumer = port.consumer
    port.closed_by_broker()
    if consumer is not None:
        subscribed.remove_consumer(consumer)


async def _end_producer(cnx: Connection, port: ProducerOnConnection) -> None:
    opened = port.producer
    assert opened is not None, "checked by the caller"
    target = str(opened.topic.name)
    cnx.context.audit.refused(cnx.principal, cnx.address, "withdrawn PRODUCER", target, "CLOSE_PRODUCER")
    log.info("- %s producer %s on %s: the right was withdrawn", cnx.address, opened.name, target)
    port.closed_by_broker()
    await opened.topic.remove_producer(opened)
