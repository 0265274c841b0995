"""ACKs: from received frames to their subscriptions, a run at a time.

A run is entries that follow one another: in one ACK with many positions, or in the ACKs of one read. It is one operation of
the cursor. Ack sets, cumulative acknowledgements, transactions and scattered positions go one by one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Final

from broker.net import transaction_handlers
from broker.net.consumer_handlers import position_of
from broker.net.ports import Connection
from broker.net.slices import IDS_PER_SLICE, run_in_slices
from broker.service.consumer import Consumer
from broker.service.subscriptions.subscription import Subscription
from foundation.model.range_set import EntryRange
from protocol import answers
from protocol.ack_runs import following_acks, runs_of_ids
from protocol.errors import ProtocolError
from protocol.pulsar_api_pb2 import CommandAck, MessageIdData
from protocol.send_runs import Frame

log = logging.getLogger("magnetar.net")

NO_RUNS: Final[tuple[list[EntryRange], int]] = ([], 0)
"""Of an ACK without runs. Nothing is ever put in."""
PLACES_LOGGED: Final = 10
"""Positions of unreadable messages that one log line names."""


def acknowledge(cnx: Connection, request: CommandAck, frames: list[Frame], index: int) -> int:
    """Handles the ACK in `frames[index]`, and those after it that continue its run. Returns how many frames these are.

    0: the connection is paused, and this frame is to be handled again.

    One of an unknown consumer is ignored, even with a request id, as in Pulsar. ProtocolError: the connection must end.
    """
    if not (request.HasField("consumer_id") and request.HasField("ack_type")):
        raise ProtocolError("ACK lacks its consumer id or its type")
    port = cnx.consumers.get(request.consumer_id)
    if port is None or port.consumer is None:
        if not request.IsInitialized():
            raise ProtocolError("ACK lacks a required field")
        return 1
    if request.HasField("validation_error"):
        _log_unreadable(cnx, port.consumer, request)
    if request.HasField("txnid_most_bits") or request.HasField("txnid_least_bits"):
        return 1 if transaction_handlers.acknowledge(cnx, port, request) else 0
    subscription, consumer = port.subscription, port.consumer
    if not isinstance(subscription, Subscription):
        if request.HasField("request_id"):
            cnx.send(answers.ack_response(request.consumer_id, request.request_id))
        return 1
    message_ids = request.message_id
    count = len(message_ids)
    if count > IDS_PER_SLICE:
        run_in_slices(cnx, _acknowledge_many(cnx, subscription, consumer, request))
        return 1
    runs, following = NO_RUNS
    if count > 1 or index + 1 < len(frames):
        runs, following = _runs(cnx, request, frames, index)
    if runs:
        subscription.acknowledge(consumer, (), runs)
    else:
        _acknowledge(subscription, consumer, request, message_ids)
    if request.HasField("request_id"):
        _answer(cnx, subscription, request)
    return 1 + following


def _runs(
    cnx: Connection, request: CommandAck, frames: list[Frame], index: int
) -> tuple[list[EntryRange], int]:
    """Returns the runs of an ACK, and how many ACKs after it are in them. Without runs it goes the plain way.

    It has several positions, or frames after it.
    """
    message_ids = request.message_id
    if request.ack_type != CommandAck.Individual:
        return NO_RUNS
    buffer = cnx.inbox.buffer
    if len(message_ids) > 1:
        start, end, _ = frames[index]
        runs = runs_of_ids(bytes(buffer[start:end]), request)
        return [] if runs is None else [EntryRange(*run) for run in runs], 0
    if not message_ids:
        return NO_RUNS
    following = following_acks(buffer, frames, index, request)
    # Each ACK with one of these has an answer or a log line of its own.
    if not following or request.HasField("request_id") or request.HasField("validation_error"):
        return NO_RUNS
    first = message_ids[0]
    return [EntryRange(first.ledgerId, first.entryId, first.entryId + following)], following


def _acknowledge_many(
    cnx: Connection, subscription: Subscription, consumer: Consumer, request: CommandAck
) -> Iterator[None]:
    """Acknowledges a slice of the positions and yields; answers after the last one."""
    for first in range(0, len(request.message_id), IDS_PER_SLICE):
        if subscription.cursor.closed:
            # The topic was closed or the subscription deleted since the last slice.
            return
        _acknowledge(subscription, consumer, request, request.message_id[first : first + IDS_PER_SLICE])
        yield
    if request.HasField("request_id"):
        _answer(cnx, subscription, request)


def _answer(cnx: Connection, subscription: Subscription, request: CommandAck) -> None:
    response = answers.ack_response(request.consumer_id, request.request_id)
    # The client asked for an answer, so it comes when the acknowledgement cannot be lost any more.
    subscription.when_kept(lambda: cnx.send(response))


def _log_unreadable(cnx: Connection, consumer: Consumer, request: CommandAck) -> None:
    """Logs messages that the client acknowledges because it could not read them, as Pulsar does."""
    reason = CommandAck.ValidationError.Name(request.validation_error)
    places = ", ".join(str(position_of(message_id)) for message_id in request.message_id[:PLACES_LOGGED])
    log.error("! %s consumer %s could not read %s: %s", cnx.address, consumer.name, places, reason)


def _acknowledge(
    subscription: Subscription,
    consumer: Consumer,
    request: CommandAck,
    message_ids: Sequence[MessageIdData],
) -> None:
    """Acknowledges some of the positions of a request, or all."""
    if request.ack_type == CommandAck.Cumulative:
        # Pulsar ignores a cumulative acknowledgement of several positions.
        if len(request.message_id) == 1:
            message_id = request.message_id[0]
            _check_complete(message_id)
            subscription.acknowledge_cumulative(
                consumer, position_of(message_id), tuple(message_id.ack_set) or None
            )
        return
    whole: list[tuple[int, int]] = []
    for message_id in message_ids:
        key = message_id.ledgerId, message_id.entryId
        # A missing number reads as 0, and only a 0 needs the slower look.
        if 0 in key:
            _check_complete(message_id)
        # An ack set needs its own call; whole entries are gathered, because one call for all of them is cheaper.
        if message_id.ack_set:
            subscription.acknowledge_batch(
                consumer, position_of(message_id), tuple(message_id.ack_set), message_id.batch_size
            )
        else:
            whole.append(key)
    if whole:
        subscription.acknowledge(consumer, whole)


def _check_complete(message_id: MessageIdData) -> None:
    if not message_id.IsInitialized():
        raise ProtocolError("ACK lacks a ledger or an entry id")
