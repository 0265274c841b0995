"""A record as Spark DataFrames: its rows with broker and run, and a dictionary of the names of topics and readers.

Files are checked first, in parallel; Spark then reads the sound ones and nothing else, so that a damaged file is a
sentence in the report and never the end of a job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Final

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

from broker.recorder.record_reader import RunOfBroker
from broker.recorder.schema import COLUMNS
from pipeline.traces.checking import Checked, apply_checks, check_file, find_files, no_record

_KINDS: Final = {"int8": ByteType(), "int32": IntegerType(), "int64": LongType(), "bool": BooleanType()}
ROWS: Final = StructType([StructField(name, _KINDS[kind]) for name, kind in COLUMNS.items()])
"""The format's columns; `broker` and `start` come on top."""

NAMES: Final = StructType(
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
    checked: Checked
    rows: DataFrame
    """As in the files, with `broker` and `start`."""
    topics: DataFrame
    """broker, start, topic, topic_name"""
    readers: DataFrame
    """broker, start, topic, sub, sub_name"""


def read_record(spark: SparkSession, paths: Sequence[Path]) -> Record:
    """All runs below the paths. RecordError in one sentence where there is nothing to read."""
    checked = check_record(spark, paths)
    rows = reduce(DataFrame.unionByName, [_rows_of(spark, run) for run in checked.runs])
    names = _names_of(spark, checked.runs)
    topics = names.where("sub is null").drop("sub").withColumnRenamed("name", "topic_name")
    readers = names.where("sub is not null").withColumnRenamed("name", "sub_name")
    return Record(checked, rows, topics, readers)


def check_record(spark: SparkSession, paths: Sequence[Path]) -> Checked:
    """Read every file once and set aside what is not sound. RecordError where nothing is left."""
    checked = find_files(paths)
    files = [str(file.path) for file in checked.files]
    if files:
        slices = min(len(files), spark.sparkContext.defaultParallelism * 4)
        task = spark.sparkContext.parallelize(files, slices)
        apply_checks(checked, task.map(lambda path: check_file(Path(path))).collect())
    if not checked.runs:
        raise no_record(checked, paths)
    return checked


def _rows_of(spark: SparkSession, run: RunOfBroker) -> DataFrame:
    rows = spark.read.schema(ROWS).parquet(*[str(file.path) for file in run.files])
    return rows.withColumns({"broker": f.lit(run.broker), "start": f.lit(run.start)})


def _names_of(spark: SparkSession, runs: Sequence[RunOfBroker]) -> DataFrame:
    """An id without a line in the file of names keeps a name made of its number."""
    found: list[tuple[str, str, int, int | None, str]] = []
    for run in runs:
        if run.names is not None:
            found += [(run.broker, run.start, topic, None, name) for topic, name in run.names.topics.items()]
            found += [(run.broker, run.start, *ids, name) for ids, name in run.names.subs.items()]
    return spark.createDataFrame(found, NAMES)
