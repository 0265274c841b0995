"""TopicListHash gives the hash of the whole list after any changes."""

from __future__ import annotations

import random

import pytest
from crc32c import crc32c

from broker.service.topics import topic_list_hash
from broker.service.topics.topic_list_hash import TopicListHash, joined_crc, shift_of
from broker.service.topics.topic_lists import topics_hash


@pytest.mark.parametrize(("first", "second"), [("", ""), ("a", ""), ("", "a"), ("abc" * 100, "ü" * 70_000)])
def test_crc_of_two_texts_follows_from_both_crcs(first: str, second: str) -> None:
    one, two = first.encode(), second.encode()
    assert joined_crc(crc32c(one), crc32c(two), shift_of(len(two))) == crc32c(one + two)


@pytest.mark.parametrize("seed", range(5))
def test_hash_equals_that_of_the_whole_list_after_each_change(
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
        assert watched.hash() == topics_hash(expected)
        assert list(watched) == sorted(expected)
        assert all((name in watched) == (name in expected) for name in names[:5])
    for name in names:
        watched.discard(name)
        expected.discard(name)
        assert watched.hash() == topics_hash(expected)
