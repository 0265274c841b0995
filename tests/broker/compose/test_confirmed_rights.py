"""Rights in memory that a shared store does not confirm end after their bound, and come back with its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from broker.compose.confirmed_rights import BOUND_S, ConfirmedRights
from foundation.model.errors import MetadataError


class World:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.reads = 0
        self.refused = False
        self.answers: asyncio.Event | None = None
        """Reads wait for it."""
        self.expired = 0
        self.tasks: list[asyncio.Task[None]] = []
        self.rights = ConfirmedRights(
            (self.read,), self.expire, now_ns=lambda: int(self.now_s * 1e9), spawn=self.spawn
        )

    async def read(self) -> None:
        self.reads += 1
        if self.answers is not None:
            await self.answers.wait()
        if self.refused:
            raise MetadataError("the store does not answer")

    def expire(self) -> None:
        self.expired += 1

    def spawn(self, work: Coroutine[object, None, None], _name: str) -> None:
        self.tasks.append(asyncio.create_task(work))

    async def round(self) -> None:
        self.rights.begin_round()
        await asyncio.gather(*self.tasks)

    def later(self, seconds: float) -> None:
        self.now_s += seconds
        self.rights.check()


async def test_rights_are_in_force_up_to_their_bound_and_end_once() -> None:
    world = World()
    world.later(BOUND_S)
    assert world.rights.is_confirmed()
    assert world.expired == 0
    world.later(1)
    world.later(1)
    assert not world.rights.is_confirmed()
    assert world.expired == 1


async def test_round_that_the_store_answers_confirms_and_one_that_fails_does_not() -> None:
    world = World()
    world.later(BOUND_S)
    world.refused = True
    await world.round()
    world.later(1)
    assert not world.rights.is_confirmed()
    world.refused = False
    await world.round()
    assert world.rights.is_confirmed()
    world.later(BOUND_S + 1)
    assert world.expired == 2, "each time that rights end, what is open ends"


async def test_late_answer_confirms_as_of_its_question() -> None:
    world = World()
    world.answers = asyncio.Event()
    world.rights.begin_round()
    await asyncio.sleep(0)
    world.rights.begin_round()
    world.later(BOUND_S + 1)
    world.answers.set()
    await asyncio.gather(*world.tasks)
    assert world.reads == 1, "one round at a time"
    assert not world.rights.is_confirmed()
