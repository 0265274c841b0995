"""A sample of accesses has a share of the entries with all their events, the same entries as the recorder's sample."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from broker.compose.cache_settings import EntryCacheSettings
from broker.recorder.record_reader import BrokerLifetime, find
from broker.recorder.sampling import in_sample
from entry_cache.observe.cache_events import HIT_MOVES, Op
from pipeline.replays.accesses import APPEND, INVALIDATE, TICK, Accesses, runs_expanded
from pipeline.replays.inputs import MOVES_PER_ENTRY, read_inputs
from pipeline.replays.making import accesses_of
from pipeline.replays.objects import replay_objects
from pipeline.replays.replay import replay_with, scaled
from pipeline.replays.sampling import groups, only
from tests.pipeline.made_record import make_record
from tests.pipeline.replays.random_records import RandomRecord


@pytest.fixture
def record(tmp_path: Path) -> tuple[RandomRecord, Accesses, Path]:
    made = RandomRecord(7)
    made.steps(4000)
    return made, accesses_of(made.write(tmp_path)), tmp_path


def appended(accesses: Accesses) -> set[tuple[int, int]]:
    rows = accesses.rows.take(accesses.rows.op == APPEND)
    ledgers, entries = accesses.numbering.positions(accesses.entries)
    ids = runs_expanded(rows.first, rows.entries)[1]
    return set(zip(ledgers[ids].tolist(), entries[ids].tolist(), strict=True))


def uses(accesses: Accesses) -> list[tuple[int, ...]]:
    """Each row but invalidations, once for each of its entries, with the entry's position."""
    rows = accesses.rows.take(accesses.rows.op != INVALIDATE)
    about = rows.op < INVALIDATE
    row, ids = runs_expanded(rows.first, np.where(about, rows.entries, 1).astype(np.int32))
    ledgers, entries = accesses.numbering.positions(accesses.entries)
    place = np.where(about[row], ledgers[ids], 0), np.where(about[row], entries[ids], rows.entries[row])
    columns = [column[row] for column in (rows.op, rows.at_ns, rows.detail)]
    return list(zip(*[column.tolist() for column in (*columns, *place)], strict=True))


def test_accesses_have_the_appended_entries(record: tuple[RandomRecord, Accesses, Path]) -> None:
    made, accesses, _ = record
    assert appended(accesses) == set(made.sizes)


def test_sample_has_the_entries_of_the_recorders_sample(record: tuple[RandomRecord, Accesses, Path]) -> None:
    made, accesses, folder = record
    (lifetime,) = find([folder]).lifetimes
    part = accesses_of(lifetime, 0.3)
    places = np.array(sorted(made.sizes), np.int64)
    chosen = places[in_sample(places[:, 0], places[:, 1], 0.3)]
    assert appended(part) == set(map(tuple, chosen.tolist()))
    assert np.count_nonzero(part.rows.op == TICK) == np.count_nonzero(accesses.rows.op == TICK)
    with pytest.raises(ValueError, match="no share"):
        accesses_of(lifetime, 0)


@pytest.mark.parametrize("rows", [64, 1 << 16])
def test_sample_drawn_while_reading_is_a_part_of_all_accesses(
    record: tuple[RandomRecord, Accesses, Path], monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Expected reads, sizes and outcomes of storage reads are those of the whole record, whatever the batches."""
    _, accesses, folder = record
    monkeypatch.setattr("broker.recorder.record_reader.BATCH_ROWS", rows)
    (lifetime,) = find([folder]).lifetimes
    drawn = accesses_of(lifetime, 0.3)
    part = only(accesses, in_sample(*accesses.numbering.positions(accesses.entries), 0.3), 0.3)
    assert uses(drawn) == uses(part)
    assert np.array_equal(drawn.sizes, part.sizes)
    # Invalidations before a ledger's first sampled entry are left out, so those are compared by their effect.
    for size in (300, 1000, 100_000):
        settings = EntryCacheSettings(size, ttl_ns=40_000_000, policy="pip430")
        same = replace(drawn, bytes_rate=part.bytes_rate)
        assert replay_with(same, settings) == replay_with(part, settings)
    assert drawn.bytes_rate == pytest.approx(part.bytes_rate, rel=0.1)


def test_sample_has_the_moves_of_a_cursor_that_pass_its_entries(tmp_path: Path) -> None:
    """The last reader misses, so each of its reads moves its cursor by a row of its own."""
    make_record(tmp_path, 160_000, 1, misses=True)
    (lifetime,) = find([tmp_path]).lifetimes
    counts = []
    for rate in (1.0, 0.01):
        at: dict[tuple[int, int], int] = {}
        behind = moves = reads = 0
        for batch in read_inputs(lifetime, rate, moves_rate=rate):
            rows = [batch.rows[name].tolist() for name in ("op", "topic", "sub", "entry")]
            for op, topic, sub, entry in zip(*rows, strict=True):
                if op == Op.CURSOR_MOVED:
                    at[topic, sub] = entry
                    moves += 1
                elif op == Op.ARRIVED:
                    reads += 1
                    behind += at[topic, sub] <= entry
        counts.append((moves, reads))
        assert behind == 0
    (all_moves, all_reads), (moves, reads) = counts
    assert all_moves == all_reads == 5000
    # The first move of each cursor is always in it.
    assert moves <= reads + len(at)
    assert reads < all_reads / 5


Place = tuple[int, int]
Reader = tuple[int, int]


def places_at_passes(lifetime: BrokerLifetime, rate: float) -> list[dict[Reader, Place]]:
    """The places of all active cursors at each periodic pass, as the broker's objects have them."""
    at: dict[Reader, Place] = {}
    found = []
    for batch in read_inputs(lifetime, rate):
        names = ("op", "topic", "sub", "ledger", "entry", "count", "detail")
        for op, topic, sub, ledger, entry, count, detail in zip(
            *[batch.rows[name].tolist() for name in names], strict=True
        ):
            reader = topic, sub
            if op == Op.CURSOR_ADDED or (op == Op.CURSOR_MOVED and reader in at):
                at[reader] = ledger, entry
            elif op == Op.HIT and detail == HIT_MOVES and reader in at:
                at[reader] = ledger, entry + count
            elif op == Op.CURSOR_LEFT:
                at.pop(reader, None)
            elif op == Op.TICK:
                found.append(dict(at))
    return found


@pytest.mark.parametrize("rate", [1 / MOVES_PER_ENTRY, 0.1 / MOVES_PER_ENTRY])
def test_sample_for_the_objects_has_cursors_where_a_larger_sample_has_them(
    record: tuple[RandomRecord, Accesses, Path], rate: float
) -> None:
    """Whichever cache served a read: the policy `magnetar` takes a cursor that does not move for a slow one."""
    _, _, folder = record
    (lifetime,) = find([folder]).lifetimes
    passes = zip(places_at_passes(lifetime, 1.0), places_at_passes(lifetime, rate), strict=True)
    apart = moving = 0
    for whole, sampled in passes:
        assert whole.keys() == sampled.keys()
        for reader, (ledger, end) in whole.items():
            moving += 1
            if sampled[reader] != (ledger, end):
                apart += 1
                ours, first = sampled[reader]
                assert ours == ledger
                between = np.arange(min(first, end), max(first, end))
                assert not in_sample(np.full(len(between), ledger), between, 0.1).any()
    assert moving > 1000
    assert bool(apart) == (rate * MOVES_PER_ENTRY < 1)


def test_sample_is_replayed_in_a_cache_of_its_share_of_the_bytes(
    record: tuple[RandomRecord, Accesses, Path],
) -> None:
    """The share of the entries differs, because their sizes do."""
    _, accesses, _ = record
    large = only(accesses, accesses.sizes == 30, 0.5)
    bytes_of_large = int(large.sizes.sum())
    assert large.bytes_rate == bytes_of_large / int(accesses.sizes.sum()) > 0.5
    settings = EntryCacheSettings(100_000)
    assert scaled(settings, large).size_bytes_max == round(100_000 * large.bytes_rate)
    assert scaled(settings, accesses) is settings
    half_of_it = only(large, groups(large, 2) == 0, 0.25)
    assert half_of_it.bytes_rate == pytest.approx(int(half_of_it.sizes.sum()) / int(accesses.sizes.sum()))


def test_groups_divide_the_entries_evenly(record: tuple[RandomRecord, Accesses, Path]) -> None:
    _, accesses, _ = record
    group = groups(accesses, 10)
    parts = [only(accesses, group == number, 0.1) for number in range(10)]
    assert sum(part.events for part in parts) == accesses.events
    assert min(part.entries for part in parts) > 0


def test_objects_replay_the_same_sample_as_the_machine_code(
    record: tuple[RandomRecord, Accesses, Path],
) -> None:
    """In a sample the objects see no hit of the other entries, which moves a cursor, so expected reads may differ."""
    _, _, folder = record
    settings = EntryCacheSettings(1000, ttl_ns=40_000_000, policy="fifo-ttl")
    (lifetime,) = find([folder]).lifetimes
    part = accesses_of(lifetime, 0.3)
    ours = replay_with(part, settings)
    (theirs,) = replay_objects(lifetime, read_inputs(lifetime, 0.3), [scaled(settings, part)], part.tick_ns)
    counted = [name for name in ours.totals if not name.startswith("still expected")]
    assert counted
    assert {name: ours.totals[name] for name in counted} == {name: theirs.totals[name] for name in counted}
