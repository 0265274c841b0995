"""Encodes the answers to transaction commands. Pure: no I/O, no clock."""

from __future__ import annotations

from protocol import pulsar_api_pb2 as api
from protocol.frame import frame_of


def transaction_answer(
    request_type: int,
    request_id: int,
    txn: tuple[int, int] | None,
    failure: tuple[int, str] | None = None,
) -> bytes:
    """Returns the answer to a transaction command.

    `txn`: most and least bits; None for TC_CLIENT_CONNECT_REQUEST. `failure`: (code, message), None = success.
    """
    # In Pulsar's protocol the type of a transaction command's answer is the next one.
    name = api.BaseCommand.DESCRIPTOR.fields_by_number[request_type + 1].name
    answer = getattr(api.BaseCommand(), name)
    answer.request_id = request_id
    if txn is not None:
        answer.txnid_most_bits, answer.txnid_least_bits = txn
    if failure is not None:
        answer.error, answer.message = failure
    return frame_of(answer)
