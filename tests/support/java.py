"""Java programs that tests are run against: a class path by Maven, and a ZooKeeper out of it.

A test is skipped with the reason where Java, Maven or the packages are missing. Maven fetches the packages once and
keeps them in its local repository.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.support.ports import free_port

RESOLVE_S: Final = 600
ATTEMPT_S: Final = 2
"""A connection that comes while ZooKeeper starts may never be answered; the next one is."""
QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
QUICK_JAVA: Final = ("java", *QUICK)
"""For programs that run for seconds: little is compiled, and nothing twice."""


def class_path(pom: Path, folder: Path) -> str:
    """Returns the class path of `pom` for `java -cp`; skips the calling test where it cannot be had."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    target = folder / "class-path"
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={target}"]
    try:
        ended = subprocess.run(
            command,
            env={"MAVEN_OPTS": " ".join(QUICK), **os.environ},
            capture_output=True,
            text=True,
            timeout=RESOLVE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"the packages of {pom.name} did not come within {RESOLVE_S} s")
    if ended.returncode != 0:
        pytest.skip(f"Maven cannot fetch the packages of {pom}: {(ended.stderr or ended.stdout)[-200:]}")
    return target.read_text(encoding="utf-8")


class ZooKeeper:
    """One server on loopback; sessions may be as short as one second."""

    def __init__(
        self, classes: str, folder: Path, tls: tuple[Path, Path] | None = None, *, metrics: bool = False
    ) -> None:
        """`tls`: a file with certificate and key, and one with the certificates that vouch for clients, both PEM.

        `metrics`: it serves its own metrics, for which `classes` must have the provider.
        """
        self.address = f"127.0.0.1:{free_port()}"
        self.secure_address = f"127.0.0.1:{free_port()}" if tls else ""
        """With TLS, and for clients with a certificate; empty without."""
        self.metrics_address = f"127.0.0.1:{free_port()}" if metrics else ""
        """Of its metrics for Prometheus; empty without."""
        self._tls = tls
        self._classes = classes
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the server; after a stop it has its former data."""
        host, port = self.address.split(":")
        config = self._folder / "zoo.cfg"
        config.write_text(
            f"tickTime=500\ndataDir={self._folder / 'data'}\nclientPort={port}\nclientPortAddress={host}\n"
            "admin.enableServer=false\n4lw.commands.whitelist=srvr,mntr\n"
            + self._tls_lines()
            + self._metrics_lines()
        )
        command = [*QUICK_JAVA, "-Xmx128m", "-cp", self._classes]
        command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        # No limit of time: a Java process that has started serves, or ends. It needed two minutes on a busy machine.
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "log").read_text()[-2000:]
            time.sleep(0.05)

    def _tls_lines(self) -> str:
        if self._tls is None:
            return ""
        store, trusted = self._tls
        port = self.secure_address.rpartition(":")[2]
        return (
            f"secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\n"
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            f"ssl.keyStore.location={store}\nssl.keyStore.type=PEM\n"
            f"ssl.trustStore.location={trusted}\nssl.trustStore.type=PEM\nssl.clientAuth=need\n"
        )

    def _metrics_lines(self) -> str:
        if not self.metrics_address:
            return ""
        host, port = self.metrics_address.split(":")
        provider = "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider"
        return (
            f"metricsProvider.className={provider}\nmetricsProvider.httpHost={host}\n"
            f"metricsProvider.httpPort={port}\nmetricsProvider.exportJvmInfo=true\n"
        )

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Suspends the process: connections stay, and requests get no answer."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resumes the process; sessions whose time ended in the pause have expired."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @property
    def connections(self) -> int:
        """Number of connected clients. A session that expires loses its connection."""
        return int(self._state().partition(b"Connections: ")[2].split()[0]) - 1

    @property
    def figures(self) -> Mapping[str, float]:
        """Its own numbers by the names of `mntr`, without `zk_`; `zxid` counts the writes."""
        lines = [line.partition("\t") for line in self._state(b"mntr").decode().splitlines()]
        found = {
            name.removeprefix("zk_"): float(value)
            for name, _, value in lines
            if value.replace(".", "", 1).isdigit()
        }
        return {**found, "zxid": int(self._state().partition(b"Zxid: ")[2].split()[0], 16)}

    def _answers(self) -> bool:
        """Returns True once it serves, which is later than it listens."""
        try:
            return b"Mode: standalone" in self._state(wait_s=ATTEMPT_S)
        except OSError:
            return False

    def _state(self, word: bytes = b"srvr", wait_s: float = 60) -> bytes:
        host, port = self.address.split(":")
        with socket.create_connection((host, int(port)), timeout=wait_s) as connection:
            connection.sendall(word)
            return b"".join(iter(lambda: connection.recv(4096), b""))
