"""Refuses commands that lack a required field, and those whose text is not UTF-8.

Python's protobuf accepts both where Java's refuses them. A missing field would act as 0, which names a ledger or a
consumer that the client did not mean; text that is not UTF-8 arrives as `bytes`, which no handler expects. One check in
front of all handlers replaces checks in each. SEND, ACK and FLOW have no text that is read; they check their own required
fields, because the check of a whole command takes longer than the parsing of an ACK.
"""

from __future__ import annotations

import functools
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from protocol.errors import ProtocolError
from protocol.pulsar_api_pb2 import BaseCommand

UNCHECKED: Final = frozenset(
    {
        BaseCommand.SEND,
        BaseCommand.ACK,
        BaseCommand.FLOW,
        BaseCommand.PING,
        BaseCommand.PONG,
    }
)
"""Commands that are not checked here: PING and PONG are empty, the others check themselves."""


def refuse_incomplete(command: BaseCommand) -> None:
    """Raises ProtocolError for a command without a required field."""
    if not command.IsInitialized():
        # Without a type it would be taken for a CONNECT, the first in the enumeration.
        name = BaseCommand.Type.Name(command.type) if command.HasField("type") else "a command without a type"
        raise ProtocolError(f"{name} lacks a required field")


TEXT_CHARACTERS_MAX: Final = 64 * 1024
"""Longest text of a command: a name, a key or a value. A topic's name is limited further, by `parse_topic_name`."""
LIST_MAX: Final = 10_000
"""Parts with text in one list of a command, such as the properties of a schema. Lists of message ids have no limit."""


def refuse_broken_text(message: Message) -> None:
    """Raises ProtocolError for text that is not UTF-8 or too long, and for lists with too many texts, at any depth."""
    for field, value in message.ListFields():
        # `ListFields` lists fields that are set, so the check costs little for small commands.
        if field.type == FieldDescriptor.TYPE_STRING:
            for text in value if field.is_repeated else (value,):
                if isinstance(text, bytes):
                    raise ProtocolError(f"{field.full_name} is not UTF-8")
                if len(text) > TEXT_CHARACTERS_MAX:
                    raise ProtocolError(
                        f"{field.full_name} has {len(text)} characters; the limit is {TEXT_CHARACTERS_MAX}"
                    )
        elif field.type == FieldDescriptor.TYPE_MESSAGE and _has_text(field.message_type):
            if field.is_repeated and len(value) > LIST_MAX:
                raise ProtocolError(f"{field.full_name} has {len(value)} parts; the limit is {LIST_MAX}")
            for child in value if field.is_repeated else (value,):
                refuse_broken_text(child)


@functools.cache
def _has_text(descriptor: Descriptor) -> bool:
    """Returns True for messages with text at any depth. Message ids have none, and a command may list thousands."""
    # A loop and no recursion: a message id may contain the id of its first chunk.
    seen = {descriptor.full_name}
    unread = [descriptor]
    while unread:
        for field in unread.pop().fields:
            if field.type == FieldDescriptor.TYPE_STRING:
                return True
            child = field.message_type
            if child is not None and child.full_name not in seen:
                seen.add(child.full_name)
                unread.append(child)
    return False
