"""Ranges of which the cache has a part: what is asked of storage, what is delivered, how it counts.

The scenarios of Apache's tests of the same reads: entries 0 to 99 with some of them cached, and small ranges whose
storage answers wrongly or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie_stub.compose.bookie import Bookie
from bookie_stub.config.settings import for_directory
from broker.entry_cache.cache_stats import ReadStats
from broker.entry_cache.observe.cache_events import Op
from broker.ledger_client.embedded import EmbeddedLedgerClient
from broker.ledger_client.ledger_client import BatchReadDone, LedgerClient
from broker.ledger_client.stored_entries import decode_run
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.range_reads import gaps_between
from broker.managed_ledger.settings import NS_PER_SECOND
from broker.model.entry import Entry
from broker.model.errors import BrokerError, NoSuchEntry, PersistenceError, ReadTimedOut
from broker.model.position import EARLIEST
from broker.model.range_set import EntryRange
from tests.broker.managed_ledger.ledger_fakes import PLENTY, FakeLedgers, World, fill, numbers, read, until

Answer = Callable[[int, list[bytes]], tuple[int, list[bytes]]]
READERS = 2
"""How many readers are to come, as every read here says."""


class Watched:
    """A ledger client that notes the ranges asked of it and answers some of them otherwise, once each. That the
    rest of a range is asked for, of which a part has come, is not a range of its own."""

    def __init__(self, client: LedgerClient) -> None:
        self.client = client
        self.asked: list[tuple[int, int]] = []
        self.otherwise: dict[tuple[int, int], Answer] = {}
        self._rests: set[tuple[int, int]] = set()
        self.add, self.read, self.fence = client.add, client.read, client.fence
        self.delete, self.close = client.delete, client.close

    def fail(self, first: int, last: int, rc: int = 101) -> None:
        self.otherwise[first, last] = lambda _, __: (rc, [])

    def batch_read(self, ledger: int, first: int, count: int, bytes_max: int, done: BatchReadDone) -> None:
        last = first + count - 1
        if (first, last) in self._rests:
            self._rests.remove((first, last))
        else:
            self.asked.append((first, last))
        answer = self.otherwise.pop((first, last), None)

        def arrived(rc: int, stored: list[bytes]) -> None:
            if 0 < len(stored) < count:
                self._rests.add((first + len(stored), last))
            done(*(answer(rc, stored) if answer is not None else (rc, stored)))

        self.client.batch_read(ledger, first, count, bytes_max, arrived)


class Shelf:
    """A log of some entries, those cached that a test names, and every read of it."""

    def __init__(self, world: World, log: ManagedLedger, ledgers: Watched) -> None:
        self.world = world
        self.log = log
        self.ledgers = ledgers
        self.ledger_id = log.ledger_infos()[0].ledger_id
        self.reader = log.cache.reader("reader")
        ledgers.asked.clear()

    async def cache(self, *ids: int) -> None:
        """Put these into the cache, as another reader would have."""
        for entry_id in ids:
            stored: list[bytes] = []
            self.ledgers.client.batch_read(
                self.ledger_id, entry_id, 1, PLENTY, lambda rc, run, into=stored: into.extend(run)
            )
            await until(lambda stored=stored: stored)
            entries: list[Entry] = []
            decode_run(self.ledger_id, entry_id, stored, entries)
            self.log.cache.insert_run(entries, READERS, self.world.clock.now)

    async def read(self, first: int, last: int) -> list[Entry]:
        answers: list[tuple[list[Entry], BrokerError | None]] = []
        self.log.reads.read(
            self.reader, self.ledger_id, first, last, lambda: READERS, lambda *answer: answers.append(answer)
        )
        assert answers == [], "answered inside the call"
        await until(lambda: answers)
        [(entries, error)] = answers
        if error is not None:
            assert entries == []
            raise error
        return entries

    def cached(self, entry_id: int) -> Entry:
        entry = self.log.cache.peek(self.ledger_id, entry_id)
        assert entry is not None
        return entry


async def new_shelf(client: LedgerClient, count: int, **settings: object) -> Shelf:
    ledgers = Watched(client)
    world = World(None, ledgers)
    await fill(await world.open(), count)
    world = world.after_crash()
    return Shelf(world, await world.open(**settings), ledgers)


@pytest.fixture(params=["fake", "embedded bookie"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LedgerClient]:
    if request.param == "fake":
        yield FakeLedgers()
        return
    loop = asyncio.get_running_loop()
    bookie = Bookie.open(for_directory(tmp_path, port=0, write_cache_bytes=4096), loop.call_soon_threadsafe)
    embedded = EmbeddedLedgerClient(bookie)
    yield embedded
    await embedded.close()


def counts(reads: ReadStats) -> tuple[int, int, int]:
    """(hits, misses, coalesced) in entries."""
    return reads.hit_entries, reads.miss_entries, reads.coalesced_entries


@pytest.mark.parametrize(
    ("cached", "asked"),
    [
        ([], [(0, 99)]),
        ([50], [(0, 49), (51, 99)]),
        ([0], [(1, 99)]),
        ([99], [(0, 98)]),
        ([50, 51], [(0, 49), (52, 99)]),
        ([0, 1], [(2, 99)]),
        ([98, 99], [(0, 97)]),
        ([5, 15, 75, 76, 78], [(0, 4), (6, 14), (16, 74), (77, 77), (79, 99)]),
        (range(100), []),
    ],
)
async def test_every_gap_is_one_storage_read_and_the_range_comes_in_order(client, cached, asked):
    shelf = await new_shelf(client, 100)
    await shelf.cache(*cached)
    before = [shelf.cached(entry_id) for entry_id in cached]
    entries = await shelf.read(0, 99)
    assert shelf.ledgers.asked == asked
    assert numbers(entries) == list(range(100))
    assert [entries[entry_id] for entry_id in cached] == before
    assert counts(shelf.reader.reads) == (len(cached), 100 - len(cached), 0)
    assert shelf.reader.reads.hit_bytes == sum([entry.size for entry in before])
    assert shelf.reader.reads.miss_bytes + shelf.reader.reads.hit_bytes == sum([e.size for e in entries])
    assert shelf.log.cache.entries == 100


@pytest.mark.parametrize(
    ("cached", "asked"),
    [
        (range(10), []),
        (range(3, 10), [(0, 2)]),
        (range(8), [(8, 9)]),
        ([0, 1, 8, 9], [(2, 7)]),
        ([0, 2, 5, 8], [(1, 1), (3, 4), (6, 7), (9, 9)]),
    ],
)
async def test_a_range_of_ten_reads_what_is_missing_and_a_second_time_nothing(client, cached, asked):
    shelf = await new_shelf(client, 10)
    await shelf.cache(*cached)
    assert numbers(await shelf.read(0, 9)) == list(range(10))
    assert shelf.ledgers.asked == asked
    again = await shelf.read(0, 9)
    assert shelf.ledgers.asked == asked
    assert numbers(again) == list(range(10)), "the bytes are untouched by the first reader"


async def test_a_gap_that_fails_makes_the_whole_range_be_read_once_past_the_cache(client):
    shelf = await new_shelf(client, 100)
    await shelf.cache(50)
    shelf.ledgers.fail(51, 99)
    assert numbers(await shelf.read(0, 99)) == list(range(100))
    assert shelf.ledgers.asked == [(0, 49), (51, 99), (0, 99)]
    assert counts(shelf.reader.reads) == (1, 99, 0)
    assert counts(shelf.log.cache.reads) == (1, 99, 0)
    assert shelf.log.stats.read_errors == 1


async def test_reading_and_reading_again_leave_the_expected_reads_alone():
    shelf = await new_shelf(FakeLedgers(), 5)
    await shelf.cache(1)
    shelf.ledgers.fail(2, 3)
    entries = await shelf.read(0, 3)
    assert shelf.ledgers.asked == [(0, 0), (2, 3), (0, 3)]
    assert [shelf.cached(entry_id).expected_reads for entry_id in range(4)] == [READERS] * 4
    shelf.log.handed_over(entries[2:])
    assert [shelf.cached(entry_id).expected_reads for entry_id in range(4)] == [2, 2, 1, 1]


async def test_when_the_second_read_fails_too_the_caller_hears_why(client):
    shelf = await new_shelf(client, 10)
    await shelf.cache(4)
    shelf.ledgers.fail(5, 9)
    shelf.ledgers.fail(0, 9, rc=2)
    with pytest.raises(NoSuchEntry, match=f"reading entry {shelf.ledger_id}:0"):
        await shelf.read(0, 9)
    assert shelf.ledgers.asked == [(0, 3), (5, 9), (0, 9)]
    assert counts(shelf.reader.reads) == (1, 4, 0)


async def test_without_a_cached_part_there_is_no_second_read(client):
    shelf = await new_shelf(client, 10)
    shelf.ledgers.fail(0, 9)
    with pytest.raises(PersistenceError):
        await shelf.read(0, 9)
    assert shelf.ledgers.asked == [(0, 9)]


async def test_events_of_a_read_that_was_repeated_add_up_to_what_was_counted():
    shelf = await new_shelf(FakeLedgers(), 10)
    shelf.world.caches.decisions.keep(1000)
    await shelf.cache(4)
    shelf.ledgers.fail(5, 9)
    await shelf.read(0, 9)
    shelf.log.cache.clear()
    await shelf.cache(0)
    shelf.ledgers.fail(1, 9)
    shelf.ledgers.fail(0, 9)
    with pytest.raises(PersistenceError):
        await shelf.read(0, 9)
    noted = dict.fromkeys(Op, 0)
    for event in shelf.world.caches.decisions.ring.events():
        noted[event.op] += event.entries
    hits, misses, coalesced = counts(shelf.reader.reads)
    assert (hits, misses, coalesced) == (2, 9, 0)
    assert (noted[Op.HIT], noted[Op.MISS] - noted[Op.FAILED], noted[Op.COALESCED]) == (2, 9, 0)


def more(entry: bytes) -> Answer:
    return lambda rc, stored: (rc, [*stored, entry])


def instead(entry: bytes) -> Answer:
    return lambda rc, stored: (rc, [*stored[:-1], entry])


@pytest.mark.parametrize("other", [0, 1, 4, "other ledger", "garbage"])
@pytest.mark.parametrize("way", [more, instead])
async def test_an_entry_that_was_not_asked_for_is_never_delivered(way, other):
    client = FakeLedgers()
    shelf = await new_shelf(client, 6)
    await shelf.cache(1)
    present = shelf.cached(1)
    if isinstance(other, int):
        strange = client.stored[shelf.ledger_id][other]
    else:
        entry = bytearray(client.stored[shelf.ledger_id][0])
        entry[7] ^= 1 if other == "other ledger" else 0
        strange = bytes(entry) if other == "other ledger" else b"\xff" * 70
    shelf.ledgers.otherwise[2, 3] = way(strange)
    entries = await shelf.read(0, 3)
    assert numbers(entries) == [0, 1, 2, 3]
    assert shelf.ledgers.asked[:2] == [(0, 0), (2, 3)]
    assert (0, 3) not in shelf.ledgers.asked or way is instead
    assert shelf.cached(1) is present
    assert shelf.log.cache.peek(shelf.ledger_id, 4) is None


async def test_an_answer_without_entries_is_an_error_and_no_standstill():
    shelf = await new_shelf(FakeLedgers(), 3)
    shelf.ledgers.otherwise[0, 2] = lambda rc, stored: (0, [])
    with pytest.raises(PersistenceError, match="without entries"):
        await shelf.read(0, 2)


async def test_readers_of_overlapping_ranges_with_gaps_share_what_is_read():
    client = FakeLedgers()
    shelf = await new_shelf(client, 100)
    await shelf.cache(50)
    client.hold()
    answers: dict[str, list[int]] = {}
    others = [shelf.log.cache.reader(name) for name in ("first", "second")]
    for reader, first, last in zip(others, (0, 20), (79, 99), strict=True):

        def done(entries: list[Entry], error: BrokerError | None, name: str = reader.name) -> None:
            assert error is None
            answers[name] = numbers(entries)

        shelf.log.reads.read(reader, shelf.ledger_id, first, last, lambda: READERS, done)
    assert shelf.ledgers.asked == [(0, 49), (51, 79), (80, 99)]
    client.answer_at_once_again()
    assert answers == {"first": list(range(80)), "second": list(range(20, 100))}
    assert [counts(reader.reads) for reader in others] == [(1, 79, 0), (1, 20, 59)]


async def test_a_read_that_takes_too_long_fails_and_its_answer_comes_to_nothing():
    client = FakeLedgers()
    shelf = await new_shelf(client, 10, read_timeout_s=2)
    await shelf.cache(3)
    client.hold()
    cursor = shelf.log.new_non_durable_cursor("r", EARLIEST)
    ready: list[None] = []
    cursor.request(10, PLENTY, lambda: ready.append(None))
    await until(lambda: len(shelf.ledgers.asked) == 2)
    shelf.world.clock.advance(2 * NS_PER_SECOND - 1)
    shelf.world.ground.tick(shelf.world.clock.now)
    assert ready == []
    shelf.world.clock.advance(1)
    shelf.world.ground.tick(shelf.world.clock.now)
    assert len(ready) == 1
    assert isinstance(cursor.last_error, ReadTimedOut)
    assert cursor.last_error.retriable
    assert "2 s (managedLedgerReadEntryTimeoutSeconds)" in str(cursor.last_error)
    assert shelf.ledgers.asked == [(0, 2), (4, 9)], "no second read when the time is up"
    assert len(shelf.world.ground.read_deadlines) == 0
    client.answer_at_once_again()
    assert len(ready) == 1
    assert shelf.log.cache.entries == 1
    assert numbers(await read(cursor)) == list(range(10))


async def test_a_read_in_time_leaves_no_deadline_behind():
    shelf = await new_shelf(FakeLedgers(), 10, read_timeout_s=2)
    assert numbers(await shelf.read(0, 9)) == list(range(10))
    assert len(shelf.world.ground.read_deadlines) == 0


@given(st.integers(0, 5), st.integers(0, 60), st.sets(st.integers(0, 70)))
def test_gaps_and_what_is_present_are_the_range_and_no_two_gaps_touch(first, length, ids):
    wanted = EntryRange(7, first, first + length)
    present = sorted(entry_id for entry_id in ids if first <= entry_id <= wanted.last)
    gaps = gaps_between(wanted, present)
    covered = [entry_id for gap in gaps for entry_id in range(gap.first, gap.last + 1)]
    assert sorted([*covered, *present]) == list(range(first, wanted.last + 1))
    assert all(gap.ledger_id == 7 and gap.first <= gap.last for gap in gaps)
    assert all(before.last + 1 < after.first for before, after in pairwise(gaps))
