"""The lag of the event loop, with a clock turned by hand."""

from __future__ import annotations

from collections.abc import Callable

from foundation.loop.loop_watch import INTERVAL_S, LoopWatch

INTERVAL_NS = int(INTERVAL_S * 1e9)


class Loop:
    def __init__(self) -> None:
        self.now_ns = 10**12
        self.timers: list[Callable[[], None]] = []
        self.watch = LoopWatch(lambda _, action: self.timers.append(action), lambda: self.now_ns)
        self.watch.start()

    def turn_after(self, ns: int) -> None:
        self.now_ns += ns
        self.timers.pop()()


def test_lag_is_the_longest_lateness() -> None:
    loop = Loop()
    for late_ms in (0, 300, 20):
        loop.turn_after(INTERVAL_NS + late_ms * 10**6)
    assert round(loop.watch.lag_s, 6) == 0.3
    assert loop.watch.late_us == 320_000


def test_lag_is_forgotten_after_two_windows() -> None:
    loop = Loop()
    loop.turn_after(INTERVAL_NS + 3 * 10**8)
    for _ in range(101):
        loop.turn_after(INTERVAL_NS)
    assert round(loop.watch.lag_s, 6) == 0.3
    for _ in range(101):
        loop.turn_after(INTERVAL_NS)
    assert loop.watch.lag_s == 0


def test_held_time_grows_while_the_loop_does_not_turn() -> None:
    loop = Loop()
    assert loop.watch.held_s() == 0
    loop.now_ns += INTERVAL_NS + 12_300_000_000
    assert round(loop.watch.held_s(), 1) == 12.3
    loop.turn_after(0)
    assert loop.watch.held_s() == 0


def test_stopped_watch_notes_nothing_more() -> None:
    loop = Loop()
    loop.watch.stop()
    loop.turn_after(INTERVAL_NS)
    assert loop.timers == []
