"""The official Java client of Pulsar 5.0 on ordinary topics, also while the broker restarts.

`java5/pom.xml` names its version, the newest whose parts can all be had from the registry.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.interop.programs import fetch, need
from tests.support.ports import free_port
from tests.vectors.broker_process import BrokerProcess

HERE: Final = Path(__file__).parent / "java5"
CHECKS: Final = 15
"""Each on a topic without and on one with partitions; those that begin with `restart` wait for a new start of the broker."""

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    need("java")
    need("mvn")
    found = tmp_path_factory.mktemp("java5") / "class-path"
    pom = str(HERE / "pom.xml")
    fetch(["mvn", "-q", "-B", "-f", pom, "dependency:build-classpath", f"-Dmdep.outputFile={found}"], HERE)
    return found.read_text(encoding="utf-8")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """On ports that stay, so that the client finds them again."""
    settings = {
        "transactionCoordinatorEnabled": "true",
        # A producer sends what it has no receipt for again when its connection ends.
        "brokerDeduplicationEnabled": "true",
        "brokerServicePort": str(free_port()),
        "webServicePort": str(free_port()),
    }
    with BrokerProcess(tmp_path, settings) as running:
        yield running


def test_every_kind_of_consumer_on_ordinary_topics(
    class_path: str, broker: BrokerProcess, subtests: pytest.Subtests
) -> None:
    addresses = broker.addresses
    command = ["java", "-cp", class_path, str(HERE / "Version5.java"), addresses.pulsar, addresses.admin]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        judged = 0
        for line in client.stdout:
            if line.strip() in ("restart", "kill"):
                (broker.stop if line.strip() == "restart" else broker.kill)()
                broker.start()
                print(file=client.stdin, flush=True)
                continue
            judged += 1
            with subtests.test(line.split()[1]):
                assert line.startswith("ok "), line
    assert (client.returncode, judged) == (0, 2 * CHECKS)
