"""Tasks on Spark: their answers in order, and a word about progress while they run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark, pip install WHEEL[spark]")

from pipeline.task_progress import collected

PATIENCE_S = 60.0


def _squared(number: int) -> Iterator[int]:
    yield number * number


def test_answers_come_in_the_order_of_the_tasks(spark: Any) -> None:
    assert collected(
        spark, spark.sparkContext.parallelize([3, 1, 2], 3).flatMap(_squared), lambda text: None
    ) == [9, 1, 4]


def test_finished_tasks_are_told_while_others_run(spark: Any, tmp_path: Path) -> None:
    told = tmp_path / "told"

    def wait_if_last(number: int) -> Iterator[int]:
        # The last task ends once the others were told of: without that word it fails.
        until = time.monotonic() + PATIENCE_S
        while number == 2 and not told.exists() and time.monotonic() < until:
            time.sleep(0.01)
        yield int(told.exists())

    def say(text: str) -> None:
        if "of 3 tasks done" in text:
            told.touch()

    tasks = spark.sparkContext.parallelize([0, 1, 2], 3).flatMap(wait_if_last)
    assert collected(spark, tasks, say, every_s=0.05)[2] == 1
