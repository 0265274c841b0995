"""`python -m tests.crash --bookie`: a bookie killed at each named point under load, started again, and asked for everything.

For each point a directory of its own. After the kill the files are checked as they lie: every entry that the index names
is there, whole. After the start everything acknowledged is read, every fence tried, every explicit LAC compared. Then it
is stopped in order, and the files are checked once more.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bookie_stub.tools.check import check
from tests.crash import rereplication_run
from tests.crash.bookie_load import Told, load, verify
from tests.crash.bookie_process import settings_of
from tests.crash.broker_process import ROOT
from tests.crash.crash_points import COUNT, OFTEN, POINT, POINTS

COUNT_MAX = 3
COUNT_OFTEN = (50, 60)
READY_TIMEOUT_S = 300.0
"""Long, as all limits of this folder: a niced run beside 40 busy processes gets a hundredth of a core."""
REACHED_TIMEOUT_S = 300.0


class Outcome(NamedTuple):
    point: str
    passed: int
    """The time at which the point killed the process, 1 the first."""
    acknowledged: int
    fenced: int
    confirmed: int
    gone: int
    recovery_s: float
    """From the start of the process until it serves."""
    findings: list[str]

    def text(self) -> str:
        verdict = "ok" if not self.findings else "FAILED"
        return (
            f"{self.point:<24} x{self.passed}  {self.acknowledged:5d} acknowledged, {self.fenced:3d} fenced,"
            f" {self.confirmed:4d} LACs, {self.gone:4d} deleted, back in {self.recovery_s:.2f} s  {verdict}"
        )


def main(seed: int | None, *, keep: bool) -> int:
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    folder = Path(tempfile.mkdtemp(prefix="bookie-crash-"))
    print(f"seed {seed}, {folder}", flush=True)
    outcomes = run(POINTS, seed, folder)
    copied = rereplication_run.run(rereplication_run.POINTS, seed, folder)
    failed = any(outcome.findings for outcome in outcomes) or any(outcome.findings for outcome in copied)
    if failed or keep:
        print(f"kept: {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if failed else 0


def run(points: Sequence[str], seed: int, folder: Path) -> list[Outcome]:
    lot = random.Random(seed)
    began = time.monotonic()
    outcomes = []
    for point in points:
        (folder / point).mkdir(parents=True)
        counts = COUNT_OFTEN if point.startswith(OFTEN) else (1, COUNT_MAX)
        outcome = asyncio.run(kill_at(point, lot.randint(*counts), folder / point))
        print(outcome.text(), flush=True)
        for finding in outcome.findings[:10]:
            print(f"    {finding}", flush=True)
        outcomes.append(outcome)
    lost = sum(len(outcome.findings) for outcome in outcomes)
    print(
        f"{len(points)} points, {sum(each.acknowledged for each in outcomes)} entries acknowledged,"
        f" {sum(each.fenced for each in outcomes)} fences, {sum(each.confirmed for each in outcomes)} explicit LACs,"
        f" {sum(each.gone for each in outcomes)} ledgers deleted, {lost} findings,"
        f" {time.monotonic() - began:.0f} s"
    )
    return outcomes


async def kill_at(point: str, count: int, directory: Path) -> Outcome:
    told = Told()
    findings: list[str] = []
    process = _spawn(directory, {POINT: point, COUNT: str(count)})
    try:
        port = await _ready(process, directory)
        if port is not None:
            async with asyncio.timeout(REACHED_TIMEOUT_S):
                await load(port, told, directory, first=0)
        if await asyncio.to_thread(process.wait, REACHED_TIMEOUT_S) != -signal.SIGKILL:
            findings.append(f"ended with {process.returncode} instead of a kill: {_log_end(directory)}")
    except TimeoutError:
        findings.append("the point was not reached")
        process.kill()
        process.wait()
    findings += _files(directory, "after the kill")
    before = time.monotonic()
    process = _spawn(directory, {})
    try:
        port = await _ready(process, directory)
        recovery_s = time.monotonic() - before
        if port is None:
            findings.append(f"does not start again: {_log_end(directory)}")
        else:
            findings += await verify(port, told)
            process.terminate()
            if await asyncio.to_thread(process.wait, READY_TIMEOUT_S) != 0:
                findings.append(f"the stop ended with {process.returncode}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    findings += _files(directory, "after the stop")
    return Outcome(
        point,
        count,
        len(told.acknowledged),
        len(told.fenced),
        len(told.confirmed),
        len(told.gone),
        recovery_s,
        findings,
    )


def _spawn(directory: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    (directory / "ready").unlink(missing_ok=True)
    with (directory / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.crash.bookie_process", str(directory)],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=log,
            stderr=log,
        )


async def _ready(process: subprocess.Popen[bytes], directory: Path) -> int | None:
    """The port, or None when the process has ended."""
    async with asyncio.timeout(READY_TIMEOUT_S):
        while not (directory / "ready").exists():
            if process.poll() is not None:
                return None
            await asyncio.sleep(0.01)
    return int((directory / "ready").read_text())


def _files(directory: Path, when: str) -> list[str]:
    """Every entry that the index names is whole, and every journal can be replayed."""
    current = [path / "current" for path in (directory / "data/journal", directory / "data/ledgers")]
    journal, ledgers = current
    if not (ledgers / "locations/CURRENT").exists():
        return []  # killed before there were any
    found = check([journal], [(ledgers, ledgers)], settings_of(directory).frame_bytes_max, lambda _: None)
    return [f"{when}: {line}" for line in found.damaged]


def _log_end(directory: Path) -> str:
    return " | ".join((directory / "log").read_text(errors="replace").splitlines()[-3:])
