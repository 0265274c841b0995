"""What does the access record cost a broker, in CPU per message?

`python -m bench.recording [--rounds 8] [--only NAME ...]`

Two brokers of this tree, both with the cache policy `peers.CACHE_POLICY`, one of them recording every event, take turns
under the same client; the one that begins changes from round to round. Columns per workload: median and least CPU of all
rounds in µs per message, without -> with the record (its thread included), and the difference in percent.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
from dataclasses import replace

from bench.peers import CACHE_POLICY, Magnetar
from bench.workloads import FULL, WORKLOADS, settle

NAMES = ("1k-unbatched", "1k-batched", "fan-out")
SCALE = replace(FULL, unbatched=60_000, batched=200_000, fan_out=150_000)
"""More than elsewhere: a round is to be long beside the kernel's steps of 10 ms."""
NO_CHECKPOINTS = ("flushInterval=3600000",)
"""A checkpoint takes most of a second, of whichever side is measured when it is due."""


def main(argv: list[str] | None = None) -> int:
    """Prints a line per workload."""
    parser = argparse.ArgumentParser(
        "python -m bench.recording", description="The price of the access record."
    )
    parser.add_argument("--rounds", type=int, default=8, help="of each workload, on both sides (8)")
    parser.add_argument(
        "--only", nargs="+", choices=NAMES, default=list(NAMES), metavar="NAME", help="workloads"
    )
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="bench-record-") as folder:
        print(f"cache policy {CACHE_POLICY}", flush=True)
        off = Magnetar("off", NO_CHECKPOINTS)
        on = Magnetar("recording", (*NO_CHECKPOINTS, f"entryCacheRecordDirectory={folder}"))
        try:
            for broker in (off, on):
                broker.start()
                settle(broker)
            for workload in WORKLOADS:
                if workload.name in arguments.only:
                    found: dict[str, list[float]] = {"off": [], "recording": []}
                    for turn in range(arguments.rounds):
                        for broker in (off, on) if turn % 2 else (on, off):
                            found[broker.name].append(workload.run(broker, SCALE)["cpu_us"])
                    print(line(workload.title, found["off"], found["recording"]), flush=True)
        finally:
            off.close()
            on.close()
    return 0


def line(title: str, off: list[float], on: list[float]) -> str:
    """Returns the line of one workload: median and least CPU of each side, and the difference in percent."""
    parts = [f"{title:<18}"]
    for label, of in (("median", statistics.median), ("least", min)):
        before, after = of(off), of(on)
        parts.append(f"{label} {before:6.2f} -> {after:6.2f} \u00b5s  {100 * (after / before - 1):+5.1f} %")
    return "   ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
