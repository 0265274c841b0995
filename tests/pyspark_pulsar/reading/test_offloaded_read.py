"""`ledgers=offloaded`: the rows of offloaded ledgers from their files, equal to those that the broker sends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pulsar = pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")
pytest.importorskip("pyspark", reason="needs the extra spark, pip install WHEEL[spark]")

from tests.interop.support import Admin, wait_until  # noqa: E402
from tests.pyspark_pulsar.conftest import Publish, Source  # noqa: E402
from tests.vectors.broker_process import Addresses, BrokerProcess  # noqa: E402

COLUMNS = (
    "value,__key,__topic,__messageId,__publishTime,__eventTime,__messageProperties,__sequence,"
    "__ledger,__entry,__batchIndex"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("objects")


@pytest.fixture(scope="module")
def addresses(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    settings = {
        "brokerDeleteInactiveTopicsEnabled": "false",
        "managedLedgerMaxEntriesPerLedger": "20",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        "managedLedgerOffloadDriver": "filesystem",
        "managedLedgerOffloadDeletionLagMs": "0",
        "retentionCheckIntervalInSeconds": "1",
        "s3ManagedLedgerOffloadReadBufferSizeInBytes": "4096",
        "fileSystemURI": folder.as_uri(),
        "defaultRetentionTimeInMinutes": "-1",
        "defaultRetentionSizeInMB": "-1",
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as broker:
        yield broker.addresses


def offload(admin: Admin, topic: str) -> list[int]:
    """Offloads the closed ledgers of a topic, and waits until the bookies have lost them; returns their ids."""
    path = f"persistent/public/default/{topic}"

    def ask(word: str) -> dict[str, Any]:
        found: Any = admin.get(f"{path}/{word}")
        assert isinstance(found, dict)
        return found

    ledger_id, entry_id = map(int, ask("internalStats")["lastConfirmedEntry"].split(":"))
    admin.put(f"{path}/offload", {"ledgerId": ledger_id, "entryId": entry_id})
    wait_until(lambda: ask("offload")["status"] == "SUCCESS", "the offload ends")
    ledgers = ask("internalStats")["ledgers"]
    assert all(one["offloaded"] for one in ledgers[:-1])
    return [one["ledgerId"] for one in ledgers[:-1]]


def offloaded(source: Source, folder: Path, **options: Any) -> list[Any]:
    reader = source.spark.read.format("pulsar").option("ledgers", "offloaded")
    for name, value in {"offloadUri": folder.as_uri(), "columns": COLUMNS, **options}.items():
        reader = reader.option(name, str(value))
    found: list[Any] = reader.load().collect()
    return found


def test_rows_are_those_of_a_read_through_the_broker(
    source: Source, publish: Publish, admin: Admin, topic: str, folder: Path
) -> None:
    def with_everything(number: int) -> dict[str, Any]:
        return {
            "partition_key": f"k{number % 7}",
            "properties": {"n": str(number)},
            "event_timestamp": 1_000 + number,
        }

    publish(
        topic, [b"single-%d" % n * 20 for n in range(90)], batching_enabled=False, per_message=with_everything
    )
    publish(
        topic,
        [b"packed-%d" % n for n in range(500)],
        batching_max_messages=10,
        compression_type=pulsar.CompressionType.ZLib,
    )
    # In chunks of the broker's largest message, 5 MiB.
    publish(topic, [bytes(range(256)) * 50_000], batching_enabled=False, chunking_enabled=True)
    publish(topic, [b"last-%d" % n for n in range(25)], batching_enabled=False)
    ledgers = offload(admin, topic)
    assert len(ledgers) > 5
    through = [
        row
        for row in source.read(topic=topic, columns=COLUMNS, allowDifferentTopicSchemas=True).collect()
        if _ledger(row) in ledgers
    ]
    direct = offloaded(source, folder, topic=topic, allowDifferentTopicSchemas=True)
    assert len(through) > 550
    assert sorted(direct, key=_place) == sorted(through, key=_place)
    # Tasks are in the order of the entries, so the rows are as well.
    assert [_place(row) for row in direct] == sorted(_place(row) for row in direct)


def _ledger(row: Any) -> int:
    return _place(row)[0]


def _place(row: Any) -> tuple[int, int, int]:
    return row["__ledger"], row["__entry"], row["__batchIndex"]


def test_a_time_narrows_the_rows(
    source: Source, publish: Publish, admin: Admin, topic: str, folder: Path
) -> None:
    publish(topic, [b"a%d" % n for n in range(20)], batching_enabled=False)
    time.sleep(0.01)
    middle = int(time.time() * 1000)
    publish(topic, [b"b%d" % n for n in range(21)], batching_enabled=False)
    offload(admin, topic)
    options = {"topic": topic, "schemaType": "STRING"}
    late = offloaded(source, folder, **options, startingTime=middle)
    early = offloaded(source, folder, **options, endingTime=middle - 1)
    assert {row["value"][0] for row in late} == {"b"}
    assert {row["value"][0] for row in early} == {"a"}
    assert len(late) + len(early) == len(offloaded(source, folder, **options)) == 40


def test_wrong_options_say_what_is_missing(source: Source, folder: Path) -> None:
    from pyspark.errors import PySparkException

    for options, text in (
        ({"topic": "t"}, "the schema of the topic is needed"),
        ({"topic": "t", "offloadUri": "", "schemaType": "STRING"}, "needs offloadUri"),
        ({"topic": "t", "offloadUri": "ftp://x", "schemaType": "STRING"}, "file:///FOLDER or s3://BUCKET"),
        (
            {"topic": "none", "schemaType": "STRING"},
            "has no offloaded ledger of persistent://public/default/none",
        ),
    ):
        with pytest.raises(PySparkException, match=text):
            offloaded(source, folder, **options)


def test_a_damaged_object_is_named(
    source: Source, publish: Publish, admin: Admin, topic: str, folder: Path
) -> None:
    from pyspark.errors import PySparkException

    publish(topic, [b"a%d" % n for n in range(21)], batching_enabled=False)
    (ledger,) = offload(admin, topic)
    (path,) = folder.glob(f"*-ledger-{ledger}")
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    with pytest.raises(PySparkException, match=f"{path.name}: wrong checksum"):
        offloaded(source, folder, topic=topic, schemaType="STRING")
