"""A client may not write what the broker writes about transactions: readers know them by metadata alone."""

from __future__ import annotations

import pytest

from broker.service.topics.persistent_topic import PersistentTopic
from protocol.message_metadata import TXN_ABORT, TXN_COMMIT
from protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata, ServerError
from tests.fakes.client import Client, Port
from tests.fakes.stage import TOPIC, Stage

OVERLONG = b"\xb8\x81\x00\x03"
"""The field `txnid_most_bits` with a tag in more bytes than it needs, which protobuf reads."""


def metadata(
    *, most: int | None = None, least: int | None = None, marker: int | None = None, key: bytes | None = None
) -> bytes:
    return MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=1,
        txnid_most_bits=most,
        txnid_least_bits=least,
        marker_type=marker,
        ordering_key=key,
    ).SerializePartialToString()


def body(packed: bytes) -> bytes:
    return len(packed).to_bytes(4, "big") + packed + b"x"


async def connected() -> tuple[Stage, Client]:
    stage = Stage()
    client = await Port(stage).client()
    client.produce(0)
    client.subscribe(0)
    await client.hear()
    client.flow(10)
    return stage, client


@pytest.mark.parametrize(
    "packed",
    [
        metadata(most=3, least=5),
        metadata(most=3),
        metadata(marker=TXN_COMMIT, most=3, least=5),
        metadata(marker=TXN_ABORT, most=3, least=5),
        metadata() + OVERLONG,
    ],
)
async def test_message_that_names_a_transaction_is_refused_outside_of_one(packed: bytes) -> None:
    stage, client = await connected()
    client.publish(0, body=body(packed))
    client.publish(1, body=body(metadata()))
    found = await client.hear()
    assert [one.type for one in found] == [
        BaseCommand.SEND_ERROR,
        BaseCommand.SEND_RECEIPT,
        BaseCommand.MESSAGE,
    ]
    assert found[0].send_error.error == ServerError.NotAllowedError
    topic = stage.registry.topics[TOPIC]
    assert isinstance(topic, PersistentTopic)
    assert topic.ledger.stats.entries_added == 1


async def test_marker_without_a_transaction_is_a_message_like_any_other() -> None:
    _, client = await connected()
    client.publish(0, body=body(metadata(marker=TXN_COMMIT)))
    assert await client.names() == ["SEND_RECEIPT", "MESSAGE"]


async def test_message_whose_key_looks_like_a_transaction_is_stored() -> None:
    _, client = await connected()
    client.publish(0, body=body(metadata(key=b"\xb8\x01\x03")))
    assert await client.names() == ["SEND_RECEIPT", "MESSAGE"]
