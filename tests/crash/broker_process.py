"""A `magnetar standalone` that can be killed: same data folder, same ports, start after start.

Law of the place: signals go only to the process started here.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.log_file import tail_of, wait_for_lines
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
RUNS = "CRASH_RUNS"
"""Environment: path of the file into which a broker of this folder counts its runs of SENDs."""
READY_TIMEOUT_S = 300.0
"""Long, as all limits of this folder: a niced run beside 40 busy processes gets a hundredth of a core."""
STOP_TIMEOUT_S = 300.0
SETTINGS = (
    "managedLedgerDefaultMarkDeleteRateLimit=0",
    "managedLedgerMaxEntriesPerLedger=2000",
    "managedLedgerMinLedgerRolloverTimeMinutes=0",
    # A reader looks for lost messages at the end, without a subscription: they must still be there.
    "brokerDeleteInactiveTopicsEnabled=false",
    "isDelayedDeliveryDeliverAtTimeStrict=true",
    "delayedDeliveryTickTimeMillis=50",
    "delayedDeliveryMinIndexCountPerBucket=100",
    "transactionCoordinatorEnabled=true",
    "transactionBufferSnapshotMaxTransactionCount=20",
)
"""Acks are answered when they are durable; ledgers roll, buckets of delayed messages and the state of transactions are
stored often, so that kills meet these too."""


class BrokerError(Exception):
    """The broker does not come up; the text has the end of its log."""


class BrokerProcess:
    def __init__(
        self, folder: Path, settings: tuple[str, ...] = SETTINGS, *, module: str = "magnetar"
    ) -> None:
        """`module` runs in the place of `magnetar`, with the same command line."""
        self._folder = folder
        self.data = folder / "data"
        """The broker's data folder."""
        self.runs = folder / "runs"
        self._module = module
        self.environment: dict[str, str] = {}
        """Variables of the next start beside our own."""
        self.port, self.http_port = free_port(), free_port()
        self._settings = settings
        self._ready = folder / "ready.json"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"pulsar://127.0.0.1:{self.port}"
        self.admin_url = f"http://127.0.0.1:{self.http_port}"

    def spawn(self) -> None:
        self._ready.unlink(missing_ok=True)
        ports = (f"brokerServicePort={self.port}", f"webServicePort={self.http_port}")
        flags = [part for setting in (*ports, *self._settings) for part in ("--set", setting)]
        command = [sys.executable, "-m", self._module, "standalone", "--data", str(self.data)]
        with (self._folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--ready-file", str(self._ready), *flags],
                cwd=ROOT,
                env={**os.environ, RUNS: str(self.runs), **self.environment},
                stdout=log,
                stderr=log,
            )

    def start(self) -> float:
        """Returns the seconds until clients can connect. Raises BrokerError."""
        began = time.monotonic()
        self.spawn()
        while time.monotonic() - began < READY_TIMEOUT_S:
            if self._ready.exists() and json.loads(self._ready.read_text())["pulsar"]:
                return time.monotonic() - began
            if not self.alive():
                break
            time.sleep(0.01)
        raise BrokerError(f"the broker did not get ready: {self.log_end()}")

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL: no warning, no cleanup."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code. A broker that does not end within STOP_TIMEOUT_S is killed."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL

    def close(self) -> None:
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                self.kill()

    def logged(self, *texts: str, count: int = 1) -> list[str]:
        """Returns the lines with every one of `texts`, once there are `count`; AssertionError after a minute."""
        return wait_for_lines(self._folder / "broker.log", *texts, count=count)

    def log_end(self, lines: int = 5) -> str:
        return tail_of(self._folder / "broker.log", lines)
