"""A long random history of managed ledgers and cursors, recorded and replayed to the same state.

Everything that the cache is told of happens in it, some of it at the same time: reads that are held back, fail or are
shared, entries handed over, given back, kept back and read again, cursors that come, seek, go and are deleted, slices
of passes, settings that change, ledgers that are trimmed, managed ledgers that are closed, opened again and deleted.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.compose.cache_settings import EntryCacheSettings
from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.recorder.record_reader import events, find
from broker.recorder.record_writer import RecordWriter
from broker.recorder.settings import RecordSettings
from entry_cache.entry_cache_manager import EntryCacheManager
from entry_cache.listener import Redelivery
from entry_cache.observe.decisions import Decisions
from entry_cache.observe.replay import Replay
from entry_cache.observe.totals import totals_of
from entry_cache.policy import NO_LIMIT
from foundation.model.entry import Entry
from foundation.model.position import EARLIEST, LATEST, Position
from tests.broker.managed_ledger.ledger_fakes import Clock, World, delete, recorder, until
from tests.fakes.whole_cache import WholeCache

NAMES = ("t/n/persistent/a", "t/n/persistent/b", "t/n/persistent/c")
CURSORS = ("one", "two", "three")
MICROSECOND = 1000
MILLISECOND = 1_000_000
READ_FAILED = 101
CACHE = EntryCacheSettings(
    size_bytes_max=20_000,
    watermark=0.7,
    ttl_ns=8 * MILLISECOND,
    ttl_max_ns=30 * MILLISECOND,
    policy="pip430",
)
POLICIES = {
    "4.2": CACHE,
    "5.0": replace(CACHE, profile="5.0"),
    "pip430-stash": replace(CACHE, policy="pip430-stash"),
    "fifo-ttl": replace(CACHE, policy="fifo-ttl"),
    "magnetar": replace(CACHE, policy="magnetar"),
    "4.2, objects charged": replace(CACHE, size_bytes_max=60_000, charges_overhead=True),
    "magnetar, objects charged": replace(
        CACHE, size_bytes_max=60_000, policy="magnetar", charges_overhead=True
    ),
}


class Life:
    def __init__(self, world: World, cache: EntryCacheSettings, seed: int, **log_settings: Any) -> None:
        self.rng = random.Random(seed)
        self.clock: Clock = world.clock
        self.rows: list = []  # type: ignore[type-arg]
        decisions = Decisions(0, self.clock)
        decisions.listen(self.rows.append)
        self.caches = WholeCache(cache, decisions)
        self.world = world
        world.environment = replace(world.environment, caches=self.caches.manager)
        self.log_settings: dict[str, Any] = {
            "entries_per_ledger_max": 30,
            "continue_caching_ns": 3 * MILLISECOND,
            **log_settings,
        }
        self.opened: dict[str, ManagedLedger] = {}
        self.taken: dict[str, list[Entry]] = {}
        """By managed ledger: about the entries that were dispatched and not acknowledged."""
        self.refused = 0

    async def open(self, name: str) -> ManagedLedger:
        self.opened[name] = ledger = await self.world.open(name, keep=False, **self.log_settings)
        for cursor in CURSORS[: self.rng.randint(1, 3)]:
            await ledger.cursors.open(cursor, EARLIEST)
        self.taken[name] = []
        return ledger

    async def step(self) -> None:
        self.clock.advance(self.rng.randint(0, 800) * MICROSECOND)
        ledger = self.opened[self.rng.choice(list(self.opened))]
        cursors = [cursor for cursor in ledger.cursors.by_name.values() if not cursor.closed]
        if self.rng.random() < 0.85 and cursors:
            choices = (self.take, self.request, self.acknowledge, self.come_or_go, self.again, self.seek)
            action = self.rng.choices(choices, (8, 6, 4, 2, 3, 1))[0]
            await action(ledger, self.rng.choice(cursors))
        else:
            others = (self.add, self.passes, self.reconfigure, self.cursor_made_or_deleted, self.end)
            await self.rng.choices(others, (20, 20, 1, 1, 1))[0](ledger)

    # What happens

    async def add(self, ledger: ManagedLedger) -> None:
        count = self.rng.randint(1, 12)
        buffer = memoryview(bytearray(self.rng.randint(20_000, 40_000)))
        done = len(recorder(ledger).added) + count
        at = 0
        for _ in range(count):
            size = self.rng.choice((10, 10, 500, self.rng.randint(1, 1500)))
            ledger.writer.add([buffer[at : at + size] if self.rng.random() < 0.5 else bytes(size)], 1, None)
            at += size
        await until(lambda: len(recorder(ledger).added) == done)

    async def passes(self, ledger: ManagedLedger) -> None:
        visits = self.rng.choice((3, 20, NO_LIMIT))
        run = self.rng.choice((self.caches.tick, self.caches.run_pending))
        run(self.clock.now, visits)

    async def reconfigure(self, ledger: ManagedLedger) -> None:
        size = self.rng.choice((15_000, 20_000, 30_000))
        self.caches.reconfigure(replace(self.caches.settings, size_bytes_max=size))

    async def take(self, ledger: ManagedLedger, cursor: ManagedCursor) -> None:
        entries = cursor.take(self.rng.randint(1, 15), 10_000)
        if not entries:
            return
        split = self.rng.choice((len(entries), len(entries), self.rng.randint(0, len(entries))))
        handed, rest = entries[:split], entries[split:]
        ledger.environment.caches.mark_delivered(handed)
        self.taken[ledger.name] += handed
        if rest and self.rng.random() < 0.5:
            cursor.give_back(rest[0].position, rest if self.rng.random() < 0.5 else ())
        elif rest:
            listener = ledger.cache.listener
            listener.redelivery_changed(Redelivery.POSTPONED, cursor.reader, rest)
            self.taken[ledger.name] += rest

    async def request(self, ledger: ManagedLedger, cursor: ManagedCursor) -> None:
        """Of several cursors at a time, while storage holds its answers back."""
        fakes = self.world.ledgers
        fakes.hold()
        fakes.refuse_reads = READ_FAILED if self.rng.random() < 0.2 else 0
        ended = []
        for one in ledger.cursors.by_name.values():
            if not (one.closed or one.reading) and one.has_more() and self.rng.random() < 0.7:
                one.request(self.rng.randint(1, 20), 10_000, lambda: ended.append(1))
                ended.append(0)
        if self.rng.random() < 0.3:
            await self.passes(ledger)
        if self.rng.random() < 0.05:
            ledger.cache.invalidate_ledger(cursor.read_position.ledger_id)
            ledger.storage_reads.invalidate_ledger(cursor.read_position.ledger_id)
        if self.rng.random() < 0.5:
            fakes.refuse_reads = 0  # What failed in part is read once more as a whole, and that succeeds.
        fakes.answer_at_once_again()
        await until(lambda: ended.count(1) == ended.count(0))
        fakes.refuse_reads = 0

    async def acknowledge(self, ledger: ManagedLedger, cursor: ManagedCursor) -> None:
        taken = self.taken[ledger.name]
        if not taken:
            return
        if self.rng.random() < 0.3:
            cursor.acknowledge_cumulative(self.rng.choice(taken).position)
        else:
            cursor.acknowledge([entry.position for entry in self.rng.sample(taken, min(len(taken), 5))])
        del taken[: self.rng.randint(0, 5)]

    async def again(self, ledger: ManagedLedger, cursor: ManagedCursor) -> None:
        """A negative acknowledgement and its replay."""
        taken = self.taken[ledger.name]
        wanted = self.rng.sample(taken, min(len(taken), 4))
        peek = ledger.cache.peek
        cached = [entry for old in wanted if (entry := peek(*old.position)) is not None]
        self.caches.expect_redelivery(cursor.reader, cached)
        self.clock.advance(self.rng.randint(0, 500) * MICROSECOND)
        found, missing = cursor.redelivery.read_cached([entry.position for entry in wanted])
        if missing:
            ended: list[Entry] = []
            arrived = asyncio.Event()

            def done(entries: list[Entry]) -> None:
                ended.extend(entries)
                arrived.set()

            cursor.redelivery.request(missing, done)
            await arrived.wait()
            found += ended
        ledger.environment.caches.mark_delivered(found)

    async def come_or_go(self, ledger: ManagedLedger, cursor: ManagedCursor) -> None:
        (cursor.deactivate if cursor.active and self.rng.random() < 0.4 else cursor.activate)()
        if self.rng.random() < 0.3:
            cursor.rewind()

    async def seek(self, ledger: ManagedLedger, cursor: ManagedCursor) -> None:
        count = ledger.ledgers.entries
        where = ledger.ledgers.position_at(self.rng.randrange(count)) if count else EARLIEST
        await cursor.reset(self.rng.choice((EARLIEST, LATEST, where)))

    async def cursor_made_or_deleted(self, ledger: ManagedLedger) -> None:
        name = self.rng.choice(CURSORS)
        if name in ledger.cursors.by_name and len(ledger.cursors.by_name) > 1:
            await ledger.cursors.delete(name)
        else:
            await ledger.cursors.open(name, self.rng.choice((EARLIEST, LATEST)))

    async def end(self, ledger: ManagedLedger) -> None:
        await (delete(ledger) if self.rng.random() < 0.5 else ledger.close())
        await self.open(ledger.name)

    # What is left of it

    def positions(self) -> dict[tuple[str, str], Position | None]:
        return {
            (name, cursor): ledger.cache.cursors.position(cursor)
            for name, ledger in self.opened.items()
            if ledger.cache.cursors is not None
            for cursor in ledger.cache.cursors
        }


def replayed(life: Life, folder: Path) -> Replay:
    """By way of files, a few rows at a time."""
    writer = RecordWriter(
        RecordSettings(folder, "b"), start="s", software="test", clock_offset_us=1_700_000_000_000_000
    )
    for first in range(0, len(life.rows), 300):
        writer.write(life.rows[first : first + 300], 0.0)
    writer.close(0.0, totals_of(life.caches))
    assert (writer.errors, writer.lost) == (0, 0)
    (lifetime,) = find([folder]).lifetimes
    assert lifetime.why_not_exact() == ""
    replay = Replay(EntryCacheSettings.from_text(lifetime.files[0].facts.settings))
    for batch in events(lifetime):
        replay.feed(batch)
    replay.finish()
    assert lifetime.files[-1].facts.totals == totals_of(life.caches)
    return replay


async def live(
    world: World, cache: EntryCacheSettings, seed: int, steps: int, **log_settings: object
) -> Life:
    life = Life(world, cache, seed, **log_settings)
    for name in NAMES:
        await life.open(name)
    for _ in range(steps):
        await life.step()
    return life


def slots(caches: EntryCacheManager) -> list[tuple[Position, int | None]]:
    """In the policy's order, with the count of what is still cached."""
    return [(entry.position, entry.expected_reads if entry.cached else None) for entry in caches.policy]


def check(life: Life, replay: Replay) -> None:
    assert str(replay.difference) == "None"
    assert replay.totals == replay.recorded_totals == totals_of(life.caches)
    found = {
        (name, cursor): cursors.position(cursor)
        for name, cursors in replay.cursors.items()
        for cursor in cursors
    }
    assert found == life.positions()
    assert slots(replay.manager) == slots(life.caches.manager)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", POLICIES)
async def test_replay_of_a_record_ends_in_the_recorded_state(
    world: World, tmp_path: Path, policy: str, seed: int
) -> None:
    life = await live(world, POLICIES[policy], seed, 1500)
    check(life, replayed(life, tmp_path))
    totals = totals_of(life.caches)
    happened = ("hits", "misses", "evicted: ttl", "evicted: size", "evicted: ledger", "evicted: invalidate")
    assert [name for name in happened if not totals[name]] == []


@pytest.mark.parametrize(
    "settings",
    [{"expected_reads": False}, {"expected_reads": False, "track_mark_delete": True}],
    ids=["uncounted", "by mark-delete"],
)
async def test_record_replays_equally_when_reads_are_not_counted(
    world: World, tmp_path: Path, settings: dict[str, object]
) -> None:
    life = await live(world, POLICIES["4.2"], 7, 800, **settings)
    check(life, replayed(life, tmp_path))
