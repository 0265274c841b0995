"""Conditions of a query: what the source reads for them, and that the rows are those that Spark would have chosen."""

from __future__ import annotations

import datetime
import time
from typing import Any

import pytest

pulsar = pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")

from pyspark.sql.datasource import (  # noqa: E402
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from protocol.pulsar_api_pb2 import MessageIdData  # noqa: E402
from pyspark_pulsar.planning.narrowing import Interval, narrowing_of  # noqa: E402
from pyspark_pulsar.planning.split import LAST_ENTRY  # noqa: E402
from pyspark_pulsar.position import EARLIEST, Position, TopicRange  # noqa: E402
from tests.pyspark_pulsar.conftest import Publish, Source  # noqa: E402

SETTINGS = {"managedLedgerMaxEntriesPerLedger": "2", "managedLedgerMinLedgerRolloverTimeMinutes": "0"}
"""Each topic has several ledgers, which a query cuts into tasks."""
NAME = "persistent://public/default/t"
WHOLE_RANGE = TopicRange(NAME, EARLIEST, Position(9, 99))
ENABLED = "spark.sql.python.filterPushdown.enabled"


def at(microseconds: int) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=microseconds)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([GreaterThan(("__publishTime",), at(5000))], Interval(6, 100)),
        ([GreaterThan(("__publishTime",), at(5001))], Interval(6, 100)),
        ([GreaterThanOrEqual(("__publishTime",), at(5001))], Interval(6, 100)),
        ([GreaterThanOrEqual(("__publishTime",), at(5000))], Interval(5, 100)),
        ([LessThan(("__publishTime",), at(5000))], Interval(0, 4)),
        ([LessThan(("__publishTime",), at(5001))], Interval(0, 5)),
        ([LessThanOrEqual(("__publishTime",), at(5999))], Interval(0, 5)),
        ([EqualTo(("__publishTime",), at(5000))], Interval(5, 5)),
        ([GreaterThan(("__publishTime",), at(5000)), LessThan(("__publishTime",), at(9000))], Interval(6, 8)),
    ],
)
def test_publish_times_become_whole_milliseconds(filters: list[Filter], expected: Interval) -> None:
    (found,) = narrowing_of(filters).narrow([WHOLE_RANGE._replace(to_ms=100)])
    assert Interval(found.from_ms, found.to_ms) == expected


def test_equality_with_a_time_between_milliseconds_leaves_no_range() -> None:
    narrowing = narrowing_of([EqualTo(("__publishTime",), at(5001))])
    assert narrowing.narrow([WHOLE_RANGE]) == []


@pytest.mark.parametrize(
    ("filters", "start", "end"),
    [
        ([EqualTo(("__ledger",), 7)], Position(7, -1), Position(7, LAST_ENTRY)),
        ([GreaterThan(("__ledger",), 3)], Position(4, -1), Position(9, 99)),
        ([LessThanOrEqual(("__ledger",), 8)], EARLIEST, Position(8, LAST_ENTRY)),
        (
            [EqualTo(("__ledger",), 7), GreaterThan(("__entry",), 4), LessThan(("__entry",), 8)],
            Position(7, 4),
            Position(7, 7),
        ),
        ([GreaterThan(("__entry",), 4)], EARLIEST, Position(9, 99)),
        (
            [
                EqualTo(
                    ("__messageId",), MessageIdData(ledgerId=7, entryId=3, batch_index=2).SerializeToString()
                )
            ],
            Position(7, 2),
            Position(7, 3),
        ),
    ],
)
def test_positions_bring_the_ends_nearer(filters: list[Filter], start: Position, end: Position) -> None:
    (found,) = narrowing_of(filters).narrow([WHOLE_RANGE])
    assert (found.start, found.end) == (start, end)


def test_names_choose_topics() -> None:
    filters = [
        IsNotNull(("__topic",)),
        StringStartsWith(("__topic",), "persistent://public/default/t"),
        Not(In(("__topic",), (NAME,))),
    ]
    narrowing = narrowing_of(filters)
    assert [narrowing.wants_topic(name) for name in (NAME, f"{NAME}-2", "persistent://a/b/c")] == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("value",), b"x"),
        IsNotNull(("__key",)),
        Not(EqualTo(("__ledger",), 4)),
        In(("__ledger",), (3, 4)),
        Not(In(("__topic",), ("a", None))),
        EqualTo(("__topic", "part"), "a"),
        EqualTo(("__messageId",), b"\xff"),
    ],
)
def test_condition_that_is_not_understood_narrows_nothing(one: Filter) -> None:
    narrowing = narrowing_of([one])
    assert narrowing.is_everything
    assert narrowing.wants_topic(NAME)


def fill(source: Source, publish: Publish, topic: str) -> None:
    for number in range(3):
        bodies = [b"%d:%d" % (number, row) for row in range(40)]
        publish(f"{topic}-{number}", bodies, batching_enabled=True, batching_max_messages=10)
        time.sleep(0.005)  # Publish times are milliseconds; the topics must not share one.


NEEDED = "value,__topic,__publishTime,__ledger,__entry,__messageId"


def chosen(frame: Any, condition: str) -> list[str]:
    rows = frame.where(condition).select("value").collect()
    return sorted(bytes(row.value).decode() for row in rows)


def test_pushed_conditions_choose_the_rows_that_spark_chooses(
    source: Source, publish: Publish, topic: str
) -> None:
    fill(source, publish, topic)
    whole = source.read(topicsPattern=f"{topic}-.*", columns=NEEDED)
    row = whole.orderBy("__publishTime").collect()[60]
    moment = row["__publishTime"].isoformat()
    conditions = {
        f"__topic = 'persistent://public/default/{topic}-1'": 40,
        f"__topic like '%{topic}-2'": 40,
        f"__topic not in ('persistent://public/default/{topic}-1')": 80,
        f"__publishTime > timestamp '{moment}'": None,
        f"__publishTime <= timestamp '{moment}' and __topic like '%-1'": None,
        f"__ledger = {row['__ledger']} and __entry between 1 and 2": None,
        f"__ledger <= {row['__ledger']}": None,
        f"__ledger = {2**40}": 0,
        f"__messageId = X'{bytes(row['__messageId']).hex()}'": 1,
        "__publishTime > timestamp '2999-01-01'": 0,
        "__publishTime < timestamp '2001-01-01'": 0,
    }
    for condition, count in conditions.items():
        # A DataFrame for each: Spark keeps the plan of the last query for all queries of one (see the explanation).
        narrowed = source.read(topicsPattern=f"{topic}-.*", columns=NEEDED, pushFilters="true")
        found = chosen(narrowed, condition)
        assert found == chosen(whole, condition), condition
        assert count in (None, len(found)), condition


def test_condition_on_the_topic_plans_no_task_for_other_topics(
    source: Source, publish: Publish, topic: str
) -> None:
    fill(source, publish, topic)
    condition = f"__topic = 'persistent://public/default/{topic}-none'"
    tasks = [
        source.read(topicsPattern=f"{topic}-.*", numPartitions=8, pushFilters=pushed)
        .where(condition)
        .rdd.getNumPartitions()
        for pushed in ("true", "false")
    ]
    assert tasks[0] == 1 < tasks[1]


def test_source_that_takes_conditions_is_refused_without_sparks_setting(
    source: Source, publish: Publish, topic: str
) -> None:
    publish(topic, [b"x"])
    source.spark.conf.set(ENABLED, "false")
    try:
        with pytest.raises(Exception, match=ENABLED):
            source.read(topic=topic, pushFilters="true").collect()
    finally:
        source.spark.conf.set(ENABLED, "true")
