"""One bookie of Apache BookKeeper on loopback, from an unpacked distribution, registered in a ZooKeeper."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

from tests.support.ports import free_port

SHELL_S: Final = 300
STOP_S: Final = 60
OPENED = ("java.base/java.io", "java.base/java.util.zip", "java.base/java.nio", "java.base/jdk.internal.misc")
JAVA_OPTIONS = ["-Xmx512m", "-XX:MaxDirectMemorySize=512m", "-Dio.netty.tryReflectionSetAccessible=true"]
# The JVM is started hundreds of times and lives for seconds.
JAVA_OPTIONS += ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
JAVA_OPTIONS += [word for place in OPENED for word in ("--add-opens", f"{place}=ALL-UNNAMED")]


def java() -> str | None:
    """`JAVA_HOME`'s, else the one on the path."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin/java") if home else shutil.which("java")


def classes_in(home: Path) -> str:
    """The class path of an unpacked distribution."""
    return str(home / "lib" / "*")


class ApacheBookie:
    def __init__(self, classes: str, folder: Path, zookeeper: str) -> None:
        """`classes` is a class path that has BookKeeper's server; `zookeeper` is host:port, and the node that the cluster
        is below."""
        self.address = f"127.0.0.1:{free_port()}"
        self._classes = classes
        self._folder = folder
        self._log = folder / "bookie.log"
        self._zookeeper = zookeeper
        self._process: subprocess.Popen[bytes] | None = None

    def format(self) -> None:
        """Makes the cluster's nodes, as an operator does once."""
        shell = self._command("org.apache.bookkeeper.bookie.BookieShell", "-conf")
        with self._log.open("ab") as log:
            command = [*shell, "metaformat", "-nonInteractive", "-force"]
            subprocess.run(command, stdout=log, stderr=log, check=True, timeout=SHELL_S)

    def start(self) -> None:
        """Starts the bookie. Raises RuntimeError with the end of its log when it does not listen."""
        command = self._command("org.apache.bookkeeper.server.Main", "--conf")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        # No limit of time, as for ZooKeeper.
        while not self._listens():
            if self._process.poll() is not None:
                raise RuntimeError(f"the bookie does not listen: {self._log.read_text()[-2000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL: no warning, no cleanup."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def spawn(self, main: str, option: str, **settings: object) -> subprocess.Popen[bytes]:
        """Starts another of BookKeeper's programs with this bookie's settings; the caller ends it."""
        command = self._command(main, option)[:-1]
        config = self._folder / f"{main.rpartition('.')[2]}.conf"
        lines = [line for line in self._config().splitlines() if line.partition("=")[0] not in settings]
        config.write_text("\n".join([*lines, *(f"{key}={value}" for key, value in settings.items()), ""]))
        with (self._folder / f"{main.rpartition('.')[2]}.log").open("ab") as log:
            return subprocess.Popen([*command, str(config)], stdout=log, stderr=log)

    def shell(self, *words: str) -> str:
        """Returns the output of `bookkeeper shell` with these words."""
        command = [*self._command("org.apache.bookkeeper.bookie.BookieShell", "-conf"), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SHELL_S)
        return done.stdout + done.stderr

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _command(self, main: str, option: str) -> list[str]:
        java_path = java()
        assert java_path is not None
        config = self._folder / "bookie.conf"
        config.write_text(self._config())
        return [java_path, *JAVA_OPTIONS, "-cp", self._classes, main, option, str(config)]

    def _config(self) -> str:
        values = {
            "bookiePort": self.address.rpartition(":")[2],
            "advertisedAddress": "127.0.0.1",
            "listeningInterface": "lo",
            "allowLoopback": "true",
            "journalDirectories": self._folder / "journal",
            "ledgerDirectories": self._folder / "ledgers",
            "indexDirectories": self._folder / "index",
            "metadataServiceUri": f"zk+hierarchical://{self._zookeeper}/ledgers",
            "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
            "diskUsageThreshold": "0.99",
            "diskUsageWarnThreshold": "0.98",
            "httpServerEnabled": "false",
            # As Pulsar ships it: an entry of maxMessageSize with its headers is larger than BookKeeper's own default.
            "nettyMaxFrameSizeBytes": 5 * 1024 * 1024 + 10 * 1024,
        }
        return "".join(f"{key}={value}\n" for key, value in values.items())

    def _listens(self) -> bool:
        host, port = self.address.split(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            return False
        return True
