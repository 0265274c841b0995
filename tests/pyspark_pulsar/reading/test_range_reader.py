"""A task that reads from several brokers: rows belong to the topic whose owner sent them.

Two brokers that do not know of each other stand for two owners of a cluster, so that each topic has a known owner.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

pulsar = pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")

from pyspark_pulsar.client.cluster import Cluster, ClusterSettings, SchemaVersions, endpoints  # noqa: E402
from pyspark_pulsar.client.connection import Endpoint  # noqa: E402
from pyspark_pulsar.columns.batch_builder import BatchBuilder  # noqa: E402
from pyspark_pulsar.columns.value_columns import RawValue  # noqa: E402
from pyspark_pulsar.data_source import choose_columns  # noqa: E402
from pyspark_pulsar.options import source_options  # noqa: E402
from pyspark_pulsar.planning.batch_plan import batch_ranges  # noqa: E402
from pyspark_pulsar.reading.range_reader import RangeReader, ReadSettings  # noqa: E402
from tests.vectors.broker_process import BrokerProcess  # noqa: E402

PREFIX = "persistent://public/default/"
Row = tuple[str, bytes]


class DividedCluster(Cluster):
    """Has the topics that end with an even digit on the first broker, the others on the second."""

    def __init__(self, settings: ClusterSettings, brokers: Sequence[Endpoint]) -> None:
        super().__init__(settings)
        self._brokers = brokers

    def owners(self, topics: Sequence[str]) -> list[Endpoint]:
        return [self._brokers[int(topic[-1]) % 2] for topic in topics]


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    with contextlib.ExitStack() as stack:
        folders = [tmp_path_factory.mktemp("broker") for _ in range(2)]
        brokers = [
            stack.enter_context(BrokerProcess(folder, {"metadataStoreUrl": "memory:"}, memory=True))
            for folder in folders
        ]
        yield [broker.addresses.pulsar for broker in brokers]


@pytest.fixture(scope="module")
def clients(urls: list[str]) -> Iterator[list[Any]]:
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    opened = [pulsar.Client(url, operation_timeout_seconds=60, logger=logger) for url in urls]
    yield opened
    for client in opened:
        client.close()


def read(urls: list[str], topics: list[str]) -> list[Row]:
    """The rows of one task that reads all topics, in its order."""
    given = {"service.url": urls[0], "topics": ",".join(topics), "columns": "value,__topic"}
    options = source_options(given, streaming=False)
    with contextlib.closing(DividedCluster(options.cluster, [endpoints(url)[0] for url in urls])) as cluster:
        ranges = batch_ranges(cluster, [PREFIX + topic for topic in topics], options, "test")
        schema = to_arrow_schema(choose_columns(options, RawValue()), timezone="UTC")
        builder = BatchBuilder(schema, RawValue(), SchemaVersions(cluster))
        settings = ReadSettings(True, options.poll_timeout_s, "test", {}, False)
        batches = RangeReader(cluster, ranges, builder, settings).batches()
        rows = pa.Table.from_batches(batches, schema).to_pylist()
    return [(row["__topic"].removeprefix(PREFIX), row["value"]) for row in rows]


def test_rows_have_the_topic_of_their_own_broker_and_its_order(urls: list[str], clients: list[Any]) -> None:
    topics = [f"rows-{number}" for number in range(8)]
    expected = []
    for number, topic in enumerate(topics):
        producer = clients[number % 2].create_producer(topic, batching_enabled=False)
        for index in range(20):
            expected.append((topic, b"%d of %d" % (index, number)))
            producer.send(expected[-1][1])
    assert read(urls, topics) == expected
