"""TopicsPattern: linear time, its errors, and slices of names."""

from __future__ import annotations

import asyncio

import pytest

from broker.service.topics.topic_lists import NAMES_PER_SLICE, PatternNotLinear, TopicsPattern
from foundation.model.errors import MetadataError


@pytest.mark.parametrize(
    ("pattern", "fits", "fits_not"),
    [
        ("persistent://public/default/a.*", "a1", "b1"),
        ("public/default/a|public/default/b", "b", "c"),
        ("public/default/é+", "éé", "e"),
        (r"public/default/\d{2}", "42", "4"),
        ("public/default/p", "p-partition-3", "q-partition-3"),
    ],
)
def test_pattern_matches_whole_names(pattern: str, fits: str, fits_not: str) -> None:
    compiled = TopicsPattern(pattern)
    assert compiled.matches(f"persistent://public/default/{fits}")
    assert not compiled.matches(f"persistent://public/default/{fits_not}")


def test_nested_repetition_ends() -> None:
    """Python's `re` would need 2**4000 steps for this; the test would never end."""
    assert not TopicsPattern("public/default/(a+)+$").matches(
        "persistent://public/default/" + "a" * 4000 + "b"
    )


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", "[z-a]", "*", "a" * 3 + "\\"])
def test_invalid_pattern_is_a_metadata_error(pattern: str) -> None:
    with pytest.raises(MetadataError, match="Invalid topics pattern"):
        TopicsPattern(pattern)


@pytest.mark.parametrize("pattern", ["(?!x).*", "(?=a).*", r"(a)\1", "(.{0,30}){0,300}", "([^a]*.*){0,200}"])
def test_pattern_beyond_linear_time_is_refused(pattern: str) -> None:
    with pytest.raises(PatternNotLinear):
        TopicsPattern(pattern)


async def test_choice_of_topics_lets_others_run_between_slices() -> None:
    names = [f"persistent://public/default/{number}" for number in range(3 * NAMES_PER_SLICE)]
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.ensure_future(count_turns())
    assert await TopicsPattern(".*").choose(names) == names
    other.cancel()
    assert turns == 2
