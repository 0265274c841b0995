"""Measures hit report, curve and recommendation on a very large access record.

`python -m bench.large_record [--events N] [--brokers N] [--keep DIR] [--only JOB ...]`

Makes an access record of 1,000,000,000 events over ten brokers (`made_record.py`; an event is one entry appended or read)
and runs each job on it as a user would, on two cores. A line per job has its time, the most memory of all its processes,
and the bytes that Spark spilled to disk; the jobs' own words appear on standard error. The full size needs about 4 GiB of
memory and 4 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Final

from bench.made_record import make_record
from bench.pipeline import measure_command, timed

EVENTS: Final = 1_000_000_000
BROKERS: Final = 10
MEMORY: Final = "24MiB"
"""The budget of the recommendation: half of what the readers three seconds behind need."""
JOBS: Final = {
    "hit-report": ("hit-report",),
    "curve": ("miss-ratio-curve",),
    "recommend": ("recommend",),
    "budget": ("recommend", "--memory", MEMORY),
}
"""Words of the command by name."""


def measured(words: tuple[str, ...], record: Path, master: str) -> str:
    """Run one job with Spark's event log on, and return its line."""
    with tempfile.TemporaryDirectory() as temporary:
        conf, log = Path(temporary) / "conf", Path(temporary) / "log"
        conf.mkdir()
        log.mkdir()
        # Spark's own way to add settings to a session that the command makes.
        (conf / "spark-defaults.conf").write_text(
            f"spark.eventLog.enabled true\nspark.eventLog.compress false\nspark.eventLog.dir {log.as_uri()}\n"
        )
        job, *options = words
        line = measure_command(
            job,
            str(record),
            *options,
            "--master",
            master,
            environment={"SPARK_CONF_DIR": str(conf)},
            progress=True,
        )
        memory, disk = spilled_bytes(log)
    return f"{line}, spilled {memory / 1e6:,.0f} MB of memory as {disk / 1e6:,.0f} MB on disk"


def spilled_bytes(log: Path) -> tuple[int, int]:
    """Return the bytes that all tasks of Spark's event logs moved out of memory, and their bytes on disk."""
    memory = disk = 0
    for path in log.rglob("*"):
        if path.is_file():
            with path.open(encoding="utf-8") as lines:
                for line in lines:
                    if '"SparkListenerTaskEnd"' in line:
                        metrics = json.loads(line).get("Task Metrics") or {}
                        memory += metrics.get("Memory Bytes Spilled", 0)
                        disk += metrics.get("Disk Bytes Spilled", 0)
    return memory, disk


def main() -> None:
    """Makes the access record, unless `--keep` has one, and prints a line per job."""
    parser = argparse.ArgumentParser(
        "python -m bench.large_record", description="Jobs on a very large record."
    )
    parser.add_argument("--events", type=int, default=EVENTS, metavar="N")
    parser.add_argument("--brokers", type=int, default=BROKERS, metavar="N")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="make the record there, or use what is there"
    )
    parser.add_argument("--only", nargs="+", choices=JOBS, default=tuple(JOBS), metavar="JOB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary) / "record"
        if not folder.exists():
            seconds = timed(lambda: make_record(folder, options.events, options.brokers, misses=True))
            print(f"record of {options.events:,} events made in {seconds:.1f} s", flush=True)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(f"{size / 1e6:,.0f} MB on disk, {os.cpu_count()} cores", flush=True)
        for name in options.only:
            print(measured(JOBS[name], folder, options.master), flush=True)


if __name__ == "__main__":
    main()
