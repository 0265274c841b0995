"""SENDs: from received frames to their producers, a run at a time.

A run is what one producer has sent in one read: SENDs with following sequence ids, without anything unusual. It is
parsed, counted and passed on once. A SEND that is damaged, delayed, in a transaction, or of a topic with a rule about single
messages, is a run of one, and so is each SEND of a client that jumps in its sequence ids.
"""

from __future__ import annotations

from typing import Final

from broker.net.ports import Connection, ProducerOnConnection
from broker.net.rights import OwnTransaction
from broker.net.transaction_handlers import check_asked, waits_to_publish
from broker.service.producer import Producer
from foundation.model.errors import (
    BrokerError,
    ChecksumMismatch,
    NotAllowed,
    ServiceNotReady,
    TransactionNotFound,
)
from foundation.model.txn_id import TxnId
from protocol.errors import ProtocolError
from protocol.message_metadata import in_transaction, names_transaction
from protocol.pulsar_api_pb2 import CommandSend
from protocol.send_runs import Frame, following_sends
from protocol.sent_body import Judgement, judge_body

# Once: a member that is asked of its enum costs 90 ns.
_CORRUPT, _PLAIN, _MAY_NAME_TRANSACTION = Judgement.CORRUPT, Judgement.PLAIN, Judgement.MAY_NAME_TRANSACTION
RIGHT: Final = OwnTransaction("SEND")
"""Its producer has the right to the topic, and is closed when that right ends."""


def publish(cnx: Connection, send: CommandSend, frames: list[Frame], index: int) -> int:
    """Publishes the run of SENDs that begins with `send`, the one in `frames[index]`. Returns how many frames it has.

    0: the connection is paused, and this frame is to be handled again.
    `send` has a producer id. ProtocolError: the connection must end.
    """
    producer_id, sequence_id = send.producer_id, send.sequence_id
    # A missing sequence id reads as 0; only a 0 needs the slower look.
    if not sequence_id and not send.HasField("sequence_id"):
        raise ProtocolError("SEND lacks its sequence id")
    port = cnx.producers.get(producer_id)
    producer = None if port is None else port.producer
    if port is None or producer is None or producer.waiting or producer.ended:
        # The broker closes it. After the client's own CLOSE_PRODUCER a SEND ends the connection, as in Pulsar.
        if producer_id in cnx.closed_producers:
            return 1
        raise ProtocolError(f"SEND from producer {producer_id}, which is not open here")
    inbox = cnx.inbox
    buffer, view = inbox.buffer, inbox.view
    _, body_start, body_end = frames[index]
    body = view[body_start:body_end]
    judged = judge_body(buffer, body_start, body)
    if judged is _CORRUPT or send.HasField("txnid_most_bits"):
        if judged is not _CORRUPT and _waits(cnx, producer, send):
            return 0
        _count(cnx, port, 1, len(body))
        _publish_unusual(cnx, producer, send, body, judged)
        if judged is _CORRUPT:
            _close_when_answered(cnx, port, producer)
        return 1
    if judged is _MAY_NAME_TRANSACTION and names_transaction(body):
        # Readers know transactions by the metadata alone. Stored, it would hide itself, hold back other messages, or
        # end a transaction in the place of its coordinator.
        _count(cnx, port, 1, len(body))
        forged = NotAllowed("Only a SEND in a transaction may name one in its metadata")
        producer.refuse(sequence_id, send.highest_sequence_id, body, forged)
        return 1
    bodies, size, sends = [body], body_end - body_start, None
    if port.replicates:
        sends = port.replicated(body)
    elif judged is _PLAIN and index + 1 < len(frames) and not producer.topic.single_sends:
        following = following_sends(buffer, view, frames, index, send)
        bodies += following
        size += sum(map(len, following))
    messages, count = send.num_messages, len(bodies)
    _count(cnx, port, count, size)
    producer.publish(
        sequence_id,
        send.highest_sequence_id,
        messages if messages > 0 else 1,
        list(map(bytes, bodies)) if inbox.transient else bodies,
        size,
        send.is_chunk,
        judged is not _PLAIN,
        sends,
    )
    return count


def _waits(cnx: Connection, producer: Producer, send: CommandSend) -> bool:
    topic, txn = producer.topic, TxnId(send.txnid_most_bits, send.txnid_least_bits)
    return waits_to_publish(cnx, topic.name, topic.transactions, txn)


def _count(cnx: Connection, port: ProducerOnConnection, count: int, size: int) -> None:
    # Before the checks of the topic: the port subtracts again for every outcome, a refusal included.
    gate = cnx.gate
    gate.pending_publishes += count
    gate.pending_bytes += size
    port.unanswered += count


def _publish_unusual(
    cnx: Connection, producer: Producer, send: CommandSend, body: memoryview, judged: Judgement
) -> None:
    """Publishes or refuses a SEND that is damaged or in a transaction."""
    refusal: BrokerError
    if judged is _CORRUPT:
        cnx.context.note_corrupt(cnx.address, len(body))
        refusal = ChecksumMismatch("Checksum failed on the broker")
    elif cnx.context.coordinators is None:
        refusal = NotAllowed("Transactions are not enabled")
    else:
        txn = TxnId(send.txnid_most_bits, send.txnid_least_bits)
        try:
            check_asked(cnx, txn)
            RIGHT.check(cnx, txn)
        except TransactionNotFound as error:
            # The error of a SEND in a transaction that is not open: official clients fail the message and go on.
            refusal = NotAllowed(str(error))
        except ServiceNotReady as error:
            # Clients connect again, and send again.
            refusal = error
        else:
            _publish_in_transaction(cnx, producer, send, body, txn)
            return
    producer.refuse(send.sequence_id, send.highest_sequence_id, body, refusal)


def _close_when_answered(cnx: Connection, port: ProducerOnConnection, producer: Producer) -> None:
    """Publishes no later SEND of a producer, and closes it once those before are answered.

    Clients answer a wrong checksum by sending the message again, and all that followed it. The broker would store those
    twice; with deduplication it would take the message itself for an old one, and confirm it without storing it.
    """
    producer.ended = True
    cnx.ignore_sends_of(port.producer_id)

    def close() -> None:
        cnx.context.spawn(_close(port, producer), f"producer {producer.name} is closed after a damaged SEND")

    if port.unanswered:
        port.when_answered(close)
    else:
        close()


async def _close(port: ProducerOnConnection, producer: Producer) -> None:
    # Before the client knows, because it opens the producer again under the same name.
    await producer.topic.remove_producer(producer)
    port.closed_by_broker()


def _publish_in_transaction(
    cnx: Connection, producer: Producer, send: CommandSend, body: memoryview, txn: TxnId
) -> None:
    stored = in_transaction(body, *txn)
    # The port subtracts the size that is stored.
    size = len(stored)
    cnx.gate.pending_bytes += size - len(body)
    producer.publish_in_transaction(
        txn,
        send.sequence_id,
        send.highest_sequence_id,
        send.num_messages if send.num_messages > 0 else 1,
        bytes(stored) if cnx.inbox.transient else stored,
        size,
        send.is_chunk,
    )
