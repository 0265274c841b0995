"""Reads an access record as Spark DataFrames: its events, and the names of topics and readers.

Files are checked first, in parallel. Spark then reads the sound ones alone, so that a damaged file is a sentence in the
report instead of the end of a job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Final

from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from broker.recorder.record_reader import BrokerLifetime
from broker.recorder.schema import COLUMNS
from pipeline.traces.checking import Checked, FileCheck, apply_checks, check_file, find_files, no_record

_KINDS: Final = {"int8": ByteType(), "int32": IntegerType(), "int64": LongType(), "bool": BooleanType()}
ROWS: Final = StructType([StructField(name, _KINDS[kind]) for name, kind in COLUMNS.items()])
"""The columns of the files. `broker` and `start` are added to each row."""

Collect = Callable[[RDD[FileCheck]], list[FileCheck]]
"""Runs a task for each partition and returns their answers."""

_NAMES: Final = StructType(
    [
        StructField("broker", StringType()),
        StructField("start", StringType()),
        StructField("topic", IntegerType()),
        StructField("sub", IntegerType()),
        StructField("name", StringType()),
    ]
)


@dataclass(frozen=True, slots=True)
class Record:
    """An access record as DataFrames, which are read when a job acts on them."""

    checked: Checked
    """The files that the DataFrames read."""
    rows: DataFrame
    """One row per event on a run of entries.

    The columns of `ROWS` (docs/reference/access_record.md), `broker`, `start`.
    """
    topics: DataFrame
    """One row per broker lifetime and topic: broker, start, topic, topic_name."""
    readers: DataFrame
    """One row per broker lifetime, topic and reader. broker, start, topic, sub, sub_name."""


def read_record(spark: SparkSession, paths: Sequence[Path], collect: Collect = RDD.collect) -> Record:
    """Reads all broker lifetimes below the paths; `collect` as for `check_record`.

    RecordError where there is no sound file.
    """
    checked = check_record(spark, paths, collect)
    # A frame per lifetime, as each has its own constants; one read of all files would need them from the paths.
    rows = reduce(DataFrame.unionByName, [_rows_of(spark, lifetime) for lifetime in checked.lifetimes])
    names = _names_of(spark, checked.lifetimes)
    topics = names.where("sub is null").drop("sub").withColumnRenamed("name", "topic_name")
    readers = names.where("sub is not null").withColumnRenamed("name", "sub_name")
    return Record(checked, rows, topics, readers)


def check_record(spark: SparkSession, paths: Sequence[Path], collect: Collect = RDD.collect) -> Checked:
    """Reads every file once and rejects the damaged ones; `collect` runs the tasks and may tell their progress.

    RecordError where no sound file is left.
    """
    checked = find_files(paths)
    files = [str(file.path) for file in checked.files]
    if files:
        # Several slices for each core: files differ in size, and a slice is checked by one core.
        slices = min(len(files), spark.sparkContext.defaultParallelism * 4)
        task = spark.sparkContext.parallelize(files, slices)
        apply_checks(checked, collect(task.map(lambda path: check_file(Path(path)))))
    if not checked.lifetimes:
        raise no_record(checked, paths)
    return checked


def _rows_of(spark: SparkSession, lifetime: BrokerLifetime) -> DataFrame:
    # With a given schema Spark need not open the files before the job runs.
    rows = spark.read.schema(ROWS).parquet(*[str(file.path) for file in lifetime.files])
    # Constants of the lifetime: taken from the names of files by a join, they would move every row.
    return rows.withColumns({"broker": f.lit(lifetime.broker), "start": f.lit(lifetime.start)})


def _names_of(spark: SparkSession, lifetimes: Sequence[BrokerLifetime]) -> DataFrame:
    """Returns one row per name of a topic or reader. `sub` is null for a topic."""
    found: list[tuple[str, str, int, int | None, str]] = []
    for lifetime in lifetimes:
        if lifetime.names is not None:
            found += [
                (lifetime.broker, lifetime.start, topic, None, name)
                for topic, name in lifetime.names.topics.items()
            ]
            found += [
                (lifetime.broker, lifetime.start, *ids, name) for ids, name in lifetime.names.subs.items()
            ]
    return spark.createDataFrame(found, _NAMES)
