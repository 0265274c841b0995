"""Coalescing: readers share storage reads, and each receives its whole range once."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies

from broker.managed_ledger.ledger_context import LedgerContext
from broker.managed_ledger.read_plan import plan_read
from broker.managed_ledger.storage_reads import StorageReads
from entry_cache.reader import Reader as CacheReader
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError, PersistenceError
from foundation.model.range_set import EntryRange
from tests.fakes.reads import EntriesRead, RangeRequest, context_over


class Storage:
    """Keeps every read until a test ends it."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.open: dict[int, EntriesRead] = {}

    def read(self, ledger_id: int, first: int, last: int, bytes_max: int, done: EntriesRead) -> None:
        self.open[len(self.asked)] = done
        self.asked.append((first, last))

    def end(self, number: int, error: BrokerError | None = None) -> None:
        first, last = self.asked[number]
        entries = [Entry(1, entry_id, b"", b"x" * 10, 1) for entry_id in range(first, last + 1)]
        self.open.pop(number)([] if error else entries, error)


class Reads:
    """The storage reads of a managed ledger whose cache stays empty."""

    def __init__(self, storage: Storage) -> None:
        self.context: LedgerContext = context_over(storage)
        self.storage_reads = StorageReads(self.context)
        self.stats = self.context.environment.caches.stats.pending_reads


class Reader:
    def __init__(self, reads: Reads, first: int, last: int) -> None:
        self.wanted = list(range(first, last + 1))
        self.answers: list[tuple[list[Entry], BrokerError | None]] = []
        self.who = CacheReader("reader", 1)
        request = RangeRequest(
            self.who, EntryRange(1, first, last), lambda entries, error: self.answers.append((entries, error))
        )
        request.begin(reads.context, reads.storage_reads)

    @property
    def got(self) -> list[int]:
        (entries, error), *rest = self.answers
        assert not rest
        assert error is None
        return [entry.entry_id for entry in entries]


def test_readers_of_one_range_share_the_read_and_the_objects() -> None:
    storage = Storage()
    reads = Reads(storage)
    cache = reads.context.cache
    readers = [Reader(reads, 10, 19), Reader(reads, 10, 19), Reader(reads, 12, 14)]
    assert storage.asked == [(10, 19)]
    storage.end(0)
    assert [reader.got for reader in readers] == [reader.wanted for reader in readers]
    assert readers[0].answers[0][0][2] is readers[2].answers[0][0][0]
    assert (cache.reads.miss_entries, cache.reads.miss_bytes) == (10, 100)
    assert (cache.reads.coalesced_entries, cache.reads.coalesced_bytes) == (13, 130)
    assert [reader.who.reads.miss_entries for reader in readers] == [10, 0, 0]
    assert [reader.who.reads.coalesced_entries for reader in readers] == [0, 10, 3]


def test_overlapping_request_fetches_only_entries_not_being_read() -> None:
    """Apache's own, with 100-199 under way."""
    for wanted, extra in [
        ((100, 199), []),
        ((110, 189), []),
        ((90, 199), [(90, 99)]),
        ((100, 209), [(200, 209)]),
        ((90, 209), [(90, 99), (200, 209)]),
        ((1000, 1099), [(1000, 1099)]),
    ]:
        storage = Storage()
        reads = Reads(storage)
        first, second = Reader(reads, 100, 199), Reader(reads, *wanted)
        assert storage.asked == [(100, 199), *extra]
        for number in list(storage.open):
            storage.end(number)
        assert (first.got, second.got) == (first.wanted, second.wanted)


def test_request_joins_two_running_reads_and_fetches_the_gap() -> None:
    storage = Storage()
    reads = Reads(storage)
    readers = [Reader(reads, 10, 70), Reader(reads, 80, 100), Reader(reads, 10, 100)]
    assert storage.asked == [(10, 70), (80, 100), (71, 79)]
    for number in list(storage.open):
        storage.end(number)
    assert [reader.got for reader in readers] == [reader.wanted for reader in readers]


def test_invalidated_ledger_is_read_anew_and_running_reads_still_complete() -> None:
    storage = Storage()
    reads = Reads(storage)
    old = Reader(reads, 0, 9)
    reads.storage_reads.invalidate_ledger(1)
    new = Reader(reads, 0, 9)
    assert storage.asked == [(0, 9), (0, 9)]
    storage.end(0)
    assert old.got == old.wanted
    assert new.answers == []
    late = Reader(reads, 3, 4)
    storage.end(1)
    assert (new.got, late.got) == (new.wanted, late.wanted)
    assert len(storage.asked) == 2


def test_storage_error_reaches_each_reader_once_after_its_last_part() -> None:
    storage = Storage()
    reads = Reads(storage)
    readers = [Reader(reads, 0, 9), Reader(reads, 5, 14)]
    storage.end(0, error := PersistenceError("disk"))
    assert readers[0].answers == [([], error)]
    assert readers[1].answers == []
    storage.end(1)
    assert readers[1].answers == [([], error)]


@given(
    strategies.lists(strategies.tuples(strategies.integers(0, 30), strategies.integers(0, 12)), max_size=12),
    strategies.randoms(use_true_random=False),
)
def test_each_reader_receives_its_range_exactly_once(wanted: list[tuple[int, int]], chance: object) -> None:
    storage = Storage()
    reads = Reads(storage)
    readers = []
    for first, length in wanted:
        readers.append(Reader(reads, first, first + length))
        if storage.open and chance.random() < 0.3:  # type: ignore[attr-defined]
            storage.end(chance.choice(sorted(storage.open)))  # type: ignore[attr-defined]
    for number in sorted(storage.open):
        storage.end(number)
    assert [reader.got for reader in readers] == [reader.wanted for reader in readers]
    stats = reads.stats
    assert stats.read == sum(last - first + 1 for first, last in storage.asked)
    assert stats.read + stats.not_read == sum(len(reader.wanted) for reader in readers)


def test_second_answer_of_storage_is_ignored() -> None:
    storage = Storage()
    reader = Reader(Reads(storage), 0, 1)
    done = storage.open[0]
    storage.end(0)
    done([], None)
    done([], PersistenceError("late"))
    assert reader.got == reader.wanted


def test_reader_of_these_tests_fails_when_it_is_answered_twice() -> None:
    storage = Storage()
    reader = Reader(Reads(storage), 0, 1)
    storage.end(0)
    reader.answers *= 2
    with pytest.raises(AssertionError):
        _ = reader.got


spans = strategies.tuples(strategies.integers(0, 40), strategies.integers(0, 15)).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)


@given(spans, strategies.sets(strategies.integers(0, 60)), strategies.lists(spans, max_size=6, unique=True))
def test_plan_covers_each_wanted_entry_exactly_once(
    wanted: tuple[int, int], ids: set[int], running: list[tuple[int, int]]
) -> None:
    cached = sorted(entry_id for entry_id in ids if wanted[0] <= entry_id <= wanted[1])
    plan = plan_read(wanted[0], wanted[1], cached, running)
    covered = list(plan.have)
    for first, last in [*((join.first, join.last) for join in plan.join), *plan.fetch]:
        covered += range(first, last + 1)
    assert sorted(covered) == list(range(wanted[0], wanted[1] + 1))
    for join in plan.join:
        assert join.running in running
        assert join.running[0] <= join.first <= join.last <= join.running[1]
    for first, last in plan.fetch:
        assert not any(one[0] <= last and first <= one[1] for one in running), "it is being read already"
