"""Publishes messages over the wire to the broker of an admin test, with any metadata."""

from __future__ import annotations

from collections.abc import Sequence

from broker.compose.broker_service import BrokerService
from protocol.pulsar_api_pb2 import MessageMetadata
from tests.support.raw_client import RawConnection, build_command, payload_frame

FIRST_PUBLISH_MS = 1_700_000_000_000


def metadata_of(index: int) -> MessageMetadata:
    return MessageMetadata(
        producer_name="p",
        sequence_id=index,
        publish_time=FIRST_PUBLISH_MS + 1000 * index,
        partition_key=f"k{index}",
    )


async def publish(
    broker: BrokerService, topic: str, messages: Sequence[tuple[MessageMetadata, bytes]]
) -> None:
    connection = await RawConnection.open(broker.addresses.service_url)
    await connection.connect()
    connection.send("LOOKUP", topic=topic, request_id=0)
    await connection.receive("LOOKUP_RESPONSE")
    connection.send("PRODUCER", topic=topic, producer_id=1, request_id=2, producer_name="p")
    await connection.receive("PRODUCER_SUCCESS")
    for index, (metadata, payload) in enumerate(messages):
        command = build_command("SEND", {"producer_id": 1, "sequence_id": index})
        connection.send_bytes(payload_frame(command, metadata, payload))
        await connection.receive("SEND_RECEIPT")
    await connection.close()


async def publish_plain(broker: BrokerService, topic: str, count: int) -> None:
    """Messages m0, m1, … whose publish times are a second apart."""
    await publish(broker, topic, [(metadata_of(index), f"m{index}".encode()) for index in range(count)])
