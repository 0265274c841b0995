"""GivenMessage: a message as a client of an HTTP or WebSocket API gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from protocol.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenMessage:
    """The members that every such API has; its payload is the API's own."""

    properties: Mapping[str, str] = field(default_factory=dict)
    """Texts by name."""
    key: str | None = None
    """Partition key; None = none."""
    event_time_ms: int = 0
    """The application's own time since 1970; 0 = none."""
    deliver_at_ms: int = 0
    """Earliest delivery since 1970; 0 = at once."""
    replicate_to: tuple[str, ...] = ()
    """Clusters that get a copy; () = all."""


def describe(metadata: MessageMetadata, message: GivenMessage) -> None:
    """Writes the fields that a client gave into the metadata of an entry with one message."""
    describe_single(metadata, message)
    if message.deliver_at_ms:
        metadata.deliver_at_time = message.deliver_at_ms
    metadata.replicate_to.extend(message.replicate_to)


def describe_single(metadata: MessageMetadata | SingleMessageMetadata, message: GivenMessage) -> None:
    """Writes the fields that each message of a batch has for itself."""
    for name, value in message.properties.items():
        metadata.properties.add(key=name, value=value)
    if message.key is not None:
        metadata.partition_key = message.key
    if message.event_time_ms:
        metadata.event_time = message.event_time_ms
