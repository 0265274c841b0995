"""Conditions of queries: no row is lost by them, whatever Spark's settings, and Spark's fault that forbids to use them.

Spark 4.3.0 offers conditions to a source with `pushFilters` and keeps the answer for other queries of the DataFrame.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")

from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition

from pyspark_pulsar.reading.batch_reader import PulsarBatchReader
from tests.pyspark_pulsar.conftest import Publish, Source

PUSH = "spark.sql.python.filterPushdown.enabled"
SIZES = {"a": 1, "b": 2, "c": 3}


@pytest.fixture
def pushing(spark: Any) -> Iterator[None]:
    spark.conf.set(PUSH, "true")
    yield
    spark.conf.unset(PUSH)


class Narrowing(DataSource):
    """Has the rows of SIZES, and reads the groups alone that a query's condition names."""

    @classmethod
    def name(cls) -> str:
        return "narrowing"

    def schema(self) -> str:
        return "name string"

    def reader(self, schema: object) -> DataSourceReader:
        return NarrowingReader()


class NarrowingReader(DataSourceReader):
    def __init__(self) -> None:
        self.names = list(SIZES)

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802
        for one in filters:
            if isinstance(one, EqualTo) and one.attribute == ("name",):
                self.names = [name for name in self.names if name == one.value]
            # All are returned: Spark compares the rows again, so a source that reads too much does no harm.
            yield one

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(name) for name in self.names]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        yield from [(partition.value,)] * SIZES[partition.value]


@pytest.mark.slow
def test_spark_still_keeps_the_ranges_of_one_query_for_the_others(spark: Any, pushing: None) -> None:
    """The day this fails, push-down can come in: see docs/explanation/spark_source.md, and delete this test.

    Right would be 6 rows, 3 rows of the union, and 2 rows of the query behind the first one.
    """
    spark.dataSource.register(Narrowing)

    def frame() -> Any:
        return spark.read.format("narrowing").load()

    mended = "Spark keeps each query's ranges apart now: push-down can come into pyspark_pulsar"
    whole = frame()
    assert whole.where("name = 'a'").count() == 1
    assert whole.count() == 1, mended
    several = frame()
    assert several.where("name = 'a'").union(several.where("name = 'b'")).count() == 2, mended
    assert PulsarBatchReader.pushFilters is DataSourceReader.pushFilters, "until then the source has none"


def test_query_loses_no_row_when_spark_pushes_conditions(
    source: Source, publish: Publish, topic: str, pushing: None
) -> None:
    """Each of these loses rows with a source that narrows by conditions."""
    names = [f"persistent://public/default/{topic}-{name}" for name in SIZES]
    for name, count in zip(names, SIZES.values(), strict=True):
        publish(name, [b"%d" % number for number in range(count)])
    frame = source.read(topics=",".join(names), columns="value,__topic,__publishTime,__messageId")
    one, two = (frame.where(frame["__topic"] == name) for name in names[:2])
    assert one.count() == 1
    assert frame.count() == 6
    assert one.union(two).count() == 3
    assert frame.where(frame["__topic"].isin(names[0], names[2])).count() == 4
    assert two.join(frame.select("value"), "value").count() == 5, "0 in three topics, 1 in two"
    rows = frame.collect()
    middle = sorted(row["__publishTime"] for row in rows)[3]
    later = frame.where(frame["__publishTime"] >= middle)
    assert later.count() == sum(row["__publishTime"] >= middle for row in rows)
    ids = [row["__messageId"] for row in rows]
    assert frame.where(frame["__messageId"] == ids[0]).count() == ids.count(ids[0])
    kept = one.cache()
    assert (kept.count(), frame.count(), two.count()) == (1, 6, 2)
    kept.unpersist()
