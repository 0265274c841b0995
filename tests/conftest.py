"""Settings and fixtures of all tests.

Hypothesis has no limit of time, because a busy machine is no defect, and the same examples in each run: a test that fails
by chance tells nothing about the change it fails for. `--hypothesis-profile=explore` looks for new ones.

A process can have one Spark session only, so all tests share it. Several workers take the tests in the order of
`tests/support/schedule.py`.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import Scheduling

from tests.storages import places
from tests.support.java import ZooKeeper, class_path
from tests.support.schedule import SPARK_JOBS, FilesAndSpark, place_of

POM = Path(__file__).parent / "bookie_stub/java/pom.xml"

SPARK_TIMEOUT_S = 900

settings.register_profile(
    "magnetar", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", settings.get_profile("magnetar"), derandomize=False)
settings.load_profile("magnetar")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keeps modules and tests, which live to the end, from the garbage collector, which would walk them many times."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks tests by the fixtures that they use; runs before pytest selects tests by `-m`."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "spark" in fixtures:
            # A test that is cut off in a call to Spark leaves half a result in the session that all others share.
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))
            if item.nodeid.startswith(SPARK_JOBS):
                item.add_marker(pytest.mark.slow)
        if "classes" in fixtures:
            item.add_marker(pytest.mark.peer)
        if places.CLUSTER in os.environ:
            for alone in item.iter_markers("one_broker"):
                item.add_marker(pytest.mark.skip(reason=f"one broker: {alone.args[0]}"))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """With `--dist loadfile` the files begin in an order of ours."""
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return FilesAndSpark(config, log)


@pytest.fixture(autouse=True, scope="module")
def _storages() -> Iterator[None]:
    """Sets up before the module's brokers, and so ended after them."""
    yield
    places.close()


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


@pytest.fixture
def mortal(classes: str, tmp_path: Path) -> Iterator[ZooKeeper]:
    """A ZooKeeper for one test alone, which may end it."""
    mortal = ZooKeeper(classes, tmp_path)
    mortal.start()
    yield mortal
    mortal.stop()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="needs the extra spark, pip install WHEEL[spark]")
    from pipeline.session import start_session
    from tests.support.s3_server import KEYS

    with pytest.MonkeyPatch.context() as environment:
        # Spark's processes keep the environment of their start, and find the keys for `tests.support.s3_server` there.
        for name, value in KEYS.items():
            environment.setenv(name, value)
        session = start_session(
            "tests",
            # Three tries per task, so that a killed one comes back.
            master="local[2,3]",
            quick_start=True,
            settings={
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("w")),
            },
        )
    yield session
    session.stop()
