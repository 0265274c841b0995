"""A bookie as a process of its own, for tests: `python -m bookie_stub` on a directory and free ports."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

from protocol.bookie_frame import Response, decode_response

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60.0
"""Seconds until a process that does not start or end fails the test."""


class Process:
    """One bookie process on a directory; it may be started several times."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process: subprocess.Popen[str] | None = None
        self.addresses: dict[str, str] = {}

    def start(self, *settings: str) -> None:
        """Starts it on free ports with `KEY=VALUE` settings; returns when it is ready."""
        ready = self.directory.with_suffix(".ready")
        ready.unlink(missing_ok=True)
        words = ["--data", str(self.directory), "--ready-file", str(ready)]
        for setting in ("bookiePort=0", "prometheusStatsHttpPort=0", *settings):
            words += ["--set", setting]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bookie_stub", *words], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + LIMIT_S
        while not ready.exists():
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.01)
        self.addresses = json.loads(ready.read_text())

    def end(self, number: int) -> tuple[int, str]:
        """Sends a signal; returns (exit code, log)."""
        assert self.process is not None
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, errors

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self.addresses["bookie"].split(":")
        return await asyncio.open_connection(host, int(port))


async def answer(reader: asyncio.StreamReader) -> Response:
    """Reads one v2 answer."""
    length = int.from_bytes(await reader.readexactly(4), "big")
    return decode_response(await reader.readexactly(length))
