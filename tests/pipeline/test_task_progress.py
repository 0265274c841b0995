"""Tasks on Spark: their answers in order, and a word about progress while they run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark, pip install WHEEL[spark]")

from pipeline.session import start_session
from pipeline.spark_master import NoMaster
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


def test_start_tells_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    told, texts = Event(), list[str]()

    def silent_master(address: str) -> None:
        # Ends once the wait was told of: without that word the test fails.
        raise NoMaster(f"told: {told.wait(PATIENCE_S)}")

    def say(text: str) -> None:
        texts.append(text)
        told.set()

    monkeypatch.setattr("pipeline.session.check_master", silent_master)
    with pytest.raises(NoMaster, match="told: True"):
        start_session("waits", master="spark://host:7077", say=say, every_s=0.01)
    assert texts[0].startswith("  waiting for an answer of the master spark://host:7077: 0 s")


def test_progress_names_a_cluster_that_gives_no_executor(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session runs tasks itself, and so has no executor: taken for a cluster's, it is one that waits for the first."""
    told = tmp_path / "told"
    monkeypatch.setattr("pipeline.task_progress.in_one_process", lambda master: False)

    def say(text: str) -> None:
        if text == "  waiting for an executor of local[2,3]: none has registered":
            told.touch()

    def wait(number: int) -> Iterator[bool]:
        until = time.monotonic() + PATIENCE_S
        while not told.exists() and time.monotonic() < until:
            time.sleep(0.01)
        yield told.exists()

    tasks = spark.sparkContext.parallelize([0], 1).flatMap(wait)
    assert collected(spark, tasks, say, every_s=0.01) == [True]
