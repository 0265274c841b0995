"""Runs Python tasks on Spark and says now and then how many of them are done."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from threading import Event, Thread
from typing import Final, TypeVar

from pyspark.sql import SparkSession

EVERY_S: Final = 5.0
"""Seconds between two looks at the tasks."""

_Task = TypeVar("_Task")
_Answer = TypeVar("_Answer")


def collected(
    spark: SparkSession,
    tasks: Sequence[_Task],
    function: Callable[[_Task], Iterable[_Answer]],
    say: Callable[[str], None],
    every_s: float = EVERY_S,
) -> list[_Answer]:
    """Return the answers to all tasks, in their order.

    `say` is called with the number of finished tasks, when it has grown since the last look `every_s` ago. An error of a
    task is raised as Spark's.
    """
    context = spark.sparkContext
    # A group of its own, since other jobs may run in the same session.
    group = f"tasks-{uuid.uuid4()}"
    context.setJobGroup(group, "replays")
    ended = Event()
    follower = Thread(target=_follow, args=(spark, group, len(tasks), ended, say, every_s), daemon=True)
    follower.start()
    try:
        answers: list[_Answer] = context.parallelize(tasks, max(len(tasks), 1)).flatMap(function).collect()
        return answers
    finally:
        ended.set()
        follower.join()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def _follow(
    spark: SparkSession, group: str, tasks: int, ended: Event, say: Callable[[str], None], every_s: float
) -> None:
    tracker = spark.sparkContext.statusTracker()
    began, told = time.monotonic(), 0
    while not ended.wait(every_s):
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        if done > told:
            told = done
            say(f"  {done} of {tasks} tasks done after {time.monotonic() - began:.0f} s")
