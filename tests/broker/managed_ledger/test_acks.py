"""Acks against a model that keeps a set of unacknowledged messages per entry."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.managed_ledger.acks import WORDS_MAX, Acks, InfoLimits, bits_of, encode_within, words_of
from broker.managed_ledger.ledger_list import LedgerInfo, LedgerList
from broker.managed_ledger.managed_ledger_info import CursorInfo
from broker.managed_ledger.records.pulsar_records import StoredCursor, decode_cursor, encode_cursor
from foundation.model.position import LATEST, Position
from foundation.model.range_set import EntryRange

BATCH = 3
COUNTS = [4, 0, 300, 5]
"""Entries of ledgers 1, 3, 5 and 7; 7 is the current one."""


def stored_and_read(info: CursorInfo) -> CursorInfo:
    return decode_cursor(encode_cursor(StoredCursor(info))).info


def build() -> LedgerList:
    infos = [LedgerInfo(2 * place + 1, count) for place, count in enumerate(COUNTS)]
    return LedgerList(infos[:-1], infos[-1])


KNOWN = [Position(2 * place + 1, entry) for place, count in enumerate(COUNTS) for entry in range(count)]

near = st.sampled_from(KNOWN[:12] + KNOWN[250:270] + KNOWN[-8:])
wild = st.builds(Position, st.integers(-1, 9), st.integers(-1, 310)) | st.sampled_from(
    [LATEST, Position(5, 2**64 - 1), Position(2**64 - 1, 2**64 - 1), Position(1, 2**63)]
)
position = near | near | wild
ack_sets = st.lists(st.integers(0, 2**BATCH - 1), max_size=1)
operations = st.one_of(
    st.tuples(st.just("acknowledge"), st.lists(position, max_size=6)),
    st.tuples(st.just("run"), near, st.integers(1, 280)),
    st.tuples(st.just("range"), position, st.integers(0, 280)),
    st.tuples(st.just("batch"), position, ack_sets, st.sampled_from([0, BATCH])),
    st.tuples(st.just("cumulative"), position, st.none() | ack_sets),
    st.tuples(st.just("snapshot")),
)


class Model:
    """Messages not acknowledged: entry -> bits."""

    def __init__(self) -> None:
        self.left = dict.fromkeys(KNOWN, 2**BATCH - 1)

    def acknowledge(self, positions: list[Position]) -> int:
        return sum(self.left.pop(item, None) is not None for item in positions)

    def batch(self, item: Position, words: list[int]) -> bool:
        if item not in self.left:
            return False
        self.left[item] &= bits_of(words)
        if self.left[item]:
            return False
        del self.left[item]
        return True

    def cumulative(self, item: Position, words: list[int] | None) -> None:
        ledger_id, entry_id = (-1 if part >= 2**63 else part for part in item)
        partly = words if words is not None and bits_of(words) != 0 else None
        for known in KNOWN:
            if known < (ledger_id, entry_id) or (known == (ledger_id, entry_id) and partly is None):
                self.left.pop(known, None)
        if partly is not None:
            self.batch(Position(ledger_id, entry_id), partly)

    def mark_delete(self) -> int:
        """How many entries from the front are acknowledged."""
        return next((place for place, item in enumerate(KNOWN) if item in self.left), len(KNOWN))


def apply(acks: Acks, model: Model, name: str, *arguments: Any) -> Acks:
    """Applies an operation of `operations` to both; the arguments depend on its name."""
    if name == "acknowledge":
        assert acks.acknowledge(arguments[0]) == model.acknowledge(arguments[0])
    elif name == "run":
        start = KNOWN.index(arguments[0])
        run = KNOWN[start : start + arguments[1]]
        assert acks.acknowledge(run) == model.acknowledge(run)
    elif name == "range":
        (ledger_id, first), more = arguments
        # No client can name an entry before the first one.
        first = max(first, 0)
        run = [Position(ledger_id, first + step) for step in range(more + 1)]
        assert acks.acknowledge_run(EntryRange(ledger_id, first, first + more)) == model.acknowledge(run)
    elif name == "batch":
        item, words, batch_size = arguments
        assert acks.acknowledge_batch(item, words, batch_size) == model.batch(item, words)
    elif name == "cumulative":
        before = acks.mark_delete, len(acks.beyond), dict(acks._batches)
        changed = acks.acknowledge_cumulative(*arguments)
        model.cumulative(*arguments)
        assert changed == (before != (acks.mark_delete, len(acks.beyond), acks._batches))
    else:
        acks = Acks.restore(build(), stored_and_read(acks.info(10_000, 10_000)))
    return acks


@settings(deadline=None)
@given(st.lists(operations, max_size=15))
def test_acks_agree_with_a_model(script: list[tuple[Any, ...]]) -> None:
    ledgers = build()
    acks, model = Acks(ledgers, Position(1, -1)), Model()
    for name, *arguments in script:
        acks = apply(acks, model, name, *arguments)
        front = model.mark_delete()
        ranges = acks.beyond.count_ranges()
        for limit in (0, 1, 2, ranges):
            assert acks.has_more_ranges(limit) == (ranges > limit)
        assert ledgers.rank(acks.mark_delete) == front
        assert len(acks.beyond) == len(KNOWN) - front - len(model.left)
        assert all(item in acks.beyond for item in KNOWN[front:] if item not in model.left)
    for item in KNOWN:
        assert acks.is_acknowledged(item) == (item not in model.left)
        bits = model.left.get(item, 0)
        expected = words_of(bits) if 0 < bits < 2**BATCH - 1 else None
        if expected is not None:
            assert acks.ack_set_of(item) == expected
        elif bits == 0:
            assert acks.ack_set_of(item) is None
    assert acks.first_open(Position(-1, -1)) == next(
        (item for item in KNOWN if item in model.left), Position(7, 5)
    )


def test_ack_sets_of_several_words_are_signed_and_combine() -> None:
    acks = Acks(build(), Position(1, -1))
    everything_but_first = (-2, -1)
    assert not acks.acknowledge_batch(Position(1, 0), everything_but_first, 128)
    assert acks.ack_set_of(Position(1, 0)) == everything_but_first
    assert not acks.acknowledge_batch(Position(1, 0), (1, -(2**63)), 128)
    assert acks.ack_set_of(Position(1, 0)) == (0, -(2**63))
    assert acks.acknowledge_batch(Position(1, 0), (1,), 128)
    assert acks.mark_delete == Position(1, 0)
    assert acks.ack_set_of(Position(1, 0)) is None


def test_bits_beyond_the_batch_size_are_ignored() -> None:
    acks = Acks(build(), Position(1, -1))
    assert acks.acknowledge_batch(Position(1, 0), (0b1000,), 3)


def test_ack_set_is_not_kept_when_it_acknowledges_nothing() -> None:
    acks = Acks(build(), Position(1, -1))
    assert not acks.acknowledge_batch(Position(1, 0), (0b111,), 3)
    assert acks.ack_set_of(Position(1, 0)) is None
    assert acks.partly_acknowledged == 0


def test_cursor_info_keeps_the_lowest_ranges_and_batches_within_the_limits() -> None:
    acks = Acks(build(), Position(1, -1))
    acks.acknowledge([Position(5, entry) for entry in range(1, 100, 2)])
    for entry in (200, 202, 204):
        acks.acknowledge_batch(Position(5, entry), (1,), 3)
    info = acks.info(3, 2)
    assert info.acked == [(5, 0, 0b101010)]
    assert [item.entry_id for item, _ in info.batches] == [200, 202]


def test_reset_forgets_acknowledgements_behind_the_position() -> None:
    acks = Acks(build(), Position(1, 3))
    acks.acknowledge([Position(5, 7)])
    acks.acknowledge_batch(Position(5, 9), (1,), 3)
    acks.reset(Position(1, 1))
    assert acks.mark_delete == Position(1, 1)
    assert not acks.is_acknowledged(Position(5, 7))
    assert acks.ack_set_of(Position(5, 9)) is None


def test_restored_mark_delete_is_moved_back_to_the_last_entry() -> None:
    restored = Acks.restore(build(), CursorInfo(Position(7, 99), acked=[(7, 0, 0xF), (7, 256, 0xF)]))
    assert restored.mark_delete == Position(7, 4)
    assert not restored.beyond


def test_cursor_info_counts_a_range_over_several_pages_once() -> None:
    acks = Acks(build(), Position(1, -1))
    acks.acknowledge([Position(5, entry) for entry in range(1, 300)])
    acks.acknowledge([Position(7, 1), Position(7, 3)])
    assert Acks.restore(build(), acks.info(1, 0)).beyond.count == 299
    assert Acks.restore(build(), acks.info(2, 0)).beyond.count == 300
    assert Acks.restore(build(), acks.info(3, 0)).beyond.count == 301
    assert Acks.restore(build(), acks.info(0, 0)).beyond.count == 0


def test_ack_set_is_forgotten_when_the_entry_is_acknowledged() -> None:
    acks = Acks(build(), Position(1, -1))
    acks.acknowledge_batch(Position(5, 9), (1,), 3)
    acks.acknowledge([Position(5, 9)])
    assert acks.ack_set_of(Position(5, 9)) is None
    assert acks.partly_acknowledged == 0


@pytest.mark.parametrize("batch_size", [2**31 - 1, 65, 64, 0])
def test_batch_size_beyond_the_words_changes_nothing(batch_size: int) -> None:
    acks = Acks(build(), Position(1, -1))
    assert not acks.acknowledge_batch(KNOWN[0], (0b101,), batch_size)
    assert acks.ack_set_of(KNOWN[0]) == (0b101,)
    assert acks.acknowledge_batch(KNOWN[0], (0b010,), batch_size)


def test_ack_set_of_more_words_than_any_batch_has_no_effect() -> None:
    acks = Acks(build(), Position(1, -1))
    assert not acks.acknowledge_batch(KNOWN[0], (0,) * (WORDS_MAX + 1), 0)
    assert not acks.is_acknowledged(KNOWN[0])


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5))
def test_words_and_bits_are_the_same_set(words: list[int]) -> None:
    bits = bits_of(words)
    assert [place for place in range(64 * len(words)) if bits >> place & 1] == [
        64 * number + place
        for number, word in enumerate(words)
        for place in range(64)
        if word % 2**64 >> place & 1
    ]
    assert bits_of(words_of(bits)) == bits
    assert words_of(bits)[-1:] != (0,)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 39_999), st.integers(1, 2**40)), min_size=65, max_size=300),
    st.integers(1, 20_000),
)
def test_packed_pages_are_the_same_set(parts: list[tuple[int, int]], start: int) -> None:
    ledgers = LedgerList([LedgerInfo(3, 5000)], LedgerInfo(5, 50_000))
    acks = Acks(ledgers, Position(3, start % 5000))
    for place, bits in parts:
        acks.beyond.add_bits(5, place, bits)
        acks.beyond.add_bits(3, 4000 + place % 256, bits & 0xFFFF)
    acks.beyond.remove_through(3, start % 5000)
    acks.beyond.discard(3, start % 5000 + 1)
    restored = Acks.restore(ledgers, stored_and_read(acks.info(1_000_000, 0)))
    assert list(restored.beyond.ranges()) == list(acks.beyond.ranges())
    assert restored.beyond.count == acks.beyond.count


def holes(count: int) -> Acks:
    """So many holes of one entry each in one ledger, from its first entry on."""
    acks = Acks(LedgerList([], LedgerInfo(5, 2 * count)), Position(5, -1))
    for entry in range(1, 2 * count, 2):
        acks.beyond.add(5, entry)
    return acks


def test_a_million_holes_are_stored_in_little_space() -> None:
    info = holes(1_000_000).info(1_000_000, 0)
    stored = encode_cursor(StoredCursor(info))
    assert len(stored) < 80_000
    assert decode_cursor(stored).info.acked == info.acked


def test_info_above_the_bytes_keeps_the_lowest_and_counts_the_rest() -> None:
    acks = Acks(LedgerList([], LedgerInfo(5, 2_000_000)), Position(5, -1))
    chance = random.Random(5)
    for entry in chance.sample(range(1, 2_000_000), 200_000):
        acks.acknowledge([(5, entry)])

    def encode(info: CursorInfo) -> bytes:
        return encode_cursor(StoredCursor(info))

    stored = encode_within(acks, {"team": "billing"}, InfoLimits(1_000_000, 100, 50_000), encode)
    assert 25_000 < len(stored.value) <= 50_000
    info = decode_cursor(stored.value).info
    assert info.cursor_properties == {"team": "billing"}
    restored = Acks.restore(acks._ledgers, info).beyond
    assert restored.count + stored.left_out == acks.beyond.count
    kept = list(restored.ranges())
    assert kept == list(acks.beyond.ranges())[: len(kept)], "the lowest ones, whole pages of them"


def test_batches_are_forgotten_where_the_position_passes_them() -> None:
    acks = Acks(LedgerList([LedgerInfo(3, 100)], LedgerInfo(5, 2000)), Position(3, 90))
    for entry in range(0, 1000, 2):
        acks.acknowledge_batch(Position(5, entry), (1,), 3)
    acks.acknowledge_batch(Position(3, 95), (1,), 3)
    acks.acknowledge_cumulative(Position(5, 1), None)
    assert acks.partly_acknowledged == 499
    acks.acknowledge_cumulative(Position(5, 10), None)
    assert acks.partly_acknowledged == 494
    assert acks.ack_set_of(Position(5, 10)) is None
    assert acks.ack_set_of(Position(5, 12)) == (1,)
    acks.acknowledge_cumulative(Position(5, 1500), None)
    assert acks.partly_acknowledged == 0


def test_a_run_that_closes_the_gap_moves_over_everything_acknowledged_after_it() -> None:
    acks = Acks(build(), Position(1, -1))
    assert acks.acknowledge_run(EntryRange(5, 0, 9)) == 10
    assert acks.acknowledge_run(EntryRange(1, 2, 50)) == 2
    assert (acks.mark_delete, acks.beyond.count) == (Position(1, -1), 12)
    assert acks.acknowledge_run(EntryRange(1, 0, 2)) == 2
    assert (acks.mark_delete, acks.beyond.count) == (Position(5, 9), 0)
    assert acks.acknowledge_run(EntryRange(5, 3, 12)) == 3
    assert acks.acknowledge_run(EntryRange(1, 0, 3)) == 0
    assert acks.mark_delete == Position(5, 12)


def test_a_run_completes_batches_that_were_acknowledged_in_part() -> None:
    acks = Acks(build(), Position(1, -1))
    for entry_id in (2, 9):
        acks.acknowledge_batch(Position(5, entry_id), (1,), 3)
    assert acks.acknowledge_run(EntryRange(5, 1, 4)) == 4
    assert acks.ack_set_of(Position(5, 2)) is None
    assert acks.partly_acknowledged == 1
