"""Causes of misses, in the record of a real broker."""

from __future__ import annotations

from pathlib import Path

import pulsar
import pytest

pytest.importorskip("pyspark", reason="needs the extra spark, pip install WHEEL[spark]")

from broker.recorder.record_reader import find
from pipeline.replays.record_counts import count_record
from pipeline.replays.reuse import MISS_CAUSES
from pipeline.traces.checking import check_file
from tests.interop.support import Admin, connect, numbered, publish, receive, wait_until
from tests.vectors.broker_process import BrokerProcess

COUNT = 20
SETTINGS = {
    "managedLedgerCacheEvictionTimeThresholdMillis": "10",
    "managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes": "0",
    "managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed": "false",
    "brokerDeleteInactiveTopicsEnabled": "false",
}


def causes(folder: Path) -> dict[str, int]:
    (lifetime,) = find([folder]).lifetimes
    checks = [check_file(file.path) for file in lifetime.files]
    span_us = min(one.first_us for one in checks), max(one.last_us for one in checks)
    found = count_record(lifetime, span_us).reuse.causes.sum(axis=0)
    return {cause: int(count) for cause, count in zip(MISS_CAUSES, found, strict=True) if count}


@pytest.mark.one_broker("looks at the record of one process")
@pytest.mark.parametrize(
    ("again", "kind", "cause"),
    [
        ("negative", "Shared", "redelivery"),
        ("negative", "Exclusive", "redelivery"),
        ("one closed", "Shared", "redelivery"),
        ("one closed", "Failover", "redelivery"),
        ("last closed", "Shared", "restarted cursor"),
        ("last closed", "Exclusive", "restarted cursor"),
        ("seek", "Shared", "restarted cursor"),
        ("seek", "Exclusive", "restarted cursor"),
    ],
)
def test_second_miss_of_a_reader_has_the_cause_by_which_it_read_again(
    tmp_path: Path, again: str, kind: str, cause: str
) -> None:
    record = tmp_path / "record"
    settings = {**SETTINGS, "entryCacheRecordDirectory": str(record)}
    with BrokerProcess(tmp_path, settings, memory=True) as broker:
        admin, client = Admin(broker.addresses.admin), connect(broker.addresses.pulsar)

        def subscribe() -> pulsar.Consumer:
            return client.subscribe(
                "t", "s", pulsar.ConsumerType.__members__[kind], negative_ack_redelivery_delay_ms=100
            )

        consumer = subscribe()
        publish(client.create_producer("t", batching_enabled=False), numbered(COUNT))
        messages = [consumer.receive(60_000) for _ in range(COUNT)]
        wait_until(lambda: admin.metric("pulsar_ml_cache_x_used_bytes") == 0, "an empty cache")
        if again == "negative":
            for message in messages:
                consumer.negative_acknowledge(message)
        elif again.endswith("closed"):
            if again == "last closed":
                consumer.close()
            other = subscribe()
            if again == "one closed":
                consumer.close()
            consumer = other
        else:
            for message in messages:
                consumer.acknowledge(message)
            consumer.seek(pulsar.MessageId.earliest)
        assert sorted(receive(consumer, COUNT)) == sorted(numbered(COUNT))
        client.close()
    assert causes(record).get(cause, 0) == COUNT, causes(record)
