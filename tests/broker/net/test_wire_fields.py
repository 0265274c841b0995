"""Each field that a client may send is used, refused, or named as one without effect."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from google.protobuf.descriptor import Descriptor

from broker.net.command_table import ROWS
from broker.net.wire_fields import STATES, WireField, fields_without_effect, wire_fields
from protocol.frame import command_frame
from protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandAck,
    MessageMetadata,
    ServerError,
    SingleMessageMetadata,
)
from tests.broker.net.test_incomplete_commands import body_of, complete
from tests.fakes.client import Client, Port
from tests.fakes.stage import Stage

ROOT: Final = Path(__file__).resolve().parents[3]
DIVIDED: Final = {"MessageIdData", "KeySharedMeta", "IntRange", "FeatureFlags"}
"""Messages inside commands whose fields differ in their effect; others have one effect as a whole."""
FIELDS: Final = wire_fields()
NAMES: Final = {field.name for field in FIELDS}
COMMANDS: Final = {
    field.message_type.name: (field.number, field.message_type)
    for field in BaseCommand.DESCRIPTOR.fields
    # The number of a command's field is that of its type.
    if field.message_type is not None and field.number in ROWS
}
"""By the name of its message, each command that a client may send: number and message."""


def leaves(message: Descriptor, prefix: str, inside: tuple[str, ...] = ()) -> Iterator[str]:
    for field in message.fields:
        name = f"{prefix}.{field.name}"
        part = field.message_type
        # A message id may have another one inside, which ends the walk; so does a message with a line of its own.
        if part is not None and part.name in DIVIDED and part.name not in inside and name not in NAMES:
            yield from leaves(part, name, (*inside, part.name))
        else:
            yield name


@cache
def names_in(path: str) -> frozenset[str]:
    """Returns every attribute and every text in a file: reading a field takes its name."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return frozenset({*attributes, *(text for text in texts if isinstance(text, str))})


def test_each_field_of_the_protocol_has_exactly_one_line() -> None:
    wanted = Counter[str]()
    messages = [message for _, message in COMMANDS.values()]
    for message in (*messages, MessageMetadata.DESCRIPTOR, SingleMessageMetadata.DESCRIPTOR):
        wanted.update([message.name] if message.name in NAMES else leaves(message, message.name))
    assert Counter(field.name for field in FIELDS) == wanted


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_line_has_a_state_and_its_proof(field: WireField) -> None:
    assert field.state in STATES
    assert bool(field.where) == (field.state in ("used", "refused"))
    assert bool(field.reason) == (field.state != "used")
    if "." in field.name and field.where:
        assert field.name.rpartition(".")[2] in names_in(field.where)


def test_fields_without_effect_are_those_that_the_page_lists() -> None:
    page = (ROOT / "docs/reference/wire_fields.md").read_text(encoding="utf-8")
    chapter = page.partition("## Without effect\n")[2].partition("\n## ")[0]
    assert fields_without_effect()
    for name in fields_without_effect():
        assert f"| `{name}` |" in chapter


# Refusals


async def connected() -> Client:
    """Returns a client with producer 0 and consumer 0."""
    client = await Port(Stage()).client()
    client.produce(0)
    client.subscribe(0)
    assert sorted(await client.names()) == ["PRODUCER_SUCCESS", "SUCCESS"]
    return client


REFUSED: Final = {field.name: field for field in FIELDS if field.state == "refused"}


@pytest.mark.parametrize("name", [name for name in REFUSED if "." not in name])
async def test_refused_command_gets_its_error(name: str) -> None:
    client = await connected()
    [kind] = [kind for kind, number in BaseCommand.Type.items() if number == COMMANDS[name][0]]
    command = BaseCommand(type=BaseCommand.Type.Value(kind))
    complete(body_of(command, kind))
    client.feed(command_frame(command))
    [answer] = await client.hear()
    assert ServerError.Name(answer.error.error) == REFUSED[name].reason.partition(":")[0]


TRANSACTION_COMMANDS: Final = [
    name
    for name, number in BaseCommand.Type.items()
    if number in ROWS and ("TXN" in name or name.startswith("TC_"))
]


@pytest.mark.parametrize("kind", TRANSACTION_COMMANDS)
async def test_transaction_command_is_refused_while_transactions_are_off(kind: str) -> None:
    client = await connected()
    command = BaseCommand(type=BaseCommand.Type.Value(kind))
    complete(body_of(command, kind))
    client.feed(command_frame(command))
    [answer] = await client.hear()
    assert answer.error.error == ServerError.NotAllowedError


async def test_fields_of_transactions_are_refused_while_these_are_off() -> None:
    client = await connected()
    for field in ("txnid_least_bits", "txnid_most_bits"):
        client.say(BaseCommand.ACK, "ack", consumer_id=0, ack_type=0, request_id=7, **{field: 1})
        [answer] = await client.hear()
        assert answer.ackResponse.error == ServerError.NotAllowedError
    client.publish(0, transaction=1)
    [answer] = await client.hear()
    assert answer.send_error.error == ServerError.NotAllowedError


FOR_CLIENTS: Final = [name for name, number in BaseCommand.Type.items() if number not in ROWS]


@pytest.mark.parametrize("name", FOR_CLIENTS)
async def test_command_for_clients_ends_the_connection(name: str) -> None:
    client = await connected()
    command = BaseCommand(type=BaseCommand.Type.Value(name))
    client.feed(command_frame(command))
    assert await client.names() == []
    assert client.transport.closing


# A client that could not read a message


async def test_acknowledgement_of_an_unreadable_message_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    client = await connected()
    command = BaseCommand(type=BaseCommand.ACK)
    complete(command.ack)
    command.ack.message_id.add(ledgerId=5, entryId=6)
    command.ack.validation_error = CommandAck.DecryptionError
    client.feed(command_frame(command))
    assert await client.names() == []
    [line] = [text for text in caplog.messages if "could not read" in text]
    assert "5" in line
    assert "DecryptionError" in line
