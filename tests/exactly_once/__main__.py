"""`python -m tests.exactly_once --rows 1000000`: exit code 1 where a row is lost or doubled."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.exactly_once.run import SETTINGS, run
from tests.vectors.broker_process import BrokerProcess


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.exactly_once", allow_abbrev=False)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=20, help="two are a micro-batch (default 20)")
    parser.add_argument("--driver-kills", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="magnetar-exactly-once-") as name:
        folder = Path(name)
        with BrokerProcess(folder, SETTINGS) as broker:
            outcome = run(
                broker.addresses.pulsar,
                folder,
                "exactly-once",
                arguments.rows,
                arguments.files,
                arguments.driver_kills,
                lambda line: print(line, flush=True),
            )
    print(
        f"{outcome.rows:,} rows, {outcome.lost} lost, {outcome.doubled} doubled; {outcome.tasks_killed} tasks and"
        f" {outcome.drivers_killed} drivers killed; {outcome.seconds:.0f} s"
    )
    return 1 if outcome.lost or outcome.doubled else 0


if __name__ == "__main__":
    sys.exit(main())
