"""Fields of a message that our .proto files do not name."""

from __future__ import annotations

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet


def unknown_fields(message: Message) -> list[str]:
    unknown = UnknownFieldSet(message)
    found = [f"{message.DESCRIPTOR.name}: {unknown[index].field_number}" for index in range(len(unknown))]
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for child in value if field.is_repeated else [value]:
                found += unknown_fields(child)
    return found
