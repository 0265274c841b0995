"""NewNodes: nodes of one turn are one request, and one that exists keeps no other from being written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import ABSENT, Write
from bookkeeper.metadata.new_nodes import TOGETHER_MAX, NewNodes
from foundation.model.errors import BadVersion, MetadataError


class Counted(MemoryMetadataStore):
    """Counts the requests."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[int] = []
        self.error: Exception | None = None

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        self.requests.append(len(puts))
        if self.error is not None:
            raise self.error
        return await super().put_all(puts)


async def put_some(store: Counted, count: int) -> list[int | BaseException]:
    nodes = NewNodes(store)
    return await asyncio.gather(
        *(nodes.put(f"/n/{number}", b"%d" % number) for number in range(count)), return_exceptions=True
    )


async def test_nodes_of_one_turn_are_one_request() -> None:
    store = Counted()
    assert await put_some(store, 5) == [0] * 5
    assert store.requests == [5]
    found = await store.get("/n/3")
    assert found is not None
    assert found.value == b"3"


async def test_request_has_so_many_nodes_at_most() -> None:
    store = Counted()
    assert await put_some(store, TOGETHER_MAX + 1) == [0] * (TOGETHER_MAX + 1)
    assert store.requests == [TOGETHER_MAX, 1]


async def test_node_that_exists_is_refused_and_the_others_are_written() -> None:
    store = Counted()
    await store.put("/n/1", b"former", ABSENT)
    outcomes = await put_some(store, 3)
    assert [outcomes[0], outcomes[2]] == [0, 0]
    assert isinstance(outcomes[1], BadVersion)
    found = await store.get("/n/1")
    assert found is not None
    assert found.value == b"former"


@pytest.mark.parametrize("error", [MetadataError("gone"), ValueError("a defect")])
async def test_error_of_the_request_is_raised_for_each(error: Exception) -> None:
    store = Counted()
    store.error = error
    assert await put_some(store, 2) == [error, error]


async def test_cancelled_caller_keeps_no_other_from_its_answer() -> None:
    nodes = NewNodes(Counted())
    one, other = (asyncio.ensure_future(nodes.put(f"/n/{number}", b"v")) for number in range(2))
    await asyncio.sleep(0)
    one.cancel()
    assert await other == 0
