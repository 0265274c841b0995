"""Offsets, limits and splits as pure functions."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import pytest

np = pytest.importorskip("numpy", reason="needs the extra spark")
pytest.importorskip("pyarrow", reason="needs the extra spark")


from pyspark_pulsar.client.entry_sizes import EntrySizes  # noqa: E402
from pyspark_pulsar.errors import OptionError, PulsarSourceError  # noqa: E402
from pyspark_pulsar.options import BatchLimits  # noqa: E402
from pyspark_pulsar.planning.admission import admit, fair_level, share  # noqa: E402
from pyspark_pulsar.planning.offset_files import OffsetFolder  # noqa: E402
from pyspark_pulsar.planning.offsets import Offsets, from_json, task_limit, to_json  # noqa: E402
from pyspark_pulsar.planning.range_columns import columns_of  # noqa: E402
from pyspark_pulsar.planning.split import LEDGER_ENTRIES, cut_entries_evenly, cut_ledgers, weight  # noqa: E402
from pyspark_pulsar.position import EARLIEST, WHOLE, MessagePosition, TopicRange  # noqa: E402

# Offsets


def random_offsets(count: int, seed: int) -> Offsets:
    chance = random.Random(seed)
    topics = sorted(f"persistent://public/default/topic-{number}" for number in range(count))
    choices = [
        EARLIEST,
        MessagePosition(chance.getrandbits(40), -1),
        MessagePosition(5, 2**40),
        MessagePosition(7, 3, 12),
        MessagePosition(0, 0),
    ]
    return Offsets.at("id", topics, [chance.choice(choices) for _ in topics])


@pytest.mark.parametrize("count", [0, 1, 100, 101, 3000])
@pytest.mark.parametrize("stored", [False, True])
def test_offsets_survive_json_and_files(count: int, stored: bool, tmp_path: Path) -> None:
    offsets = random_offsets(count, count)
    files = OffsetFolder(str(tmp_path / "offsets")) if stored else None
    text = json.dumps(to_json(offsets, 2, files))
    back = from_json(json.loads(text), files)
    assert back.topics == offsets.topics
    assert [back.position(row) for row in range(count)] == [offsets.position(row) for row in range(count)]
    if stored and count > 100:
        assert len(text) < 300


def test_offsets_json_is_a_readable_table_for_few_topics() -> None:
    offsets = Offsets.at("3f", ["persistent://public/default/a"], [MessagePosition(12, 40)])
    assert to_json(offsets, 8) == {
        "version": 1,
        "id": "3f",
        "tasks": 8,
        "topics": {"persistent://public/default/a": "12:40"},
    }


def test_offsets_json_stays_small_for_hundreds_of_thousands_of_topics() -> None:
    """Created in the order of their names, a few entries each."""
    count = 200_000
    chance = np.random.default_rng(1)
    topics = tuple(f"persistent://public/default/device-{number:06d}" for number in range(count))
    whole = np.full(count, WHOLE, np.int64)
    offsets = Offsets("id", topics, np.arange(count) + 1000, chance.integers(0, 100, count), whole)
    assert len(json.dumps(to_json(offsets, 2))) < 2_000_000 / 3


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ({"version": 2, "id": "x"}, "version 2, this is 1"),
        ({"topic": 1}, "written by another source"),
        ({"version": 1, "id": "x", "topics": {"a": "b:c"}}, "ledger:entry is expected"),
        (
            {"version": 1, "id": "x", "count": 3, "namesFile": "a", "positionsFile": "b"},
            "give offsetsLocation",
        ),
    ],
)
def test_from_json_refuses_foreign_offsets(found: dict[str, object], sentence: str) -> None:
    with pytest.raises(PulsarSourceError, match=sentence):
        from_json(found)


def test_task_limit_is_that_of_the_checkpoint_or_else_the_option() -> None:
    assert task_limit({"version": 1, "id": "x", "tasks": 3}, 8) == 3
    assert task_limit({"version": 1, "id": "x"}, 8) == 8, "an offset of a release that kept no limit"


@pytest.mark.parametrize("tasks", [0, -1, "3", None, True])
def test_task_limit_refuses_an_impossible_number(tasks: object) -> None:
    with pytest.raises(PulsarSourceError, match="a whole number from 1 on is expected"):
        task_limit({"version": 1, "id": "x", "tasks": tasks}, 8)


def test_offset_folder_refuses_damaged_and_missing_files(tmp_path: Path) -> None:
    files = OffsetFolder(str(tmp_path))
    encoded = to_json(random_offsets(200, 1), 2, files)
    (tmp_path / encoded["positionsFile"]).write_bytes(b"other")
    with pytest.raises(PulsarSourceError, match="is damaged"):
        from_json(encoded, files)
    (tmp_path / encoded["positionsFile"]).unlink()
    with pytest.raises(PulsarSourceError, match="which the checkpoint needs"):
        from_json(encoded, files)


def test_offset_folder_refuses_an_impossible_location(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match=r"offsetsLocation is .*, which cannot be used"):
        OffsetFolder(str(tmp_path / "file" / "below"))


def test_aligned_offsets_start_new_topics_at_the_beginning_and_drop_deleted_ones() -> None:
    before = Offsets.at("id", ["a", "c"], [MessagePosition(1, 5), MessagePosition(2, 6)])
    after = before.aligned_to(("b", "c", "d"))
    assert [after.position(row) for row in range(3)] == [EARLIEST, MessagePosition(2, 6), EARLIEST]


# Limits


@pytest.mark.parametrize(
    ("amounts", "limit", "level"),
    [([1, 2, 3], 10, float("inf")), ([4, 4, 4], 6, 2), ([1, 10, 10], 11, 5), ([0, 0, 8], 4, 4)],
)
def test_fair_level_spends_the_limit_exactly(amounts: list[int], limit: int, level: float) -> None:
    assert fair_level(np.array(amounts, float), limit) == level


def test_share_reads_small_topics_to_their_end_and_gives_large_ones_the_rest() -> None:
    assert share(np.array([3, 1000, 5, 1000]), 100, 0).tolist() == [3, 46, 5, 46]


@pytest.mark.parametrize("seed", range(10))
def test_share_spends_the_limit_exactly(seed: int) -> None:
    chance = np.random.default_rng(seed)
    entries = chance.integers(0, 50, int(chance.integers(1, 300)))
    limit = int(chance.integers(1, 5000))
    taken = share(entries, limit, seed)
    assert (taken <= entries).all()
    assert taken.sum() == min(limit, entries.sum())


def test_share_gives_topics_turns_when_the_limit_is_below_one_entry_each() -> None:
    got = np.zeros(100, np.int64)
    for turn in range(100):
        got += share(np.full(100, 10), 5, turn)
    assert got.min() == got.max() == 5


def sizes(rows: list[int], size: int = 10) -> EntrySizes:
    count = len(rows)
    return EntrySizes(
        np.full(count, 7), np.arange(count), np.array(rows, np.int64), np.full(count, size, np.int64)
    )


def test_admit_reads_small_topics_to_their_end_and_gives_large_ones_the_rest() -> None:
    runs = [sizes([1] * 3), sizes([1] * 1000), sizes([1] * 5), sizes([1] * 1000)]
    assert admit(runs, BatchLimits(None, None, 100)) == [3, 46, 5, 46]


@pytest.mark.parametrize("seed", range(20))
def test_admit_keeps_every_limit_however_entries_differ(seed: int) -> None:
    chance = np.random.default_rng(seed)
    runs = [
        sizes(chance.integers(1, 1000, int(chance.integers(1, 60))).tolist(), int(chance.integers(0, 2000)))
        for _ in range(int(chance.integers(1, 40)))
    ]
    limits = BatchLimits(*(int(chance.integers(1, most)) for most in (500_000, 200, 50_000)))
    taken = admit(runs, limits)
    read = [
        sizes(run.rows[:count].tolist(), int(run.bytes[0])) for run, count in zip(runs, taken, strict=True)
    ]
    used = (
        sum(int(run.bytes.sum()) for run in read),
        sum(len(run) for run in read),
        sum(int(run.rows.sum()) for run in read),
    )
    assert taken[0] >= 1
    if sum(taken) > 1:
        assert all(amount <= limit for amount, limit in zip(used, limits_of(limits), strict=True)), used


def limits_of(limits: BatchLimits) -> list[int]:
    given = (limits.bytes_max, limits.entries_max, limits.rows_max)
    return [one for one in given if one is not None]


def test_admit_reads_an_entry_that_exceeds_the_limit_alone() -> None:
    assert admit([sizes([5000, 1]), sizes([1])], BatchLimits(None, None, 100)) == [1, 0]


def test_admit_ends_at_the_limit_when_the_first_entry_is_small() -> None:
    assert admit([sizes([1, 1000, 1000, 1000, 1000])], BatchLimits(None, None, 3000)) == [3]


# Splits


def test_cut_entries_evenly_leaves_no_gap() -> None:
    whole = TopicRange("t", MessagePosition(3, 9), MessagePosition(3, 1009))
    parts = cut_entries_evenly(whole, 4)
    assert len(parts) == 4
    assert parts[0].start == whole.start
    assert parts[-1].end == whole.end
    assert all(first.end == second.start for first, second in itertools.pairwise(parts))
    assert cut_entries_evenly(TopicRange("t", MessagePosition(3, 9), MessagePosition(3, 12)), 4) == [
        TopicRange("t", MessagePosition(3, 9), MessagePosition(3, 12))
    ]


def test_ledger_of_unknown_length_stays_whole() -> None:
    first, last = cut_ledgers(TopicRange("t", MessagePosition(3, 9), MessagePosition(5, 20)), [3, 5])
    assert cut_entries_evenly(first, 4) == [first]
    assert weight(first) == LEDGER_ENTRIES
    tasks = columns_of([first, first, first, first, last]).into_tasks(4)
    assert [len(task) for task in tasks] == [2, 1, 1, 1]


def test_cut_ledgers_cuts_a_range_at_each_ledger() -> None:
    whole = TopicRange("t", MessagePosition(3, 9), MessagePosition(8, 2, 1))
    first, second, third = cut_ledgers(whole, [3, 5, 8])
    assert (first.start, first.end.ledger) == (MessagePosition(3, 9), 3)
    assert (second.start, second.end.ledger) == (MessagePosition(5, -1), 5)
    assert (third.start, third.end) == (MessagePosition(8, -1), MessagePosition(8, 2, 1))


def test_into_tasks_gives_consecutive_groups_of_similar_weight() -> None:
    ranges = [TopicRange(f"t{n:03d}", MessagePosition(n, -1), MessagePosition(n, 9)) for n in range(100)]
    tasks = columns_of(ranges).into_tasks(8)
    assert [one for task in tasks for one in task.ranges()] == ranges
    assert {len(task) for task in tasks} <= {12, 13}
    assert columns_of([]).into_tasks(8) == []
