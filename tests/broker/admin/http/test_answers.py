"""Answers of the admin port that are encoded in slices."""

from __future__ import annotations

import asyncio
import json
from itertools import count

import pytest

from broker.admin.http.answers import answer_names
from broker.service.topics.topic_lists import NAMES_PER_PART
from foundation.loop.slices import SLICE_NS


@pytest.mark.parametrize("number", [0, 1, NAMES_PER_PART, 3 * NAMES_PER_PART + 1])
async def test_list_of_names_equals_json_of_them_all(number: int) -> None:
    names = [f'persistent://public/default/"ü"-{one}' for one in range(number)]
    found = await answer_names(names, lambda: 0)
    assert found.body == json.dumps(names).encode()
    assert found.content_type == "application/json"


async def test_list_of_many_names_is_encoded_in_slices() -> None:
    clock = count(0, SLICE_NS)
    encoding = asyncio.ensure_future(answer_names(["name"] * 10 * NAMES_PER_PART, lambda: next(clock)))
    turns = 0
    while not encoding.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 10
