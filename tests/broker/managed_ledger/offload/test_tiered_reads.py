"""Reads of copied ledgers: from files, from the bookies, and when one of them fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.compose.cache_settings import EntryCacheSettings
from broker.managed_ledger.inflight_reads_limiter import InflightReadsLimiter
from broker.offload.ledger_tier import LedgerTier
from foundation.model.errors import EntryDamaged, NoSuchEntry, PersistenceError, ReadTimedOut
from foundation.model.position import EARLIEST, Position
from foundation.units import NS_PER_SECOND
from tests.broker.managed_ledger.ledger_fakes import (
    World,
    all_bodies,
    numbers,
    read,
    until,
)
from tests.broker.managed_ledger.offload.tiered import ENTRIES, Objects, Tiered


async def test_a_read_asks_for_many_entries_at_once_and_reads_the_next_piece_ahead(tiered: Tiered) -> None:
    ledger = await tiered.open(ENTRIES + 1, read_bytes=120)
    await tiered.offload(ledger)
    await tiered.forget_bookies(ledger)
    tiered.objects.gets.clear()
    cursor = ledger.cursors.open_non_durable("c", EARLIEST)
    assert numbers(await read(cursor, 1)) == [0]
    await until(lambda: len(tiered.objects.gets) == 2)
    for number in range(1, 5):
        assert numbers(await read(cursor, 1)) == [number]
    # Five entries in some pieces, each of several entries: one request for each piece, the next one ahead of its reader.
    assert 2 <= len(tiered.objects.gets) < ENTRIES


async def test_a_read_from_a_copy_holds_permits_and_is_cached_for_the_next_reader(tmp_path: Path) -> None:
    limiter = InflightReadsLimiter(1 << 20, 10, 60 * NS_PER_SECOND)
    tiered = Tiered(tmp_path, World(limiter=limiter, cache=EntryCacheSettings(64 << 20, policy="pip430")))
    ledger = await tiered.open(ENTRIES + 1)
    await tiered.offload(ledger)
    await tiered.forget_bookies(ledger)
    asked: list[LedgerTier] = []

    def open_tier() -> LedgerTier:
        asked.append(tiered.tier)
        return tiered.tier

    object.__setattr__(tiered.world.environment, "open_tier", open_tier)
    first, second = (ledger.cursors.open_non_durable(name, EARLIEST) for name in ("first", "second"))
    for cursor in (first, second):
        cursor.activate()
    tiered.objects.gets.clear()
    tiered.objects.hold_reads = asyncio.Event()
    reading = asyncio.create_task(read(first, ENTRIES))
    await until(lambda: tiered.objects.gets)
    assert limiter.remaining_bytes < limiter.budget_bytes
    tiered.objects.hold_reads.set()
    assert numbers(await reading) == list(range(ENTRIES))
    await until(lambda: limiter.remaining_bytes == limiter.budget_bytes)
    assert numbers(await read(second, ENTRIES)) == list(range(ENTRIES))
    assert len(asked) == 1


def damage(folder: Path) -> str:
    """Changes one byte of the first data object; returns its name."""
    path = min(path for path in folder.iterdir() if not path.name.endswith("-index"))
    data = bytearray(path.read_bytes())
    data[150] ^= 1
    path.write_bytes(data)
    return path.name


async def test_a_damaged_copy_is_read_from_the_bookie_while_it_has_the_ledger(tiered: Tiered) -> None:
    ledger = await tiered.open(ENTRIES + 1)
    await tiered.offload(ledger)
    damage(tiered.folder)
    assert await all_bodies(ledger) == [b"%010d" % number for number in range(6)]
    assert tiered.tier.stats.read_errors["t/n"] > 0


async def test_a_damaged_copy_alone_is_an_error_with_the_objects_name(tiered: Tiered) -> None:
    ledger = await tiered.open(ENTRIES + 1)
    await tiered.offload(ledger)
    await tiered.forget_bookies(ledger)
    name = damage(tiered.folder)
    with pytest.raises(EntryDamaged, match=f"{name}.*CRC32C"):
        await ledger.read_entry(Position(ledger.ledgers.infos()[0].ledger_id, 0))


async def test_a_storage_that_is_away_is_an_error_and_works_again_later(tiered: Tiered) -> None:
    ledger = await tiered.open(ENTRIES + 1)
    await tiered.offload(ledger)
    await tiered.forget_bookies(ledger)
    tiered.objects.away = True
    first = Position(ledger.ledgers.infos()[0].ledger_id, 0)
    with pytest.raises(PersistenceError, match="is away"):
        await ledger.read_entry(first)
    tiered.objects.away = False
    assert bytes((await ledger.read_entry(first)).body) == b"%010d" % 0


async def test_a_defect_of_the_storage_ends_a_read_with_an_error(
    tiered: Tiered, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await tiered.open()
    await tiered.offload(ledger)
    await tiered.forget_bookies(ledger)

    async def panic(*_: object) -> bytes:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(tiered.objects, "get", panic)
    with pytest.raises(PersistenceError, match="a defect"):
        await ledger.read_entry(Position(ledger.ledgers.infos()[0].ledger_id, 0))


async def test_a_missing_object_proves_the_loss_of_its_entries(tiered: Tiered) -> None:
    ledger = await tiered.open(ENTRIES + 1)
    await tiered.offload(ledger)
    await tiered.forget_bookies(ledger)
    for path in tiered.folder.iterdir():
        path.unlink()
    with pytest.raises(NoSuchEntry, match="does not exist"):
        await ledger.read_entry(Position(ledger.ledgers.infos()[0].ledger_id, 0))


@pytest.mark.parametrize("bookkeeper_first", [False, True])
async def test_priority_decides_which_of_two_copies_is_read(tiered: Tiered, bookkeeper_first: bool) -> None:
    ledger = await tiered.open(ENTRIES + 1, bookkeeper_first=bookkeeper_first)
    await tiered.offload(ledger)
    tiered.objects.gets.clear()
    tiered.world.ledgers.batch_reads.clear()
    await ledger.read_entry(Position(ledger.ledgers.infos()[0].ledger_id, 0))
    assert bool(tiered.objects.gets) is not bookkeeper_first
    assert bool(tiered.world.ledgers.batch_reads) is bookkeeper_first


@pytest.mark.parametrize("has_bookies", [True, False])
async def test_slow_storage_ends_a_read_in_time(
    tiered: Tiered, monkeypatch: pytest.MonkeyPatch, has_bookies: bool
) -> None:
    ledger = await tiered.open(ENTRIES + 1)
    await tiered.offload(ledger)
    if not has_bookies:
        await tiered.forget_bookies(ledger)
    monkeypatch.setattr("broker.offload.ledger_tier.READ_TIMEOUT_S", 0.01)

    async def never(self: Objects, key: str) -> bytes:
        await asyncio.Event().wait()
        return b""

    monkeypatch.setattr(Objects, "get", never)
    first = Position(ledger.ledgers.infos()[0].ledger_id, 0)
    if has_bookies:
        assert bytes((await ledger.read_entry(first)).body) == b"%010d" % 0
    else:
        with pytest.raises(ReadTimedOut, match="-ledger-"):
            await ledger.read_entry(first)
