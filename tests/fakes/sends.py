"""A SEND as a connection passes it to a producer, with values for what a test leaves open."""

from __future__ import annotations

from broker.service.producer import Producer
from foundation.model.entry import Buffer


def send(
    producer: Producer,
    sequence_id: int,
    body: Buffer,
    messages: int = 1,
    *,
    chunk: bool = False,
    delayed: bool = False,
) -> None:
    """Publishes `body`; the producer's port gets the outcome."""
    producer.publish(sequence_id, 0, messages, [body], len(body), chunk, delayed)
