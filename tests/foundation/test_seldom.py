"""Parts that the first use makes, and locks that exist while somebody holds them or waits for them."""

from __future__ import annotations

import asyncio
import gc

from foundation import seldom
from foundation.seldom import lock_of, when_used


class Owner:
    pass


async def test_one_at_a_time_holds_the_lock_of_an_owner_and_others_do_not_wait_for_it() -> None:
    owner, other, order = Owner(), Owner(), list[str]()

    async def work(name: str, of: Owner) -> None:
        async with lock_of(of):
            order.append(f"{name} begins")
            for _ in range(3):
                await asyncio.sleep(0)
            order.append(f"{name} ends")

    await asyncio.gather(
        work("first", owner), work("second", owner), work("third", owner), work("free", other)
    )
    alone = [each for each in order if not each.startswith("free")]
    assert alone == [f"{name} {what}" for name in ("first", "second", "third") for what in ("begins", "ends")]
    assert order.index("free begins") < order.index("first ends")


async def test_free_lock_is_forgotten_with_its_owner() -> None:
    owner = Owner()
    async with lock_of(owner):
        assert lock_of(owner).locked()
        assert owner in seldom._IN_USE
    assert not lock_of(owner).locked()
    gc.disable()
    try:
        assert owner not in seldom._IN_USE, "no collection is needed for it"
    finally:
        gc.enable()


MADE = list[str]()


def made_for(owner: Whole) -> list[str]:
    MADE.append(owner.name)
    return [owner.name]


class Whole:
    __slots__ = ("known_part", "name")

    part: list[str] = when_used("known_part", made_for)

    def __init__(self, name: str) -> None:
        self.name = name
        self.known_part: list[str] | None = None


def test_part_is_made_by_its_first_use_and_kept() -> None:
    one, other = Whole("one"), Whole("other")
    assert MADE == []
    assert one.part is one.part
    assert (MADE, one.known_part, other.known_part) == (["one"], ["one"], None)
    assert other.part == ["other"]
