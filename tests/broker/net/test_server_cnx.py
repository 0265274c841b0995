"""ServerCnx: back-pressure, keep-alive, and closing after invalid bytes or a defect."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

import pytest

from broker.service.topics.persistent_topic import PersistentTopic
from protocol.pulsar_api_pb2 import BaseCommand
from tests.fakes.client import Client, Port
from tests.fakes.messages import message
from tests.fakes.stage import TOPIC, Stage


async def a_producer(port: Port) -> Client:
    client = await port.client()
    client.produce()
    assert await client.names() == ["PRODUCER_SUCCESS"]
    return client


def is_read(client: Client) -> bool:
    """Returns True while the broker reads from the client's connection."""
    return client.transport.reading


def topic_of(stage: Stage) -> PersistentTopic:
    topic = stage.registry.topics[TOPIC]
    assert isinstance(topic, PersistentTopic)
    return topic


async def test_receipts_are_written_in_order_and_once_per_turn() -> None:
    stage = Stage()
    client = await a_producer(Port(stage))
    client.publish(0)
    await client.hear()
    writes = client.transport.writes
    for number in range(1, 50):
        client.publish(number)
    receipts = await client.hear()
    assert [command.send_receipt.sequence_id for command in receipts] == list(range(1, 50))
    assert client.transport.writes == writes + 1


@pytest.mark.parametrize("copy_entries", [False, True])
async def test_messages_are_stored_alike_however_their_bytes_are_fragmented(copy_entries: bool) -> None:
    stage = Stage()
    port = Port(stage, copy_entries=copy_entries, receive_buffer_min=64, receive_buffer_initial=64)
    client = await a_producer(port)
    consumer = await port.client()
    consumer.subscribe()
    await consumer.hear()
    consumer.flow(1000)
    sent: list[bytes] = []
    pieces: list[bytes] = []
    feed = client.feed
    client.feed = pieces.append  # type: ignore[method-assign,assignment]  # its bytes are fed in pieces below
    rng = random.Random(1)
    for number in range(60):
        sent.append(message(rng.randbytes(rng.randrange(3000)), sequence_id=number))
        client.publish(number, body=sent[-1])
    data = b"".join(pieces)
    while data:
        count = rng.choice([1, 2, 7, 100, 5000])
        feed(data[:count])
        data = data[count:]
    assert len(await client.hear()) == 60
    got = bytes(consumer.transport.written)
    assert all(body in got for body in sent)


@pytest.mark.parametrize(
    ("settings", "resume_at"),
    [({"pending_publishes_max": 4}, 2), ({"publish_buffer_bytes_max": 400}, None)],
)
async def test_reading_stops_while_too_much_is_pending(
    settings: dict[str, int], resume_at: int | None
) -> None:
    stage = Stage()
    client = await a_producer(Port(stage, **settings))
    client.publish(0)
    await client.hear()
    held: list[Callable[[], None]] = []
    stage.ledgers._call_soon = held.append
    for number in range(1, 4):
        client.publish(number, payload=b"x" * 60)
    assert is_read(client)
    client.publish(4, payload=b"x" * 200)
    assert not is_read(client)
    assert await client.hear() == []
    for answer in held:
        answer()
    assert len(await client.hear()) == 4
    assert is_read(client)
    assert client.port.context.publish_buffer.used_bytes == 0


async def test_reading_goes_on_when_the_limit_of_pending_publishes_is_off() -> None:
    client = await a_producer(Port(Stage(), pending_publishes_max=0))
    client.publish(0)
    assert client.transport.reading
    assert await client.names() == ["SEND_RECEIPT"]


async def test_broken_connection_returns_its_bytes_to_the_publish_buffer() -> None:
    stage = Stage()
    port = Port(stage, publish_buffer_bytes_max=100)
    client = await a_producer(port)
    other = await port.client()
    other.produce(topic=TOPIC + "2")
    await other.hear()
    client.publish(0, payload=b"x" * 200)
    other.publish(0)
    assert not is_read(other)
    await client.lose()
    await other.hear()
    assert is_read(other)
    assert port.context.publish_buffer.used_bytes == 0
    assert client.cnx.outbox.frames == []


async def test_publish_rate_holds_frames_back_that_have_arrived() -> None:
    stage = Stage(topic_publish_messages=3)
    port = Port(stage)
    client = await a_producer(port)
    pieces: list[bytes] = []
    feed = client.feed
    client.feed = pieces.append  # type: ignore[method-assign,assignment]  # they arrive together below
    for number in range(8):
        client.publish(number)
    client.produce(1, TOPIC + "2")
    feed(b"".join(pieces))
    assert await client.names() == ["SEND_RECEIPT"] * 3
    assert not is_read(client)
    # Its bytes go through the memory that connections share; those that wait must have left it.
    other = await port.client()
    other.produce(0, TOPIC + "3")
    assert await other.names() == ["PRODUCER_SUCCESS"]
    other.publish(0, payload=b"y" * 500)
    assert await other.names() == ["SEND_RECEIPT"]
    for _ in range(40):
        stage.now_ns += 100_000_000
        await stage.fire()
        if is_read(client):
            break
    # The other topic's PRODUCER waited with the messages.
    assert await client.names() == ["SEND_RECEIPT"] * 5 + ["PRODUCER_SUCCESS"]
    assert is_read(client)
    assert topic_of(stage).publish_rate_limited == 6


async def test_connection_that_breaks_while_it_is_paused_is_forgotten() -> None:
    stage = Stage(topic_publish_messages=1)
    client = await a_producer(Port(stage))
    client.publish(0)
    assert not is_read(client)
    await client.lose()
    stage.now_ns += 2_000_000_000
    await stage.fire()
    assert not topic_of(stage).access.producers


async def test_client_that_does_not_read_gets_the_rest_when_it_reads_again() -> None:
    stage = Stage()
    port = Port(stage)
    client = await port.client()
    client.subscribe()
    await client.hear()
    client.flow(1000)
    client.transport.stuck = True
    for _ in range(10):
        await stage.publish(topic_of(stage), 20)
    consumer = topic_of(stage).subscriptions["s"].consumers[0]
    assert consumer.messages_out < 200
    assert not client.transport.reading
    client.transport.take()
    assert len(await client.hear()) == 200
    assert client.transport.reading


async def test_keep_alive_sends_one_ping_and_then_closes() -> None:
    stage = Stage()
    client = await Port(stage).client()
    await stage.fire()
    assert await client.names() == []
    await stage.fire()
    assert await client.names() == ["PING"]
    client.say(BaseCommand.PONG, "pong")
    await stage.fire()
    assert not client.transport.closing
    await stage.fire()
    await stage.fire()
    assert client.transport.closing


async def test_connection_is_aborted_when_the_client_takes_nothing_for_two_intervals() -> None:
    stage = Stage()
    client = await Port(stage).client()
    client.transport.stuck = True
    client.cnx.send(b"x" * 2000)
    await stage.settle()
    assert not client.transport.reading
    for _ in range(3):
        client.transport.kept[:10] = b""
        await stage.fire()
    assert not client.transport.closing, "it takes a little"
    await stage.fire()
    await stage.fire()
    assert client.transport.aborted, "what is written would never leave"


@pytest.mark.parametrize("data", [b"\0\0\0\4\0\0\0\5", b"\xff" * 8, b"\0\0\0\5\0\0\0\1\xff"])
async def test_invalid_bytes_close_one_connection_with_one_log_line(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()
    port = Port(stage)
    other, client = await a_producer(port), await port.client()
    with caplog.at_level(logging.WARNING):
        client.feed(data)
    assert client.transport.closing
    assert len(caplog.records) == 1
    await client.lose()
    other.publish(0)
    assert await other.names() == ["SEND_RECEIPT"]


async def test_defect_in_a_request_closes_one_connection_with_one_log_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage()
    client = await Port(stage).client()

    async def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(stage.registry, "get", fails)
    with caplog.at_level(logging.WARNING):
        client.produce()
        await client.hear()
    assert client.transport.closing
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
