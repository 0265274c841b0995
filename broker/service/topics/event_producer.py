"""Publishes one event of topic policies to its open topic, with the metadata that Apache Pulsar 4.2.4 gives it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from broker.service.policies.topic_events import EventKey
from broker.service.ports import SinglePort
from broker.service.producer import Producer
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.errors import BrokerError
from foundation.model.position import Position
from protocol.frame import message_body
from protocol.pulsar_api_pb2 import MessageMetadata

PRODUCER: Final = "magnetar-topic-policies"
"""Name of the producer of events."""


class EventPort(SinglePort):
    """The port of the producer of one event."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        """The position of the event."""

    def receipt(
        self, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int, size: int
    ) -> None:
        """Ends the wait, unless its time was over."""
        if not self.outcome.done():
            self.outcome.set_result(Position(ledger_id, entry_id))

    def refused(self, sequence_id: int, highest_sequence_id: int, size: int, error: BrokerError) -> None:
        """Ends the wait, unless its time was over."""
        if not self.outcome.done():
            self.outcome.set_exception(error)

    def pause(self) -> None:
        """Does nothing: the next event waits for this one."""

    def go_on(self) -> None:
        """Does nothing, for the same reason as `pause`."""

    def ready(self, topic_epoch: int | None) -> None:
        """Does nothing: a producer with shared access is ready at once."""

    def failed(self, error: BrokerError) -> None:
        """Does nothing: only a producer that waits for exclusive access can fail."""

    def closed_by_broker(self) -> None:
        """Does nothing: each event has a producer of its own."""


async def publish(
    topic: PersistentTopic,
    key: EventKey,
    payload: bytes | None,
    *,
    schema_version: bytes,
    sequence_id: int,
    now_ms: int,
    replicate_to: Sequence[str],
) -> Position:
    """Returns the position of the confirmed event; `payload` None deletes the policies of the key.

    Raises PersistenceError and others; the event is perhaps stored then.
    """
    metadata = MessageMetadata(
        producer_name=PRODUCER,
        sequence_id=sequence_id,
        publish_time=now_ms,
        partition_key=key.text,
        partition_key_b64_encoded=False,
        replicate_to=replicate_to,
        uncompressed_size=len(payload or b""),
        schema_version=schema_version,
    )
    if payload is None:
        metadata.null_value = True
    body, port = message_body(metadata, payload or b""), EventPort()
    producer = Producer(topic, port, producer_id=0, name=PRODUCER)
    producer.publish(sequence_id, sequence_id, 1, [body], len(body), False, False)
    return await port.outcome
