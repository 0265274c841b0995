"""LIRS over dense ids: the stack is one linked queue, cold and ghost objects stand in a second one each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.simulators.kernels.compiled import CAPACITY, IDS, SIZES, compiled, kernel
from pipeline.simulators.kernels.queues import NOWHERE, Queues, enter, leave, new_queues, oldest, renew
from pipeline.simulators.lirs import COLD_RATIO, STACK_RATIO

STACK = 1
"""The only queue of `stack`."""
HOT, COLD, GHOST = 1, 2, 3
"""The queues of `kinds`; the order of the hot ones has no meaning."""


class _State(NamedTuple):
    stack: Queues
    kinds: Queues
    capacity: int
    hot_capacity: int
    cold_capacity: int


@kernel(IDS, SIZES, CAPACITY)
def lirs(ids: NDArray[np.int32], sizes: NDArray[np.int64], capacity: int) -> NDArray[np.bool_]:
    hits = np.empty(len(ids), np.bool_)
    cold_capacity = max(1, int(capacity * COLD_RATIO))
    state = _State(
        new_queues(sizes, 1), new_queues(sizes, 3), capacity, capacity - cold_capacity, cold_capacity
    )
    stack, kinds = state.stack, state.kinds
    for i in range(len(ids)):
        x = ids[i]
        if kinds.place[x] == HOT:
            was_oldest = oldest(stack, STACK) == x
            renew(stack, STACK, x)
            if was_oldest:
                _prune(state)
            hits[i] = True
        else:
            hits[i] = _access(state, x)
            _limit_stack(state)
    return hits


@compiled
def _access(state: _State, x: int) -> bool:
    """A request for what is not hot."""
    stack, kinds = state.stack, state.kinds
    kind = kinds.place[x]
    in_stack = stack.place[x] == STACK
    size = stack.sizes[x]
    if in_stack:
        renew(stack, STACK, x)
    if kind == GHOST:
        _warm(state, x)
        return False
    if in_stack:
        if kind == COLD:
            leave(kinds, COLD, x)
        _warm(state, x)
    elif kind == COLD:
        renew(kinds, COLD, x)
        _make_hot_room(state, size)
        enter(stack, STACK, x)
    else:
        _meet(state, x)
        return False
    return True


@compiled
def _meet(state: _State, x: int) -> None:
    size = state.stack.sizes[x]
    if size > min(state.hot_capacity, state.cold_capacity):
        return
    hot = state.kinds.used[HOT] + size <= state.hot_capacity
    if not hot:
        _make_cold_room(state, size)
    enter(state.stack, STACK, x)
    enter(state.kinds, HOT if hot else COLD, x)


@compiled
def _warm(state: _State, x: int) -> None:
    kinds = state.kinds
    size = kinds.sizes[x]
    _make_hot_room(state, size)
    if kinds.place[x] != NOWHERE:
        leave(kinds, kinds.place[x], x)
    while kinds.used[HOT] + kinds.used[COLD] + size > state.capacity:
        _make_cold_room(state, state.cold_capacity)
        _demote(state)
    enter(kinds, HOT, x)


@compiled
def _make_hot_room(state: _State, size: int) -> None:
    while state.kinds.used[HOT] + size > state.hot_capacity:
        _demote(state)


@compiled
def _make_cold_room(state: _State, size: int) -> None:
    while state.kinds.used[COLD] + size > state.cold_capacity:
        _evict(state)


@compiled
def _demote(state: _State) -> None:
    _prune(state)
    x = oldest(state.stack, STACK)
    leave(state.stack, STACK, x)
    leave(state.kinds, HOT, x)
    size = state.kinds.sizes[x]
    if size <= state.cold_capacity:
        _make_cold_room(state, size)
        enter(state.kinds, COLD, x)
    _prune(state)


@compiled
def _evict(state: _State) -> None:
    x = oldest(state.kinds, COLD)
    leave(state.kinds, COLD, x)
    if state.stack.place[x] == STACK:
        enter(state.kinds, GHOST, x)


@compiled
def _prune(state: _State) -> None:
    stack, kinds = state.stack, state.kinds
    while True:
        x = oldest(stack, STACK)
        if stack.used[STACK] == 0 or stack.used[STACK] == stack.sizes[x] or kinds.place[x] == HOT:
            return
        leave(stack, STACK, x)
        if kinds.place[x] == GHOST:
            leave(kinds, GHOST, x)


@compiled
def _limit_stack(state: _State) -> None:
    while state.stack.used[STACK] > STACK_RATIO * state.capacity and state.kinds.used[GHOST] > 0:
        x = oldest(state.kinds, GHOST)
        leave(state.kinds, GHOST, x)
        leave(state.stack, STACK, x)
