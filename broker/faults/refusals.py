"""Builds the answer that refuses a command with an error of the fault's choice."""

from __future__ import annotations

from typing import Final

from protocol import answers
from protocol.pulsar_api_pb2 import BaseCommand, ServerError

REASON: Final = "a fault of the test"
"""Text of every refusal."""


def refusal_of(command: BaseCommand, error: str) -> bytes:
    """Returns the frame; `error` is a name of ServerError, and the command one of REFUSABLE."""
    code = ServerError.Value(error)
    if command.type == BaseCommand.SEND:
        # Of a batch the highest id, as the broker itself: Java's client finds the batch by no other.
        sequence_id = max(command.send.sequence_id, command.send.highest_sequence_id)
        return answers.send_error(command.send.producer_id, sequence_id, code, REASON)
    if command.type == BaseCommand.LOOKUP:
        return answers.lookup_failed(command.lookupTopic.request_id, code, REASON)
    if command.type == BaseCommand.PARTITIONED_METADATA:
        return answers.partitions_failed(command.partitionMetadata.request_id, code, REASON)
    return answers.error(_request_id(command), code, REASON)


def _request_id(command: BaseCommand) -> int:
    """Returns the number by which the client finds its request; the command has exactly one field beside its type."""
    for field, value in command.ListFields():
        if field.name != "type":
            return int(value.request_id)
    raise ValueError(f"{command.type} has no field")
