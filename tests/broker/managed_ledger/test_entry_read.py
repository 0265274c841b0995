"""EntryRead: ranges of which the cache has a part: storage reads, results, counts.

The scenarios of Apache's tests of the same reads: entries 0 to 99 with some of them cached, and small ranges whose
storage answers wrongly or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie_stub.compose.bookie import Bookie
from bookkeeper.client.embedded import EmbeddedLedgerClient
from bookkeeper.client.ledger_client import BatchReadDone, LedgerClient
from bookkeeper.ensembles.stored_entries import decode_run
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.read_plan import gaps_between
from entry_cache.cache_stats import ReadStats
from entry_cache.observe.cache_events import Op
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError, NoSuchEntry, PersistenceError, ReadTimedOut
from foundation.model.position import EARLIEST
from foundation.model.range_set import EntryRange
from foundation.units import NS_PER_SECOND
from tests.broker.managed_ledger.ledger_fakes import PLENTY, FakeLedgers, World, fill, numbers, read, until
from tests.fakes.reads import RangeRequest
from tests.support.bookie_settings import for_directory

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
        self.delete, self.close, self.file_of = client.delete, client.close, client.file_of

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


def _extend(stored: list[bytes], _rc: int, run: list[bytes]) -> None:
    stored.extend(run)


class Shelf:
    """A managed ledger of some entries, of which a test caches some, and every read of it."""

    def __init__(self, world: World, ledger: ManagedLedger, ledgers: Watched) -> None:
        self.world = world
        self.ledger = ledger
        self.ledgers = ledgers
        self.ledger_id = ledger.ledgers.infos()[0].ledger_id
        self.reader = ledger.cache.reader("reader")
        ledgers.asked.clear()

    async def cache(self, *ids: int) -> None:
        """Puts these into the cache, as another reader would have."""
        for entry_id in ids:
            stored: list[bytes] = []
            self.ledgers.client.batch_read(self.ledger_id, entry_id, 1, PLENTY, partial(_extend, stored))
            await until(partial(bool, stored))
            entries: list[Entry] = []
            decode_run(self.ledger_id, entry_id, stored, entries)
            self.ledger.cache.insert_run(entries, READERS, self.world.clock.now)

    async def read(self, first: int, last: int) -> list[Entry]:
        answers: list[tuple[list[Entry], BrokerError | None]] = []
        wanted = EntryRange(self.ledger_id, first, last)
        self.begin(RangeRequest(self.reader, wanted, lambda *answer: answers.append(answer), lambda: READERS))
        assert answers == [], "answered inside the call"
        await until(lambda: answers)
        [(entries, error)] = answers
        if error is not None:
            assert entries == []
            raise error
        return entries

    def begin(self, request: RangeRequest) -> None:
        request.begin(self.ledger.context, self.ledger.storage_reads)

    def cached(self, entry_id: int) -> Entry:
        entry = self.ledger.cache.peek(self.ledger_id, entry_id)
        assert entry is not None
        return entry


async def new_shelf(client: LedgerClient, count: int, **settings: Any) -> Shelf:
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
async def test_every_gap_is_one_storage_read_and_the_range_comes_in_order(
    client: LedgerClient, cached: Sequence[int], asked: list[tuple[int, int]]
) -> None:
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
    assert shelf.ledger.cache.entries == 100


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
async def test_second_read_of_a_range_asks_storage_for_nothing(
    client: LedgerClient, cached: Sequence[int], asked: list[tuple[int, int]]
) -> None:
    shelf = await new_shelf(client, 10)
    await shelf.cache(*cached)
    assert numbers(await shelf.read(0, 9)) == list(range(10))
    assert shelf.ledgers.asked == asked
    again = await shelf.read(0, 9)
    assert shelf.ledgers.asked == asked
    assert numbers(again) == list(range(10)), "the bytes are untouched by the first reader"


async def test_failed_gap_makes_the_whole_range_be_read_once_from_storage(client: LedgerClient) -> None:
    shelf = await new_shelf(client, 100)
    await shelf.cache(50)
    shelf.ledgers.fail(51, 99)
    assert numbers(await shelf.read(0, 99)) == list(range(100))
    assert shelf.ledgers.asked == [(0, 49), (51, 99), (0, 99)]
    assert counts(shelf.reader.reads) == (1, 99, 0)
    assert counts(shelf.ledger.cache.reads) == (1, 99, 0)
    assert shelf.ledger.stats.read_errors == 1


async def test_repeated_read_leaves_expected_reads_unchanged() -> None:
    shelf = await new_shelf(FakeLedgers(), 5)
    await shelf.cache(1)
    shelf.ledgers.fail(2, 3)
    entries = await shelf.read(0, 3)
    assert shelf.ledgers.asked == [(0, 0), (2, 3), (0, 3)]
    assert [shelf.cached(entry_id).expected_reads for entry_id in range(4)] == [READERS] * 4
    shelf.ledger.environment.caches.mark_delivered(entries[2:])
    assert [shelf.cached(entry_id).expected_reads for entry_id in range(4)] == [2, 2, 1, 1]


async def test_read_fails_when_its_second_pass_fails_too(client: LedgerClient) -> None:
    shelf = await new_shelf(client, 10)
    await shelf.cache(4)
    shelf.ledgers.fail(5, 9)
    shelf.ledgers.fail(0, 9, rc=2)
    with pytest.raises(NoSuchEntry, match=f"reading entry {shelf.ledger_id}:0"):
        await shelf.read(0, 9)
    assert shelf.ledgers.asked == [(0, 3), (5, 9), (0, 9)]
    assert counts(shelf.reader.reads) == (1, 4, 0)


async def test_failed_read_is_not_repeated_when_the_cache_had_no_part(client: LedgerClient) -> None:
    shelf = await new_shelf(client, 10)
    shelf.ledgers.fail(0, 9)
    with pytest.raises(PersistenceError):
        await shelf.read(0, 9)
    assert shelf.ledgers.asked == [(0, 9)]


async def test_events_of_a_repeated_read_add_up_to_its_counts() -> None:
    shelf = await new_shelf(FakeLedgers(), 10)
    shelf.world.caches.decisions.keep(1000)
    await shelf.cache(4)
    shelf.ledgers.fail(5, 9)
    await shelf.read(0, 9)
    shelf.ledger.cache.clear()
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
async def test_entry_that_was_not_asked_for_is_never_delivered(
    way: Callable[[bytes], Answer], other: int | str
) -> None:
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
    assert shelf.ledger.cache.peek(shelf.ledger_id, 4) is None


async def test_read_fails_when_storage_answers_without_entries() -> None:
    shelf = await new_shelf(FakeLedgers(), 3)
    shelf.ledgers.otherwise[0, 2] = lambda rc, stored: (0, [])
    with pytest.raises(PersistenceError, match="without entries"):
        await shelf.read(0, 2)


async def test_readers_of_overlapping_ranges_with_gaps_share_what_is_read() -> None:
    client = FakeLedgers()
    shelf = await new_shelf(client, 100)
    await shelf.cache(50)
    client.hold()
    answers: dict[str, list[int]] = {}
    others = [shelf.ledger.cache.reader(name) for name in ("first", "second")]
    for reader, first, last in zip(others, (0, 20), (79, 99), strict=True):

        def done(entries: list[Entry], error: BrokerError | None, name: str = reader.name) -> None:
            assert error is None
            answers[name] = numbers(entries)

        shelf.begin(RangeRequest(reader, EntryRange(shelf.ledger_id, first, last), done, lambda: READERS))
    assert shelf.ledgers.asked == [(0, 49), (51, 79), (80, 99)]
    client.answer_at_once_again()
    assert answers == {"first": list(range(80)), "second": list(range(20, 100))}
    assert [counts(reader.reads) for reader in others] == [(1, 79, 0), (1, 20, 59)]


async def test_overdue_read_fails_and_its_late_answer_is_ignored() -> None:
    client = FakeLedgers()
    shelf = await new_shelf(client, 10, read_timeout_s=2)
    await shelf.cache(3)
    client.hold()
    cursor = shelf.ledger.cursors.open_non_durable("r", EARLIEST)
    ready: list[None] = []
    cursor.request(10, PLENTY, lambda: ready.append(None))
    await until(lambda: len(shelf.ledgers.asked) == 2)
    shelf.world.clock.advance(2 * NS_PER_SECOND - 1)
    shelf.world.tick()
    assert ready == []
    shelf.world.clock.advance(1)
    shelf.world.tick()
    assert len(ready) == 1
    assert isinstance(cursor.last_error, ReadTimedOut)
    assert "2 s (managedLedgerReadEntryTimeoutSeconds)" in str(cursor.last_error)
    assert shelf.ledgers.asked == [(0, 2), (4, 9)], "no second read when the time is up"
    assert len(shelf.world.environment.read_deadlines) == 0
    client.answer_at_once_again()
    assert len(ready) == 1
    assert shelf.ledger.cache.entries == 1
    assert numbers(await read(cursor)) == list(range(10))


async def test_deadline_is_removed_when_a_read_ends_in_time() -> None:
    shelf = await new_shelf(FakeLedgers(), 10, read_timeout_s=2)
    assert numbers(await shelf.read(0, 9)) == list(range(10))
    assert len(shelf.world.environment.read_deadlines) == 0


async def test_each_entry_counts_once_when_a_gap_was_joined_in_part_and_failed_in_part() -> None:
    client = FakeLedgers()
    shelf = await new_shelf(client, 30)
    await shelf.cache(5)
    client.hold()
    answers: list[list[int]] = []

    def done(entries: list[Entry], error: BrokerError | None) -> None:
        assert error is None
        answers.append(numbers(entries))

    first, second = (shelf.ledger.cache.reader(name) for name in ("first", "second"))
    shelf.begin(RangeRequest(first, EntryRange(shelf.ledger_id, 10, 19), done))
    shelf.ledgers.fail(20, 29)
    shelf.begin(RangeRequest(second, EntryRange(shelf.ledger_id, 0, 29), done))
    assert shelf.ledgers.asked == [(10, 19), (0, 4), (6, 9), (20, 29)]
    client.answer_at_once_again()
    await until(lambda: len(answers) == 2)
    assert answers == [list(range(10, 20)), list(range(30))]
    assert shelf.ledgers.asked[4:] == [(0, 29)]
    assert [counts(reader.reads) for reader in (first, second)] == [(0, 10, 0), (1, 19, 10)]


async def test_overdue_read_fails_the_readers_that_joined_it() -> None:
    client = FakeLedgers()
    shelf = await new_shelf(client, 20, read_timeout_s=2)
    client.hold()
    errors: dict[str, BrokerError | None] = {}

    def begin(name: str, first: int, last: int) -> None:
        reader, wanted = shelf.ledger.cache.reader(name), EntryRange(shelf.ledger_id, first, last)
        shelf.begin(RangeRequest(reader, wanted, lambda entries, error: errors.update({name: error})))

    begin("first", 0, 9)
    shelf.world.clock.advance(NS_PER_SECOND)
    begin("inside", 3, 4)
    begin("beyond", 5, 14)
    assert shelf.ledgers.asked == [(0, 9), (10, 14)]
    shelf.world.clock.advance(NS_PER_SECOND)
    shelf.world.tick()
    assert set(errors) == {"first", "inside"}
    shelf.world.clock.advance(NS_PER_SECOND)
    shelf.world.tick()
    assert {name: type(error) for name, error in errors.items()} == dict.fromkeys(
        ("first", "inside", "beyond"), ReadTimedOut
    )
    assert len(shelf.world.environment.read_deadlines) == 0


@given(st.integers(0, 5), st.integers(0, 60), st.sets(st.integers(0, 70)))
def test_gaps_and_cached_entries_cover_the_range_and_gaps_are_maximal(
    first: int, length: int, ids: set[int]
) -> None:
    last = first + length
    present = sorted(entry_id for entry_id in ids if first <= entry_id <= last)
    gaps = gaps_between(first, last, present)
    covered = [entry_id for gap in gaps for entry_id in range(gap[0], gap[1] + 1)]
    assert sorted([*covered, *present]) == list(range(first, last + 1))
    assert all(gap[0] <= gap[1] for gap in gaps)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(gaps))


async def test_repeated_read_alone_notes_that_counts_have_changed() -> None:
    shelf = await new_shelf(FakeLedgers(), 10)
    await shelf.cache(4)
    changes = shelf.ledger.environment.changed.follow()
    shelf.ledgers.fail(5, 9)
    await shelf.read(4, 9)
    assert counts(shelf.reader.reads) == (1, 5, 0)
    assert list(changes.take()) == [shelf.ledger.name]
