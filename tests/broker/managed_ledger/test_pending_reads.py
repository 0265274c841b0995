"""Coalescing: every reader gets its whole range once, whatever is under way, and storage is asked once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, strategies

from broker.entry_cache.entry_cache import EntryCache
from broker.entry_cache.reader import Reader as CacheReader
from broker.entry_cache.settings import EntryCacheSettings
from broker.managed_ledger.pending_reads import EntriesRead, PendingReads
from broker.model.entry import Entry
from broker.model.errors import BrokerError, PersistenceError
from tests.fakes.whole_cache import WholeCache


class Storage:
    """Keeps every read until a test ends it."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.open: dict[int, EntriesRead] = {}

    def read(
        self, ledger_id: int, first: int, last: int, expected_reads: Callable[[], int], done: EntriesRead
    ) -> None:
        self.open[len(self.asked)] = done
        self.asked.append((first, last))

    def end(self, number: int, error: BrokerError | None = None) -> None:
        first, last = self.asked[number]
        entries = [Entry(1, entry_id, b"", b"x" * 10, 1) for entry_id in range(first, last + 1)]
        self.open.pop(number)([] if error else entries, error)


class Reader:
    def __init__(self, reads: PendingReads, first: int, last: int) -> None:
        self.wanted = list(range(first, last + 1))
        self.answers: list[tuple[list[Entry], BrokerError | None]] = []
        self.who = CacheReader("reader", 1)
        reads.read(
            self.who, 1, first, last, lambda: 1, lambda entries, error: self.answers.append((entries, error))
        )

    @property
    def got(self) -> list[int]:
        (entries, error), *rest = self.answers
        assert not rest
        assert error is None
        return [entry.entry_id for entry in entries]


def new_cache() -> EntryCache:
    return WholeCache(EntryCacheSettings(size_bytes_max=1)).open("log")


def test_readers_of_one_range_share_the_read_and_the_objects() -> None:
    storage, cache = Storage(), new_cache()
    reads = PendingReads(storage.read, cache)
    readers = [Reader(reads, 10, 19), Reader(reads, 10, 19), Reader(reads, 12, 14)]
    assert storage.asked == [(10, 19)]
    storage.end(0)
    assert [reader.got for reader in readers] == [reader.wanted for reader in readers]
    assert readers[0].answers[0][0][2] is readers[2].answers[0][0][0]
    assert (cache.reads.miss_entries, cache.reads.miss_bytes) == (10, 100)
    assert (cache.reads.coalesced_entries, cache.reads.coalesced_bytes) == (13, 130)
    assert [reader.who.reads.miss_entries for reader in readers] == [10, 0, 0]
    assert [reader.who.reads.coalesced_entries for reader in readers] == [0, 10, 3]


def test_the_scenarios_of_overlap_read_only_what_nobody_reads_yet() -> None:
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
        reads = PendingReads(storage.read, new_cache())
        first, second = Reader(reads, 100, 199), Reader(reads, *wanted)
        assert storage.asked == [(100, 199), *extra]
        for number in list(storage.open):
            storage.end(number)
        assert (first.got, second.got) == (first.wanted, second.wanted)


def test_a_request_around_two_reads_joins_both() -> None:
    storage = Storage()
    reads = PendingReads(storage.read, new_cache())
    readers = [Reader(reads, 10, 70), Reader(reads, 80, 100), Reader(reads, 10, 100)]
    assert storage.asked == [(10, 70), (80, 100), (71, 79)]
    for number in list(storage.open):
        storage.end(number)
    assert [reader.got for reader in readers] == [reader.wanted for reader in readers]


def test_an_invalidated_ledger_is_read_anew_and_the_old_read_still_serves() -> None:
    storage = Storage()
    reads = PendingReads(storage.read, new_cache())
    old = Reader(reads, 0, 9)
    reads.invalidate_ledger(1)
    new = Reader(reads, 0, 9)
    assert storage.asked == [(0, 9), (0, 9)]
    storage.end(0)
    assert old.got == old.wanted
    assert new.answers == []
    late = Reader(reads, 3, 4)
    storage.end(1)
    assert (new.got, late.got) == (new.wanted, late.wanted)
    assert len(storage.asked) == 2


def test_a_failure_reaches_everybody_once_after_all_their_parts() -> None:
    storage = Storage()
    reads = PendingReads(storage.read, new_cache())
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
def test_everybody_is_served_exactly_once(wanted: list[tuple[int, int]], chance: object) -> None:
    storage = Storage()
    reads = PendingReads(storage.read, new_cache())
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


def test_a_test_of_a_reader_that_is_answered_twice_fails() -> None:
    storage = Storage()
    reader = Reader(PendingReads(storage.read, new_cache()), 0, 1)
    done = storage.open[0]
    storage.end(0)
    done([], None)
    with pytest.raises(AssertionError):
        _ = reader.got
