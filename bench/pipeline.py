"""What do the jobs on access records cost?

`python -m bench.pipeline [--events N] [--brokers N] [--only NAME ...] [--keep DIR]`

Makes an access record without a broker (`made_record.py`: policy `pip430`, profile 4.2) and measures on it, each printed
as a line: replays by machine code and by the broker's objects in events per second of CPU, under the policies that the
line names; a grid of 16 settings; the hit report with its memory; the start of a session. On another access record, whose
readers have all lags, the error of a sample; and the audits on a generated cluster of 600,000 topics. An event is one
entry appended or read.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from bench.made_record import SETTINGS, make_record, spread_behind
from broker.entry_cache.observe.cache_events import Op
from broker.recorder.record_reader import BrokerLifetime, find
from pipeline.replays.making import accesses_of
from pipeline.replays.objects import WhatIf
from pipeline.replays.replay import replay_with

OBJECT_EVENTS: Final = 400_000
"""Events that the broker's objects replay."""
GATHERED: Final = 1 << 23
AUDITED_TOPICS: Final = 600_000


def cpu(call: Callable[[], object]) -> float:
    """Seconds of this process's own work."""
    began = time.process_time()
    call()
    return time.process_time() - began


def timed(call: Callable[[], object]) -> float:
    """Returns the seconds that `call` takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def gathered_per_second() -> float:
    """Measures random reads from 64 MiB per second, so that results of different days can be compared."""
    table = np.arange(GATHERED, dtype=np.int64)
    places = np.random.default_rng(0).integers(0, GATHERED, GATHERED)
    return GATHERED / min(cpu(lambda: table[places].sum()) for _ in range(3))


def measure_replay(run: BrokerLifetime) -> list[str]:
    """Measures one core on all events of one broker, and the objects on the first part of the same rows."""
    from broker.recorder.record_reader import events

    accesses_of(run)  # Compiled from here on.
    made_s = cpu(lambda: accesses_of(run))
    accesses = accesses_of(run)
    lines = [
        f"{run.rows:,} rows, {accesses.events:,} events of one broker; read and made ready in {made_s:.1f} s of CPU"
    ]
    gathered = gathered_per_second()
    lines.append(f"  random gathers out of 64 MiB: {gathered / 1e6:.1f} M/s of CPU")
    for text, settings in (
        ("pip430 4.2, 1 s", SETTINGS),
        ("pip430 4.2, 10 s, 16 MiB", replace(SETTINGS, ttl_ns=10_000_000_000, size_bytes_max=16 << 20)),
        ("pip430 4.2, 10 s", replace(SETTINGS, ttl_ns=10_000_000_000)),
        ("pip430 5.0, 1 s", replace(SETTINGS, profile="5.0")),
        ("fifo-ttl, 1 s", replace(SETTINGS, policy="fifo-ttl")),
    ):
        seconds = min(cpu(lambda one=settings: replay_with(accesses, one)) for _ in range(2))  # type: ignore[misc]
        speed = accesses.events / seconds
        lines.append(
            f"  kernel, {text}: {speed / 1e6:.1f} M events/s of CPU, {speed / gathered:.2f} per gather"
        )
    objects = WhatIf(SETTINGS, accesses.tick_ns)
    seconds = 0.0
    done = 0
    for batch in events(run):
        seconds += cpu(lambda part=batch: objects.feed(part))  # type: ignore[misc]
        done += sum(event.entries for event in batch if event.op in (Op.APPEND, Op.HIT))
        if done > OBJECT_EVENTS:
            break
    lines.append(f"  objects, pip430 4.2, 1 s: {done / seconds / 1e6:.2f} M events/s of CPU")
    return lines


def measure_sample(folder: Path, events: int, brokers: int) -> list[str]:
    """Measures the error of a sample's hit ratio over all brokers, for readers with all lags."""
    if not folder.exists():
        make_record(folder, events, brokers, behind_us=spread_behind)
    rates = (1.0, 0.1, 0.01)
    settings = [
        replace(SETTINGS, size_bytes_max=mib << 20, ttl_ns=10_000_000_000, policy=policy)
        for policy in ("pip430", "fifo-ttl")
        for mib in (16, 32, 64, 128)
    ]
    hits, reads = np.zeros((len(settings), len(rates))), np.zeros((len(settings), len(rates)))
    for run in find([folder]).lifetimes:
        for at, rate in enumerate(rates):
            part = accesses_of(run, rate)
            for row, one in enumerate(settings):
                outcome = replay_with(part, one)
                hits[row, at] += outcome.totals["hits"]
                reads[row, at] += outcome.reads
    lines = []
    for one, (exact, *estimates) in zip(settings, hits / reads, strict=True):
        errors = ", ".join(
            f"{rate:.0%} {estimate - exact:+.4f}" for rate, estimate in zip(rates[1:], estimates, strict=True)
        )
        lines.append(f"  {one.policy}, {one.size_bytes_max >> 20} MiB: exact {exact:.4f}, {errors}")
    return lines


def measure_grid(folder: Path, master: str) -> list[str]:
    """Measures the start of a session and a grid of 16 settings on all brokers."""
    from pipeline.replays.grid import override_grid, replay_grid
    from pipeline.replays.record_inputs import RecordInputs
    from pipeline.session import start_session

    start_s = timed(lambda: start_session("bench", master=master))
    spark = start_session("bench", master=master)
    runs = find([folder]).lifetimes
    wanted = override_grid(
        ("pip430-4.2", "pip430-5.0"),
        tuple(mib << 20 for mib in (16, 64, 256, 1024)),
        (1_000_000_000, 10_000_000_000),
    )
    spark.sparkContext.parallelize([0], 1).map(lambda one: one).collect()
    seconds = timed(lambda: replay_grid(RecordInputs(spark, runs), wanted))
    spark.stop()
    return [
        f"session start {start_s:.1f} s",
        f"{len(wanted)} settings on {len(runs)} brokers, {sum(run.rows for run in runs):,} rows: {seconds:.1f} s",
    ]


def measure_report(folder: Path, master: str) -> list[str]:
    """Measures the hit report."""
    return [measure_command("hit-report", str(folder), "--master", master)]


def measure_audits(folder: Path, master: str) -> list[str]:
    """Measures each audit on a generated cluster."""
    from bench.generated_cluster.generator import generate
    from magnetar.commands.audit_command import AUDITS

    if not folder.exists():
        generate(folder, AUDITED_TOPICS, 1)
    return [measure_command("audit", name, str(folder), "--master", master) for name in AUDITS]


def measure_command(*words: str, environment: Mapping[str, str] | None = None, progress: bool = False) -> str:
    """Measures a job as a process of its own, with the memory of all its processes.

    `environment`: variables added to those of this process. `progress`: the job's own words appear on standard error.
    """
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "magnetar", "pipeline", *words, "--out", f"{out}/report"]
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=None if progress else subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
        )
        most, cpu_s = 0, dict[int, float]()
        while process.poll() is None:
            usage = _usage_of(process.pid)
            most = max(most, sum(resident for resident, _ in usage.values()))
            # The last look at each process: its own count ends with it.
            cpu_s.update({pid: seconds for pid, (_, seconds) in usage.items()})
            time.sleep(0.25)
        seconds = time.perf_counter() - began
    name = " ".join(word for word in words[:2] if not word.startswith("/"))
    return (
        f"{name}: {seconds:.1f} s, {sum(cpu_s.values()):.0f} s of CPU, {most / (1 << 30):.2f} GiB at most, "
        f"exit code {process.returncode}"
    )


def _usage_of(root: int) -> dict[int, tuple[int, float]]:
    """Returns resident bytes and CPU seconds of a process and all below it, by pid.

    Shared pages count once for each.
    """
    children: dict[int, list[int]] = {}
    usage: dict[int, tuple[int, float]] = {}
    ticks = os.sysconf("SC_CLK_TCK")
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        cpu_s = (int(fields[11]) + int(fields[12])) / ticks
        usage[int(folder.name)] = (int(fields[21]) * resource.getpagesize(), cpu_s)
        children.setdefault(int(fields[1]), []).append(int(folder.name))
    found, left = {}, [root]
    while left:
        one = left.pop()
        if one in usage:
            found[one] = usage[one]
        left += children.get(one, [])
    return found


def main() -> None:
    """Makes the access record, unless `--keep` has one, and prints each part when it is measured."""
    parser = argparse.ArgumentParser("python -m bench.pipeline", description="What the jobs on records cost.")
    parser.add_argument("--events", type=int, default=50_000_000, metavar="N")
    parser.add_argument("--brokers", type=int, default=4, metavar="N")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="make the record there (others beside it), or use what is there",
    )
    names = ("replay", "sample", "grid", "report", "audits")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary) / "record"
        if not folder.exists():
            seconds = timed(lambda: make_record(folder, options.events, options.brokers))
            print(f"record made in {seconds:.1f} s", flush=True)
        (first, *_) = find([folder]).lifetimes
        spread, cluster = (folder.with_name(f"{folder.name}-{what}") for what in ("spread", "cluster"))
        parts: dict[str, Callable[[], list[str]]] = {
            "replay": lambda: measure_replay(first),
            "sample": lambda: measure_sample(spread, options.events, options.brokers),
            "grid": lambda: measure_grid(folder, options.master),
            "report": lambda: measure_report(folder, options.master),
            "audits": lambda: measure_audits(cluster, options.master),
        }
        for name in options.only:
            print("\n".join(parts[name]()), flush=True)


if __name__ == "__main__":
    main()
