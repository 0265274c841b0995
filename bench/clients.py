"""Client processes as the bench sees them: start, ready, go, result.

Law of the place: one `Client` is one process running `bench.worker`; it never outlives its block.
"""

from __future__ import annotations

import json
import subprocess
import sys
from types import TracebackType
from typing import cast

from bench.peers import ROOT
from bench.worker import Job, Result

STOP_TIMEOUT_S = 10.0


class WorkerError(Exception):
    """A client process ended without a result; the text is what it said last."""


class Client:
    """`with Client(job) as client: client.go(); client.result()`. Ready when constructed."""

    def __init__(self, job: Job) -> None:
        self._kind = job["kind"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.worker"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._tell(json.dumps(job))
        self._line()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
        try:
            self._process.communicate(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def go(self) -> None:
        self._tell("go")

    def wait_line(self) -> None:
        """Until the worker reports a stage of its job."""
        self._line()

    def result(self) -> Result:
        return cast(Result, json.loads(self._line()))

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            return line
        assert self._process.stderr is not None
        said = self._process.stderr.read().strip().splitlines()
        raise WorkerError(f"{self._kind} ended without a result: {said[-1] if said else 'no output'}")
