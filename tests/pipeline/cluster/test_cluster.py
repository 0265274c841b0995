"""Jobs, source and sink where executors are processes of their own and have this project not installed."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark, pip install WHEEL[spark]")

from pipeline.java import find_java
from pipeline.session import cache_folder
from tests.pipeline.generated_cluster.generator import generate
from tests.support.spark_cluster import StandaloneCluster, bare_python, run_driver
from tests.vectors.broker_process import REPOSITORY, BrokerProcess

PROGRAM = Path(__file__).parent / "program.py"
LIMIT_S = 1500
"""Seconds of one driver. With 30 programs at work on two cores one took six and a half minutes."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SMALL = {
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.cores": "1",
    # All masters here have two cores. Without these three settings the first job begins with the first executor, which on a
    # busy machine has run all tasks before the second one comes.
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{LIMIT_S}s",
}


@pytest.fixture(scope="module")
def broker_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"brokerDeduplicationEnabled": "true", "brokerDeleteInactiveTopicsEnabled": "false"}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings, memory=True) as broker:
        yield broker.addresses.pulsar


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with StandaloneCluster(tmp_path_factory.mktemp("spark"), find_java(cache_folder()).home) as cluster:
        yield cluster.url


def run(words: list[str], folder: Path) -> str:
    """Runs a driver with the settings of a cluster; returns its output."""
    python, settings = bare_python()
    environment = {
        "PYSPARK_PYTHON": python,
        "SPARK_LOCAL_IP": "127.0.0.1",
        # The same Python plans queries on the driver's machine, where it does have the project.
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), settings["spark.executorEnv.PYTHONPATH"]]),
    }
    return run_driver(words, folder, {**SMALL, **settings}, environment, LIMIT_S)


def check_program(master: str, broker_url: str, folder: Path, executors: int) -> None:
    topic = f"cluster-{uuid.uuid4().hex[:10]}"
    lines = run([str(PROGRAM), master, broker_url, topic, str(folder)], folder).splitlines()
    # Spark may print a line of its own at its end.
    said = json.loads([line for line in lines if line.startswith("{")][-1])
    assert said["complete"]
    assert said["batches"] >= 3
    assert len(said["executors"]) == executors
    assert said["pythons"] == [bare_python()[0]]
    # Each executor imported the package from the archive that the session sent, and has no other.
    assert said["installed"] == [False]
    assert all("magnetar-code-" in path and ".zip" in path for path in said["modules"]), said["modules"]


def test_source_and_sink_run_on_executors_that_lack_the_package(broker_url: str, tmp_path: Path) -> None:
    check_program("local-cluster[1,2,1024]", broker_url, tmp_path, 1)


@pytest.mark.peer
@pytest.mark.parametrize("master", ["standalone", "local-cluster[2,1,1024]"])
def test_source_and_sink_copy_each_row_once_on_several_executors(
    request: pytest.FixtureRequest, broker_url: str, tmp_path: Path, master: str
) -> None:
    url = request.getfixturevalue("standalone") if master == "standalone" else master
    check_program(url, broker_url, tmp_path, 2)


@pytest.mark.peer
@pytest.mark.parametrize("master", ["standalone", "local-cluster[2,1,1024]"])
def test_jobs_and_audits_of_relative_paths_run_on_a_cluster(
    request: pytest.FixtureRequest, tmp_path: Path, master: str
) -> None:
    url = request.getfixturevalue("standalone") if master == "standalone" else master
    shutil.copytree(REPOSITORY / "pipeline" / "sample", tmp_path / "record")
    said = run(["-m", "magnetar", "pipeline", "compare", "record", "--master", url, "--out", "out"], tmp_path)
    assert "equal" in said
    generate(tmp_path / "snapshot", 3000, leaks=1)
    shutil.rmtree(tmp_path / "conf")
    said = run(["-m", "magnetar", "pipeline", "audit", "ledgers", "snapshot", "--master", url], tmp_path)
    assert "plan and page in" in said
    assert list((tmp_path / "snapshot-audit-ledgers" / "plan").glob("*.parquet"))
