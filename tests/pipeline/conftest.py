"""One Spark session for all modules; what needs none asks for none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="needs the extra spark, pip install magnetar[spark]")
    from pyspark.sql import SparkSession

    from pipeline.session import start_session

    running = SparkSession.getActiveSession()
    if running is not None:  # Another folder's tests have one, and end it.
        yield running
        return
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("w")),
    }
    session = start_session("tests", master="local[2]", quick_start=True, settings=settings)
    yield session
    session.stop()
