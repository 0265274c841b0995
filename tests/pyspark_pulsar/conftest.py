"""A broker per module, and what tests do with it from Spark.

`MAGNETAR_SPARK_PULSAR_URL` and `MAGNETAR_SPARK_ADMIN_URL` name another broker to use.

Law of the place: tests talk to the broker over sockets, and to Spark through its public interface.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pulsar = pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")

from tests.interop.support import Admin  # noqa: E402
from tests.vectors.broker_process import Addresses, BrokerProcess  # noqa: E402

OTHER_BROKER, OTHER_ADMIN = "MAGNETAR_SPARK_PULSAR_URL", "MAGNETAR_SPARK_ADMIN_URL"


@pytest.fixture(scope="module")
def addresses(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Addresses]:
    if url := os.environ.get(OTHER_BROKER):
        yield Addresses(url, os.environ[OTHER_ADMIN], None)
        return
    # Spark reads without a subscription, so a topic that waits for its test would count as unused.
    kept = {"brokerDeduplicationEnabled": "true", "brokerDeleteInactiveTopicsEnabled": "false"}
    settings = {**kept, **getattr(request.module, "SETTINGS", {})}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings, memory=True) as broker:
        yield broker.addresses


@pytest.fixture(scope="module")
def broker_url(addresses: Addresses) -> str:
    return addresses.pulsar


@pytest.fixture(scope="module")
def admin(addresses: Addresses) -> Admin:
    return Admin(addresses.admin)


@pytest.fixture(scope="module")
def client(broker_url: str) -> Iterator[Any]:
    opened = pulsar.Client(
        broker_url, operation_timeout_seconds=60, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    yield opened
    opened.close()


@pytest.fixture
def topic() -> str:
    return f"spark-{uuid.uuid4().hex[:12]}"


@dataclass
class Source:
    """Queries against one broker."""

    spark: Any
    url: str

    def read(self, **options: object) -> Any:
        return self._with(self.spark.read.format("pulsar"), options).load()

    def stream(self, **options: object) -> Any:
        return self._with(self.spark.readStream.format("pulsar"), options).load()

    def run(self, stream: Any, folder: Path) -> Any:
        """Writes everything up to the present ends as Parquet under `folder`; returns the finished query."""
        query = (
            stream.writeStream.format("parquet")
            .option("path", str(folder / "out"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    def rows(self, folder: Path) -> list[Any]:
        found: list[Any] = self.spark.read.parquet(str(folder / "out")).collect()
        return found

    def _with(self, reader: Any, options: dict[str, object]) -> Any:
        reader = reader.option("service.url", self.url)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), str(value))
        return reader


@pytest.fixture
def source(spark: Any, broker_url: str) -> Source:
    return Source(spark, broker_url)


Publish = Callable[..., None]


@pytest.fixture
def publish(client: Any) -> Publish:
    """`publish(topic, bodies, **producer options)`: returns when all are stored."""

    def send(topic: str, bodies: list[bytes], **options: Any) -> None:
        per_message = options.pop("per_message", lambda number: {})
        producer = client.create_producer(topic, block_if_queue_full=True, **options)
        for number, body in enumerate(bodies):
            producer.send_async(body, None, **per_message(number))
        producer.flush()
        producer.close()

    return send


@pytest.fixture
def make_partitioned(admin: Admin) -> Callable[[str, int], None]:
    return admin.create_partitioned
