"""Messages of batches moved in transactions by the official Java client: none is acknowledged in two of them, or lost.

`java/Moves.java` has the workers. In the second test the broker is killed three times and starts again.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.java import QUICK_JAVA, class_path
from tests.support.ports import free_port
from tests.vectors.broker_process import BrokerProcess

HERE: Final = Path(__file__).parent / "java"
MESSAGES: Final = 1500
KILLED_AFTER: Final = (70, 140, 240)
"""Commits before the broker is killed, of about 390."""

pytestmark = [pytest.mark.slow, pytest.mark.peer]


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    return class_path(HERE / "pom.xml", tmp_path_factory.mktemp("java"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """On ports that stay, so that the client finds them again."""
    settings = {
        "transactionCoordinatorEnabled": "true",
        "acknowledgmentAtBatchIndexLevelEnabled": "true",
        # A producer sends what the killed broker has stored but not confirmed again.
        "brokerDeduplicationEnabled": "true",
        "brokerServicePort": str(free_port()),
        "webServicePort": str(free_port()),
    }
    with BrokerProcess(tmp_path, settings) as running:
        yield running


@pytest.mark.parametrize("killed", [False, True])
def test_each_message_of_a_batch_moves_in_one_transaction(
    classes: str, broker: BrokerProcess, killed: bool
) -> None:
    command = [*QUICK_JAVA, "-cp", classes, str(HERE / "Moves.java"), broker.addresses.pulsar]
    with subprocess.Popen(
        [*command, "input", "output", str(MESSAGES)], stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        commits, last = 0, ""
        for last in client.stdout:
            commits += last == "commit\n"
            if killed and commits in KILLED_AFTER and last == "commit\n":
                broker.kill()
                broker.start()
    words = last.split()
    assert (client.returncode, words[:1]) == (0, ["ended"]), last
    counted, aborts, _, missing, twice = map(int, words[1:])
    assert (missing, twice) == (0, 0)
    assert counted == commits > KILLED_AFTER[-1]
    assert aborts > commits // 10
