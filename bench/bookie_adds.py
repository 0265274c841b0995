"""How many synced adds a second does a bookie take, and how many does the disk allow?

`python -m bench.bookie_adds [--point WIRE:BYTES:OUTSTANDING ...] [--rounds N] [--beside HOST:PORT]`

A client in a process of its own keeps a number of adds outstanding, over loopback. The bookie's own counters tell the
records per group (one sync each); then groups of the same size are written and synced without a bookie: "disk's limit".
`--beside` gives the same client to another running bookie, such as Apache's; both take turns at every point.

Columns: bytes of an entry, wire version, adds outstanding, adds/s, records per group, disk's limit in adds/s, the share of
the limit that was reached, CPU of bookie and client in percent of a core, checkpoints meanwhile; with `--beside` the other
bookie's adds/s and how many times as many ours takes. The entry cache's policy has no part in it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.add_client import KEY, WIRES, Adds
from bench.processes import cpu_s
from protocol.add_runs import cut_add_run, encode_add_answers
from protocol.bookie_frame import encode_add_request

CURVE = {128: (16, 64, 256, 1000, 4000), 1024: (16, 64, 256, 1000, 4000), 65536: (4, 16, 64, 128)}
"""Bytes of an entry, and how many adds are outstanding."""
_ALIGNMENT = 4096
_STEP_BYTES = 16 << 20
_RECEIVED_BYTES = 256 << 10
"""Most bytes that the bookie reads from a connection at once."""
_FRAMING_ROUNDS = 300
_WARM_UP_S = 0.5


class Point(NamedTuple):
    """One row of the table: what is added, and how."""

    wire: str
    """v2 or v3."""
    size: int
    """Bytes of an entry."""
    outstanding: int
    """Unanswered adds that the client keeps."""


class Measured(NamedTuple):
    """The result of our bookie at one point."""

    adds: Adds
    """The client's result."""
    records: float
    """Records per group."""
    limit: float
    """Records a second of the disk alone."""
    cpu: float
    """CPU of the bookie, as a share of one core."""
    checkpoints: int
    """Checkpoints during the measurement."""


def main(argv: list[str] | None = None) -> int:
    """Prints each row when it is measured, then the whole table."""
    arguments = _parser().parse_args(argv)
    rows = []
    for point in _points(arguments):
        rows.append(_row(point, arguments))
        print(rows[-1], flush=True)
    print("\n" + "\n".join([*_heading(arguments.beside), *rows]))
    for size in CURVE:
        print(f"framing alone, {size:,} B: {framing_alone(size):,.0f} adds/s")
    return 0


def _points(arguments: argparse.Namespace) -> Iterator[Point]:
    if arguments.point:
        for text in arguments.point:
            wire, size, outstanding = text.split(":")
            yield Point(wire, int(size), int(outstanding))
        return
    for size, windows in CURVE.items():
        for outstanding in windows:
            yield Point("v2", size, outstanding)
    for size, windows in CURVE.items():
        yield Point("v3", size, windows[-1])


def _heading(beside: str | None) -> list[str]:
    columns = ["entry", "wire", "outstanding", "adds/s", "records per group", "disk's limit, adds/s", "of it"]
    columns += ["bookie CPU", "client CPU", "checkpoints"]
    if beside:
        columns += ["beside, adds/s", "times"]
    return [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]


def _row(point: Point, arguments: argparse.Namespace) -> str:
    """Measures ours and the other bookie in turn; the round with the middle share of the limit counts."""
    ours, others = [], []
    for _ in range(arguments.rounds):
        ours.append(_measure(point, arguments))
        if arguments.beside:
            host, _, port = arguments.beside.rpartition(":")
            others.append(_in_process(host, int(port), point, arguments.seconds).per_s)
    # By the share of the limit and not by adds, because the disk's speed changes from round to round.
    middle = sorted(ours, key=lambda one: one.adds.per_s / one.limit)[len(ours) // 2]
    adds = middle.adds
    cells = [
        f"{point.size:,} B",
        point.wire,
        str(point.outstanding),
        f"{adds.per_s:,.0f}",
        f"{middle.records:.0f}",
        f"{middle.limit:,.0f}",
        f"{100 * adds.per_s / middle.limit:.0f} %",
        f"{100 * middle.cpu:.0f} %",
        f"{100 * adds.client_cpu_s / adds.seconds:.0f} %",
        str(middle.checkpoints),
    ]
    if others:
        other = sorted(others)[len(others) // 2]
        cells += [f"{other:,.0f}", f"{adds.per_s / other:.1f}"]
    return f"| {' | '.join(cells)} |"


def _measure(point: Point, arguments: argparse.Namespace) -> Measured:
    with tempfile.TemporaryDirectory(prefix="bench-adds-", dir=arguments.data) as name:
        directory = Path(name)
        with _Bookie(directory, arguments.set) as bookie:
            _in_process(bookie.host, bookie.port, point, _WARM_UP_S)
            before, flushed = bookie.groups(), bookie.checkpoints()
            cpu = cpu_s(bookie.pid)
            adds = _in_process(bookie.host, bookie.port, point, arguments.seconds)
            cpu = (cpu_s(bookie.pid) - cpu) / adds.seconds
            after, checkpoints = bookie.groups(), bookie.checkpoints() - flushed
        # The limit is measured after the bookie has stopped, on the same directory, so both never share the disk.
        records = (after[1] - before[1]) / (after[0] - before[0])
        limit = disk_limit(directory, int(records * (point.size + 4)), arguments.seconds / 2) * records
    return Measured(adds, records, limit, cpu, int(checkpoints))


def _in_process(host: str, port: int, point: Point, seconds: float) -> Adds:
    words = [host, str(port), *map(str, point), str(seconds)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.add_client", *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return Adds(*json.loads(done.stdout))


def disk_limit(directory: Path, group_bytes: int, seconds: float) -> float:
    """Returns groups per second: write and fdatasync alone, into space reserved as the journal does."""
    group = bytes(-(-group_bytes // _ALIGNMENT) * _ALIGNMENT)
    descriptor = os.open(directory / "limit", os.O_RDWR | os.O_CREAT)
    position = reserved = groups = 0
    try:
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            if position + len(group) > reserved:
                step = max(_STEP_BYTES, len(group))
                os.posix_fallocate(descriptor, reserved, step)
                reserved += step
            os.pwrite(descriptor, group, position)
            os.fdatasync(descriptor)
            position += len(group)
            groups += 1
        return groups / (time.perf_counter() - began)
    finally:
        os.close(descriptor)


def framing_alone(size: int) -> float:
    """Returns adds per second that one core cuts into records and answers, without sockets and disk."""
    count = max(_RECEIVED_BYTES // size, 1)
    frames = [
        encode_add_request(bytes(8) + number.to_bytes(8, "big") + bytes(size - 16), KEY)
        for number in range(count)
    ]
    received = bytearray(b"".join(frames))
    best = 0.0
    for _ in range(_FRAMING_ROUNDS):
        began = time.perf_counter()
        run = cut_add_run(received, 0, len(received), len(received))
        assert run is not None
        encode_add_answers(0, run.ledger_id, run.ids)
        # The best round: the others were interrupted by other processes.
        best = max(best, len(run.entry_ids) / (time.perf_counter() - began))
    return best


class _Bookie:
    """A bookie with its shipped settings, except for `settings` (KEY=VALUE), in a process of its own."""

    def __init__(self, directory: Path, settings: Sequence[str]) -> None:
        self._directory = directory
        self._settings = settings
        self.host = "127.0.0.1"
        self.port = self.pid = 0
        self._http = ""

    def __enter__(self) -> _Bookie:
        ready = self._directory / "ready"
        words = ["--data", str(self._directory / "data"), "--ready-file", str(ready)]
        for setting in (
            "bookiePort=0",
            "prometheusStatsHttpPort=0",
            "bindAddress=127.0.0.1",
            *self._settings,
        ):
            words += ["--set", setting]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bookie_stub", *words], stderr=subprocess.DEVNULL
        )
        while not ready.exists():
            if self._process.poll() is not None:
                raise RuntimeError("the bookie does not start")
            time.sleep(0.01)
        said = json.loads(ready.read_text())
        self.port, self.pid, self._http = int(said["bookie"].rsplit(":", 1)[1]), said["pid"], said["http"]
        return self

    def groups(self) -> tuple[float, float]:
        """Returns the groups and the records in them since the start."""
        name = "bookie_journal_JOURNAL_FORCE_WRITE_BATCH_ENTRIES"
        return self._metric(f"{name}_count"), self._metric(f"{name}_sum")

    def checkpoints(self) -> float:
        """Returns the checkpoints that wrote entries since the start."""
        return self._metric("bookie_flush_count")

    def _metric(self, name: str) -> float:
        text = urllib.request.urlopen(f"{self._http}/metrics").read().decode()
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        assert found is not None, name
        return float(found[1])

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench.bookie_adds", description="Adds a second with fsync.")
    parser.add_argument("--seconds", type=float, default=4.0, metavar="S", help="per run (default 4)")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="runs per point (default 1)")
    parser.add_argument("--data", metavar="DIR", help="where files are made (default: the temporary folder)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of our bookie")
    parser.add_argument("--beside", metavar="HOST:PORT", help="another bookie for the same client")
    parser.add_argument(
        "--point",
        action="append",
        metavar="WIRE:BYTES:OUTSTANDING",
        help=f"only this one, such as v3:1024:2000; wires: {', '.join(WIRES)}",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
