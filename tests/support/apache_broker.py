"""A broker of Apache Pulsar on loopback, from an unpacked distribution, on a ZooKeeper and bookies that others started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.support.java import QUICK
from tests.support.ports import free_port
from tests.vectors.broker_process import Addresses

HOME: Final = "MAGNETAR_PULSAR_HOME"
OPENS: Final = (
    "java.base/java.nio",
    "java.base/java.util.zip",
    "java.base/jdk.internal.misc",
    "java.base/sun.nio.ch",
)


def pulsar_home() -> Path:
    """Returns the folder of the distribution; skips the calling test without one."""
    home = os.environ.get(HOME)
    if not home:
        pytest.skip(f"{HOME} names no unpacked distribution of Apache Pulsar")
    return Path(home)


class ApacheBroker:
    """One broker of the cluster `standalone`; it may be stopped and started again."""

    def __init__(self, home: Path, folder: Path, metadata: str, settings: Mapping[str, str]) -> None:
        """`metadata` is Pulsar's `metadataStoreUrl`; the folder gets configuration and log."""
        self._folder, self._metadata = folder, metadata
        self._java = ["java", *QUICK, "-Xmx512m", *(f"--add-opens={one}=ALL-UNNAMED" for one in OPENS)]
        self._java += ["-cp", f"{home}/lib/*"]
        self._process: subprocess.Popen[bytes] | None = None
        pulsar, self._admin = (f"{kind}://127.0.0.1:{free_port()}" for kind in ("pulsar", "http"))
        self.addresses = Addresses(pulsar, self._admin, None)
        values = {
            "metadataStoreUrl": metadata,
            "configurationMetadataStoreUrl": metadata,
            "clusterName": "standalone",
            "brokerServicePort": pulsar.rpartition(":")[2],
            "webServicePort": self._admin.rpartition(":")[2],
            "bindAddress": "127.0.0.1",
            "advertisedAddress": "127.0.0.1",
            "managedLedgerDefaultEnsembleSize": "1",
            "managedLedgerDefaultWriteQuorum": "1",
            "managedLedgerDefaultAckQuorum": "1",
            "loadBalancerEnabled": "false",
            **settings,
        }
        self._config = folder / "apache.conf"
        self._config.write_text("".join(f"{key}={value}\n" for key, value in values.items()))

    def set_up(self) -> None:
        """Writes the metadata of a new cluster, before its first bookie registers."""
        addresses = ["-uw", self._admin, "-ub", self.addresses.pulsar]
        setup = ["org.apache.pulsar.PulsarClusterMetadataSetup", "-c", "standalone"]
        stores = ["-md", self._metadata, "-cms", self._metadata]
        done = subprocess.run(
            [*self._java, *setup, *stores, *addresses],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    def start(self) -> None:
        """Starts it and waits until it serves."""
        command = [*self._java, "org.apache.pulsar.PulsarBrokerStarter", "--broker-conf", str(self._config)]
        with (self._folder / "apache.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        # No limit of time: a Java process that has started serves, or ends.
        while not self._is_ready():
            assert self._process.poll() is None, (self._folder / "apache.log").read_text()[-2000:]
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._admin}/admin/v2/brokers/ready", timeout=5) as answer:
                return bool(answer.read() == b"ok")
        except (urllib.error.URLError, OSError):
            return False

    def stop(self) -> None:
        """Lets it close its topics."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it at once."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None
