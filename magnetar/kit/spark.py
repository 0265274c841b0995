"""SparkUnderTest: a Spark session that knows a broker, for tests of one's own jobs."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pipeline.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from magnetar.kit.pulsar_under_test import PulsarUnderTest


def start_test_session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """Starts Spark with two cores and a quick start, or returns the session of this process.

    `settings` of Spark win over those that make small tests quick. NoJava.
    """
    small = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}
    return start_session("tests", master="local[2]", quick_start=True, settings={**small, **(settings or {})})


class SparkUnderTest:
    """A Spark session and a broker, with which a test runs its job; rows are checked without a sleep."""

    def __init__(self, session: SparkSession, pulsar: PulsarUnderTest, namespace: str) -> None:
        """Switches deduplication on in the namespace, which a sink needs that writes each row once."""
        self.session = session
        """Spark's, shared by the tests of a process."""
        self._url = pulsar.pulsar_url
        pulsar.ask("POST", f"/admin/v2/namespaces/{namespace}/deduplication", True)

    def options(self, topic: str, **more: str) -> dict[str, str]:
        """Returns options of source or sink for a topic; `more` are options without a dot in their name."""
        return {"service.url": self._url, "topic": topic, **more}

    def read(self, topic: str, **more: str) -> DataFrame:
        """Returns all messages of a topic as a DataFrame."""
        return self.session.read.format("pulsar").options(**self.options(topic, **more)).load()

    def stream(self, topic: str, **more: str) -> DataFrame:
        """Returns a stream over a topic, from its first message on."""
        options = {"startingOffsets": "earliest", **self.options(topic, **more)}
        return self.session.readStream.format("pulsar").options(**options).load()

    def collect(self, stream: DataFrame, output_mode: str = "append") -> list[Row]:
        """Runs a stream up to the present end of its topics; returns the rows that it gives."""
        name = f"collected_{uuid.uuid4().hex}"
        with tempfile.TemporaryDirectory(prefix="magnetar-stream-") as folder:
            query = (
                stream.writeStream.format("memory")
                .queryName(name)
                .outputMode(output_mode)
                .option("checkpointLocation", folder)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        rows = self.session.table(name).collect()
        self.session.catalog.dropTempView(name)
        return rows
