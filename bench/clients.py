"""Starts and steers the client processes of the bench: start, ready, go, result.

Law: one `Client` is one process that executes `bench.worker`; it never outlives its block.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from types import TracebackType
from typing import cast

from bench.peers import ROOT
from bench.worker import Job, Result

STOP_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 90.0
"""Silence after which a worker counts as hanging."""


class WorkerError(Exception):
    """A client process ended without a result; the text is its last line of output."""


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
            bufsize=0,
        )
        self._said = b""
        self._tell(json.dumps(job))
        self._line()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error the worker may never end by itself: its job waits for messages that will not come.
        if kind is not None:
            self._process.kill()
        try:
            self._process.communicate(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def go(self) -> None:
        """Lets the worker begin, or continue after `wait_line`."""
        self._tell("go")

    def wait_line(self) -> None:
        """Waits until the worker reports a stage of its job."""
        self._line()

    def result(self) -> Result:
        """Waits for the result. WorkerError where the worker ends or is silent for 90 s."""
        return cast(Result, json.loads(self._line()))

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
        except BrokenPipeError:
            raise WorkerError(f"{self._kind} ended early: {self._last_words()}") from None

    def _line(self) -> str:
        """The worker's next line. Raises WorkerError when it ends, or says nothing for too long."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._said:
            if not select.select([descriptor], [], [], ANSWER_TIMEOUT_S)[0]:
                self._process.kill()
                raise WorkerError(f"{self._kind} gave no answer for {ANSWER_TIMEOUT_S:.0f} s")
            part = os.read(descriptor, 1 << 16)
            if not part:
                raise WorkerError(f"{self._kind} ended without a result: {self._last_words()}")
            self._said += part
        line, _, self._said = self._said.partition(b"\n")
        return line.decode()

    def _last_words(self) -> str:
        assert self._process.stderr is not None
        lines = self._process.stderr.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no output"
