"""What holds for every test: hypothesis has no deadline, because a busy machine is no defect; and a ZooKeeper where
Java is at hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.java import ZooKeeper, class_path

POM = Path(__file__).parent / "bookie_stub/java/pom.xml"

settings.register_profile("magnetar", deadline=None)
settings.load_profile("magnetar")


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path of BookKeeper's Java client and of ZooKeeper."""
    return class_path(POM, tmp_path_factory.mktemp("java"))


@pytest.fixture(scope="session")
def zookeeper(classes: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    zookeeper = ZooKeeper(classes, tmp_path_factory.mktemp("zookeeper"))
    zookeeper.start()
    yield zookeeper
    zookeeper.stop()
