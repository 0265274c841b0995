"""Encodes the commands by which clients of Pulsar 5.0 learn layouts, assignments and coordinators.

A topic of such a client has segments; those of an ordinary topic are its partitions, or the topic itself. Pure: no I/O, no
clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from protocol import pulsar_api_pb2 as api
from protocol.frame import command_frame

HASHES: Final = 1 << 16
"""Values of the hash by which a message's key chooses a segment."""
EPOCH: Final = 0
"""The version of a layout and of an assignment: an ordinary topic's never changes."""


class Segment(NamedTuple):
    """A partition as a segment with a range of hashes."""

    number: int
    """Number of the partition, 0 for a topic without partitions."""
    hash_start: int
    """First hash."""
    hash_end: int
    """Last hash."""
    topic: str
    """Full name of the partition, or of a topic without partitions."""


def segments_of(topics: Sequence[str]) -> list[Segment]:
    """Cuts the hashes into equal ranges, the last one with the rest, as recorded of Pulsar 5.0.0-M1."""
    width = HASHES // len(topics)
    return [
        Segment(
            number,
            number * width,
            (number + 1) * width - 1 if number + 1 < len(topics) else HASHES - 1,
            topic,
        )
        for number, topic in enumerate(topics)
    ]


def layout(session_id: int, name: str, segments: Iterable[Segment], now_ms: int) -> bytes:
    """SCALABLE_TOPIC_UPDATE: the segments. `name` begins with `topic://`; `now_ms` is milliseconds since 1970."""
    command = api.BaseCommand(type=api.BaseCommand.SCALABLE_TOPIC_UPDATE)
    update = command.scalableTopicUpdate
    update.session_id = session_id
    update.resolved_topic_name = name
    update.dag.epoch = EPOCH
    for segment in segments:
        update.dag.segments.add(
            segment_id=segment.number,
            hash_start=segment.hash_start,
            hash_end=segment.hash_end,
            state=api.SegmentInfoProto.ACTIVE,
            created_at_epoch=EPOCH,
            created_at_ms=now_ms,
            legacy_topic_name=segment.topic,
        )
    return command_frame(command)


def layout_failed(session_id: int, error: int, message: str) -> bytes:
    """SCALABLE_TOPIC_UPDATE with an error."""
    command = api.BaseCommand(type=api.BaseCommand.SCALABLE_TOPIC_UPDATE)
    command.scalableTopicUpdate.session_id = session_id
    command.scalableTopicUpdate.error = api.ServerError.ValueType(error)
    command.scalableTopicUpdate.message = message
    return command_frame(command)


def subscribed(request_id: int, segments: Iterable[Segment]) -> bytes:
    """SCALABLE_TOPIC_SUBSCRIBE_RESPONSE: the first assignment."""
    command = api.BaseCommand(type=api.BaseCommand.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE)
    command.scalableTopicSubscribeResponse.request_id = request_id
    _assign(command.scalableTopicSubscribeResponse.assignment, segments)
    return command_frame(command)


def subscribe_failed(request_id: int, error: int, message: str) -> bytes:
    """SCALABLE_TOPIC_SUBSCRIBE_RESPONSE with an error."""
    command = api.BaseCommand(type=api.BaseCommand.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE)
    command.scalableTopicSubscribeResponse.request_id = request_id
    command.scalableTopicSubscribeResponse.error = api.ServerError.ValueType(error)
    command.scalableTopicSubscribeResponse.message = message
    return command_frame(command)


def assigned(consumer_id: int, segments: Iterable[Segment]) -> bytes:
    """SCALABLE_TOPIC_ASSIGNMENT_UPDATE: a later assignment."""
    command = api.BaseCommand(type=api.BaseCommand.SCALABLE_TOPIC_ASSIGNMENT_UPDATE)
    command.scalableTopicAssignmentUpdate.consumer_id = consumer_id
    _assign(command.scalableTopicAssignmentUpdate.assignment, segments)
    return command_frame(command)


def _assign(assignment: api.ScalableConsumerAssignment, segments: Iterable[Segment]) -> None:
    assignment.layout_epoch = EPOCH
    for segment in segments:
        assignment.segments.add(
            segment_id=segment.number,
            hash_start=segment.hash_start,
            hash_end=segment.hash_end,
            segment_topic=segment.topic,
        )


def no_scalable_topics(watch_id: int) -> bytes:
    """WATCH_SCALABLE_TOPICS_UPDATE: a namespace without scalable topics."""
    command = api.BaseCommand(type=api.BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE)
    command.watchScalableTopicsUpdate.watch_id = watch_id
    # An empty part is left out of the bytes without this.
    command.watchScalableTopicsUpdate.snapshot.SetInParent()
    return command_frame(command)


def watch_failed(watch_id: int, error: int, message: str) -> bytes:
    """WATCH_SCALABLE_TOPICS_UPDATE with an error."""
    command = api.BaseCommand(type=api.BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE)
    command.watchScalableTopicsUpdate.watch_id = watch_id
    command.watchScalableTopicsUpdate.error = api.ServerError.ValueType(error)
    command.watchScalableTopicsUpdate.message = message
    return command_frame(command)


def coordinators(watch_id: int, addresses: Sequence[tuple[str, str]]) -> bytes:
    """WATCH_TC_ASSIGNMENTS_UPDATE: `pulsar://` and `pulsar+ssl://` URL of each coordinator's broker; "" = without one."""
    command = api.BaseCommand(type=api.BaseCommand.WATCH_TC_ASSIGNMENTS_UPDATE)
    update = command.watchTcAssignmentsUpdate
    update.watch_id = watch_id
    update.snapshot.parallelism = len(addresses)
    for number, (url, url_tls) in enumerate(addresses):
        assignment = update.snapshot.assignments.add(tc_id=number)
        if url:
            assignment.broker_service_url = url
        if url_tls:
            assignment.broker_service_url_tls = url_tls
    return command_frame(command)


def coordinators_failed(watch_id: int, error: int, message: str) -> bytes:
    """WATCH_TC_ASSIGNMENTS_UPDATE with an error."""
    command = api.BaseCommand(type=api.BaseCommand.WATCH_TC_ASSIGNMENTS_UPDATE)
    command.watchTcAssignmentsUpdate.watch_id = watch_id
    command.watchTcAssignmentsUpdate.error = api.ServerError.ValueType(error)
    command.watchTcAssignmentsUpdate.message = message
    return command_frame(command)
