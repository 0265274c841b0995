"""Spark's S3 file system against an S3 server on the loopback: records, reports' inputs, tables and checkpoints."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark, pip install WHEEL[spark]")
moto_server = pytest.importorskip(
    "moto.server", reason="needs an S3 server, pip install 'moto[s3]' flask flask-cors"
)
boto3 = pytest.importorskip("boto3")
pulsar = pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")

from tests.support.spark_cluster import run_driver  # noqa: E402
from tests.vectors.broker_process import REPOSITORY, BrokerProcess  # noqa: E402

LIMIT_S = 900
SAMPLE = REPOSITORY / "pipeline" / "sample"
ROWS = 4000
HADOOP = "org.apache.hadoop:hadoop-aws:3.5.0"
"""Of the version of the Hadoop that PySpark contains."""
pytestmark = [
    # The package with S3 brings Amazon's library of 690 MB from Maven's repository.
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        shutil.which("mvn") is None, reason="Maven is missing, so Hadoop's S3 cannot be fetched"
    ),
]


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of an S3 server with nothing in it."""
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3: str) -> tuple[Any, str]:
    """A client of the server and an empty bucket."""
    client = boto3.client(
        "s3", endpoint_url=s3, aws_access_key_id="x", aws_secret_access_key="x", region_name="us-east-1"
    )
    name = f"bucket-{uuid.uuid4().hex[:10]}"
    client.create_bucket(Bucket=name)
    return client, name


def run(words: list[str], s3: str, folder: Path) -> str:
    """Runs a driver that knows the server by its `spark-defaults.conf` alone; returns its output."""
    settings = {
        "spark.jars.packages": HADOOP,
        "spark.hadoop.fs.s3a.endpoint": s3,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.sql.shuffle.partitions": "2",
    }
    environment = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "PYTHONPATH": str(REPOSITORY)}
    return run_driver(words, folder, settings, environment, LIMIT_S)


def test_job_reads_a_record_from_s3(s3: str, bucket: tuple[Any, str], tmp_path: Path) -> None:
    client, name = bucket
    for path in SAMPLE.rglob("*"):
        if path.is_file():
            client.upload_file(str(path), name, f"record/{path.relative_to(SAMPLE).as_posix()}")
    words = ["-m", "magnetar", "pipeline", "compare", f"s3a://{name}/record", "--master", "local[2]"]
    said = run([*words, "--out", str(tmp_path / "out")], s3, tmp_path)
    assert "equal" in said


def test_stream_keeps_table_and_checkpoint_in_s3(s3: str, bucket: tuple[Any, str], tmp_path: Path) -> None:
    settings = {"brokerDeleteInactiveTopicsEnabled": "false"}
    folder = tmp_path / "broker"
    folder.mkdir()
    with BrokerProcess(folder, settings, memory=True) as broker:
        client = pulsar.Client(broker.addresses.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        producer = client.create_producer("to-s3", block_if_queue_full=True, batching_max_messages=100)
        for number in range(ROWS):
            producer.send_async(b"%d" % number, None)
        producer.flush()
        client.close()
        program = str(Path(__file__).parent / "s3_program.py")
        said = run([program, broker.addresses.pulsar, "to-s3", bucket[1]], s3, tmp_path)
    assert said.splitlines()[-1] == f"{ROWS} {ROWS}"
    keys = [one["Key"] for one in bucket[0].list_objects_v2(Bucket=bucket[1])["Contents"]]
    assert any(key.startswith("checkpoint/offsets/") for key in keys)
    assert any(key.startswith("table/part-") for key in keys)
