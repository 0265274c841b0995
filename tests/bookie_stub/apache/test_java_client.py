"""BookKeeper's own Java client on our bookie, found through ZooKeeper: writes, reads, fences, recovers, with v2 and v3.

The program is `java/Ledgers.java`. Where it asks for it, the bookie is killed with SIGKILL and started again on the same
data.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.bookie_stub.bookie_process import Process
from tests.bookie_stub.conftest import JAVA
from tests.bookie_stub.wire.test_switch_to_tls import tls_settings
from tests.support.certificates import Certificates
from tests.support.java import QUICK_JAVA, ZooKeeper
from tests.support.ports import free_port

RUN_S: Final = 240
SESSION_MS: Final = 10_000
CHECKS: Final = {"v2": 8, "v3": 12}

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(600)]


class Bookie:
    def __init__(self, directory: Path, zookeeper: ZooKeeper, *more: str) -> None:
        self._process = Process(directory)
        self._settings = (
            *more,
            f"bookiePort={free_port()}",
            "advertisedAddress=127.0.0.1",
            f"metadataServiceUri=zk+hierarchical://{zookeeper.address}/ledgers",
            f"zkTimeout={SESSION_MS}",
            "journalPreAllocSizeMB=1",
        )

    @property
    def bookie_id(self) -> str:
        return self._process.addresses["bookie"]

    def start(self) -> None:
        self._process.start(*self._settings)

    def kill(self) -> None:
        self._process.end(signal.SIGKILL)

    def stop(self) -> int:
        return self._process.end(signal.SIGTERM)[0]


@pytest.fixture
def bookie(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Bookie]:
    bookie = Bookie(tmp_path / "data", zookeeper)
    bookie.start()
    yield bookie
    assert bookie.stop() == 0


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_java_client_passes_its_checks(
    classes: str, zookeeper: ZooKeeper, bookie: Bookie, protocol: str, subtests: pytest.Subtests
) -> None:
    outcomes = run(classes, zookeeper, bookie, protocol)
    assert len(outcomes) == CHECKS[protocol]
    for name, outcome in outcomes.items():
        with subtests.test(name):
            assert outcome == "ok"


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_java_client_passes_its_checks_over_tls(
    classes: str, zookeeper: ZooKeeper, tmp_path: Path, protocol: str, subtests: pytest.Subtests
) -> None:
    certificates = Certificates(tmp_path / "certificates")
    settings = [f"{key}={value}" for key, value in tls_settings(certificates).items()]
    bookie = Bookie(tmp_path / "data", zookeeper, *settings)
    bookie.start()
    outcomes = run(classes, zookeeper, bookie, protocol, str(certificates.authority))
    assert bookie.stop() == 0
    assert len(outcomes) == CHECKS[protocol]
    for name, outcome in outcomes.items():
        with subtests.test(name):
            assert outcome == "ok"


def run(classes: str, zookeeper: ZooKeeper, bookie: Bookie, protocol: str, *authority: str) -> dict[str, str]:
    """By check: `ok`, or what went wrong.

    Behind TLS when an authority is named.
    """
    uri = f"zk+hierarchical://{zookeeper.address}/ledgers"
    java = [*QUICK_JAVA, "-cp", classes, str(JAVA / "Ledgers.java")]
    command = [*java, uri, protocol, bookie.bookie_id, *authority]
    outcomes = {}
    said = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as program:
        assert program.stdin is not None
        for line in program.stdout or ():
            verdict, _, rest = line.strip().partition(" ")
            if verdict == "kill":
                bookie.kill()
                bookie.start()
                program.stdin.write("back\n")
                program.stdin.flush()
            elif verdict in ("ok", "failed"):
                name, _, reason = rest.partition(": ")
                outcomes[name] = "ok" if verdict == "ok" else reason
            else:
                said.append(line)
        assert program.wait(RUN_S) == 0, "".join(said[-20:])
    return outcomes
