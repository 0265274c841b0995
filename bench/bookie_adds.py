"""`python -m bench.bookie_adds`: adds a second of a bookie over loopback, beside what the disk itself allows.

A client in a process of its own keeps a number of adds outstanding. The bookie's own counters say how many records went
into a group; then as many bytes per group are written and synced without any bookie, for the limit. `--beside HOST:PORT`
puts the same client to another bookie that is running already, such as Apache's. What one core makes of the frames
alone, without socket, cache and journal, stands in a column of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.processes import cpu_s
from protocol.add_runs import cut_add_run, encode_add_answers
from protocol.bookie_frame import encode_add_request

SIZES = {128: 4000, 1024: 2000, 65536: 128}
"""Bytes of an entry, and how many adds are outstanding."""
ANSWER_BYTES = 28
_ENTRY_AT = 4 + 4 + 20 + 8
"""Where an add request has the entry's id, behind length, header, key and ledger."""
_KEY = bytes.fromhex("850bf1071c5e3d8c24235676f8816ae0cbe2f14f")
_ALIGNMENT = 4096
_STEP_BYTES = 16 << 20
_RECEIVED_BYTES = 256_000
"""What the loop reads at most in one go."""
_FRAMING_ROUNDS = 300


class Adds(NamedTuple):
    answered: int
    seconds: float

    @property
    def per_s(self) -> float:
        return self.answered / self.seconds


def main(argv: list[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    if arguments.client:
        host, port, size, window, seconds = arguments.client
        print(json.dumps(add_for(host, int(port), int(size), int(window), float(seconds))))
        return 0
    rows = []
    for size, window in SIZES.items():
        rows.append(_row(size, window, arguments))
        print(rows[-1], flush=True)
    print("\n" + "\n".join([*_heading(arguments.beside), *rows]))
    return 0


def _heading(beside: str | None) -> list[str]:
    columns = [
        "entry",
        "outstanding",
        "adds/s",
        "records per group",
        "disk's limit, adds/s",
        "of it",
        "bookie CPU",
        "framing alone, adds/s",
    ]
    if beside:
        columns.append("beside, adds/s")
    return [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]


def _row(size: int, window: int, arguments: argparse.Namespace) -> str:
    with tempfile.TemporaryDirectory(prefix="bench-adds-", dir=arguments.data) as name:
        directory = Path(name)
        with _Bookie(directory, arguments.set) as bookie:
            before = bookie.groups()
            cpu = cpu_s(bookie.pid)
            adds = _in_process(bookie.host, bookie.port, size, window, arguments.seconds)
            cpu = (cpu_s(bookie.pid) - cpu) / adds.seconds
            after = bookie.groups()
        records = (after[1] - before[1]) / (after[0] - before[0])
        limit = disk_limit(directory, int(records * (size + 4)), arguments.seconds / 2) * records
    cells = [
        f"{size:,} B",
        str(window),
        f"{adds.per_s:,.0f}",
        f"{records:.0f}",
        f"{limit:,.0f}",
        f"{100 * adds.per_s / limit:.0f} %",
        f"{100 * cpu:.0f} %",
        f"{framing_alone(size):,.0f}",
    ]
    if arguments.beside:
        host, _, port = arguments.beside.rpartition(":")
        other = _in_process(host, int(port), size, window, arguments.seconds)
        cells.append(f"{other.per_s:,.0f}")
    return f"| {' | '.join(cells)} |"


def _in_process(host: str, port: int, size: int, window: int, seconds: float) -> Adds:
    command = [sys.executable, "-m", "bench.bookie_adds", "--client"]
    words = [host, str(port), str(size), str(window), str(seconds)]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=True)
    return Adds(*json.loads(done.stdout))


def add_for(host: str, port: int, size: int, window: int, seconds: float) -> Adds:
    """Adds to one ledger, at most `window` unanswered. RuntimeError when one is refused."""
    ledger = int(time.time() * 1000) % (1 << 30)
    frame = encode_add_request(ledger.to_bytes(8, "big") + bytes(size - 8), _KEY)
    together = max(window // 8, 1)
    chunk = bytearray(frame * together)
    places = range(_ENTRY_AT, len(chunk), len(frame))
    sent = answered = 0
    rest = b""
    with socket.create_connection((host, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.perf_counter()
        while True:
            goes_on = time.perf_counter() - began < seconds
            while goes_on and sent - answered + together <= window:
                for number, place in enumerate(places, sent):
                    chunk[place : place + 8] = number.to_bytes(8, "big")
                connection.sendall(chunk)
                sent += together
            if not goes_on and answered == sent:
                return Adds(answered, time.perf_counter() - began)
            data = rest + connection.recv(1 << 16)
            whole = len(data) // ANSWER_BYTES
            if data[11 : whole * ANSWER_BYTES : ANSWER_BYTES].count(0) != whole or len(data) == len(rest):
                raise RuntimeError(f"an add was refused after {answered}, or the connection closed")
            answered += whole
            rest = data[whole * ANSWER_BYTES :]


def disk_limit(directory: Path, group_bytes: int, seconds: float) -> float:
    """Groups a second: write and fdatasync of as many bytes, into space that was reserved as the journal does."""
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
    """Adds a second that one core cuts into records, and makes the answers to, with nothing else."""
    frame = encode_add_request(bytes(size), _KEY)
    received = frame * max(_RECEIVED_BYTES // len(frame), 1)
    best = 0.0
    for _ in range(_FRAMING_ROUNDS):
        began = time.perf_counter()
        run = cut_add_run(received, 0, len(frame))
        assert run is not None
        encode_add_answers(0, run.ledger_id, run.tails)
        best = max(best, len(run.records) / (time.perf_counter() - began))
    return best


class _Bookie:
    """A bookie as it is shipped, but for `settings` (KEY=VALUE), in a process of its own."""

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
        """Groups and the records in them, so far."""
        text = urllib.request.urlopen(f"{self._http}/metrics").read().decode()
        name = "bookie_journal_JOURNAL_FORCE_WRITE_BATCH_ENTRIES"
        found = [re.search(rf"^{name}_{part} (\S+)$", text, re.MULTILINE) for part in ("count", "sum")]
        count, total = (float(match[1]) for match in found if match is not None)
        return count, total

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench.bookie_adds", description="Adds a second with fsync.")
    parser.add_argument("--seconds", type=float, default=6.0, metavar="S", help="per size (default 6)")
    parser.add_argument("--data", metavar="DIR", help="where files are made (default: the temporary folder)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of our bookie")
    parser.add_argument("--beside", metavar="HOST:PORT", help="another bookie for the same client")
    parser.add_argument("--client", nargs=5, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
