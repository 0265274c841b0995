"""Runs Python tasks on Spark and says now and then how many of them are done."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from threading import Event, Thread
from typing import Final, TypeVar

from pyspark import RDD
from pyspark.sql import SparkSession

from pipeline.spark_master import in_one_process

EVERY_S: Final = 5.0
"""Seconds between two checks of the tasks."""

_Answer = TypeVar("_Answer")


def collected(
    spark: SparkSession, answers: RDD[_Answer], say: Callable[[str], None], every_s: float = EVERY_S
) -> list[_Answer]:
    """Returns the answers of all tasks, in their order: a partition is a task.

    `say` is called with the number of finished tasks, when it has grown since the last check `every_s` ago. An error of a
    task is raised as Spark's.
    """
    context = spark.sparkContext
    # A group of its own, since other jobs may run in the same session.
    group = f"tasks-{uuid.uuid4()}"
    context.setJobGroup(group, "replays")
    ended = Event()
    tasks = answers.getNumPartitions()
    follower = Thread(target=_follow, args=(spark, group, tasks, ended, say, every_s), daemon=True)
    follower.start()
    try:
        found: list[_Answer] = answers.collect()
        return found
    finally:
        ended.set()
        follower.join()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def _has_executor(spark: SparkSession) -> bool:
    """Returns False while a cluster has given the session nothing to run tasks on."""
    context = spark.sparkContext
    # The driver is among those that Spark lists.
    return (
        in_one_process(context.master or "") or len(context._jsc.sc().statusTracker().getExecutorInfos()) > 1
    )


def _follow(
    spark: SparkSession, group: str, tasks: int, ended: Event, say: Callable[[str], None], every_s: float
) -> None:
    tracker = spark.sparkContext.statusTracker()
    began, told = time.monotonic(), 0
    while not ended.wait(every_s):
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        if not done and not _has_executor(spark):
            say(f"  waiting for an executor of {spark.sparkContext.master}: none has registered")
        if done > told:
            told = done
            say(f"  {done} of {tasks} tasks done after {time.monotonic() - began:.0f} s")
