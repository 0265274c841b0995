"""A live broker writes down every event of its cache, and the replay of the record does the same, event for event.

Real clients on several topics: tails, a Shared subscription with negative acknowledgements, Key_Shared, seeks, readers,
subscriptions that catch up together, a consumer that comes back, ledgers that are trimmed, a topic that is deleted,
a setting that changes; in a cache that is too small for all of it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pulsar
import pytest

from broker.compose.cache_settings import EntryCacheSettings
from broker.recorder.record_reader import BrokerLifetime, events, find
from entry_cache.observe.replay import Replay
from tests.interop.support import Admin, numbered, publish, read, receive, wait_until
from tests.support.slow import slow_but
from tests.vectors.broker_process import BrokerProcess

Earliest = pulsar.InitialPosition.Earliest
KIB: Final = 1024
SETTINGS: Final = {
    "managedLedgerCacheSizeMB": "1",
    "managedLedgerCacheEvictionTimeThresholdMillis": "400",
    "managedLedgerMaxEntriesPerLedger": "150",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "dispatcherMaxReadBatchSize": "20",
    "entryCacheRecordFileSeconds": "1",
}
PIP430: Final = {"entryCachePolicy": "pip430"}
POLICIES: Final[Mapping[str, Mapping[str, str]]] = {
    "4.2": PIP430,
    "5.0": {**PIP430, "pulsarDefaults": "5.0"},
    "stash": {"entryCachePolicy": "pip430-stash"},
    "fifo-ttl": {"entryCachePolicy": "fifo-ttl"},
    "magnetar": {"entryCachePolicy": "magnetar"},
    "by-mark-delete": {
        **PIP430,
        "cacheEvictionByExpectedReadCount": "false",
        "cacheEvictionByMarkDeletedPosition": "true",
    },
}


def bodies(count: int, first: int = 0) -> list[bytes]:
    """Of different sizes, some of them large."""
    return [body + os.urandom((first + at) % 7 * 1500) for at, body in enumerate(numbered(count, first))]


def tail_with_nacks(client: pulsar.Client, topic: str) -> None:
    exclusive = client.subscribe(topic, "tail")
    shared = [
        client.subscribe(
            topic,
            "shared",
            consumer_type=pulsar.ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=100,
            receiver_queue_size=50,
        )
        for _ in range(2)
    ]
    producer = client.create_producer(topic, batching_enabled=True, batching_max_messages=5)
    for first in range(0, 400, 100):
        publish(producer, bodies(100, first))
        receive(exclusive, 100)
    acknowledged = 0
    refused: set[str] = set()
    while acknowledged < 400:
        for consumer in shared:
            try:
                message = consumer.receive(200)
            except pulsar.Timeout:
                continue
            place = str(message.message_id())
            if hash(place) % 5 == 0 and place not in refused:
                refused.add(place)
                consumer.negative_acknowledge(message)
            else:
                consumer.acknowledge(message)
                acknowledged += 1


def by_key(client: pulsar.Client, topic: str) -> None:
    """The second consumer leaves in the middle, so that the first gets what it had."""
    consumers = [
        client.subscribe(topic, "keys", consumer_type=pulsar.ConsumerType.KeyShared, receiver_queue_size=20)
        for _ in range(2)
    ]
    producer = client.create_producer(topic, batching_enabled=False)
    for number, body in enumerate(bodies(200)):
        producer.send_async(body, None, partition_key=f"key-{number % 10}")
    producer.flush()
    consumers[1].receive(60_000)
    consumers[1].close()
    receive(consumers[0], 200)


def catch_up(client: pulsar.Client, topic: str) -> None:
    """Two subscriptions and a reader read a backlog together; one begins again, one leaves and comes back."""
    publish(client.create_producer(topic, block_if_queue_full=True), bodies(400))
    client.subscribe(topic, "keeper", initial_position=Earliest).close()  # Or the beginning would be trimmed.
    both = [client.subscribe(topic, f"late-{n}", initial_position=Earliest) for n in range(2)]
    reading = [threading.Thread(target=receive, args=(consumer, 300)) for consumer in both]
    for thread in reading:
        thread.start()
    read(client.create_reader(topic, pulsar.MessageId.earliest), 400)
    for thread in reading:
        thread.join()
    both[0].seek(pulsar.MessageId.earliest)
    receive(both[0], 400)
    both[1].close()
    receive(client.subscribe(topic, "late-1"), 100)


def deleted(client: pulsar.Client, admin: Admin, topic: str) -> None:
    consumer = client.subscribe(topic, "short", initial_position=Earliest)
    producer = client.create_producer(topic)
    publish(producer, bodies(50))
    receive(consumer, 20)
    consumer.unsubscribe()
    producer.close()
    admin.delete(f"persistent/public/default/{topic}")


def work(broker: BrokerProcess, client: pulsar.Client, topic: str) -> None:
    admin = Admin.of(broker)
    parts: list[Callable[[], None]] = [
        lambda: tail_with_nacks(client, f"{topic}-tail"),
        lambda: by_key(client, f"{topic}-keys"),
        lambda: catch_up(client, f"{topic}-late"),
        lambda: deleted(client, admin, f"{topic}-gone"),
    ]
    failures: list[BaseException] = []

    def guarded(part: Callable[[], None]) -> None:
        try:
            part()
        except BaseException as error:  # noqa: BLE001 - shown by the test that waits for the thread
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    admin.post("brokers/configuration/managedLedgerCacheEvictionTimeThresholdMillis/300")
    for thread in threads:
        thread.join()
    assert not failures, failures


def replayed(run: BrokerLifetime) -> Replay:
    replay = Replay(EntryCacheSettings.from_text(run.files[0].facts.settings))
    for batch in events(run):
        replay.feed(batch)
    replay.finish()
    return replay


METRICS: Final = {
    "hits": ("pulsar_ml_cache_x_hits_total", {}),
    "misses": ("pulsar_ml_cache_x_misses_total", {}),
    "inserted": ("pulsar_ml_cache_x_insertions_total", {}),
    "evicted: ttl": ("pulsar_ml_cache_x_evicted_total", {"reason": "ttl"}),
    "evicted: size": ("pulsar_ml_cache_x_evicted_total", {"reason": "size"}),
}


def metrics(admin: Admin) -> dict[str, float]:
    return {name: admin.metric(metric, **labels) for name, (metric, labels) in METRICS.items()}


@pytest.mark.one_broker("records the cache of one process")
@pytest.mark.parametrize("policy", slow_but(("5.0", "magnetar"), [*POLICIES]))
def test_the_replay_of_a_live_record_equals_the_broker(
    tmp_path: Path, topic: str, policy: str, connected: Callable[[str], pulsar.Client]
) -> None:
    settings: Mapping[str, str] = {
        **SETTINGS,
        **POLICIES[policy],
        "entryCacheRecordDirectory": str(tmp_path / "record"),
    }
    with BrokerProcess(tmp_path, settings) as broker:
        client = connected(broker.addresses.pulsar)
        work(broker, client, topic)
        client.close()
        admin = Admin.of(broker)
        wait_until(lambda: admin.metric("pulsar_ml_cache_x_entries") == 0, "the cache let all entries go")
        seen = metrics(admin)
        wait_until(
            lambda: admin.metric("pulsar_ml_cache_x_record_files_total") > 0,
            "the change of a setting ends a file",
        )
        assert admin.metric("pulsar_ml_cache_x_record_bytes_total") > 0
        assert admin.metric("pulsar_ml_cache_x_record_dropped_rows_total") == 0
        assert admin.metric("pulsar_ml_cache_x_record_errors_total") == 0
        assert broker.stop() == 0
    found = find([tmp_path / "record"])
    assert found.rejected == []
    (run,) = found.lifetimes
    assert len(run.files) > 1
    assert run.why_not_exact() == ""
    replay = replayed(run)
    assert str(replay.difference) == "None"
    assert replay.totals == replay.recorded_totals == run.files[-1].facts.totals
    assert {name: replay.totals[name] for name in seen} == seen
    assert replay.totals["hits"]
    assert replay.totals["misses"]
    reasons = ("ttl", "size") if policy != "by-mark-delete" else ("size", "invalidate")
    assert all(replay.totals[f"evicted: {reason}"] for reason in reasons)
