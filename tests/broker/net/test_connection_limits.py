"""Limits of connections: their number, their requests, and what one may have open."""

from __future__ import annotations

import asyncio
import logging

import pytest

from broker.net import connection_limits, lookup_handlers, producer_handlers, read_gate
from broker.net.command_check import LIST_MAX, TEXT_CHARACTERS_MAX
from broker.net.connection_limits import ConnectionLimits
from broker.net.read_gate import PENDING_REQUESTS
from broker.net.server_cnx import FRAMES_PER_TURN_MAX
from broker.net.settings import NetSettings
from foundation.loop.rare_lines import RareLines
from protocol.frame import command_frame
from protocol.pulsar_api_pb2 import BaseCommand, ServerError
from tests.fakes.client import Client, Port
from tests.fakes.stage import TOPIC, Stage


def is_read(client: Client) -> bool:
    return client.transport.reading


@pytest.mark.parametrize("setting", ["connections_max", "connections_max_per_host"])
async def test_connection_above_a_limit_is_refused_with_pulsars_error(setting: str) -> None:
    port = Port(Stage(), **{setting: 2})
    first, _ = await port.client(), await port.client()
    third = Client(port)
    (answer,) = await third.hear()
    assert answer.error.error == ServerError.NotAllowedError
    assert answer.error.message.startswith("Reached the maximum number of connections")
    assert third.transport.closing
    third.cnx.connection_lost(None)
    assert len(port.context.connections) == 2
    assert port.context.counters.refused == 1
    await first.lose()
    await port.client()
    assert len(port.context.connections) == 2


async def test_limit_per_address_forgets_addresses_that_are_gone() -> None:
    port = Port(Stage(), connections_max_per_host=2)
    for _ in range(5):
        client = await port.client()
        await client.lose()
    assert port.context.limits._by_host == {}


def test_lines_of_a_flood_are_written_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    now_ns = 0
    lines = RareLines(logging.getLogger("magnetar.net"), lambda: now_ns)
    with caplog.at_level(logging.WARNING, "magnetar.net"):
        for _ in range(1000):
            lines.warning("refused")
            now_ns += 10**6
        lines.warning("refused")
    assert [record.getMessage() for record in caplog.records] == [
        "refused",
        "refused (999 more lines like this since the last one)",
    ]


async def test_connection_is_not_read_while_many_of_its_requests_are_in_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_gate, "REQUESTS_MAX", 10)
    stage = Stage()
    client = await Port(stage).client()
    stage.metadata.gate = asyncio.Event()
    reading = []
    for number in range(10):
        client.produce(number, topic=f"persistent://public/default/{number}")
        reading.append(client.transport.reading)
    assert reading == [True] * 9 + [False]
    stage.metadata.gate.set()
    assert await client.names() == ["PRODUCER_SUCCESS"] * 10
    assert is_read(client)
    assert client.cnx.gate.pending_requests == 0


async def test_flood_of_requests_in_one_arrival_is_handled_in_slices_and_answered_in_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_gate, "REQUESTS_MAX", 100)
    stage = Stage()
    client = await Port(stage, receive_buffer_initial=1 << 20).client()
    count = 5 * FRAMES_PER_TURN_MAX
    command = BaseCommand(type=BaseCommand.LOOKUP)
    command.lookupTopic.topic = TOPIC
    data = b""
    for number in range(count):
        command.lookupTopic.request_id = number
        data += command_frame(command)
    client.feed(data)
    most = heard = 0
    while heard < count:
        most = max(most, client.cnx.gate.pending_requests)
        heard += len(await client.hear())
        await stage.fire()
    assert most <= FRAMES_PER_TURN_MAX
    assert not client.cnx.gate.reasons & PENDING_REQUESTS


async def test_lookup_above_the_limit_of_the_broker_is_refused() -> None:
    stage = Stage()
    port = Port(stage, lookups_max=1)
    client = await port.client()
    stage.metadata.gate = asyncio.Event()
    for request_id in (1, 2):
        client.say(
            BaseCommand.GET_TOPICS_OF_NAMESPACE,
            "getTopicsOfNamespace",
            namespace="public/default",
            request_id=request_id,
        )
    (refused,) = await client.hear()
    assert (refused.error.request_id, refused.error.error) == (2, ServerError.TooManyRequests)
    stage.metadata.gate.set()
    assert await client.names() == ["GET_TOPICS_OF_NAMESPACE_RESPONSE"]
    assert port.context.lookups == 0


async def test_producer_above_the_limit_of_a_connection_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_handlers, "PRODUCERS_MAX", 2)
    client = await Port(Stage()).client()
    for number in range(3):
        client.produce(number, producer_name=str(number))
    answers = await client.hear()
    assert sorted(BaseCommand.Type.Name(one.type) for one in answers) == [
        "ERROR",
        "PRODUCER_SUCCESS",
        "PRODUCER_SUCCESS",
    ]
    assert set(client.cnx.producers) == {0, 1}


async def test_consumer_above_the_limit_of_a_connection_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.net.consumer_handlers.CONSUMERS_MAX", 1)
    client = await Port(Stage()).client()
    client.subscribe(0)
    client.subscribe(1, subscription="other")
    assert sorted(await client.names()) == ["ERROR", "SUCCESS"]
    assert set(client.cnx.consumers) == {0}


async def test_watcher_above_the_limit_of_a_connection_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_handlers, "WATCHERS_MAX", 2)
    stage = Stage()
    client = await Port(stage).client()
    for watcher_id in range(5):
        client.say(
            BaseCommand.WATCH_TOPIC_LIST,
            "watchTopicList",
            watcher_id=watcher_id,
            namespace="public/default",
            topics_pattern=".*",
        )
    names = await client.names()
    assert (names.count("ERROR"), names.count("WATCH_TOPIC_LIST_SUCCESS")) == (3, 2)
    shared = client.port.context.topic_list_watchers.find("public/default", ".*")
    assert shared is not None
    assert len(shared.watchers) == 2


def with_metadata(kind: str, characters: int) -> bytes:
    command = BaseCommand()
    if kind == "consumer":
        command.type = BaseCommand.SUBSCRIBE
        part = command.subscribe
        part.topic, part.subscription, part.consumer_id, part.request_id = TOPIC, "s", 0, 1
        part.subType = part.Exclusive
        part.metadata.add(key="k", value="v" * (characters - 1))
    else:
        command.type = BaseCommand.PRODUCER
        producer = command.producer
        producer.topic, producer.producer_id, producer.request_id = TOPIC, 0, 1
        half = characters // 2
        producer.metadata.add(key="k", value="v" * (half - 1))
        producer.metadata.add(key="l", value="v" * (characters - half - 1))
    return command_frame(command)


@pytest.mark.parametrize(
    ("kind", "most"), [("consumer", 1024), ("producer", connection_limits.PRODUCER_METADATA_CHARACTERS_MAX)]
)
async def test_metadata_above_the_limit_is_refused(kind: str, most: int) -> None:
    for characters, accepted in ((most, True), (most + 1, False)):
        client = await Port(Stage()).client()
        client.feed(with_metadata(kind, characters))
        (answer,) = await client.hear()
        assert (answer.type != BaseCommand.ERROR) is accepted
        if not accepted:
            assert answer.error.error == ServerError.MetadataError


async def test_text_of_megabytes_ends_the_connection() -> None:
    client = await Port(Stage()).client()
    client.produce(0, producer_name="n" * (TEXT_CHARACTERS_MAX + 1))
    assert client.transport.closing


async def test_list_of_too_many_texts_ends_the_connection() -> None:
    client = await Port(Stage()).client()
    command = BaseCommand(type=BaseCommand.PRODUCER)
    command.producer.topic, command.producer.producer_id, command.producer.request_id = TOPIC, 0, 1
    for _ in range(LIST_MAX + 1):
        command.producer.metadata.add(key="k", value="v")
    client.feed(command_frame(command))
    assert client.transport.closing


@pytest.mark.parametrize("characters", [4097, 60_000])
async def test_topic_name_above_the_limit_is_invalid(characters: int) -> None:
    client = await Port(Stage()).client()
    client.subscribe(0, topic="persistent://public/default/" + "t" * characters)
    client.say(BaseCommand.LOOKUP, "lookupTopic", topic="t" * characters)
    refused, looked_up = await client.hear()
    assert refused.error.error == ServerError.InvalidTopicName
    assert looked_up.lookupTopicResponse.error == ServerError.InvalidTopicName
    assert len(refused.error.message) < 300


async def test_list_of_thousands_of_message_ids_has_no_limit() -> None:
    client = await Port(Stage()).client()
    client.subscribe(0)
    await client.hear()
    command = BaseCommand(type=BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
    command.redeliverUnacknowledgedMessages.consumer_id = 0
    for number in range(LIST_MAX + 1):
        command.redeliverUnacknowledgedMessages.message_ids.add(ledgerId=1, entryId=number)
    client.feed(command_frame(command))
    assert not client.transport.closing


def test_handshakes_count_together_with_connections() -> None:
    limits = ConnectionLimits()
    settings = NetSettings(connections_max=3, connections_max_per_host=2)
    assert limits.admit("a", 0, settings) is None
    assert limits.begin_handshake("a", 1, settings) is None
    assert "on address a" in (limits.begin_handshake("a", 1, settings) or "")
    assert limits.begin_handshake("b", 1, settings) is None
    assert "maximum number of connections" in (limits.begin_handshake("c", 1, settings) or "")
    # The connection behind a handshake takes the place of the handshake.
    assert limits.admit("a", 1, settings) is None
    limits.end_handshake("a")
    assert limits.admit("a", 2, settings) is not None
    limits.end_handshake("b")
    assert limits.begin_handshake("c", 2, settings) is None
