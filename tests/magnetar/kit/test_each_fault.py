"""Each fault of the page about tests of applications: set it, provoke it, see its effect, and ask if it fired.

A hand-made client does what the table says, so no client's retries stand between a fault and its effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Final, NamedTuple

import pytest

import magnetar
from broker.faults.script import REFUSABLE
from magnetar.kit.controls import Fault
from magnetar.kit.errors import KitError
from protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata, ServerError
from tests.interop.support import wait_until
from tests.support.command_json import Json
from tests.support.raw_client import EARLIEST, Frame, RawConnection, build_command, payload_frame

DELAY_S: Final = 0.05
AT_LEAST_S: Final = 0.04
"""A timer of asyncio may ring a little early."""
REFUSED: Final = "ServiceNotReady"
REQUEST: Final = 7


class Step(NamedTuple):
    """A command of a client, and the command that answers it."""

    command: str
    answer: str
    fields: dict[str, Json]


def asked(command: str, answer: str, **fields: Json) -> Step:
    return Step(command, answer, {"request_id": REQUEST, **fields})


USUAL: Final = (
    Step("CONNECT", "CONNECTED", {"client_version": "raw", "protocol_version": 19}),
    asked("PARTITIONED_METADATA", "PARTITIONED_METADATA_RESPONSE", topic=""),
    asked("LOOKUP", "LOOKUP_RESPONSE", topic=""),
    asked("PRODUCER", "PRODUCER_SUCCESS", topic="", producer_id=1),
    asked("SUBSCRIBE", "SUCCESS", topic="", subscription="s", subType="Exclusive", consumer_id=1),
    Step("SEND", "SEND_RECEIPT", {"producer_id": 1, "sequence_id": 0, "num_messages": 1}),
    Step("FLOW", "MESSAGE", {"consumer_id": 1, "messagePermits": 1}),
    asked("ACK", "ACK_RESPONSE", consumer_id=1, ack_type="Individual", message_id=[]),
)
"""The commands that most clients send, in their order. A test takes them up to the one that its fault is about."""
AT_LAST: Final = (
    asked("GET_LAST_MESSAGE_ID", "GET_LAST_MESSAGE_ID_RESPONSE", consumer_id=1),
    asked("GET_TOPICS_OF_NAMESPACE", "GET_TOPICS_OF_NAMESPACE_RESPONSE", namespace="public/default"),
    asked("SEEK", "SUCCESS", consumer_id=1, message_id=EARLIEST),
    asked("UNSUBSCRIBE", "SUCCESS", consumer_id=1),
    asked("CLOSE_CONSUMER", "SUCCESS", consumer_id=1),
    asked("CLOSE_PRODUCER", "SUCCESS", producer_id=1),
)
"""Commands that may follow the usual ones."""
STEPS: Final = {step.command: step for step in (*USUAL, *AT_LAST)}


class Conversation:
    """A client that has got as far as one step."""

    def __init__(self, raw: RawConnection, topic: str) -> None:
        self.raw = raw
        self.topic = topic
        self._message_id: Json = None

    async def until(self, command: str) -> None:
        """Takes the usual steps before this one."""
        for step in USUAL:
            if step.command == command:
                return
            self.send(step.command)
            answer = await self.raw.receive(step.answer)
            if step.answer == "MESSAGE":
                found = answer.command.message.message_id
                self._message_id = {"ledgerId": found.ledgerId, "entryId": found.entryId}

    def send(self, command: str) -> None:
        fields = dict(STEPS[command].fields)
        if "topic" in fields:
            fields["topic"] = self.topic
        if command == "ACK":
            fields["message_id"] = [self._message_id]
        if command == "SEND":
            metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
            self.raw.send_bytes(payload_frame(build_command(command, fields), metadata, b"one coffee"))
        else:
            self.raw.send(command, **fields)


@pytest.fixture(scope="module")
def broker() -> Iterator[magnetar.Broker]:
    with magnetar.Broker() as running:
        yield running


@pytest.fixture
async def conversation(broker: magnetar.Broker) -> AsyncIterator[Conversation]:
    raw = await RawConnection.open(broker.pulsar_url)
    yield Conversation(raw, broker.topic())
    await raw.close()
    broker.faults.clear()


async def fired(fault: Fault) -> None:
    """Waits until the fault has happened, once."""
    await asyncio.to_thread(wait_until, lambda: fault.fired, "the fault happens")
    fault.assert_fired(1)


def code_of(answer: Frame) -> str:
    """Returns the error that an answer carries."""
    field = BaseCommand.DESCRIPTOR.fields_by_number[answer.command.type].name
    return ServerError.Name(getattr(answer.command, field).error)


async def assert_nothing_but_pong(raw: RawConnection) -> None:
    """Frames keep their order, so an answer that was not lost would come before that of the PING."""
    raw.send("PING")
    await raw.receive("PONG")


EVENTS: Final = [(step.command, step.command) for step in STEPS.values()] + [
    (step.command, step.answer) for step in USUAL
]
"""The command to send, and the command that the fault is on: itself, or its answer."""


@pytest.mark.parametrize(("command", "on"), EVENTS, ids=[on for _, on in EVENTS])
async def test_dropped_command_closes_the_connection(
    broker: magnetar.Broker, conversation: Conversation, command: str, on: str
) -> None:
    await conversation.until(command)
    fault = broker.faults.drop(on)
    conversation.send(command)
    assert on not in [frame.type_name for frame in await conversation.raw.until_closed()]
    await fired(fault)


@pytest.mark.parametrize(
    ("command", "on"), EVENTS[1:], ids=[on for _, on in EVENTS[1:]]
)  # Without CONNECT, PING is no command yet.
async def test_lost_command_has_no_effect_and_the_connection_goes_on(
    broker: magnetar.Broker, conversation: Conversation, command: str, on: str
) -> None:
    await conversation.until(command)
    fault = broker.faults.lose(on)
    conversation.send(command)
    await fired(fault)
    if on != "CONNECTED":
        await assert_nothing_but_pong(conversation.raw)


@pytest.mark.parametrize(("command", "on"), EVENTS, ids=[on for _, on in EVENTS])
async def test_delayed_command_is_answered_later(
    broker: magnetar.Broker, conversation: Conversation, command: str, on: str
) -> None:
    await conversation.until(command)
    fault = broker.faults.delay(on, DELAY_S)
    began = asyncio.get_running_loop().time()
    conversation.send(command)
    while (await conversation.raw.receive()).type_name != STEPS[command].answer:
        pass  # A seek closes the consumer as well.
    assert asyncio.get_running_loop().time() - began >= AT_LEAST_S
    await fired(fault)


@pytest.mark.parametrize("command", sorted(REFUSABLE))
async def test_refused_command_gets_the_error(
    broker: magnetar.Broker, conversation: Conversation, command: str
) -> None:
    await conversation.until(command)
    fault = broker.faults.refuse(command, REFUSED)
    conversation.send(command)
    assert code_of(await conversation.raw.receive()) == REFUSED
    await fired(fault)


def counted(broker: magnetar.Broker) -> dict[str, int]:
    """Returns the errors that clients were sent, by name."""
    found = broker.ask("GET", "/magnetar/test/refusals")
    assert isinstance(found, dict)
    return found


async def test_send_is_refused_with_each_error_of_the_protocol(
    broker: magnetar.Broker, conversation: Conversation
) -> None:
    await conversation.until("SEND")
    before = counted(broker)
    for error in ServerError.keys():  # noqa: SIM118 - it is no mapping
        fault = broker.faults.refuse("SEND", error)
        conversation.send("SEND")
        assert code_of(await conversation.raw.receive("SEND_ERROR")) == error
        await fired(fault)
    assert {error: count - before.get(error, 0) for error, count in counted(broker).items()} == dict.fromkeys(
        ServerError.keys(), 1
    )


@pytest.mark.parametrize("error", ["FullDisk", "Fenced"])
async def test_refused_add_is_not_confirmed(
    broker: magnetar.Broker, conversation: Conversation, error: str
) -> None:
    await conversation.until("SEND")
    fault = broker.faults.refuse("STORAGE_ADD", error)
    conversation.send("SEND")
    assert (await conversation.raw.receive()).type_name in ("SEND_ERROR", "CLOSE_PRODUCER", "CLOSE_CONSUMER")
    await fired(fault)


async def test_slow_disk_confirms_later(broker: magnetar.Broker, conversation: Conversation) -> None:
    await conversation.until("SEND")
    fault = broker.faults.delay("STORAGE_ADD", DELAY_S)
    began = asyncio.get_running_loop().time()
    conversation.send("SEND")
    await conversation.raw.receive("SEND_RECEIPT")
    assert asyncio.get_running_loop().time() - began >= AT_LEAST_S
    await fired(fault)


async def test_lost_metadata_session_fails_a_write(
    broker: magnetar.Broker, conversation: Conversation
) -> None:
    fault = broker.faults.refuse("METADATA_WRITE", "SessionLost")
    with pytest.raises(KitError):
        broker.namespace()
    await fired(fault)
    delayed = broker.faults.delay("METADATA_WRITE", DELAY_S)
    broker.namespace()
    await fired(delayed)


async def test_unload_closes_the_producer_at_once(
    broker: magnetar.Broker, conversation: Conversation
) -> None:
    await conversation.until("SUBSCRIBE")
    await asyncio.to_thread(broker.unload, conversation.topic)
    await conversation.raw.receive("CLOSE_PRODUCER")


async def test_unload_at_a_send_stores_the_message_and_closes_the_topic(
    broker: magnetar.Broker, conversation: Conversation
) -> None:
    await conversation.until("SEND")
    other = broker.faults.unload(broker.topic(), "SEND")
    fault = broker.faults.unload(conversation.topic, "SEND")
    conversation.send("SEND")
    seen = {(await conversation.raw.receive()).type_name for _ in range(3)}
    assert seen == {"SEND_RECEIPT", "CLOSE_PRODUCER", "CLOSE_CONSUMER"}
    await fired(fault)
    # Its topic was never opened, so it must not claim that it has closed it.
    other.assert_fired(0)
