"""Refuses commands whose text fields are not UTF-8.

protobuf returns such a field as `bytes`, which no handler expects: the error would look like a defect of the broker. One
check in front of all handlers replaces checks in each. Commands of the hot path have no text that is read.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from protocol.errors import ProtocolError
from protocol.pulsar_api_pb2 import BaseCommand

WITHOUT_TEXT: Final = frozenset(
    {
        BaseCommand.SEND,
        BaseCommand.ACK,
        BaseCommand.FLOW,
        BaseCommand.PING,
        BaseCommand.PONG,
        BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
    }
)
"""Commands that are not checked."""


def refuse_broken_text(message: Message) -> None:
    """Raises ProtocolError for text that is not UTF-8, at any depth."""
    for field, value in message.ListFields():
        # `ListFields` lists fields that are set, so the check costs little for small commands.
        if field.type == FieldDescriptor.TYPE_STRING:
            for text in value if field.is_repeated else (value,):
                if isinstance(text, bytes):
                    raise ProtocolError(f"{field.full_name} is not UTF-8")
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            for child in value if field.is_repeated else (value,):
                refuse_broken_text(child)
