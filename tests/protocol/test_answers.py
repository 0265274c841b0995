"""Answers with long lists, whose parts are encoded one by one, equal the general codec."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from protocol import answers
from protocol import pulsar_api_pb2 as api
from protocol.frame import command_frame

NAMES = [f"persistent://public/default/ü-{number}" for number in range(300)]


def parts(size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(NAMES), size):
        yield NAMES[start : start + size]


@pytest.mark.parametrize("size", [1, 7, 300, 1_000])
def test_list_of_a_namespace_in_parts_equals_the_whole_command(size: int) -> None:
    encoded = [answers.names_of_namespace(part) for part in parts(size)]
    command = api.BaseCommand(
        type=api.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        getTopicsOfNamespaceResponse=api.CommandGetTopicsOfNamespaceResponse(
            request_id=2**40, topics=NAMES, filtered=True, topics_hash="ab", changed=False
        ),
    )
    frame = answers.topics_of_namespace(2**40, encoded, "ab", filtered=True, changed=False)
    assert frame == command_frame(command)


@pytest.mark.parametrize("size", [1, 7, 300, 1_000])
def test_watched_list_in_parts_equals_the_whole_command(size: int) -> None:
    encoded = [answers.watched_names(part) for part in parts(size)]
    command = api.BaseCommand(
        type=api.BaseCommand.WATCH_TOPIC_LIST_SUCCESS,
        watchTopicListSuccess=api.CommandWatchTopicListSuccess(
            request_id=5, watcher_id=0, topic=NAMES, topics_hash="ab"
        ),
    )
    assert answers.watch_topic_list_success(5, 0, encoded, "ab") == command_frame(command)
