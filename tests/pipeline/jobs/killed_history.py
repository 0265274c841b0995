"""Runs a history in a process that kills itself at a named point.

`python -m tests.pipeline.jobs.killed_history RECORD OUT POINT`
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from pipeline.jobs.history import Thresholds, history
from pipeline.jobs.history_runs import READS, RunFolder
from pipeline.session import start_session

POINTS: Final = ("run begun", "counts written", "facts written", "run named")
"""In the order of the writes of a run."""


def _killed(*arguments: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("the signal cannot be caught")


def _then_killed(function: Callable[..., object]) -> Callable[..., object]:
    def wrapped(*arguments: object) -> NoReturn:
        function(*arguments)
        _killed()

    return wrapped


def arm(point: str) -> None:
    """Lets the process die at a point of POINTS. ValueError for another one."""
    if point == "run begun":
        RunFolder.begin = _then_killed(RunFolder.begin)  # type: ignore[method-assign, assignment]
    elif point == "counts written":
        RunFolder.finish = _killed  # type: ignore[method-assign, assignment]
    elif point == "facts written":
        Path.rename = _killed  # type: ignore[method-assign, assignment]
    elif point == "run named":
        RunFolder.finish = _then_killed(RunFolder.finish)  # type: ignore[method-assign, assignment]
    else:
        raise ValueError(f"no point {point}: choose one of {', '.join(POINTS)}")


def main(record: str, out: str, point: str) -> None:
    """Runs the job until the point."""
    spark = start_session("killed history", master="local[1]", quick_start=True)
    arm(point)
    history(lambda: spark, [Path(record)], Path(out), Thresholds())
    raise SystemExit(f"the run ended without passing the point {point} (its counts are in {READS})")


if __name__ == "__main__":
    main(*sys.argv[1:])
