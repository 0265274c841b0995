"""Writes of a deletion that run together."""

from __future__ import annotations

import asyncio
import gc

import pytest

from broker.managed_ledger.removal import deletion
from broker.managed_ledger.removal.deletion import together
from foundation.model.errors import MetadataError


@pytest.mark.filterwarnings("error")
async def test_cancelled_deletion_leaves_no_write_that_never_began(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "REMOVED_AT_ONCE", 3)
    made = list[int]()

    async def write() -> None:
        await asyncio.Event().wait()

    def writes() -> object:
        for number in range(7):
            made.append(number)
            yield write()

    running = asyncio.ensure_future(together(writes()))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert made == [0, 1, 2]
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    gc.collect()
    assert made == [0, 1, 2]


async def test_error_of_a_write_is_raised_after_all_others_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deletion, "REMOVED_AT_ONCE", 2)
    ended = list[int]()

    async def write(number: int) -> None:
        await asyncio.sleep(0)
        if number in (1, 3):
            raise MetadataError(f"write {number}")
        ended.append(number)

    with pytest.raises(MetadataError, match="write 1"):
        await together(write(number) for number in range(6))
    assert ended == [0, 2, 4, 5]
