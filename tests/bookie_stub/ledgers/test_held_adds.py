"""Held adds expire at their limit, and one timer serves all of them. The tests set the clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bookie_stub.journal.entry_run import EntryRun
from bookie_stub.ledgers import held_adds
from bookie_stub.ledgers.held_adds import HeldAdds

LIMIT_S = 10.0


class Clock:
    """Stands in for `time` and for `threading`."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], object]]] = []

    def monotonic(self) -> float:
        return self.now

    def Timer(self, seconds: float, call: Callable[..., object], values: tuple[object, ...]) -> Started:  # noqa: N802 - as in `threading`
        self.timers.append((self.now + seconds, lambda: call(*values)))
        return Started()

    def run_until(self, end: float) -> None:
        while self.timers and min(self.timers, key=lambda timer: timer[0])[0] <= end:
            timer = min(self.timers, key=lambda timer: timer[0])
            self.timers.remove(timer)
            self.now = timer[0]
            timer[1]()
        self.now = end


class Started:
    daemon = False

    def start(self) -> None:
        """At once."""


class Held:
    """Held adds, and when each of them was refused."""

    def __init__(self, clock: Clock) -> None:
        self.refused: dict[int, float] = {}
        self._clock = clock
        self.adds = HeldAdds(LIMIT_S, lambda call: call(), self._too_late)

    def hold(self, number: int) -> None:
        self.adds.hold(EntryRun(1, (number,), b"", (0,), b"", False, lambda rc, _: None))

    def _too_late(self, run: EntryRun) -> None:
        self.refused[run.entry_ids[0]] = self._clock.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(held_adds, "time", clock)
    monkeypatch.setattr(held_adds, "threading", clock)
    return clock


def test_held_adds_expire_at_their_limit(clock: Clock) -> None:
    held = Held(clock)
    began = clock.now
    for number in range(10):
        clock.run_until(began + number)
        held.hold(number)
    clock.run_until(began + 50)
    assert not held.adds
    waited = [held.refused[number] - began - number for number in range(10)]
    assert min(waited) >= LIMIT_S
    assert max(waited) == pytest.approx(LIMIT_S, abs=0.02)


def test_held_adds_share_one_timer(clock: Clock) -> None:
    held = Held(clock)
    began = clock.now
    for number in range(1000):
        clock.run_until(began + number * 1e-4)
        held.hold(number)
    looks = 0
    while clock.timers:
        looks += 1
        clock.run_until(clock.timers[0][0])
    assert len(held.refused) == 1000
    assert looks <= 12  # every 10 ms for 100 ms
    assert max(held.refused.values()) < began + 0.1 + LIMIT_S + 0.02


def test_held_adds_start_no_second_timer_after_a_release(clock: Clock) -> None:
    held = Held(clock)
    for number in range(100):
        held.hold(number)
        assert held.adds.next().entry_ids == (number,)
        clock.run_until(clock.now + 0.05)
        assert len(clock.timers) == 1
    held.hold(100)
    began = clock.now
    clock.run_until(began + 2 * LIMIT_S)
    assert held.refused == {100: pytest.approx(began + LIMIT_S, abs=0.02)}
    assert not clock.timers
