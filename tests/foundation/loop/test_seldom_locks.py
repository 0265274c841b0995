"""Locks that exist while somebody holds them or waits for them."""

from __future__ import annotations

import asyncio

from foundation.loop.seldom_locks import is_locked, lock_of


async def test_lock_lives_while_it_is_held_or_waited_for() -> None:
    owner, order = object(), list[str]()

    async def hold(name: str) -> None:
        async with lock_of(owner):
            order.append(f"{name} in")
            await asyncio.sleep(0)
            order.append(f"{name} out")

    assert not is_locked(owner)
    tasks = [asyncio.ensure_future(hold(name)) for name in ("first", "second")]
    await asyncio.sleep(0)
    assert is_locked(owner)
    await asyncio.gather(*tasks)
    assert order == ["first in", "first out", "second in", "second out"]
    tasks.clear()
    assert not is_locked(owner)
