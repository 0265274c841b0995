"""TopicListHash gives the hash of the whole list after any changes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from itertools import count

import pytest
from crc32c import crc32c

from broker.service.topics import topic_list_hash
from broker.service.topics.topic_list_hash import BLOCK_NAMES_MAX, TopicListHash, joined_crc, shift_of
from broker.service.topics.topic_lists import NAMES_PER_PART, topics_hash
from foundation.loop.slices import SLICE_NS
from protocol import answers
from protocol.pulsar_api_pb2 import BaseCommand


@pytest.mark.parametrize(("first", "second"), [("", ""), ("a", ""), ("", "a"), ("abc" * 100, "ü" * 70_000)])
def test_crc_of_two_texts_follows_from_both_crcs(first: str, second: str) -> None:
    one, two = first.encode(), second.encode()
    assert joined_crc(crc32c(one), crc32c(two), shift_of(len(two))) == crc32c(one + two)


def shown(watched: TopicListHash) -> list[str]:
    """The names as a client reads them."""
    frame = answers.watch_topic_list_success(1, 2, watched.encoded(), "hash")
    return [*BaseCommand.FromString(frame[8:]).watchTopicListSuccess.topic]


@pytest.mark.parametrize("seed", range(5))
async def test_hash_equals_that_of_the_whole_list_after_each_change(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(topic_list_hash, "BLOCK_NAMES_MAX", 4)
    chance = random.Random(seed)
    names = [f"persistent://public/default/{chance.randrange(10**6)}-ü" for _ in range(60)]
    expected = set(names[:20])
    watched = TopicListHash([*expected, *expected])
    for name in chance.choices(names, k=400):
        # More removals in the second half, so that the list becomes empty now and then.
        if chance.random() < 0.5:
            watched.add(name)
            expected.add(name)
        else:
            watched.discard(name)
            expected.discard(name)
        assert watched.hash() == await topics_hash(expected, lambda: 0)
        assert list(watched) == sorted(expected)
        assert shown(watched) == sorted(expected)
        assert all((name in watched) == (name in expected) for name in names[:5])
    for name in names:
        watched.discard(name)
        expected.discard(name)
        assert watched.hash() == await topics_hash(expected, lambda: 0)


def test_parts_of_the_encoding_are_made_once_until_a_name_changes_in_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_list_hash, "BLOCK_NAMES_MAX", 4)
    names, encodings = [f"persistent://public/default/{number:02}" for number in range(12)], list[int]()
    encode = answers.watched_names

    def counted(part: Sequence[str]) -> bytes:
        encodings.append(len(part))
        return encode(part)

    monkeypatch.setattr(answers, "watched_names", counted)
    watched = TopicListHash(names)
    for _ in range(3):
        assert shown(watched) == names
    assert encodings == [4, 4, 4]
    watched.discard(names[5])
    assert shown(watched) == names[:5] + names[6:]
    assert encodings == [4, 4, 4, 3]


def test_sorted_names_fill_a_list_block_by_block() -> None:
    names = [f"persistent://public/default/{number:05}" for number in range(3 * BLOCK_NAMES_MAX)]
    watched = TopicListHash()
    assert len([*watched.fill(names)]) == 3
    assert watched.hash() == TopicListHash(reversed(names)).hash()
    assert [*watched] == names


async def test_hash_of_many_names_is_made_in_slices() -> None:
    names = [f"persistent://public/default/{number:05}" for number in range(10 * NAMES_PER_PART)]
    clock = count(0, SLICE_NS)
    hashing = asyncio.ensure_future(topics_hash(reversed(names), lambda: next(clock)))
    turns = 0
    while not hashing.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 10
    assert await hashing == TopicListHash(names).hash()
