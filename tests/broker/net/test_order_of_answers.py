"""Answers to SENDs leave in the order of the SENDs, refusals and duplicates too, under the number that clients look for.

Java's client compares each answer with its oldest unanswered message alone, and a batch has there the highest sequence id.
tests/interop/test_other_clients.py tries it with the client.
"""

from __future__ import annotations

import random
import struct

import pytest

from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.topic_name import parse_topic_name
from protocol.bookie_frame import RC_IO_ERROR
from protocol.pulsar_api_pb2 import BaseCommand
from tests.fakes.client import Client, Port
from tests.fakes.messages import message
from tests.fakes.stage import TOPIC, Stage


def send(
    client: Client, sequence_id: int, *, highest: int = 0, corrupt: bool = False, refused: bool = False
) -> None:
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id = 0
    command.send.sequence_id = sequence_id
    if highest:
        command.send.highest_sequence_id = highest
        command.send.num_messages = highest - sequence_id + 1
    if refused:
        # None is enabled.
        command.send.txnid_most_bits = command.send.txnid_least_bits = 1
    packed = command.SerializeToString()
    body = bytearray(message(b"x", sequence_id=sequence_id))
    if corrupt:
        body[-1] ^= 1
    client.feed(struct.pack(">II", 4 + len(packed) + len(body), len(packed)) + packed + body)


async def producer(stage: Stage | None = None) -> Client:
    client = await Port(stage or Stage()).client()
    client.produce(topic=TOPIC)
    assert await client.names() == ["PRODUCER_SUCCESS"]
    return client


async def answers(client: Client) -> list[tuple[str, int]]:
    found = []
    for command in await client.hear():
        if command.type == BaseCommand.SEND_RECEIPT:
            found.append(("receipt", command.send_receipt.sequence_id))
        elif command.type == BaseCommand.SEND_ERROR:
            found.append(("refused", command.send_error.sequence_id))
        else:
            found.append((BaseCommand.Type.Name(command.type), -1))
    return found


async def test_refused_batch_is_answered_with_its_highest_sequence_id() -> None:
    client = await producer()
    send(client, 4, highest=7, refused=True)
    send(client, 8, refused=True)
    assert await answers(client) == [("refused", 7), ("refused", 8)]


@pytest.mark.parametrize("deduplication", [False, True])
async def test_producer_is_closed_after_a_damaged_send_and_what_follows_is_not_stored(
    deduplication: bool,
) -> None:
    """The client sends all of it again, whether the broker has it or not."""
    client = await producer(Stage(deduplication=deduplication))
    closing = client.cnx.producers[0].producer
    send(client, 3)
    send(client, 4, highest=7, corrupt=True)
    send(client, 8)
    assert await answers(client) == [("receipt", 3), ("refused", 7), ("CLOSE_PRODUCER", -1)]
    send(client, 4, highest=7)
    send(client, 8)
    assert await answers(client) == []
    client.produce(topic=TOPIC)
    assert await answers(client) == [("PRODUCER_SUCCESS", -1)]
    assert client.cnx.producers[0].producer is not closing
    send(client, 4, highest=7)
    send(client, 8)
    assert await answers(client) == [("receipt", 4), ("receipt", 8)]
    topic = await client.port.stage.registry.get(parse_topic_name(TOPIC), create=False)
    assert isinstance(topic, PersistentTopic)
    assert topic.ledger.last_confirmed.entry_id == 2
    assert len(topic.access.producers) == 1
    gate = client.cnx.gate
    assert (gate.pending_publishes, gate.pending_bytes) == (0, 0)


async def test_sends_that_cannot_be_stored_are_answered_in_order_after_the_close_of_the_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = await producer()
    monkeypatch.setattr(client.port.stage.ledgers, "_store", lambda *_: RC_IO_ERROR)
    send(client, 4, highest=7)
    send(client, 8, refused=True)
    send(client, 9)
    assert await answers(client) == [
        ("CLOSE_PRODUCER", -1),
        ("refused", 7),
        ("refused", 8),
        ("refused", 9),
    ]
    gate = client.cnx.gate
    assert (gate.pending_publishes, gate.pending_bytes) == (0, 0)


async def test_refusals_wait_for_the_receipts_of_earlier_sends() -> None:
    client = await producer()
    for sequence_id in range(8):
        send(client, sequence_id, refused=sequence_id in (1, 2, 5, 7))
    kinds = ["receipt", "refused", "refused", "receipt", "receipt", "refused", "receipt", "refused"]
    assert await answers(client) == list(zip(kinds, range(8), strict=True))


async def test_refusal_leaves_at_once_when_nothing_waits() -> None:
    client = await producer()
    send(client, 0)
    await answers(client)
    send(client, 1, refused=True)
    # Without a turn of the loop.
    assert client.cnx.producers[0].unanswered == 0
    assert await answers(client) == [("refused", 1)]


async def test_closed_producer_is_answered_after_held_refusals() -> None:
    client = await producer()
    send(client, 0)
    send(client, 1, refused=True)
    client.say(BaseCommand.CLOSE_PRODUCER, "close_producer", producer_id=0)
    assert await answers(client) == [("receipt", 0), ("refused", 1), ("SUCCESS", -1)]
    gate = client.cnx.gate
    assert (gate.pending_publishes, gate.pending_bytes) == (0, 0)


@pytest.mark.parametrize("seed", range(20))
async def test_every_send_is_answered_once_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    client = await producer()
    expected: list[tuple[str, int]] = []
    heard: list[tuple[str, int]] = []
    for sequence_id in range(200):
        refused = chance.random() < 0.3
        send(client, sequence_id, refused=refused)
        expected.append(("refused" if refused else "receipt", sequence_id))
        if chance.random() < 0.1:
            heard += await answers(client)
    heard += await answers(client)
    assert heard == expected
    gate = client.cnx.gate
    assert (gate.pending_publishes, gate.pending_bytes) == (0, 0)


async def test_duplicates_wait_for_the_receipts_of_earlier_sends() -> None:
    client = await producer(Stage(deduplication=True))
    send(client, 5)
    assert await answers(client) == [("receipt", 5)]
    send(client, 6)
    send(client, 5)
    send(client, 7)
    assert await answers(client) == [("receipt", 6), ("receipt", 5), ("receipt", 7)]


async def test_corrupt_messages_are_counted_and_logged_once_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = await producer()
    for sequence_id in range(3):
        send(client, sequence_id, corrupt=True)
        await answers(client)
        client.produce(topic=TOPIC)
        await answers(client)
    assert client.cnx.context.counters.corrupt_sends == 3
    (line,) = [one.getMessage() for one in caplog.records if "wrong checksum" in one.getMessage()]
    assert client.cnx.address in line
