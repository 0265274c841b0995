"""Bookies as processes of their own, on fixed ports of the loopback, each with its data in a folder of its own.

Law of the place: signals go only to processes started here, by their handle.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
READY_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 60.0


def ensemble_settings(addresses: list[str]) -> dict[str, str]:
    """For a broker on these bookies: spread over all of them, each entry on two."""
    return {
        "bookieAddress": ",".join(addresses),
        "managedLedgerDefaultEnsembleSize": str(len(addresses)),
        "managedLedgerDefaultWriteQuorum": str(min(2, len(addresses))),
        "managedLedgerDefaultAckQuorum": str(min(2, len(addresses))),
        "bookkeeper_opportunisticStriping": "true",
    }


class BookieProcess:
    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.settings = settings
        """As of the next start."""
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"127.0.0.1:{self._port}"
        self.http = ""
        """Base of its `/metrics`, known when it is ready."""

    def spawn(self) -> None:
        (self._folder / "ready.json").unlink(missing_ok=True)
        settings = {
            "bookiePort": str(self._port),
            "bindAddress": "127.0.0.1",
            "bookieId": self.address,
            "prometheusStatsHttpPort": "0",
            **self.settings,
        }
        flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        with (self._folder / "bookie.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "bookie_stub", "--data", str(self._folder / "data")),
                    *("--ready-file", str(self._folder / "ready.json"), *flags),
                ],
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )

    def wait_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        ready = self._folder / "ready.json"
        while time.monotonic() < deadline:
            if ready.exists():
                self.http = json.loads(ready.read_text())["http"]
                return
            if self._process is None or self._process.poll() is not None:
                break
            time.sleep(0.01)
        log = (self._folder / "bookie.log").read_text(errors="replace")
        raise RuntimeError(f"bookie {self.address} is not ready:\n{log[-2000:]}")

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL: no warning, no cleanup."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class BookieProcesses:
    """Several, started and stopped together."""

    def __init__(self, folder: Path, count: int, settings: Mapping[str, str] | None = None) -> None:
        self.bookies = [BookieProcess(folder / f"bookie-{number}", settings or {}) for number in range(count)]

    @property
    def addresses(self) -> list[str]:
        return [bookie.address for bookie in self.bookies]

    def start(self, settings: Mapping[str, str] | None = None) -> None:
        """`settings`: in place of those that were given before."""
        for bookie in self.bookies:
            bookie.settings = bookie.settings if settings is None else settings
            bookie.spawn()
        try:
            for bookie in self.bookies:
                bookie.wait_ready()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        for bookie in self.bookies:
            bookie.stop()

    def kill(self) -> None:
        for bookie in self.bookies:
            bookie.kill()

    def __enter__(self) -> BookieProcesses:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
