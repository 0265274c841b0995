"""The brokers under test: started here (Magnetar, pulsar-lite) or named by their address.

Law: a peer that the bench starts listens on loopback on ports of its own, keeps its data in a temporary folder, and syncs
to disk by its own default. Only processes started here are stopped.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0


CACHE_POLICY = "pip430"
"""The entry cache's policy of the `Magnetar` peers: a broker's default, given explicitly so that results name it.

Figures of docs/reference/benchmarks.md up to 2026-11-22 were taken with `magnetar`, the default until then, and say so.
"""


class Peer(Protocol):
    """A broker under test."""

    name: str
    """The column's heading in the table."""
    url: str
    """Service URL, `pulsar://host:port`."""
    metrics_url: str | None
    """URL of the Prometheus exposition; None leaves out the figures of scrapes."""
    pid: int | None
    """The process to measure; None leaves CPU and memory unknown."""

    def start(self) -> None:
        """Returns when the broker accepts connections. PeerError."""
        ...

    def stop(self) -> None:
        """Stops the process; harmless when it is stopped."""
        ...

    def restart(self) -> None:
        """Stops and starts it on the same data."""
        ...

    def close(self) -> None:
        """Stops it and deletes its data."""
        ...

    def fresh(self) -> Peer:
        """Returns another one of the same kind with empty data, not started."""
        ...


class PeerError(Exception):
    """A peer does not start or is unknown; the text names the peer and the reason."""


class StartedPeer:
    """A broker process that the bench starts; a subclass gives the command line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = Path(tempfile.mkdtemp(prefix=f"bench-{name}-"))
        """Data and log; deleted by `close`."""
        self.port, self.http_port = free_port(), free_port()
        self.url = f"pulsar://127.0.0.1:{self.port}"
        self.metrics_url: str | None = f"http://127.0.0.1:{self.http_port}/metrics"
        self.pid: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """Returns the command line."""
        raise NotImplementedError

    def start(self) -> None:
        """Returns as soon as the port accepts."""
        self.spawn()
        self.wait_for_port()

    def spawn(self) -> None:
        """Starts the process without waiting for its port."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self.command(), cwd=ROOT, stdout=log, stderr=log)
        self.pid = self._process.pid

    def wait_for_port(self) -> None:
        """Waits until the port accepts. PeerError after 60 s, or when the process ends."""
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            if self._process.poll() is not None:
                raise PeerError(f"{self.name} exited with {self._process.returncode}: {self._log_end()}")
            # A long pause would round up the time of a start, which is one of the figures.
            time.sleep(0.002)
        raise PeerError(f"{self.name} does not listen after {START_TIMEOUT_S:.0f} s: {self._log_end()}")

    def stop(self) -> None:
        """Terminates the process, and kills it after 20 s."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = self.pid = None

    def restart(self) -> None:
        """Stops and starts it on the same data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stops it and deletes its data."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _log_end(self) -> str:
        lines = (self.folder / "log").read_text(errors="replace").splitlines()
        return " | ".join(lines[-3:]) or "no output"


class Magnetar(StartedPeer):
    """`magnetar standalone`, fsync on, with the cache policy `CACHE_POLICY`; of this tree, or of another interpreter."""

    def __init__(
        self, name: str = "magnetar", settings: tuple[str, ...] = (), python: str | None = None
    ) -> None:
        """`settings` are `key=value`. `python`: an interpreter that has another build of Magnetar installed."""
        super().__init__(name)
        self.settings = settings
        """Applied after the ports and the policy."""
        self.python = python
        """None stands for this tree."""

    def command(self) -> list[str]:
        """The settings of this peer come last, so they may name another policy."""
        settings = [
            f"brokerServicePort={self.port}",
            f"webServicePort={self.http_port}",
            f"entryCachePolicy={CACHE_POLICY}",
            # A topic that waits for its readers must not be deleted as unused.
            "brokerDeleteInactiveTopicsEnabled=false",
            *self.settings,
        ]
        flags = [part for setting in settings for part in ("--set", setting)]
        data = str(self.folder / "data")
        # Isolated, because the working directory is this tree and would hide the other build.
        interpreter = [sys.executable] if self.python is None else [self.python, "-I"]
        return [*interpreter, "-m", "magnetar", "standalone", "--data", data, *flags]

    def fresh(self) -> Peer:
        """Has the same settings."""
        return Magnetar(self.name, self.settings, self.python)


class PulsarLite(StartedPeer):
    """`pulsar-lite` from the package index; it never syncs to disk."""

    def __init__(self) -> None:
        super().__init__("pulsar-lite")

    def command(self) -> list[str]:
        """Returns the command line. PeerError where the package is not installed."""
        try:
            import pulsar_lite
        except ImportError as missing:
            raise PeerError("the peer pulsar-lite needs `pip install pulsar-lite`") from missing
        config = self.folder / "pulsar-lite.toml"
        config.write_text(
            f'addr = "127.0.0.1:{self.port}"\ndb_path = "{self.folder / "data"}"\n'
            f'default_partitions = 0\nlog_level = "error"\n'
            f'[metrics]\nenabled = true\naddr = "127.0.0.1:{self.http_port}"\n'
        )
        binary = Path(pulsar_lite.__file__).parent / "bin" / "pulsar-lite"
        return [str(binary), "--config", str(config)]

    def fresh(self) -> Peer:
        """Has the same settings."""
        return PulsarLite()


@dataclass
class AddressPeer:
    """A broker given by its address, which the bench neither stops nor restarts."""

    name: str
    url: str
    metrics_url: str | None = None
    pid: int | None = None

    def start(self) -> None:
        """Checks that the port accepts. PeerError."""
        host, port = address_of(self.url)
        try:
            socket.create_connection((host, port), 5).close()
        except OSError as error:
            raise PeerError(f"{self.name}: no broker listens at {self.url}: {error}") from error

    def stop(self) -> None:
        """Does nothing."""

    def restart(self) -> None:
        """Does nothing, so catch-up reads what the broker may hold in memory."""

    def close(self) -> None:
        """Does nothing."""

    def fresh(self) -> Peer:
        """Returns itself: its data is not empty."""
        return self


def peers_of(text: str) -> list[Peer]:
    """Parses `magnetar,pulsar-lite,url=pulsar://h:p;pid=1;metrics=http://…;name=…`. PeerError."""
    return [_peer(part.strip()) for part in text.split(",") if part.strip()]


def _peer(text: str) -> Peer:
    if text == "magnetar":
        return Magnetar()
    if text == "pulsar-lite":
        return PulsarLite()
    words = dict(word.partition("=")[::2] for word in text.split(";"))
    unknown = set(words) - {"url", "pid", "metrics", "name"}
    if "url" not in words or unknown:
        raise PeerError(
            f"unknown peer {text!r}: allowed are magnetar, pulsar-lite, url=…[;pid=…;metrics=…;name=…]"
        )
    pid = int(words["pid"]) if "pid" in words else None
    return AddressPeer(words.get("name", words["url"]), words["url"], words.get("metrics"), pid)


def address_of(url: str) -> tuple[str, int]:
    """Returns host and port of a service URL."""
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or 6650


def free_port() -> int:
    """Returns a port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
