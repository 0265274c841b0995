"""SENDs of another cluster's replicator: receipts and deduplication go by the position in the source cluster.

Pulsar's replicator closes the connection at a receipt whose numbers differ from those of its oldest unanswered message.
"""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from protocol.message_metadata import SOURCE_POSITION
from protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata
from tests.fakes.client import Client, Port
from tests.fakes.stage import TOPIC, Stage

NAME = "pulsar.repl.far-->near"
MARKER = 1 << 63


async def replicator(stage: Stage, *, knows: bool = True, topic: str = TOPIC, name: str = NAME) -> Client:
    client = await Port(stage).client(connect=False)
    connect = BaseCommand(type=BaseCommand.CONNECT)
    connect.connect.client_version = "t"
    connect.connect.protocol_version = 21
    connect.connect.feature_flags.supports_repl_dedup_by_lid_and_eid = knows
    packed = connect.SerializeToString()
    client.feed(struct.pack(">II", 4 + len(packed), len(packed)) + packed)
    [connected] = await client.hear()
    assert connected.connected.feature_flags.supports_repl_dedup_by_lid_and_eid
    client.produce(topic=topic, producer_name=name)
    assert await client.names() == ["PRODUCER_SUCCESS"]
    return client


def send(client: Client, sequence_id: int, source: str | None, *, marker: int = 0, by: str = "p") -> None:
    metadata = MessageMetadata(
        producer_name=by, sequence_id=sequence_id, publish_time=1, replicated_from="far"
    )
    if source is not None:
        metadata.properties.add(key="before", value="x")
        metadata.properties.add(key=SOURCE_POSITION, value=source)
    if marker:
        metadata.marker_type = marker
    packed = metadata.SerializeToString()
    covered = struct.pack(">I", len(packed)) + packed + b"x"
    body = b"\x0e\x01" + struct.pack(">I", crc32c(covered)) + covered
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id = 0
    command.send.sequence_id = sequence_id
    packed = command.SerializeToString()
    client.feed(struct.pack(">II", 4 + len(packed) + len(body), len(packed)) + packed + body)


async def receipts(client: Client) -> list[tuple[int, int, bool]]:
    """Sequence id and highest sequence id of each receipt, and whether the message was stored now."""
    found = []
    for command in await client.hear():
        assert command.type == BaseCommand.SEND_RECEIPT, command
        receipt = command.send_receipt
        stored = receipt.message_id.ledgerId != 2**64 - 1
        found.append((receipt.sequence_id, receipt.highest_sequence_id, stored))
    return found


async def test_receipts_name_the_position_in_the_source_cluster() -> None:
    client = await replicator(Stage())
    send(client, 0, "12:0", by="a")
    send(client, 1, "12:1", by="a")
    send(client, 0, "12:2", by="b")
    send(client, 9, None, marker=11)
    assert await receipts(client) == [(12, 0, True), (12, 1, True), (12, 2, True), (9, MARKER, True)]
    gate = client.cnx.gate
    assert (gate.pending_publishes, gate.pending_bytes, client.cnx.producers[0].unanswered) == (0, 0, 0)


@pytest.mark.parametrize(
    ("knows", "topic", "name", "source"),
    [
        (False, TOPIC, NAME, "12:3"),
        (True, "non-persistent://public/default/t", NAME, "12:3"),
        (True, TOPIC, "somebody", "12:3"),
        (True, TOPIC, NAME, None),
        (True, TOPIC, NAME, "12"),
        (True, TOPIC, NAME, "12:-3"),
        (True, TOPIC, NAME, f"12:{1 << 63}"),
    ],
)
async def test_receipt_repeats_the_sequence_id_without_a_readable_source(
    knows: bool, topic: str, name: str, source: str | None
) -> None:
    client = await replicator(Stage(), knows=knows, topic=topic, name=name)
    send(client, 7, source)
    assert [receipt[:2] for receipt in await receipts(client)] == [(7, 0)]


async def test_messages_of_many_producers_are_told_apart_by_their_position() -> None:
    client = await replicator(Stage(deduplication=True))
    send(client, 5, "12:0", by="a")
    send(client, 0, "12:1", by="b")
    assert await receipts(client) == [(12, 0, True), (12, 1, True)]
    send(client, 0, "12:1", by="b")
    send(client, 6, "11:9", by="a")
    send(client, 3, None, marker=10)
    send(client, 1, "13:0", by="b")
    assert await receipts(client) == [(12, 1, False), (11, 9, False), (3, MARKER, True), (13, 0, True)]


@pytest.mark.parametrize("snapshot_every", [1, 1000])
async def test_reopened_topic_knows_the_position_of_the_source(snapshot_every: int) -> None:
    stage = Stage(cluster="near", deduplication=True, deduplication_snapshot_entries=snapshot_every)
    client = await replicator(stage)
    send(client, 5, "0:4", by="a")
    send(client, 5000, None, marker=10)
    assert len(await receipts(client)) == 2
    topic = await stage.open()
    if snapshot_every == 1:
        saved = topic.ledger.cursors.by_name["pulsar.dedup"].acks.properties
        assert (saved[f"{NAME}_LID"], saved[f"{NAME}_EID"]) == (0, 4)
    await stage.run(stage.registry.unload(topic.name))
    client = await replicator(stage)
    send(client, 5, "0:4", by="a")
    send(client, 1, "0:5", by="b")
    assert await receipts(client) == [(0, 4, False), (0, 5, True)]
