"""Encodes the commands by which clients of Pulsar 5.0 learn layouts, assignments and coordinators.

A topic of such a client has segments; those of an ordinary topic are its partitions, or the topic itself. Pure: no I/O, no
clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from protocol import pulsar_api_pb2 as api
from protocol.frame import frame_of

HASHES: Final = 1 << 16
"""Values of the hash by which a message's key chooses a segment."""
EPOCH: Final = 0
"""The version of a layout and of an assignment: an ordinary topic's never changes."""


class HashSegment(NamedTuple):
    """A partition as a segment with a range of hashes."""

    number: int
    """Number of the partition, 0 for a topic without partitions."""
    hash_start: int
    """First hash."""
    hash_end: int
    """Last hash."""
    topic: str
    """Full name of the partition, or of a topic without partitions."""


def segments_of(topics: Sequence[str]) -> list[HashSegment]:
    """Cuts the hashes into equal ranges, the last one with the rest, as recorded of Pulsar 5.0.0-M1."""
    width = HASHES // len(topics)
    return [
        HashSegment(
            number,
            number * width,
            (number + 1) * width - 1 if number + 1 < len(topics) else HASHES - 1,
            topic,
        )
        for number, topic in enumerate(topics)
    ]


def layout(session_id: int, name: str, segments: Iterable[HashSegment], now_ms: int) -> bytes:
    """SCALABLE_TOPIC_UPDATE: the segments. `name` begins with `topic://`; `now_ms` is milliseconds since 1970."""
    update = api.CommandScalableTopicUpdate(
        session_id=session_id, resolved_topic_name=name, dag=api.ScalableTopicDAG(epoch=EPOCH)
    )
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
    return frame_of(update)


def layout_failed(session_id: int, error: int, message: str) -> bytes:
    """SCALABLE_TOPIC_UPDATE with an error."""
    return frame_of(
        api.CommandScalableTopicUpdate(
            session_id=session_id, error=api.ServerError.ValueType(error), message=message
        )
    )


def subscribed(request_id: int, segments: Iterable[HashSegment]) -> bytes:
    """SCALABLE_TOPIC_SUBSCRIBE_RESPONSE: the first assignment."""
    answer = api.CommandScalableTopicSubscribeResponse(request_id=request_id)
    _assign(answer.assignment, segments)
    return frame_of(answer)


def subscribe_failed(request_id: int, error: int, message: str) -> bytes:
    """SCALABLE_TOPIC_SUBSCRIBE_RESPONSE with an error."""
    return frame_of(
        api.CommandScalableTopicSubscribeResponse(
            request_id=request_id, error=api.ServerError.ValueType(error), message=message
        )
    )


def assigned(consumer_id: int, segments: Iterable[HashSegment]) -> bytes:
    """SCALABLE_TOPIC_ASSIGNMENT_UPDATE: a later assignment."""
    answer = api.CommandScalableTopicAssignmentUpdate(consumer_id=consumer_id)
    _assign(answer.assignment, segments)
    return frame_of(answer)


def _assign(assignment: api.ScalableConsumerAssignment, segments: Iterable[HashSegment]) -> None:
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
    # An empty part is left out of the bytes without this.
    return frame_of(
        api.CommandWatchScalableTopicsUpdate(watch_id=watch_id, snapshot=api.ScalableTopicsSnapshot())
    )


def watch_failed(watch_id: int, error: int, message: str) -> bytes:
    """WATCH_SCALABLE_TOPICS_UPDATE with an error."""
    return frame_of(
        api.CommandWatchScalableTopicsUpdate(
            watch_id=watch_id, error=api.ServerError.ValueType(error), message=message
        )
    )


def coordinators(watch_id: int, addresses: Sequence[tuple[str, str] | None]) -> bytes:
    """WATCH_TC_ASSIGNMENTS_UPDATE: `pulsar://` and `pulsar+ssl://` URL of each coordinator's broker; "" = without one.

    Left out: those that no broker has (None).
    """
    update = api.CommandWatchTcAssignmentsUpdate(
        watch_id=watch_id, snapshot=api.TcAssignmentsSnapshot(parallelism=len(addresses))
    )
    for number, urls in enumerate(addresses):
        if urls is None:
            continue
        url, url_tls = urls
        assignment = update.snapshot.assignments.add(tc_id=number)
        if url:
            assignment.broker_service_url = url
        if url_tls:
            assignment.broker_service_url_tls = url_tls
    return frame_of(update)


def coordinators_failed(watch_id: int, error: int, message: str) -> bytes:
    """WATCH_TC_ASSIGNMENTS_UPDATE with an error."""
    return frame_of(
        api.CommandWatchTcAssignmentsUpdate(
            watch_id=watch_id, error=api.ServerError.ValueType(error), message=message
        )
    )
