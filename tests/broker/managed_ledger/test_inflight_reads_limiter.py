"""InflightReadsLimiter: the budget stays whole, and waiting reads are served in order."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, strategies

from broker.managed_ledger.inflight_reads_limiter import InflightReadsLimiter, Permits
from foundation.model.errors import TooManyRequests


def ignore(permits: Permits | None) -> None:
    raise AssertionError("not to be called")


def test_every_read_is_granted_without_a_budget() -> None:
    limiter = InflightReadsLimiter(0, 10, 10)
    permits = limiter.acquire(1 << 50, 0, ignore)
    assert permits is not None
    limiter.release(permits, 1)
    assert not limiter.enabled
    assert limiter.acquire_read_ahead(5) is not None


def test_acquire_is_refused_when_the_queue_is_full() -> None:
    limiter = InflightReadsLimiter(10, 1, 0)
    assert limiter.acquire(10, 0, ignore) is not None
    assert limiter.acquire(1, 0, ignore) is None
    with pytest.raises(TooManyRequests):
        limiter.acquire(1, 0, ignore)


def test_read_ahead_fills_its_share_of_the_budget_and_never_waits() -> None:
    limiter = InflightReadsLimiter(100, 10, 0)
    permits = limiter.acquire_read_ahead(70)
    assert permits is not None
    assert limiter.acquire_read_ahead(1) is None
    assert limiter.queued == 0
    limiter.release(permits, 0)
    assert limiter.remaining_bytes == 100


def test_second_release_changes_nothing() -> None:
    limiter = InflightReadsLimiter(100, 10, 0)
    permits = limiter.acquire(40, 0, ignore)
    assert permits is not None
    limiter.release(permits, 0)
    limiter.release(permits, 0)
    assert limiter.remaining_bytes == 100


class Line:
    """Requests by name, and how each was answered."""

    def __init__(self, limiter: InflightReadsLimiter) -> None:
        self.limiter = limiter
        self.answers: dict[str, Permits | None] = {}

    def ask(self, name: str, size: int, now: int = 0) -> partial[None]:
        granted = partial(self._answer, name)
        permits = self.limiter.acquire(size, now, granted)
        if permits is not None:
            granted(permits)
        return granted

    def _answer(self, name: str, permits: Permits | None) -> None:
        assert name not in self.answers
        self.answers[name] = permits

    def give_back(self, name: str, now: int = 0) -> None:
        permits = self.answers[name]
        assert permits is not None
        self.limiter.release(permits, now)


@pytest.mark.parametrize("fair", [True, False])
def test_small_request_overtakes_a_large_one_only_when_not_fair(fair: bool) -> None:
    limiter = InflightReadsLimiter(100, 10, 0, fair=fair)
    line = Line(limiter)
    line.ask("a", 60)
    line.ask("large", 80)
    line.ask("small", 10)
    line.ask("nothing", 0)
    assert list(line.answers) == (["a", "nothing"] if fair else ["a", "small", "nothing"])
    line.give_back("a")
    assert set(line.answers) == {"a", "large", "small", "nothing"}
    assert limiter.remaining_bytes == 10


def test_queue_is_served_again_when_its_head_expires_or_withdraws() -> None:
    limiter = InflightReadsLimiter(100, 10, 50)
    line = Line(limiter)
    line.ask("a", 60)
    line.ask("large", 80, now=0)
    line.ask("small", 10, now=20)
    assert limiter.timer_due_ns == 50
    limiter.timer_fired(50)
    assert list(line.answers) == ["a", "large", "small"]
    assert line.answers["large"] is None
    second = line.ask("large again", 80, now=60)
    line.ask("small again", 10, now=60)
    assert limiter.withdraw(second, 61)
    assert not limiter.withdraw(second, 61)
    assert list(line.answers)[3:] == ["small again"]
    assert (limiter.queued, limiter.remaining_bytes) == (0, 20)


def test_correct_returns_a_surplus_and_takes_a_deficit_as_far_as_possible() -> None:
    limiter = InflightReadsLimiter(100, 10, 0)
    line = Line(limiter)
    line.ask("a", 90)
    line.ask("b", 50)
    permits = line.answers["a"]
    assert permits is not None
    limiter.correct(permits, 30, 0)
    assert list(line.answers) == ["a", "b"]
    assert (permits.size_bytes, limiter.remaining_bytes) == (30, 20)
    limiter.correct(permits, 1000, 0)
    assert (permits.size_bytes, limiter.remaining_bytes) == (50, 0)
    line.give_back("a")
    line.give_back("b")
    assert limiter.remaining_bytes == 100


def test_read_larger_than_the_budget_takes_all_and_returns_the_surplus() -> None:
    limiter = InflightReadsLimiter(100, 10, 0)
    line = Line(limiter)
    line.ask("huge", 1000)
    line.ask("b", 40)
    permits = line.answers["huge"]
    assert permits is not None
    assert permits.size_bytes == 100
    limiter.correct(permits, 1000, 0)
    assert list(line.answers) == ["huge"]
    limiter.correct(permits, 60, 0)
    assert list(line.answers) == ["huge", "b"]
    line.give_back("huge")
    line.give_back("b")
    assert limiter.remaining_bytes == 100


def test_correct_does_nothing_without_a_budget() -> None:
    limiter = InflightReadsLimiter(-1, 10, 0)
    permits = limiter.acquire(10, 0, ignore)
    assert permits is not None
    limiter.correct(permits, 5, 0)
    assert permits.size_bytes == 0
    limiter.release(permits, 0)
    assert (permits.size_bytes, limiter.remaining_bytes) == (0, -1)


def test_lent_permits_are_recalled_longest_lent_first_and_only_as_needed() -> None:
    limiter = InflightReadsLimiter(100, 10, 0)
    line = Line(limiter)
    let_go: list[str] = []

    def lend(name: str) -> None:
        permits = line.answers[name]
        assert permits is not None
        limiter.lend(permits, lambda: recalled(name))

    def recalled(name: str) -> None:
        let_go.append(name)
        line.give_back(name)

    for name in "abc":
        line.ask(name, 30)
        lend(name)
    assert let_go == []
    line.give_back("b")
    line.ask("d", 60)
    limiter.recall()
    assert let_go == ["a"]
    assert "d" in line.answers
    line.ask("e", 80)
    lend("d")
    assert let_go == ["a", "c", "d"], "what is lent while others wait goes at once if they need it"
    assert "e" in line.answers
    line.give_back("e")
    assert limiter.remaining_bytes == 100


class Books:
    """A limiter and what is owed: by whom permits are held, and who waits."""

    def __init__(self, limiter: InflightReadsLimiter) -> None:
        self.limiter = limiter
        self.held: list[Permits] = []
        self.waiting: dict[int, partial[None]] = {}
        self.asked = 0
        self.now = 0

    def pass_time(self, passed: int) -> None:
        self.now += passed
        while self.limiter.timer_due_ns is not None and self.limiter.timer_due_ns <= self.now:
            self.limiter.timer_fired(self.limiter.timer_due_ns)

    def answer(self, number: int, permits: Permits | None) -> None:
        del self.waiting[number]
        if permits is not None:
            self.held.append(permits)

    def do_acquire(self, size: int) -> None:
        self.asked += 1
        self.waiting[self.asked] = granted = partial(self.answer, self.asked)
        try:
            permits = self.limiter.acquire(size, self.now, granted)
        except TooManyRequests:
            del self.waiting[self.asked]
        else:
            if permits is not None:
                granted(permits)

    def do_withdraw(self, size: int) -> None:
        if self.waiting:
            chosen = list(self.waiting)[size % len(self.waiting)]
            assert self.limiter.withdraw(self.waiting.pop(chosen), self.now)

    def do_release(self, size: int) -> None:
        if self.held:
            self.limiter.release(self.held.pop(size % len(self.held)), self.now)

    def do_correct(self, size: int) -> None:
        if self.held:
            self.limiter.correct(self.held[size % len(self.held)], size, self.now)

    def do_lend(self, size: int) -> None:
        if self.held:
            permits = self.held[size % len(self.held)]
            self.limiter.lend(permits, partial(self.let_go, permits))

    def do_recall(self, size: int) -> None:
        self.limiter.recall()

    def let_go(self, permits: Permits) -> None:
        self.held.remove(permits)
        self.limiter.release(permits, self.now)


@given(
    strategies.booleans(),
    strategies.lists(
        strategies.tuples(
            strategies.sampled_from(
                ["acquire", "acquire", "release", "correct", "withdraw", "lend", "recall"]
            ),
            strategies.integers(0, 150),
            strategies.integers(0, 40),
        ),
        max_size=60,
    ),
)
def test_limiter_keeps_its_budget_and_answers_each_waiter_once(
    fair: bool, operations: list[tuple[str, int, int]]
) -> None:
    limiter = InflightReadsLimiter(100, 5, 50, fair=fair)
    books = Books(limiter)
    for name, size, passed in operations:
        books.pass_time(passed)
        getattr(books, f"do_{name}")(size)
        assert limiter.remaining_bytes == 100 - sum(permits.size_bytes for permits in books.held) >= 0
        assert limiter.queued == len(books.waiting) <= 5
    while books.held or books.waiting:
        books.do_release(0)
        books.pass_time(50)
    assert limiter.remaining_bytes == 100
