"""One execution: rows into files, the stream with its accidents, and the rows in the topic at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.interop.support import connect, wait_until

ROOT: Final = Path(__file__).resolve().parents[2]
SETTINGS: Final = {"brokerDeduplicationEnabled": "true", "brokerDeleteInactiveTopicsEnabled": "false"}
"""The broker's; the topic has no subscription, and while the stream is away it would count as unused."""
TIMEOUT_S: Final = 1800.0
RECEIVE_MS: Final = 30_000


class Outcome(NamedTuple):
    """Counts of one execution; `lost` and `doubled` must be 0."""

    rows: int
    lost: int
    doubled: int
    tasks_killed: int
    drivers_killed: int
    seconds: float


def run(
    url: str, folder: Path, topic: str, rows: int, files: int, driver_kills: int, tell: Callable[[str], None]
) -> Outcome:
    """Kills the driver `driver_kills` times, each in the middle of a micro-batch. AssertionError where the stream fails."""
    began = time.monotonic()
    rows_per_file = write_rows(folder / "rows", rows, files)
    deaths, checkpoint = folder / "deaths", folder / "checkpoint"
    deaths.mkdir()
    command = [sys.executable, "-m", "tests.exactly_once.driver", url, str(folder / "rows"), topic]
    command += [str(checkpoint), str(deaths), str(rows_per_file)]
    batches = -(-files // 2)
    for kill in range(driver_kills):
        kill_driver(command, checkpoint, batches * (kill + 1) // (driver_kills + 1), folder / "driver.log")
        tell(f"driver killed, {committed(checkpoint)} of {batches} batches done")
    with (folder / "driver.log").open("ab") as log:
        ended = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, timeout=TIMEOUT_S, check=False)
    assert ended.returncode == 0, (folder / "driver.log").read_text(errors="replace")[-3000:]
    tell(f"all {batches} batches done, {len(list(deaths.iterdir()))} tasks killed; reading the topic")
    counts = count_rows(url, topic, rows)
    return Outcome(
        rows=rows,
        lost=int((counts == 0).sum()),
        doubled=int((counts > 1).sum()),
        tasks_killed=len(list(deaths.iterdir())),
        drivers_killed=driver_kills,
        seconds=time.monotonic() - began,
    )


def write_rows(folder: Path, rows: int, files: int) -> int:
    """Writes the numbers from 0 as texts; returns the rows of a file."""
    folder.mkdir()
    size = -(-rows // files)
    for number in range(files):
        values = [b"%d" % row for row in range(number * size, min(rows, (number + 1) * size))]
        pq.write_table(pa.table({"value": pa.array(values, pa.binary())}), folder / f"{number:05}.parquet")
    return size


def kill_driver(command: list[str], checkpoint: Path, batches: int, log_path: Path) -> None:
    """Starts a driver, and kills it and its workers when so many micro-batches are done and another one has begun."""
    with log_path.open("ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)

    def in_the_middle() -> bool:
        assert process.poll() is None, log_path.read_text(errors="replace")[-3000:]
        return committed(checkpoint) >= batches and begun(checkpoint) > committed(checkpoint)

    try:
        wait_until(in_the_middle, f"batch {batches} is under way", TIMEOUT_S)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def committed(checkpoint: Path) -> int:
    """Returns the micro-batches that Spark has committed."""
    return _numbers(checkpoint / "commits")


def begun(checkpoint: Path) -> int:
    """Returns the micro-batches whose end offset is in the checkpoint."""
    return _numbers(checkpoint / "offsets")


def _numbers(folder: Path) -> int:
    return sum(path.name.isdigit() for path in folder.iterdir()) if folder.is_dir() else 0


def count_rows(url: str, topic: str, rows: int) -> np.ndarray:
    """Returns how often each number is in the topic, as an official client reads it."""
    import pulsar

    counts = np.zeros(rows, np.int64)
    client = connect(url)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=10_000)
    while reader.has_message_available():
        counts[int(reader.read_next(RECEIVE_MS).data())] += 1
    client.close()
    return counts
