"""Runs a job of the command line. Starts Spark for an access record and calls the job with its arguments."""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pyspark.sql import SparkSession

from foundation.units import MIB
from pipeline.jobs.budget import Budget, recommend_within
from pipeline.jobs.compare import compare
from pipeline.jobs.history import Thresholds, history
from pipeline.jobs.hit_report import below_minimum, hit_report
from pipeline.jobs.miss_ratio_curve import miss_ratio_curve
from pipeline.jobs.page import write
from pipeline.jobs.recommend import recommend
from pipeline.jobs.report import Report
from pipeline.jobs.thrashing import thrashing
from pipeline.jobs.what_if import what_if
from pipeline.remote_paths import LocalOrRemote, fetch, name_of, refuse_other_machines
from pipeline.replays.grid import override_grid
from pipeline.session import start_for_command
from pipeline.task_progress import collected
from pipeline.traces.checking import Checked, find_files, no_record
from pipeline.traces.record_frames import Record, check_record, read_record

SMALL_ROWS: Final = 3_000_000
"""Rows below which a session with a quick start is faster."""
_MS: Final = 1_000_000


class Session:
    """Spark for one job; it starts once the access record is found, or to copy the record here."""

    def __init__(self, master: str, say: Callable[[str], None]) -> None:
        """`master`: Spark's. `say` is called with each step."""
        self._master = master
        self.say = say
        """Called with each step; jobs call it too."""
        self._spark: SparkSession | None = None
        self._copies: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *ended: object) -> None:
        if self._spark is not None:
            self._spark.stop()
        # After Spark, which may still read the copies.
        if self._copies is not None:
            self._copies.cleanup()

    def local(self, places: Sequence[LocalOrRemote]) -> list[Path]:
        """Returns paths on this machine. A place with a scheme is copied until the session ends; CannotFetch."""
        return [one if isinstance(one, Path) else self._fetch(one) for one in places]

    def _fetch(self, where: str) -> Path:
        refuse_other_machines(where, self._master)
        if self._spark is None:
            self._spark = self._start("starting Spark", quick_start=False)
        if self._copies is None:
            self._copies = tempfile.TemporaryDirectory(prefix="magnetar-record-")
        self.say(f"copying {name_of(where)} from {where}")
        # A folder of its own for each, since two may have the same name.
        return fetch(self._spark, where, Path(tempfile.mkdtemp(dir=self._copies.name)))

    def spark(self, paths: Sequence[Path]) -> SparkSession:
        """Starts Spark, or returns the session started before. RecordError where there is no access record."""
        if self._spark is None:
            found = find_files(paths)
            if not found.lifetimes:
                raise no_record(found, paths)
            text = f"starting Spark for {found.rows:,} rows"
            # Java that compiles less starts sooner and runs slower; below SMALL_ROWS the start is most of the job.
            self._spark = self._start(text, quick_start=found.rows < SMALL_ROWS)
        return self._spark

    def started(self, why: str) -> SparkSession:
        """Starts Spark for a small input, or returns the session started before."""
        if self._spark is None:
            self._spark = self._start(f"starting Spark: {why}", quick_start=True)
        return self._spark

    def _start(self, text: str, *, quick_start: bool) -> SparkSession:
        self.say(text)
        return start_for_command("magnetar pipeline", master=self._master, quick_start=quick_start)

    def checked(self, paths: Sequence[Path]) -> Checked:
        """Checks the files of an access record. RecordError where none is sound."""
        spark = self.spark(paths)
        self.say("checking the files")
        return check_record(spark, paths, lambda tasks: collected(spark, tasks, self.say))

    def record(self, paths: Sequence[Path]) -> Record:
        """Checks the files of an access record and opens them as DataFrames. RecordError."""
        spark = self.spark(paths)
        self.say("checking the files")
        return read_record(spark, paths, lambda tasks: collected(spark, tasks, self.say))

    @staticmethod
    def write(report: Report, folder: Path) -> Path:
        """Writes page and tables; returns the path of the page."""
        return write(report, folder)


def _hit_report(session: Session, arguments: Namespace) -> tuple[Report, bool]:
    checked = session.checked(arguments.paths)
    report = hit_report(session.spark(arguments.paths), checked, session.say)
    if arguments.min_hit_ratio is not None:
        report.failed = below_minimum(report, arguments.min_hit_ratio)
    return report, True


def _what_if(session: Session, arguments: Namespace) -> tuple[Report, bool]:
    wanted = override_grid(
        arguments.policies or (None,),
        _sizes(arguments) or (None,),
        [round(ms * _MS) for ms in arguments.ttl_ms] if arguments.ttl_ms else (None,),
        [round(times) for times in arguments.extensions] if arguments.extensions else (None,),
        arguments.extend_accessed or (None,),
    )
    checked = session.checked(arguments.paths)
    spark = session.spark(arguments.paths)
    return what_if(spark, checked, wanted, rate=arguments.sample or 1.0, say=session.say), True


def _sizes(arguments: Namespace) -> list[int]:
    return [round(mb * MIB) for mb in arguments.sizes_mb or ()]


def _curve(session: Session, arguments: Namespace) -> tuple[Report, bool]:
    checked = session.checked(arguments.paths)
    spark = session.spark(arguments.paths)
    return miss_ratio_curve(spark, checked, _sizes(arguments), rate=arguments.sample, say=session.say), True


def _recommend(session: Session, arguments: Namespace) -> tuple[Report, bool]:
    checked = session.checked(arguments.paths)
    spark = session.spark(arguments.paths)
    budget = Budget(arguments.memory, arguments.reads, arguments.price)
    if budget.memory_bytes is not None or budget.reads_per_s is not None:
        return recommend_within(spark, checked, budget, rate=arguments.sample, say=session.say), True
    return recommend(spark, checked, rate=arguments.sample, price=arguments.price, say=session.say), True


def _compare(session: Session, arguments: Namespace) -> tuple[Report, bool]:
    checked = session.checked(arguments.paths)
    return compare(session.spark(arguments.paths), checked, session.say)


def _thrashing(session: Session, arguments: Namespace) -> tuple[Report, bool]:
    record = session.record(arguments.paths)
    return thrashing(record, session.say), True


def _history(session: Session, arguments: Namespace) -> tuple[Report, bool]:
    limits = Thresholds(arguments.keep_days, arguments.drop, arguments.min_hit_ratio, arguments.max_drop)
    # The folder of a history may have all that there is to tell: without new files Spark is not started.
    return history(
        lambda: session.started("reading new files"), arguments.paths, arguments.out, limits, session.say
    ), True


JOB_FUNCTIONS: Final[Mapping[str, Callable[[Session, Namespace], tuple[Report, bool]]]] = MappingProxyType(
    {
        "hit-report": _hit_report,
        "what-if": _what_if,
        "miss-ratio-curve": _curve,
        "recommend": _recommend,
        "compare": _compare,
        "thrashing": _thrashing,
        "history": _history,
    }
)
"""By name of the command. Returns the report, and False for exit code 1."""
