"""The end of a turn: ranks, fairness towards the sockets, and what one failing callback may cost."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import pytest

from foundation.loop.turn import ROUNDS_MAX, Turn


class Loop:
    def __init__(self) -> None:
        self.soon: deque[Callable[[], None]] = deque()
        self.turn = Turn(self.soon.append, lambda: 7)
        self.done: list[str] = []

    def note(self, what: str) -> Callable[[int], None]:
        return lambda now_ns: self.done.append(f"{what} {now_ns}")

    def run_one(self) -> None:
        self.soon.popleft()()


def test_turn_runs_confirms_first_and_commits_last() -> None:
    loop = Loop()
    loop.turn.commit(loop.note("commit"))
    loop.turn.write(loop.note("write"))
    loop.turn.dispatch(loop.note("dispatch"))
    loop.turn.confirm(loop.note("confirm"))
    assert len(loop.soon) == 1, "one call for the whole turn"
    loop.run_one()
    assert loop.done == ["confirm 7", "dispatch 7", "write 7", "commit 7"]
    assert not loop.soon


def test_callbacks_registered_by_callbacks_run_in_the_same_turn() -> None:
    loop = Loop()
    loop.turn.write(lambda _: loop.turn.confirm(loop.note("confirmed")))
    loop.run_one()
    assert loop.done == ["confirmed 7"]
    assert not loop.soon


def test_endless_callbacks_let_the_loop_serve_sockets() -> None:
    loop = Loop()

    def again(now_ns: int) -> None:
        loop.done.append("dispatched")
        loop.turn.dispatch(again)

    loop.turn.dispatch(again)
    loop.run_one()
    assert len(loop.done) == ROUNDS_MAX
    assert len(loop.soon) == 1, "the rest runs in the next turn"
    loop.turn.write(loop.note("write"))
    assert len(loop.soon) == 1
    loop.run_one()
    assert "write 7" in loop.done


def test_failing_callback_is_logged_and_the_others_run(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()

    def fails(now_ns: int) -> None:
        raise ZeroDivisionError

    loop.turn.dispatch(fails)
    loop.turn.dispatch(loop.note("other"))
    with caplog.at_level(logging.ERROR):
        loop.run_one()
    assert loop.done == ["other 7"]
    assert len(caplog.records) == 1
    loop.turn.confirm(loop.note("next turn"))
    loop.run_one()
    assert loop.done[-1] == "next turn 7"
