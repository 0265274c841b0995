"""Handlers of transaction commands, and of ACK and SEND inside of transactions.

With `transactionCoordinatorEnabled=false` each is refused as Pulsar refuses it (`refusals.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Final, TypeAlias

from broker.managed_ledger.acks import WORDS_MAX
from broker.net import refusals
from broker.net.ports import AskedTransaction, Connection, ConsumerOnConnection
from broker.net.rights import OwnTransaction
from broker.net.slices import IDS_PER_SLICE, run_in_slices
from broker.security.authorization.access import Access, consume, produce, superuser
from broker.service.producer import TransactionGate
from broker.service.subscriptions.subscription import Subscription
from broker.service.subscriptions.transactional_acks import acknowledge_in_transaction
from broker.service.transactions.coordinator import RETRY_SECONDS
from broker.service.transactions.coordinators import Coordinators
from broker.service.transactions.pending_acks import AckedEntry
from broker.service.transactions.topic_transactions import TopicTransactions
from foundation.model.errors import BrokerError, NotAllowed, ServiceNotReady, TransactionNotFound
from foundation.model.topic_name import TopicName, parse_topic_name
from foundation.model.txn_id import TxnId
from protocol import answers
from protocol.errors import ProtocolError
from protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandAck,
    CommandAddPartitionToTxn,
    CommandAddSubscriptionToTxn,
    CommandEndTxn,
    CommandEndTxnOnPartition,
    CommandEndTxnOnSubscription,
    MessageIdData,
    TxnAction,
)
from protocol.transaction_answers import transaction_answer

_OfTransaction: TypeAlias = (
    CommandAddPartitionToTxn
    | CommandAddSubscriptionToTxn
    | CommandEndTxn
    | CommandEndTxnOnPartition
    | CommandEndTxnOnSubscription
)

Work: TypeAlias = Callable[[], Coroutine[object, object, object]]
"""Begins the work of a command. A coroutine that a refused command never begins would be one that is never awaited."""
ATTEMPTS_MAX: Final = 15
"""Questions to the coordinator of one transaction, a second apart, before its message or acknowledgement is refused."""
ACK_RIGHT: Final = OwnTransaction("ACK")
"""Its consumer has the right to the subscription, and is closed when that right ends."""


def _txn(request: _OfTransaction | CommandAck) -> TxnId:
    return TxnId(request.txnid_most_bits, request.txnid_least_bits)


def _commits(request: CommandEndTxn | CommandEndTxnOnPartition | CommandEndTxnOnSubscription) -> bool:
    # An action that this version does not know reads as absent, and absent as COMMIT: neither may commit.
    if not request.HasField("txn_action"):
        raise ProtocolError("the end of a transaction lacks its action")
    return request.txn_action == TxnAction.COMMIT


def _run(
    cnx: Connection,
    command: BaseCommand,
    request_id: int,
    txn: tuple[int, int] | None,
    work: Work,
) -> None:
    """Runs the work as a task, then sends the answer to the command: success, or its error."""
    kind = command.type

    async def answered() -> None:
        await work()
        cnx.send(transaction_answer(kind, request_id, txn))

    def refuse(error: BrokerError) -> bytes:
        return transaction_answer(kind, request_id, txn, (error.code, str(error)))

    cnx.run(command, answered(), refuse)


def _of_transaction(cnx: Connection, command: BaseCommand, request: _OfTransaction, work: Work) -> None:
    _run(cnx, command, request.request_id, _txn(request), work)


def _connect(cnx: Connection, command: BaseCommand, coordinators: Coordinators) -> None:
    """Handles TC_CLIENT_CONNECT_REQUEST: opens the coordinator that the client wants to use."""
    request, authorizer = command.tcClientConnectRequest, cnx.context.authorizer
    restricted = authorizer.enabled and not authorizer.is_superuser(cnx.principal)
    _run(
        cnx,
        command,
        request.request_id,
        None,
        partial(coordinators.connect, request.tc_id, restricted=restricted),
    )


def _begin(cnx: Connection, command: BaseCommand, coordinators: Coordinators) -> None:
    """Handles NEW_TXN: begins a transaction."""
    request = command.newTxn
    request_id, number = request.request_id, request.tc_id
    owner = cnx.context.authorizer.client_role(cnx.principal)

    async def work() -> None:
        # Milliseconds, whatever the field is called; recorded of Pulsar 4.2.4.
        txn = await coordinators.at(number).begin(request.txn_ttl_seconds, owner, cnx.transactions)
        cnx.send(transaction_answer(BaseCommand.NEW_TXN, request_id, txn))

    def refuse(error: BrokerError) -> bytes:
        return transaction_answer(BaseCommand.NEW_TXN, request_id, (number, 0), (error.code, str(error)))

    cnx.run(command, work(), refuse)


def _add_topics(cnx: Connection, command: BaseCommand, coordinators: Coordinators) -> None:
    """Handles ADD_PARTITION_TO_TXN: the transaction will publish to these topics."""
    request = command.addPartitionToTxn
    txn = _txn(request)

    async def work() -> None:
        await coordinators.at(txn.most).add_topics(txn, tuple(request.partitions))

    _of_transaction(cnx, command, request, work)


def topics_access(cnx: Connection, command: BaseCommand) -> Iterator[Access | TxnId]:
    """Yields the transaction, and publishing to each topic. Raises NotAllowed for a topic that is not persistent."""
    request = command.addPartitionToTxn
    yield _txn(request)
    for topic in request.partitions:
        name = parse_topic_name(topic)
        if not name.is_persistent:
            raise NotAllowed(f"{topic} is not persistent; transactions need persistent topics")
        yield produce(name)


def _add_subscriptions(cnx: Connection, command: BaseCommand, coordinators: Coordinators) -> None:
    """Handles ADD_SUBSCRIPTION_TO_TXN: the transaction will acknowledge on these subscriptions."""
    request = command.addSubscriptionToTxn
    txn = _txn(request)

    async def work() -> None:
        named = tuple((one.topic, one.subscription) for one in request.subscription)
        await coordinators.at(txn.most).add_subscriptions(txn, named)

    _of_transaction(cnx, command, request, work)


def subscriptions_access(cnx: Connection, command: BaseCommand) -> Iterator[Access | TxnId]:
    """Yields the transaction, and consuming through each subscription."""
    request = command.addSubscriptionToTxn
    yield _txn(request)
    for one in request.subscription:
        yield consume(parse_topic_name(one.topic), one.subscription)


def _end(cnx: Connection, command: BaseCommand, coordinators: Coordinators) -> None:
    """Handles END_TXN: commits or aborts; answered when every topic and subscription knows."""
    request = command.endTxn
    txn, commit = _txn(request), _commits(request)

    async def work() -> None:
        await coordinators.at(txn.most).end(txn, commit=commit)

    _of_transaction(cnx, command, request, work)


def end_access(cnx: Connection, command: BaseCommand) -> Iterator[TxnId]:
    """Yields the transaction."""
    yield _txn(command.endTxn)


def _end_on_topic(cnx: Connection, command: BaseCommand, coordinators: Coordinators) -> None:
    """Handles END_TXN_ON_PARTITION, by which another broker's coordinator ends a transaction on a topic."""
    request = command.endTxnOnPartition
    commit, participants = _commits(request), coordinators.participants

    work = partial(participants.end_on_topic, request.topic, _txn(request), commit=commit)
    _of_transaction(cnx, command, request, work)


def end_on_topic_access(cnx: Connection, command: BaseCommand) -> Iterator[Access]:
    """Yields what brokers do towards each other."""
    yield superuser(command.endTxnOnPartition.topic)


def _end_on_subscription(cnx: Connection, command: BaseCommand, coordinators: Coordinators) -> None:
    """Handles END_TXN_ON_SUBSCRIPTION, likewise for a subscription."""
    request = command.endTxnOnSubscription
    subscribed = request.subscription.topic, request.subscription.subscription
    commit, participants = _commits(request), coordinators.participants

    work = partial(participants.end_on_subscription, subscribed, _txn(request), commit=commit)
    _of_transaction(cnx, command, request, work)


def end_on_subscription_access(cnx: Connection, command: BaseCommand) -> Iterator[Access]:
    """Yields what brokers do towards each other."""
    request = command.endTxnOnSubscription.subscription
    yield superuser(f"{request.topic} {request.subscription}")


_HANDLERS: Final[Mapping[int, Callable[[Connection, BaseCommand, Coordinators], None]]] = {
    BaseCommand.TC_CLIENT_CONNECT_REQUEST: _connect,
    BaseCommand.NEW_TXN: _begin,
    BaseCommand.ADD_PARTITION_TO_TXN: _add_topics,
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN: _add_subscriptions,
    BaseCommand.END_TXN: _end,
    BaseCommand.END_TXN_ON_PARTITION: _end_on_topic,
    BaseCommand.END_TXN_ON_SUBSCRIPTION: _end_on_subscription,
}


def handle(cnx: Connection, command: BaseCommand) -> None:
    """Handles a transaction command; refuses it while this broker has no coordinators."""
    coordinators = cnx.context.coordinators
    if coordinators is None:
        refusals.transactions(cnx, command)
    else:
        _HANDLERS[command.type](cnx, command, coordinators)


def waits_to_publish(cnx: Connection, topic: TopicName, gate: TransactionGate, txn: TxnId) -> bool:
    """Returns True where a SEND of a transaction has to be handled again: its coordinator at another broker is asked first.

    `check_asked` tells of a question without an answer.
    """
    coordinators, name = cnx.context.coordinators, str(topic)
    if coordinators is None or not coordinators.prepares_late or not isinstance(gate, TopicTransactions):
        return False
    if coordinators.publishes(txn, name):
        if gate.buffer is not None:
            return False
    elif not coordinators.may_learn(txn):
        return False

    async def prepare() -> None:
        if not coordinators.publishes(txn, name):
            await coordinators.learn(txn)
        if coordinators.publishes(txn, name):
            await gate.open_buffer()

    return _waits(cnx, txn, prepare)


def _waits_to_acknowledge(cnx: Connection, port: ConsumerOnConnection, txn: TxnId) -> bool:
    """Returns True where an ACK of a transaction has to be handled again, likewise."""
    coordinators, subscription = cnx.context.coordinators, port.subscription
    if coordinators is None or not isinstance(subscription, Subscription):
        return False
    subscribed = str(subscription.topic.name), subscription.name
    if coordinators.acknowledges(txn, subscribed) or not coordinators.may_learn(txn):
        return False
    return _waits(cnx, txn, partial(coordinators.learn, txn))


def _waits(cnx: Connection, txn: TxnId, work: Callable[[], Coroutine[object, object, None]]) -> bool:
    """Pauses the connection for the work, unless it has been done for the command that is being handled again."""
    if cnx.asked is not None and cnx.asked.txn == txn:
        return False
    cnx.pause()
    cnx.context.spawn(_ask(cnx, txn, work), f"transaction {txn} of another broker")
    return True


def check_asked(cnx: Connection, txn: TxnId) -> None:
    """Raises ServiceNotReady where the transaction's coordinator gave no answer. Every later command asks again."""
    asked, cnx.asked = cnx.asked, None
    if asked is not None and asked.txn == txn and asked.error is not None:
        raise asked.error


async def _ask(cnx: Connection, txn: TxnId, work: Callable[[], Coroutine[object, object, None]]) -> None:
    """Tries the work until the coordinator answers: after a crash another broker has to take it first."""
    error: BrokerError | None = None
    try:
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                await asyncio.sleep(RETRY_SECONDS)
            try:
                await work()
                error = None
                break
            except BrokerError as failed:
                error = failed
    finally:
        cnx.asked = AskedTransaction(txn, error and ServiceNotReady(f"Transaction {txn}: {error}"))
        cnx.go_on()


def acknowledge(cnx: Connection, port: ConsumerOnConnection, request: CommandAck) -> bool:
    """Handles an ACK with a transaction, by an open consumer. Its answer comes when it is durable.

    Returns False where it has to be handled again, after a question to the transaction's coordinator.

    With more than IDS_PER_SLICE positions it takes several turns of the loop. All of them are checked before the first one
    holds, so a refusal changes nothing, unless another transaction acknowledges one of them in between.
    """
    if _waits_to_acknowledge(cnx, port, _txn(request)):
        return False
    try:
        check_asked(cnx, _txn(request))
    except ServiceNotReady as error:
        _refuse_ack(cnx, request, error)
        return True
    if len(request.message_id) > IDS_PER_SLICE:
        run_in_slices(cnx, _acknowledge(cnx, port, request))
    else:
        for _ in _acknowledge(cnx, port, request):
            pass
    return True


def _refuse_ack(cnx: Connection, request: CommandAck, error: BrokerError) -> None:
    if request.HasField("request_id"):
        failure = error.code, str(error)
        cnx.send(answers.ack_response(request.consumer_id, request.request_id, failure))


def _acknowledge(cnx: Connection, port: ConsumerOnConnection, request: CommandAck) -> Iterator[None]:
    """Does the work of an ACK and answers it; yields after each slice."""
    response = answers.ack_response(request.consumer_id, request.request_id)
    try:
        subscription = _subscription(cnx, port, request)
        for entries in _slices(subscription, request):
            if entries:
                # Again for each slice: meanwhile the transaction may have ended, or the topic may have been closed.
                _subscription(cnx, port, request)
                _acknowledge_slice(subscription, port, request, entries)
            yield
    except BrokerError as error:
        _refuse_ack(cnx, request, error)
        return
    if request.HasField("request_id"):
        subscription.require_transactional().when_kept(lambda: cnx.send(response))


def _subscription(cnx: Connection, port: ConsumerOnConnection, request: CommandAck) -> Subscription:
    """Returns the subscription if the transaction may acknowledge on it. NotAllowed, TransactionNotFound."""
    coordinators, subscription = cnx.context.coordinators, port.subscription
    if coordinators is None or not isinstance(subscription, Subscription):
        raise NotAllowed("Server don't support transaction ack!")
    txn = _txn(request)
    ACK_RIGHT.check(cnx, txn)
    if not coordinators.acknowledges(txn, (str(subscription.topic.name), subscription.name)):
        raise TransactionNotFound(
            f"Transaction {txn} is not open on subscription {subscription.name}; add the subscription to it first"
        )
    return subscription


def _slices(subscription: Subscription, request: CommandAck) -> Iterator[list[AckedEntry]]:
    """Yields the positions to acknowledge, a slice at a time; an empty slice for each one that was only checked."""
    message_ids, txn = request.message_id, _txn(request)
    cumulative = request.ack_type == CommandAck.Cumulative
    # Pulsar ignores a cumulative acknowledgement of several positions outside of transactions; here it is refused.
    if cumulative and len(message_ids) != 1:
        raise NotAllowed(f"A cumulative acknowledgement names one position, not {len(message_ids)}")
    transactional = subscription.require_transactional()
    transactional.check_room(len(message_ids))
    checked: list[list[AckedEntry]] = []
    for first in range(0, len(message_ids), IDS_PER_SLICE):
        checked.append([_acked_entry(one) for one in message_ids[first : first + IDS_PER_SLICE]])
        if not cumulative:
            transactional.check(txn, checked[-1])
        yield []
    yield from checked


def _acknowledge_slice(
    subscription: Subscription, port: ConsumerOnConnection, request: CommandAck, entries: list[AckedEntry]
) -> None:
    assert port.consumer is not None
    if subscription.cursor.closed:
        raise ServiceNotReady(f"Topic {subscription.topic.name} is being closed")
    cumulative = request.ack_type == CommandAck.Cumulative
    acknowledge_in_transaction(subscription, port.consumer, _txn(request), entries, cumulative=cumulative)


def _acked_entry(message_id: MessageIdData) -> AckedEntry:
    # A missing number reads as 0, and only a 0 needs the slower look.
    if not (message_id.ledgerId and message_id.entryId) and not message_id.IsInitialized():
        raise ProtocolError("ACK lacks a ledger or an entry id")
    if len(message_id.ack_set) > WORDS_MAX:
        raise NotAllowed(f"An ack set has at most {WORDS_MAX} words, not {len(message_id.ack_set)}")
    return AckedEntry(
        (message_id.ledgerId, message_id.entryId), tuple(message_id.ack_set), message_id.batch_size
    )
