"""RedeliveryQueue against a model: which positions wait, in which order, and under which hash."""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.service.subscriptions.dispatch.redelivery_queue import RedeliveryQueue
from foundation.model.position import PositionKey

keys = st.tuples(st.integers(0, 2), st.integers(0, 60))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(keys, max_size=120), st.integers(0, 3)),
        st.tuples(st.just("take"), st.integers(0, 40), st.integers(0, 4)),
        st.tuples(st.just("discard"), keys, st.none()),
        st.tuples(st.just("clear"), st.none(), st.none()),
    ),
    max_size=25,
)


def is_other_hash(refused: int, _key: PositionKey, key_hash: int) -> bool:
    return key_hash != refused


class Model:
    """A dictionary of hashes, sorted at each use."""

    def __init__(self) -> None:
        self.hashes: dict[PositionKey, int] = {}

    def take(self, count: int, but: int) -> dict[PositionKey, int]:
        """`but`: the hash that is not allowed; 4 = all are allowed."""
        allowed = [key for key in sorted(self.hashes) if but == 4 or self.hashes[key] != but]
        return {key: self.hashes.pop(key) for key in allowed[:count]}


@given(steps)
def test_redelivery_queue_is_a_sorted_set_with_hashes(steps: list[tuple[Any, ...]]) -> None:
    queue, model = RedeliveryQueue(), Model()
    for step, first, second in steps:
        if step == "add":
            queue.add(first, second)
            for key in first:
                model.hashes.setdefault(key, second)
        elif step == "take":
            expected = model.take(first, second)
            taken = queue.remove_first(first, None if second == 4 else partial(is_other_hash, second))
            assert list(taken.items()) == list(expected.items())
        elif step == "discard":
            queue.discard(first)
            model.hashes.pop(first, None)
        else:
            queue.clear()
            model.hashes.clear()
        assert len(queue) == len(model.hashes)
        assert all(key in queue for key in model.hashes)
        for sticky_hash in (1, 2, 3):
            assert queue.waits(sticky_hash) == (sticky_hash in model.hashes.values())
    assert queue.remove_first(10_000) == dict(sorted(model.hashes.items()))
