"""A command without one of its required fields ends its connection, as in Pulsar, whichever command and field it is."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from typing import Final, cast

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from broker.net.command_table import ROWS
from protocol.pulsar_api_pb2 import BaseCommand
from tests.fakes.client import Client, Port
from tests.fakes.messages import message
from tests.fakes.stage import Stage

FIELD_OF: Final = {
    "PARTITIONED_METADATA": "partitionMetadata",
    "LOOKUP": "lookupTopic",
    "REDELIVER_UNACKNOWLEDGED_MESSAGES": "redeliverUnacknowledgedMessages",
    "TC_CLIENT_CONNECT_REQUEST": "tcClientConnectRequest",
}
"""Fields of BaseCommand whose names do not follow from their types."""
EMPTY: Final = ("PING", "PONG", "AUTH_RESPONSE")
"""Commands without required fields."""
COMMANDS: Final = [name for name, number in BaseCommand.Type.items() if number in ROWS]

EXAMPLES: Final = {FieldDescriptor.TYPE_STRING: "x", FieldDescriptor.TYPE_BYTES: b"x"}
"""A value for a field by its type; 0 fits the others, enumerations included."""

Drop = partial[None]


def body_of(command: BaseCommand, name: str) -> Message:
    wanted = FIELD_OF.get(name, name.replace("_", "")).lower()
    for field in command.DESCRIPTOR.fields:
        if field.name.lower().replace("_", "") == wanted:
            return cast("Message", getattr(command, field.name))
    raise AssertionError(f"BaseCommand has no field for {name}")


def complete(body: Message, depth: int = 0) -> None:
    """Sets every required field, and one element of each repeated message."""
    body.SetInParent()
    for field in body.DESCRIPTOR.fields:
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if field.is_required:
                complete(getattr(body, field.name), depth + 1)
            elif field.is_repeated and depth == 0:
                complete(getattr(body, field.name).add(), 1)
        elif field.is_required:
            setattr(body, field.name, EXAMPLES.get(field.type, 0))


def drops(body: Message, path: str = "") -> Iterator[tuple[str, Drop]]:
    """Yields (path, call that removes the field) for each required field that is set, at any depth."""
    for field in body.DESCRIPTOR.fields:
        if field.is_required:
            yield path + field.name, partial(body.ClearField, field.name)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            value = getattr(body, field.name)
            if field.is_repeated:
                for element in value:
                    yield from drops(element, f"{path}{field.name}.")
            elif body.HasField(field.name):
                yield from drops(value, f"{path}{field.name}.")


def built(name: str) -> tuple[BaseCommand, dict[str, Drop]]:
    command = BaseCommand(type=BaseCommand.Type.Value(name))
    body = body_of(command, name)
    complete(body)
    return command, dict(drops(body))


CASES: Final = [
    (name, path)
    for name in COMMANDS
    if name not in EMPTY
    for path in built(name)[1]
    # The properties of an ACK are read by nothing, and a look at them would be paid for with every ACK.
    if (name, path.partition(".")[0]) != ("ACK", "properties")
]


def frame_of(command: BaseCommand, rest: bytes = b"") -> bytes:
    # Not `command_frame`: protobuf refuses to serialize an incomplete command by the usual way.
    data = command.SerializePartialToString()
    return struct.pack(">II", 4 + len(data) + len(rest), len(data)) + data + rest


async def connected(name: str) -> Client:
    port = Port(Stage())
    return await (port.client(connect=False) if name == "CONNECT" else port.client())


@pytest.mark.parametrize(("name", "path"), CASES)
async def test_command_without_a_required_field_ends_its_connection(
    name: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = await connected(name)
    command, fields = built(name)
    fields[path]()
    client.feed(frame_of(command, message(b"body") if name == "SEND" else b""))
    await client.hear()
    assert client.transport.closing
    # The connection must not end for another reason, such as a namespace called "x".
    assert f"{name} lacks" in caplog.text


async def test_command_without_a_type_ends_its_connection() -> None:
    client = await Port(Stage()).client()
    command = built("LOOKUP")[0]
    command.ClearField("type")
    client.feed(frame_of(command))
    await client.hear()
    assert client.transport.closing
