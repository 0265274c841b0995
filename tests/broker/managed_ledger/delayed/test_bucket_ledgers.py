"""BucketLedgers: delayed entries over a restart, with a crash between any two steps."""

from __future__ import annotations

from typing import Any

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import Put
from broker.managed_ledger.managed_ledger import ManagedLedger
from foundation.model.errors import MetadataError
from foundation.model.position import EARLIEST, Position
from protocol.ledger_metadata import ledger_key
from tests.broker.managed_ledger.ledger_fakes import FakeLedgers, World, delete, fill, until

SMALL: dict[str, Any] = {"delayed_segment_entries": 3, "delayed_bucket_entries": 10}


async def open_small(world: World, **settings: Any) -> ManagedLedger:
    return await world.open(**{**SMALL, **settings})


def hold(ledger: ManagedLedger, first: int, count: int, at_ms: int) -> None:
    """Holds so many entries of the current ledger; stores each bucket that becomes full."""
    ledger_id = ledger.last_confirmed.ledger_id
    for entry_id in range(first, first + count):
        full = ledger.own_delayed().hold(ledger_id, entry_id, at_ms + entry_id, 1)
        if full is not None:
            ledger.delayed_buckets.store(full)


async def stored_ledgers(world: World) -> set[int]:
    """Ledgers that the metadata store has."""
    keys = [key for key in world.metadata._values if key.startswith("/ledgers/")]  # type: ignore[attr-defined]
    return {number for number in range(200) if ledger_key(number) in keys}


async def named_ledgers(ledger: ManagedLedger) -> set[int]:
    """Ledgers that the list names, without a current one that has not begun."""
    current = ledger.ledgers.current
    begun = [info for info in ledger.ledgers.infos() if info is not current or ledger.store.current_started]
    return {info.ledger_id for info in begun} | set(ledger.store.buckets)


async def test_restart_finds_delayed_entries_without_reading_the_log() -> None:
    world = World()
    ledger = await open_small(world)
    await fill(ledger, 25)
    await ledger.cursors.open("s", EARLIEST)
    hold(ledger, 0, 25, world.wall + 1000)
    await until(lambda: len(ledger.delayed.stored) == 2)
    after = world.copy_after_crash()
    found = await open_small(after)
    assert len(found.delayed) == 20, "the open bucket is read from the log again"
    assert list(found.store.buckets) == ledger.delayed.stored
    log_id = ledger.last_confirmed.ledger_id
    # The recovery of the log's last ledger looks at its end; nothing else is read of it.
    assert all(first >= 24 for ledger_id, first, _ in after.ledgers.batch_reads if ledger_id == log_id)
    assert found.delayed.take_due(world.wall + 1004, 100) == [(log_id, entry_id) for entry_id in range(5)]


async def test_bucket_ledger_goes_with_its_last_entry() -> None:
    world = World()
    ledger = await open_small(world)
    await fill(ledger, 10)
    hold(ledger, 0, 10, world.wall)
    await until(lambda: ledger.delayed.stored)
    [bucket_id] = ledger.store.buckets
    assert bucket_id in await stored_ledgers(world)
    ledger.delayed.take_due(world.wall + 100, 100)
    ledger.delayed_buckets.remove(ledger.delayed.remove_empty())
    await ledger.context.background.drain()
    assert ledger.store.buckets == ()
    assert bucket_id not in await stored_ledgers(world)
    assert bucket_id in world.ledgers.deleted


async def test_bucket_whose_entries_became_due_while_it_was_written_is_removed() -> None:
    world = World()
    ledger = await open_small(world)
    await fill(ledger, 10)
    hold(ledger, 0, 10, world.wall)
    ledger.delayed.take_due(world.wall + 100, 100)
    assert ledger.delayed.remove_empty() == []
    await ledger.context.background.drain()
    assert ledger.store.buckets == ()
    assert await stored_ledgers(world) == await named_ledgers(ledger)


async def test_deleted_managed_ledger_leaves_no_bucket() -> None:
    world = World()
    ledger = await open_small(world)
    await fill(ledger, 25)
    hold(ledger, 0, 25, world.wall + 1000)
    await until(lambda: len(ledger.delayed.stored) == 2)
    await delete(ledger)
    assert await stored_ledgers(world) == set()


async def test_managed_ledger_that_is_deleted_while_a_bucket_is_written_leaves_nothing() -> None:
    for held_adds in range(6):
        world = World()
        ledger = await open_small(world)
        await fill(ledger, 10)
        world.ledgers.hold()
        hold(ledger, 0, 10, world.wall + 1000)
        await until(lambda ledger=ledger: ledger.store.buckets)  # type: ignore[misc]
        for _ in range(held_adds):
            if world.ledgers.held:
                world.ledgers.release(1)
        world.ledgers.answer_at_once_again()
        await delete(ledger)
        assert await stored_ledgers(world) == set(), held_adds


@pytest.mark.parametrize("trimmed", [False, True])
async def test_entries_that_were_trimmed_or_acknowledged_do_not_come_back(trimmed: bool) -> None:
    world = World()
    ledger = await open_small(world, entries_per_ledger_max=5)
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 12)
    keys = [(info.ledger_id, entry) for info in ledger.ledgers.infos() for entry in range(info.entries)]
    for key in keys[:10]:
        if (full := ledger.own_delayed().hold(*key, world.wall + 1000, 1)) is not None:
            ledger.delayed_buckets.store(full)
    await until(lambda: ledger.delayed.stored)
    if trimmed:
        ledger.trimming.keep_ms = ledger.trimming.keep_bytes = 0
    cursor.acknowledge_cumulative(Position(*keys[4]))
    await ledger.close()
    found = await open_small(World(world.metadata, world.ledgers))
    assert len(found.delayed) == (5 if trimmed else 10)
    found.delayed.forget(found.cursors.by_name["s"].mark_delete_position)
    assert len(found.delayed) == 5


async def test_broken_bucket_is_dropped_and_the_managed_ledger_opens() -> None:
    world = World()
    ledger = await open_small(world)
    await fill(ledger, 20)
    hold(ledger, 0, 20, world.wall + 1000)
    await until(lambda: len(ledger.delayed.stored) == 2)
    bad, good = ledger.delayed.stored
    del world.ledgers.stored[bad][1]
    found = await open_small(world.copy_after_crash())
    assert (found.store.buckets, len(found.delayed)) == ((good,), 10)


async def test_bucket_without_an_end_is_removed_and_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    ledger = await open_small(world)
    await fill(ledger, 10)
    world.ledgers.hold()
    hold(ledger, 0, 10, world.wall + 1000)
    await until(lambda: world.ledgers.held)
    after = world.copy_after_crash()
    found = await open_small(after)
    assert (len(found.delayed), found.store.buckets) == (0, ())
    assert "is open: its writer did not end it" in caplog.text
    world.ledgers.answer_at_once_again()


class Crashing(MemoryMetadataStore):
    """Takes so many writes; every later one fails, as for a process that is gone."""

    def __init__(self, writes: int) -> None:
        super().__init__()
        self.writes = writes
        """Writes that are still carried out."""

    def _count(self) -> None:
        self.writes -= 1
        if self.writes < 0:
            raise MetadataError("the process is gone")

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        self._count()
        return await super().put(key, value, expected)

    async def put_all(self, puts: Any) -> list[int]:
        self._count()
        return await super().put_all(puts)

    async def delete(self, key: str, expected: int | None = None) -> None:
        self._count()
        await super().delete(key, expected)


@pytest.mark.parametrize("writes", range(9))
@pytest.mark.parametrize("adds", range(5))
async def test_crash_at_any_step_leaves_whole_buckets_or_none(writes: int, adds: int) -> None:
    world = World(Crashing(100), FakeLedgers())
    ledger = await open_small(world)
    await fill(ledger, 10)
    metadata = world.metadata
    assert isinstance(metadata, Crashing)
    metadata.writes = writes
    left = [adds]

    def refuse(ledger_id: int, entry_id: int) -> int:
        left[0] -= 1
        return 101 if left[0] < 0 else 0

    world.ledgers.refuse = refuse
    hold(ledger, 0, 10, world.wall + 1000)
    await ledger.context.background.drain()
    if writes > 4 and ledger.delayed.stored:
        ledger.delayed.take_due(world.wall + 10_000, 100)
        ledger.delayed_buckets.remove(ledger.delayed.remove_empty())
        await ledger.context.background.drain()
    after = world.copy_after_crash()
    found = await open_small(after)
    assert len(found.delayed) in (0, 10)
    assert await stored_ledgers(after) <= await named_ledgers(found)
    assert set(found.delayed.stored) == set(found.store.buckets)


async def test_list_and_bucket_begin_in_one_write() -> None:
    written: list[list[str]] = []

    class Watched(MemoryMetadataStore):
        async def put_all(self, puts: Any) -> list[int]:
            written.append([put.key for put in puts if isinstance(put, Put)])
            return await super().put_all(puts)

    world = World(Watched())
    ledger = await open_small(world)
    await fill(ledger, 10)
    hold(ledger, 0, 10, world.wall + 1000)
    await until(lambda: ledger.delayed.stored)
    [bucket_id] = ledger.delayed.stored
    assert written[-1] == [ledger_key(bucket_id), "/managed-ledgers/t/n/persistent/x"]
