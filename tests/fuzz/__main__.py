"""`python -m tests.fuzz [--seconds N] [--seed S]`: attacks a fresh broker and prints what came of it.

The last line is a summary; the exit status is 1 where there was a fault.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from pathlib import Path
from random import SystemRandom

from tests.fuzz.campaign import Report, run_round
from tests.vectors.broker_process import BrokerFailedError, BrokerProcess


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="begin no new round after this; default 60")
    parser.add_argument("--seed", type=int, help="repeats the inputs of an earlier run")
    parser.add_argument(
        "--scale", type=int, default=5, help="5 = a million small frames in a round; default 5"
    )
    options = parser.parse_args()
    seed = SystemRandom().getrandbits(32) if options.seed is None else options.seed
    with tempfile.TemporaryDirectory(prefix="magnetar-fuzz-") as folder:
        broker = BrokerProcess(Path(folder))
        try:
            broker.start()
            reports = asyncio.run(_rounds(broker, seed, options.seconds, options.scale))
            faults = [fault for report in reports for fault in report.all_faults]
            with contextlib.suppress(BrokerFailedError) if faults else contextlib.nullcontext():
                broker.stop()
        finally:
            broker.kill()
    for report in reports:
        print(report.summary())
    print(f"{len(reports)} rounds, {sum(len(one.findings) for one in reports)} attacks, {len(faults)} faults")
    return 1 if faults else 0


async def _rounds(broker: BrokerProcess, seed: int, seconds: float, scale: int) -> list[Report]:
    deadline = time.monotonic() + seconds
    reports: list[Report] = []
    while not reports or (time.monotonic() < deadline and not reports[-1].all_faults):
        reports.append(await run_round(broker, seed + len(reports), scale=scale, told=print))
    return reports


if __name__ == "__main__":
    sys.exit(main())
