"""Transactions over three brokers on one ZooKeeper: each is wholly there or wholly absent, also where brokers are killed.

`java/Moves.java` moves messages of one topic to two others in transactions of the official Java client.
"""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.interop.support import Admin
from tests.interop.test_cluster import Brokers
from tests.support.command_json import Json
from tests.support.java import QUICK_JAVA, ZooKeeper, class_path
from tests.vectors.broker_process import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.peer]

HERE: Final = Path(__file__).parent / "java"
MESSAGES: Final = 900
KILLED_AFTER: Final = (40, 90, 140)
"""Commits before a broker is killed, of about 230."""
INPUT: Final = "input-0"
OUTPUTS: Final = ("output-0", "output-2")
"""In three bundles."""


@pytest.fixture(scope="module")
def java_classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    return class_path(HERE / "pom.xml", tmp_path_factory.mktemp("java"))


@pytest.fixture
def brokers(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Brokers]:
    found = Brokers(
        tmp_path,
        zookeeper,
        3,
        {
            "transactionCoordinatorEnabled": "true",
            "acknowledgmentAtBatchIndexLevelEnabled": "true",
            # A producer sends what the killed broker has stored but not confirmed again.
            "brokerDeduplicationEnabled": "true",
        },
    )
    found.cluster.start_bookie()
    with ExitStack() as stack:
        stack.callback(found.cluster.kill)
        for broker in found.brokers:
            stack.callback(broker.kill)
            broker.start()
        yield found


def spread(brokers: Brokers) -> None:
    """Has each broker own one of the three topics: nobody has them, and each takes what it is asked to."""
    for broker, topic in zip(brokers.brokers, (INPUT, *OUTPUTS), strict=True):
        Admin(broker.addresses.admin).put(f"persistent/public/default/{topic}?authoritative=true")
        where = asked(brokers, f"lookup/v2/topic/persistent/public/default/{topic}")
        assert isinstance(where, dict)
        assert where["brokerUrl"] == broker.addresses.pulsar, (topic, where)


def asked(brokers: Brokers, path: str) -> Json:
    with urllib.request.urlopen(f"{brokers.brokers[0].addresses.admin}/{path}") as answer:
        found: Json = json.load(answer)
    return found


def coordinators_of(brokers: Brokers) -> dict[str, int]:
    """How many of the coordinators each broker has, by its address."""
    found = dict.fromkeys((broker.addresses.pulsar for broker in brokers.brokers), 0)
    coordinators = asked(brokers, "admin/v3/transactions/coordinators")
    assert isinstance(coordinators, list)
    for one in coordinators:
        assert isinstance(one, dict)
        found[str(one["brokerServiceUrl"])] += 1
    return found


def busiest(brokers: Brokers) -> BrokerProcess:
    """The broker with the most coordinators."""
    found = coordinators_of(brokers)
    return max(brokers.brokers, key=lambda broker: found[broker.addresses.pulsar])


@pytest.mark.parametrize("killed", [False, True])
def test_transactions_over_three_brokers_are_there_wholly_or_not_at_all(
    java_classes: str, brokers: Brokers, killed: bool
) -> None:
    spread(brokers)
    command = [*QUICK_JAVA, "-cp", java_classes, str(HERE / "Moves.java"), brokers.url]
    with subprocess.Popen(
        [*command, INPUT, ",".join(OUTPUTS), str(MESSAGES)], stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        commits, last = 0, ""
        for last in client.stdout:
            commits += last == "commit\n"
            if killed and commits in KILLED_AFTER and last == "commit\n":
                broker = busiest(brokers)
                broker.kill()
                broker.start()
    words = last.split()
    assert (client.returncode, words[:1]) == (0, ["ended"]), last
    counted, _, _, missing, twice = map(int, words[1:])
    assert (missing, twice) == (0, 0)
    assert counted == commits > KILLED_AFTER[-1]
