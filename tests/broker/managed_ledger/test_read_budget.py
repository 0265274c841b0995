"""Permits of the read budget: which reads hold them, for how long, and that none is ever lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.compose.cache_settings import EntryCacheSettings
from broker.managed_ledger.inflight_reads_limiter import InflightReadsLimiter
from broker.managed_ledger.ledger_context import OVERHEAD_ESTIMATE_BYTES
from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.managed_ledger.managed_ledger import ManagedLedger
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError, ServiceNotReady, TooManyRequests
from foundation.model.position import EARLIEST
from foundation.units import NS_PER_SECOND
from tests.broker.managed_ledger.ledger_fakes import PLENTY, World, at, delete, fill, numbers, turns, until

ENTRIES = 30
WAIT_NS = 60 * NS_PER_SECOND


async def a_full_log(
    budget: int, *, queue: int = 10, cache_bytes: int = 64 << 20, **options: Any
) -> tuple[World, ManagedLedger]:
    """A managed ledger of 30 entries, none of them cached, and a budget in bytes."""
    world = World()
    await fill(await world.open(), ENTRIES)
    limiter = InflightReadsLimiter(budget, queue, WAIT_NS)
    world = world.after_crash(limiter=limiter, cache=EntryCacheSettings(cache_bytes, policy="pip430"))
    return world, await world.open(**options)


def estimate(ledger: ManagedLedger, entries: int) -> int:
    return ledger.context.estimated_bytes(ledger.ledgers.infos()[0].ledger_id, entries)


class Asked:
    """A request of a cursor and how often it was answered."""

    def __init__(self, cursor: ManagedCursor, entries: int) -> None:
        self.answers = 0
        cursor.request(entries, PLENTY, self._ready)

    def _ready(self) -> None:
        self.answers += 1


@pytest.mark.parametrize("cache_bytes", [0, 64 << 20])
async def test_read_holds_its_estimate_then_its_size_until_the_last_entry_is_taken(cache_bytes: int) -> None:
    world, ledger = await a_full_log(1 << 20, cache_bytes=cache_bytes)
    cursor = ledger.cursors.open_non_durable("r", EARLIEST)
    cursor.activate()
    world.ledgers.hold()
    asked = Asked(cursor, 4)
    used = world.limiter.budget_bytes - world.limiter.remaining_bytes
    assert used == estimate(ledger, 4)
    world.ledgers.answer_at_once_again()
    assert asked.answers == 1
    size = ledger.ledgers.average_entry_bytes(ledger.ledgers.infos()[0].ledger_id)
    assert estimate(ledger, 1) == size + OVERHEAD_ESTIMATE_BYTES
    assert world.limiter.budget_bytes - world.limiter.remaining_bytes == 4 * size
    assert numbers(cursor.take(3, PLENTY)) == [0, 1, 2]
    await turns()
    assert world.limiter.budget_bytes - world.limiter.remaining_bytes == 4 * size
    assert numbers(cursor.take(3, PLENTY)) == [3]
    assert world.limiter.budget_bytes - world.limiter.remaining_bytes == 4 * size, "until the turn has ended"
    await turns()
    assert world.limiter.remaining_bytes == world.limiter.budget_bytes


async def test_taking_from_the_cache_needs_no_permits() -> None:
    world, ledger = await a_full_log(1)
    filler, cursor = (ledger.cursors.open_non_durable(name, EARLIEST) for name in ("filler", "r"))
    filler.activate()
    Asked(filler, 5)
    await until(lambda: not filler.reading)
    assert world.limiter.remaining_bytes == 0
    assert numbers(cursor.take(5, PLENTY)) == [0, 1, 2, 3, 4]


async def test_read_is_refused_when_the_queue_is_full_or_the_wait_too_long() -> None:
    world, ledger = await a_full_log(1, queue=1)
    world.ledgers.hold()
    cursors = [ledger.cursors.open_non_durable(name, EARLIEST) for name in "abc"]
    asked = [Asked(cursor, 5) for cursor in cursors]
    await turns()
    assert [one.answers for one in asked] == [0, 0, 1]
    assert isinstance(cursors[2].last_error, TooManyRequests)
    world.clock.advance(WAIT_NS)
    world.tick()
    assert [one.answers for one in asked] == [0, 1, 1]
    for cursor in cursors[1:]:
        assert isinstance(cursor.last_error, TooManyRequests)
        assert "try again later" in str(cursor.last_error)
        assert not cursor.reading
    world.ledgers.answer_at_once_again()
    assert numbers(cursors[0].take(5, PLENTY)) == [0, 1, 2, 3, 4]
    again = Asked(cursors[1], 5)
    await until(lambda: again.answers)
    assert numbers(cursors[1].take(5, PLENTY)) == [0, 1, 2, 3, 4]


async def test_waiting_reads_are_served_in_order() -> None:
    world, ledger = await a_full_log(estimate_of(5))
    world.ledgers.hold()
    cursors = [
        ledger.cursors.open_non_durable(name, at(ledger, 10 * number)) for number, name in enumerate("abc")
    ]
    asked = [Asked(cursor, entries) for cursor, entries in zip(cursors, (4, 5, 1), strict=True)]
    assert len(world.ledgers.held or ()) == 1
    world.ledgers.release()
    assert asked[0].answers == 1
    cursors[0].take(4, PLENTY)
    await turns()
    assert [item[1:] for item in world.ledgers.batch_reads[-1:]] == [(10, 5)], "the small one waits behind"
    world.ledgers.release()
    await until(lambda: len(world.ledgers.held or ()) == 1)
    assert [item[1:] for item in world.ledgers.batch_reads[-1:]] == [(20, 1)], "the surplus is enough for it"


def estimate_of(entries: int) -> int:
    """Returns the estimate of so many entries of `a_full_log`: 10 bytes and their metadata block."""
    return entries * (10 + 15 + OVERHEAD_ESTIMATE_BYTES)


async def test_seek_drops_the_read_in_flight() -> None:
    world, ledger = await a_full_log(1 << 20)
    cursor = ledger.cursors.open_non_durable("r", EARLIEST)
    world.ledgers.hold()
    asked = Asked(cursor, 5)
    await cursor.reset(at(ledger, 20))
    assert cursor.reading
    world.ledgers.answer_at_once_again()
    assert asked.answers == 1
    assert world.limiter.remaining_bytes == world.limiter.budget_bytes
    assert cursor.take(5, PLENTY) == []
    again = Asked(cursor, 5)
    await until(lambda: again.answers)
    assert numbers(cursor.take(5, PLENTY)) == [20, 21, 22, 23, 24]


async def test_waiting_read_keeps_its_queue_place_and_reads_the_new_position_after_a_seek() -> None:
    world, ledger = await a_full_log(1)
    first, cursor, last = (ledger.cursors.open_non_durable(name, EARLIEST) for name in "abc")
    world.ledgers.hold()
    asked = [Asked(one, 5) for one in (first, cursor, last)]
    await cursor.reset(at(ledger, 20))
    world.ledgers.answer_at_once_again()
    first.take(5, PLENTY)
    await until(lambda: asked[1].answers)
    assert asked[2].answers == 0
    assert numbers(cursor.take(5, PLENTY)) == [20, 21, 22, 23, 24]


async def test_read_that_waited_asks_for_nothing_when_all_was_acknowledged_meanwhile() -> None:
    world, ledger = await a_full_log(1)
    first, cursor = (ledger.cursors.open_non_durable(name, EARLIEST) for name in "ab")
    asked = [Asked(first, 5), Asked(cursor, 5)]
    cursor.acknowledge_cumulative(at(ledger, ENTRIES - 1))
    await until(lambda: asked[0].answers)
    reads = len(world.ledgers.batch_reads)
    first.take(5, PLENTY)
    await until(lambda: asked[1].answers)
    assert cursor.last_error is None
    assert len(world.ledgers.batch_reads) == reads
    await turns()
    assert world.limiter.remaining_bytes == 1


LEAVING: dict[str, Callable[[ManagedLedger, ManagedCursor], object]] = {
    "the last consumer left": lambda ledger, cursor: cursor.deactivate(),
    "closed": lambda ledger, cursor: asyncio.ensure_future(cursor.close()),
    "deleted": lambda ledger, cursor: asyncio.ensure_future(ledger.cursors.delete(cursor.name)),
    "topic closed": lambda ledger, cursor: asyncio.ensure_future(ledger.close()),
    "topic deleted": lambda ledger, cursor: asyncio.ensure_future(delete(ledger)),
}


@pytest.mark.parametrize("how", LEAVING)
@pytest.mark.parametrize("state", ["waiting", "out", "ready", "replay waiting", "replay out"])
async def test_leaving_cursor_releases_its_permits_in_any_state(state: str, how: str) -> None:
    world, ledger = await a_full_log(1 if "waiting" in state else 1 << 20)
    cursor = await ledger.cursors.open("s", EARLIEST)
    cursor.activate()
    other = ledger.cursors.open_non_durable("other", EARLIEST)
    world.ledgers.hold()
    blocking = Asked(other, 5) if "waiting" in state else None
    answers = 0

    def ready(entries: list[Entry]) -> None:
        nonlocal answers
        answers += 1

    if "replay" in state:
        cursor.redelivery.request([at(ledger, 7), at(ledger, 9)], ready)
    else:
        cursor.request(5, PLENTY, lambda: ready([]))
    if state == "ready":
        world.ledgers.release()
        assert answers == 1
    assert world.limiter.queued == int("waiting" in state)
    LEAVING[how](ledger, cursor)
    await turns()
    assert world.limiter.queued == 0, "nobody stands in line who does not want to read"
    world.ledgers.answer_at_once_again()
    await turns()
    assert answers == 1
    assert not cursor.reading
    if blocking is not None:
        assert blocking.answers == 1
        other.deactivate()
        await turns()
    assert world.limiter.remaining_bytes == world.limiter.budget_bytes


async def test_request_ends_with_service_not_ready_when_cursor_is_closed() -> None:
    world, ledger = await a_full_log(1 << 20)
    cursor = await ledger.cursors.open("s", EARLIEST)
    await cursor.close()
    reads = len(world.ledgers.batch_reads)
    asked = Asked(cursor, 5)
    await until(lambda: asked.answers)
    assert isinstance(cursor.last_error, ServiceNotReady)
    assert len(world.ledgers.batch_reads) == reads


async def test_entries_not_taken_are_dropped_when_others_need_their_permits() -> None:
    world, ledger = await a_full_log(estimate_of(5))
    slow, quick = (ledger.cursors.open_non_durable(name, EARLIEST) for name in ("slow", "quick"))
    asked = Asked(slow, 5)
    await until(lambda: asked.answers)
    taken = slow.take(5, PLENTY)
    slow.give_back(taken[2].position, taken[2:])
    await turns()
    assert world.limiter.remaining_bytes < world.limiter.budget_bytes
    other = Asked(quick, 5)
    await until(lambda: other.answers)
    assert numbers(quick.take(5, PLENTY)) == [0, 1, 2, 3, 4]
    assert slow.take(5, PLENTY) == [], "it was let go of"
    again = Asked(slow, 3)
    await until(lambda: again.answers)
    assert numbers(slow.take(5, PLENTY)) == [2, 3, 4]
    await turns()
    assert world.limiter.remaining_bytes == world.limiter.budget_bytes


async def test_redelivery_read_gets_permits_lent_by_its_own_cursor() -> None:
    """A dispatcher that reads no further until the replay is done would otherwise wait for itself."""
    world, ledger = await a_full_log(estimate_of(1))
    cursor = ledger.cursors.open_non_durable("r", EARLIEST)
    asked = Asked(cursor, 5)
    await until(lambda: asked.answers)
    await turns()
    assert world.limiter.remaining_bytes < world.limiter.budget_bytes
    answers: list[list[Entry]] = []
    cursor.redelivery.request([at(ledger, index) for index in (20, 22, 24)], answers.append)
    await until(lambda: answers)
    assert numbers(answers[0]) == [20, 22, 24]
    await turns()
    assert world.limiter.remaining_bytes == world.limiter.budget_bytes


async def test_redelivery_read_holds_its_permits_until_the_end_of_the_turn() -> None:
    world, ledger = await a_full_log(1 << 20)
    cursor = ledger.cursors.open_non_durable("r", EARLIEST)
    used: list[int] = []

    def dispatch(now_ns: int) -> None:
        used.append(world.limiter.budget_bytes - world.limiter.remaining_bytes)

    cursor.redelivery.request([at(ledger, 3)], lambda entries: world.environment.turn.dispatch(dispatch))
    await until(lambda: used)
    assert used == [ledger.ledgers.average_entry_bytes(ledger.ledgers.infos()[0].ledger_id)]
    await until(lambda: world.limiter.remaining_bytes == world.limiter.budget_bytes)


async def test_single_reads_need_permits() -> None:
    world, ledger = await a_full_log(1, queue=1)
    world.ledgers.hold()
    cursor = ledger.cursors.open_non_durable("r", EARLIEST)
    asked = Asked(cursor, 5)
    waiting = asyncio.ensure_future(ledger.read_entry(at(ledger, 7)))
    await turns()
    with pytest.raises(TooManyRequests):
        await ledger.read_entry(at(ledger, 8))
    waiting.cancel()
    await turns()
    assert world.limiter.queued == 0
    world.ledgers.answer_at_once_again()
    assert asked.answers == 1
    cursor.deactivate()
    assert numbers([await ledger.read_entry(at(ledger, 7))]) == [7]
    assert world.limiter.remaining_bytes == 1
    assert ledger.cache.entries == 0


# Whatever happens


class Interleaving:
    """Three cursors of one managed ledger whose storage answers on command."""

    def __init__(self, world: World, ledger: ManagedLedger) -> None:
        self.world = world
        self.ledger = ledger
        self.cursors: list[ManagedCursor] = []
        self.asked = self.answered = 0
        self.taken: dict[str, list[Entry]] = {}
        self.peeks: list[asyncio.Future[Entry]] = []

    async def begin(self) -> None:
        self.cursors = [await self.ledger.cursors.open(name, EARLIEST) for name in "abc"]
        for cursor in self.cursors:
            cursor.activate()
        self.world.ledgers.hold()

    def ready(self, entries: list[Entry] | None = None) -> None:
        self.answered += 1
        assert self.answered <= self.asked

    async def do(self, step: str, number: int, size: int) -> None:
        await getattr(self, f"do_{step}")(self.cursors[number], size)

    async def do_request(self, cursor: ManagedCursor, size: int) -> None:
        if not cursor.reading:
            self.asked += 1
            cursor.request(size, PLENTY, self.ready)

    async def do_replay(self, cursor: ManagedCursor, size: int) -> None:
        self.asked += 1
        cursor.redelivery.request([at(self.ledger, size), at(self.ledger, size + 2)], self.ready)

    async def do_take(self, cursor: ManagedCursor, size: int) -> None:
        self.taken[cursor.name] = cursor.take(size, PLENTY)

    async def do_give_back(self, cursor: ManagedCursor, size: int) -> None:
        rest = self.taken.pop(cursor.name, [])[size // 4 :]
        if rest and rest[-1].position < cursor.read_position:
            cursor.give_back(rest[0].position, rest if size % 2 else ())

    async def do_rewind(self, cursor: ManagedCursor, size: int) -> None:
        cursor.rewind()
        self.taken.pop(cursor.name, None)

    async def do_reset(self, cursor: ManagedCursor, size: int) -> None:
        await cursor.reset(at(self.ledger, 3 * size))
        self.taken.pop(cursor.name, None)

    async def do_acknowledge(self, cursor: ManagedCursor, size: int) -> None:
        cursor.acknowledge([at(self.ledger, 2 * size), at(self.ledger, size)])

    async def do_leave(self, cursor: ManagedCursor, size: int) -> None:
        cursor.deactivate()
        cursor.activate()

    async def do_close(self, cursor: ManagedCursor, size: int) -> None:
        await self.ledger.cursors.delete(cursor.name)
        self.taken.pop(cursor.name, None)
        self.cursors[self.cursors.index(cursor)] = await self.ledger.cursors.open(cursor.name, EARLIEST)

    async def do_answer(self, cursor: ManagedCursor, size: int) -> None:
        ledgers = self.world.ledgers
        ledgers.release(min(size, len(ledgers.held or ())))

    async def do_break_storage(self, cursor: ManagedCursor, size: int) -> None:
        """Makes every later storage read fail."""
        self.world.ledgers.refuse_reads = 101

    async def do_mend_storage(self, cursor: ManagedCursor, size: int) -> None:
        self.world.ledgers.refuse_reads = 0

    async def do_peek(self, cursor: ManagedCursor, size: int) -> None:
        self.peeks.append(asyncio.ensure_future(self.ledger.read_entry(at(self.ledger, size))))

    async def do_cancel_peek(self, cursor: ManagedCursor, size: int) -> None:
        if self.peeks:
            self.peeks[size % len(self.peeks)].cancel()

    async def do_wait(self, cursor: ManagedCursor, size: int) -> None:
        self.world.clock.advance(size * WAIT_NS // 6)
        self.world.tick()

    async def do_turn(self, cursor: ManagedCursor, size: int) -> None:
        await turns(2)

    async def end(self) -> None:
        """Everybody leaves; storage answers what it still owes."""
        for cursor in self.cursors:
            cursor.deactivate()
        self.world.ledgers.answer_at_once_again()
        for cursor in self.cursors:
            await until(partial(is_idle, cursor))
        peeked = await asyncio.gather(*self.peeks, return_exceptions=True)
        assert all(isinstance(one, Entry | BrokerError | asyncio.CancelledError) for one in peeked)
        await turns(20)


def is_idle(cursor: ManagedCursor) -> bool:
    return not cursor.reading


STEPS = [name.removeprefix("do_") for name in vars(Interleaving) if name.startswith("do_")]
OFTEN = ["request", "request", "take", "answer", "turn"]


@given(
    st.lists(st.tuples(st.sampled_from([*STEPS, *OFTEN]), st.integers(0, 2), st.integers(1, 8)), max_size=60),
    st.integers(1, 12),
    st.integers(1, 4),
    st.sampled_from([0, 64 << 20]),
    st.sampled_from([0, 30]),
)
@settings(max_examples=150, deadline=None)
def test_budget_is_complete_again_after_any_history(
    steps: list[tuple[str, int, int]], entries: int, queue: int, cache_bytes: int, timeout_s: float
) -> None:
    async def run() -> None:
        world, ledger = await a_full_log(
            estimate_of(entries), queue=queue, cache_bytes=cache_bytes, read_timeout_s=timeout_s
        )
        played = Interleaving(world, ledger)
        await played.begin()
        limiter = world.limiter
        for step in steps:
            await played.do(*step)
            assert 0 <= limiter.remaining_bytes <= limiter.budget_bytes
            assert limiter.queued <= queue
        await played.end()
        assert (limiter.queued, limiter.remaining_bytes) == (0, limiter.budget_bytes)
        assert played.answered == played.asked, "every request is answered once"
        assert len(world.environment.read_deadlines) == 0

    asyncio.run(run())
