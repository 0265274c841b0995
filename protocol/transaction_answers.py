"""Encodes the answers to transaction commands. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from protocol import pulsar_api_pb2 as api
from protocol.frame import command_frame

_FIELDS: Final[Mapping[int, tuple[int, str]]] = {
    api.BaseCommand.TC_CLIENT_CONNECT_REQUEST: (
        api.BaseCommand.TC_CLIENT_CONNECT_RESPONSE,
        "tcClientConnectResponse",
    ),
    api.BaseCommand.NEW_TXN: (api.BaseCommand.NEW_TXN_RESPONSE, "newTxnResponse"),
    api.BaseCommand.ADD_PARTITION_TO_TXN: (
        api.BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE,
        "addPartitionToTxnResponse",
    ),
    api.BaseCommand.ADD_SUBSCRIPTION_TO_TXN: (
        api.BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
        "addSubscriptionToTxnResponse",
    ),
    api.BaseCommand.END_TXN: (api.BaseCommand.END_TXN_RESPONSE, "endTxnResponse"),
    api.BaseCommand.END_TXN_ON_PARTITION: (
        api.BaseCommand.END_TXN_ON_PARTITION_RESPONSE,
        "endTxnOnPartitionResponse",
    ),
    api.BaseCommand.END_TXN_ON_SUBSCRIPTION: (
        api.BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE,
        "endTxnOnSubscriptionResponse",
    ),
}
"""Type and field of the answer, by the type of the request."""


def transaction_answer(
    request_type: int,
    request_id: int,
    txn: tuple[int, int] | None,
    failure: tuple[int, str] | None = None,
) -> bytes:
    """The answer to a transaction command.

    `txn`: most and least bits; None for TC_CLIENT_CONNECT_REQUEST. `failure`: (code, message), None = success.
    """
    kind, field = _FIELDS[request_type]
    command = api.BaseCommand(type=api.BaseCommand.Type.ValueType(kind))
    answer = getattr(command, field)
    answer.request_id = request_id
    if txn is not None:
        answer.txnid_most_bits, answer.txnid_least_bits = txn
    if failure is not None:
        answer.error, answer.message = failure
    return command_frame(command)
