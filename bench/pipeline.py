"""`python -m bench.pipeline [--events N] [--brokers N] [--only NAME ...]`: what the jobs on access records cost.

Makes a record of a broker's kind (appends in runs, readers at the tail and behind, passes), in the format of the real one,
and measures on it: one replay by machine code and by the broker's objects, the grid of 16 settings, a sample's error, the
hit report with its memory, and the start of a session. An event is one entry appended or read.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from broker.entry_cache.decisions import COUNTS_READS, Op
from broker.entry_cache.settings import EntryCacheSettings
from broker.recorder.record_file import RecordFile
from broker.recorder.record_reader import RunOfBroker, find
from broker.recorder.row_encoder import Columns
from broker.recorder.schema import FileFacts, file_name, names_name
from pipeline.replays.making import accesses_of
from pipeline.replays.objects import WhatIf
from pipeline.replays.replay import replay_with

SETTINGS: Final = EntryCacheSettings(64 << 20, ttl_ns=1_000_000_000, extend_recently_accessed=False)
START: Final = "20260101T000000.000000"
TOPICS: Final = 2000
RUN_ENTRIES: Final = 8
"""Entries per append: what one turn of a busy loop confirms of a topic."""
BEHIND_US: Final = (0, 400_000, 3_000_000)
"""How far behind the appends the readers of a topic are."""
STEP_US: Final = 400
"""Between two appends of a broker: 20,000 entries a second."""
OBJECT_EVENTS: Final = 400_000
SPREAD_US: Final = (50_000, 20_000_000)
"""The least and the most that readers are behind in the record for samples."""

Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
Behind = Callable[[int, Ints, Ints], Ints]
"""Microseconds, by the number of the reader, the topics and the times of the appends."""


def make_record(
    folder: Path, events: int, brokers: int, seed: int = 1, behind_us: Behind | None = None
) -> None:
    """`events` over all brokers; about as many reads as there are readers for each append. `behind_us`: how far
    behind the readers are, if not by BEHIND_US."""
    appends = events // brokers // (1 + len(BEHIND_US)) // RUN_ENTRIES
    for number in range(brokers):
        _make_run(folder, number, appends, np.random.default_rng(seed + number), behind_us or _evenly_behind)


def _evenly_behind(sub: int, topic: Ints, ts: Ints) -> Ints:
    return np.full(len(ts), BEHIND_US[sub - 1] + 50 * sub)


def spread_behind(sub: int, topic: Ints, ts: Ints) -> Ints:
    """Each reader of each topic another time, and another one every five seconds: no size of the cache is a cliff."""
    low, high = np.log(SPREAD_US)
    lags = np.random.default_rng(sub).uniform(low, high, (TOPICS + 1, 128))
    return np.exp(lags[topic, ts // 5_000_000 % 128]).astype(np.int64)


def _make_run(
    folder: Path, number: int, appends: int, random: np.random.Generator, behind_us: Behind
) -> None:
    broker = f"b{number}"
    place = folder / f"broker={broker}"
    place.mkdir(parents=True)
    topic = (random.zipf(1.2, appends) % TOPICS + 1).astype(np.int64)
    ledgers = number * (TOPICS + 1)
    ts = np.arange(appends, dtype=np.int64) * STEP_US
    order = np.argsort(topic, kind="stable")
    begins = np.concatenate([[0], np.flatnonzero(np.diff(topic[order])) + 1])
    within = np.arange(appends) - np.repeat(begins, np.diff(np.append(begins, appends)))
    first = np.empty(appends, np.int64)
    first[order] = within * RUN_ENTRIES
    parts = [_head(topic, ledgers), _rows(Op.APPEND, ts, topic, 0, first, ledgers)]
    for sub in range(1, len(BEHIND_US) + 1):
        at = ts + behind_us(sub, topic, ts)
        parts += [
            _rows(op, at + late, topic, sub, first, ledgers) for op, late in ((Op.HIT, 0), (Op.DELIVER, 10))
        ]
    last = max(int(part["ts"].max()) for part in parts) + 1000
    ticks = np.arange(0, last, 10_000, dtype=np.int64)
    parts.append(_columns(Op.TICK, ticks, 0, 0, 0, 0, 10_000, 0, 0))
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    sorted_by_time = np.argsort(columns["ts"], kind="stable")
    columns = {name: column[sorted_by_time] for name, column in columns.items()}
    file = RecordFile(place, file_name(START, 0))
    file.append(columns)
    file.complete(
        FileFacts(
            broker=broker,
            start=START,
            sequence=0,
            software="bench",
            clock_offset_us=0,
            settings=SETTINGS.to_text(),
        )
    )
    lines = [{"topic": one, "name": f"t{one}"} for one in range(1, TOPICS + 1)]
    subs = [
        {"topic": one, "sub": sub, "name": f"s{sub}"}
        for one in range(1, TOPICS + 1)
        for sub in range(1, len(BEHIND_US) + 1)
    ]
    (place / names_name(START)).write_text("\n".join(map(json.dumps, [*lines, *subs])) + "\n")


def _head(topic: Ints, ledgers: int) -> Columns:
    """Every topic is opened and has its readers before anything happens."""
    topics = np.unique(topic)
    opened = _columns(Op.OPEN, np.full(len(topics), -2), topics, 0, 0, 0, 0, 0, int(COUNTS_READS))
    added = [
        _columns(Op.CURSOR_ADDED, np.full(len(topics), -1), topics, sub, topics + ledgers, 0, 0, 0, 0)
        for sub in range(1, len(BEHIND_US) + 1)
    ]
    parts = [_columns(Op.SETTINGS, np.full(1, -3), 0, 0, 0, 0, 0, 0, 0), opened, *added]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _rows(op: Op, ts: Ints, topic: Ints, sub: int, first: Ints, ledgers: int) -> Columns:
    """A topic has one ledger, whose id is so much more than its own; entries of a topic have one size."""
    size = RUN_ENTRIES * (200 + topic % 16 * 100)
    return _columns(op, ts, topic, sub, topic + ledgers, first, RUN_ENTRIES, size, 0)


def _columns(op: Op, ts: object, *values: object) -> Columns:
    at = np.asarray(ts, np.int64)
    names = ("topic", "sub", "ledger", "entry", "count", "bytes", "detail")
    columns = {
        name: np.broadcast_to(np.asarray(value, np.int64), at.shape)
        for name, value in zip(names, values, strict=True)
    }
    return {
        "ts": at,
        "op": np.full(len(at), op.value, np.int64),
        **columns,
        "more": np.zeros(len(at), np.int64),
    }


def cpu(call: Callable[[], object]) -> float:
    """Seconds of this process's own work."""
    began = time.process_time()
    call()
    return time.process_time() - began


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def measure_replay(run: RunOfBroker) -> list[str]:
    """One core, all events of one broker; and the objects on the first part of the same rows."""
    from broker.recorder.record_reader import events

    accesses_of(run)  # Compiled from here on.
    made_s = cpu(lambda: accesses_of(run))
    accesses = accesses_of(run)
    lines = [
        f"{run.rows:,} rows, {accesses.events:,} events of one broker; read and made ready in {made_s:.1f} s of CPU"
    ]
    for text, settings in (
        ("pip430 4.2, 1 s", SETTINGS),
        ("pip430 4.2, 10 s", replace(SETTINGS, ttl_ns=10_000_000_000)),
        ("pip430 5.0, 1 s", replace(SETTINGS, profile="5.0")),
        ("fifo-ttl, 1 s", replace(SETTINGS, policy="fifo-ttl")),
    ):
        seconds = min(cpu(lambda one=settings: replay_with(accesses, one)) for _ in range(2))  # type: ignore[misc]
        lines.append(f"  kernel, {text}: {accesses.events / seconds / 1e6:.1f} M events/s of CPU")
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
    """The error of the hit ratio over all brokers from samples of the entries, where readers are spread over all
    distances, so that every size has a hit ratio of its own."""
    from pipeline.replays.sampling import sampled

    if not folder.exists():
        make_record(folder, events, brokers, behind_us=spread_behind)
    rates = (1.0, 0.1, 0.01)
    settings = [
        replace(SETTINGS, size_bytes_max=mib << 20, ttl_ns=10_000_000_000, policy=policy)
        for policy in ("pip430", "fifo-ttl")
        for mib in (16, 32, 64, 128)
    ]
    hits, reads = np.zeros((len(settings), len(rates))), np.zeros((len(settings), len(rates)))
    for run in find([folder]).runs:
        accesses = accesses_of(run)
        for at, rate in enumerate(rates):
            part = sampled(accesses, rate)
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
    from pipeline.replays.grid import choices, replay_grid
    from pipeline.session import start_session

    start_s = timed(lambda: start_session("bench", master=master))
    spark = start_session("bench", master=master)
    runs = find([folder]).runs
    wanted = choices(
        ("pip430-4.2", "pip430-5.0"),
        tuple(mib << 20 for mib in (16, 64, 256, 1024)),
        (1_000_000_000, 10_000_000_000),
    )
    spark.sparkContext.parallelize([0], 1).map(lambda one: one).collect()
    seconds = timed(lambda: replay_grid(spark, runs, wanted))
    spark.stop()
    return [
        f"session start {start_s:.1f} s",
        f"{len(wanted)} settings on {len(runs)} brokers, {sum(run.rows for run in runs):,} rows: {seconds:.1f} s",
    ]


def measure_report(folder: Path, master: str) -> list[str]:
    """As a process of its own, with the memory of all its processes."""
    with tempfile.TemporaryDirectory() as out:
        command = [
            sys.executable,
            "-m",
            "magnetar",
            "pipeline",
            "hit-report",
            str(folder),
            "--out",
            out,
            "--master",
            master,
        ]
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        most = 0
        while process.poll() is None:
            most = max(most, _resident_of(process.pid))
            time.sleep(0.25)
        seconds = time.perf_counter() - began
    return [
        f"hit-report: {seconds:.1f} s, {most / (1 << 30):.2f} GiB at most, exit code {process.returncode}"
    ]


def _resident_of(root: int) -> int:
    """Of the process and all below it, in bytes; pages that several share count once for each."""
    children: dict[int, list[int]] = {}
    sizes: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            sizes[int(folder.name)] = int(fields[21]) * resource.getpagesize()
            children.setdefault(int(fields[1]), []).append(int(folder.name))
        except OSError:
            continue
    total, left = 0, [root]
    while left:
        one = left.pop()
        total += sizes.get(one, 0)
        left += children.get(one, [])
    return total


def main() -> None:
    parser = argparse.ArgumentParser("python -m bench.pipeline", description="What the jobs on records cost.")
    parser.add_argument("--events", type=int, default=50_000_000, metavar="N")
    parser.add_argument("--brokers", type=int, default=4, metavar="N")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="make the record there, or use the one that is there"
    )
    names = ("replay", "sample", "grid", "report")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary) / "record"
        if not folder.exists():
            seconds = timed(lambda: make_record(folder, options.events, options.brokers))
            print(f"record made in {seconds:.1f} s", flush=True)
        (first, *_) = find([folder]).runs
        spread = folder.with_name(f"{folder.name}-spread")
        parts: dict[str, Callable[[], list[str]]] = {
            "replay": lambda: measure_replay(first),
            "sample": lambda: measure_sample(spread, options.events, options.brokers),
            "grid": lambda: measure_grid(folder, options.master),
            "report": lambda: measure_report(folder, options.master),
        }
        for name in options.only:
            print("\n".join(parts[name]()), flush=True)


if __name__ == "__main__":
    main()
