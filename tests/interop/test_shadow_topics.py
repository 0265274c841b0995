"""The official client reads a topic through its shadow: same messages and ids, one cache, its own subscriptions."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
from collections.abc import Callable, Iterator

import pulsar
import pytest

from tests.interop.support import Admin, Clocks, Json, numbered, publish, receive, wait_until
from tests.vectors.broker_process import REPOSITORY, BrokerProcess

SETTINGS = {"managedLedgerMaxEntriesPerLedger": "50", "managedLedgerMinLedgerRolloverTimeMinutes": "0"}
NAMES = ("one", "other")
COUNT = 200
EARLIEST = pulsar.InitialPosition.Earliest
ONE_CACHE = pytest.mark.one_broker("source and shadow share the cache of one process")


@pytest.fixture
def shadow(admin: Admin, topic: str) -> str:
    """A shadow of the topic."""
    return make_shadow(admin, topic)


def make_shadow(admin: Admin, topic: str) -> str:
    """Makes a topic and its shadow; returns the shadow's name."""
    name = f"{topic}-shadow"
    admin.put(f"persistent/public/default/{topic}")
    source: Json = {"PULSAR.SHADOW_SOURCE": f"persistent://public/default/{topic}"}
    admin.put(f"persistent/public/default/{name}", source)
    return name


def ids(consumer: pulsar.Consumer, count: int) -> list[tuple[int, int]]:
    """Acknowledges messages, and returns their places."""
    found = []
    for _ in range(count):
        message = consumer.receive(60_000)
        consumer.acknowledge(message)
        found.append((message.message_id().ledger_id(), message.message_id().entry_id()))
    return found


def stored(admin: Admin, topic: str) -> int:
    """Entries that the log of the topic has."""
    found = admin.get(f"persistent/public/default/{topic}/internalStats")
    assert isinstance(found, dict)
    assert isinstance(found["numberOfEntries"], int)
    return found["numberOfEntries"]


@ONE_CACHE
def test_entries_are_cached_once_for_the_readers_of_source_and_shadow(
    broker: BrokerProcess, client: pulsar.Client, admin: Admin, topic: str, shadow: str
) -> None:
    before = {name: admin.metric(name) for name in ("pulsar_ml_cache_inserted_entries_total",)}
    consumers = [client.subscribe(one, name) for one in (topic, shadow) for name in NAMES]
    publish(client.create_producer(topic, batching_enabled=False), numbered(COUNT))
    found = [ids(consumer, COUNT) for consumer in consumers]
    assert found == [found[0]] * 4
    assert (
        admin.metric("pulsar_ml_cache_inserted_entries_total")
        == COUNT + before["pulsar_ml_cache_inserted_entries_total"]
    )
    for one in (topic, shadow):
        full = f"persistent://public/default/{one}"
        assert admin.metric("pulsar_ml_cache_x_topic_hits_total", topic=full) == 2 * COUNT
        assert admin.metric("pulsar_ml_cache_x_topic_misses_total", topic=full) == 0
    ledger_id, entry_id = found[0][0]
    command = [sys.executable, "-m", "magnetar", "cache", "why", shadow, f"{ledger_id}:{entry_id}"]
    command += ["--admin-url", broker.addresses.admin]
    told = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True)
    assert f"one of persistent://public/default/{shadow}" in told.stdout


@ONE_CACHE
def test_late_readers_of_both_share_the_reads_from_the_bookie(
    client: pulsar.Client, admin: Admin, topic: str, shadow: str
) -> None:
    publish(client.create_producer(topic, batching_enabled=False), numbered(COUNT))
    admin.put(f"persistent/public/default/{topic}/unload")
    consumers = [
        client.subscribe(one, name, initial_position=EARLIEST) for one in (topic, shadow) for name in NAMES
    ]
    for consumer in consumers:
        assert receive(consumer, COUNT) == numbered(COUNT)
    full = [f"persistent://public/default/{one}" for one in (topic, shadow)]

    def total(name: str) -> float:
        return sum(admin.metric(f"pulsar_ml_cache_x_topic_{name}_total", topic=one) for one in full)

    reads = {name: total(name) for name in ("hits", "misses", "coalesced")}
    assert sum(reads.values()) == 4 * COUNT
    # Without sharing, each log would have COUNT misses of its own.
    assert COUNT <= reads["misses"] < 1.25 * COUNT, reads


def test_slow_shadow_keeps_the_ledgers_of_its_source(
    client: pulsar.Client, admin: Admin, topic: str, shadow: str
) -> None:
    quick = client.subscribe(topic, "quick")
    slow = client.subscribe(shadow, "slow")
    publish(client.create_producer(topic, batching_enabled=False), numbered(COUNT))
    assert receive(quick, COUNT) == numbered(COUNT)
    wait_until(lambda: admin.subscription(topic, "quick")["msgBacklog"] == 0, "the source is acknowledged")
    admin.post(f"persistent/public/default/{topic}/trim")
    assert stored(admin, topic) == COUNT
    slow.close()
    admin.put(f"persistent/public/default/{shadow}/unload")
    admin.post(f"persistent/public/default/{topic}/trim")
    assert stored(admin, topic) == COUNT, "the stored position of a closed shadow counts"
    slow = client.subscribe(shadow, "slow")
    assert receive(slow, COUNT) == numbered(COUNT)

    def trimmed() -> bool:
        admin.post(f"persistent/public/default/{topic}/trim")
        return stored(admin, topic) < COUNT

    wait_until(trimmed, "the source removes what the shadow has acknowledged")


def test_client_goes_on_through_unloads_and_learns_of_the_end(
    client: pulsar.Client, admin: Admin, topic: str, shadow: str
) -> None:
    consumer = client.subscribe(shadow, "s")
    producer = client.create_producer(topic)
    for number, unloaded in enumerate((topic, shadow)):
        publish(producer, [b"%d" % number])
        assert receive(consumer, 1) == [b"%d" % number]
        wait_until(lambda: admin.subscription(shadow, "s")["msgBacklog"] == 0, "it is acknowledged")
        admin.put(f"persistent/public/default/{unloaded}/unload")
    publish(producer, [b"last"])
    assert receive(consumer, 1) == [b"last"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        admin.delete(f"persistent/public/default/{topic}?force=true")
    assert refused.value.code == 422
    assert shadow in json.dumps(refused.value.read().decode())
    consumer.close()
    admin.delete(f"persistent/public/default/{shadow}")


@pytest.fixture(scope="module")
def advanced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose clock a test advances."""
    with BrokerProcess(
        tmp_path_factory.mktemp("advanced"), SETTINGS, memory=True, test_faults=True
    ) as running:
        yield running


@pytest.mark.parametrize(
    ("policy", "body"),
    [
        ("messageTTL?messageTTL=3600", None),
        (
            "backlogQuota?backlogQuotaType=destination_storage",
            {"limitSize": 1, "policy": "consumer_backlog_eviction"},
        ),
    ],
)
@pytest.mark.parametrize("limited", [0, 1])
def test_time_to_live_and_quota_act_on_the_topic_that_has_them_alone(
    advanced: BrokerProcess,
    connected: Callable[[str], pulsar.Client],
    topic: str,
    policy: str,
    body: Json,
    limited: int,
) -> None:
    client, admin = connected(advanced.addresses.pulsar), Admin.of(advanced)
    topics = [topic, make_shadow(admin, topic)]
    for one in topics:
        client.subscribe(one, "s").close()
    publish(client.create_producer(topic, batching_enabled=False), numbered(COUNT))
    admin.post(f"persistent/public/default/{topics[limited]}/{policy}", body)
    Clocks(advanced).advance(hours=2)
    wait_until(lambda: admin.subscription(topics[limited], "s")["msgBacklog"] == 0, "its messages are gone")
    assert admin.subscription(topics[not limited], "s")["msgBacklog"] == COUNT
    assert receive(client.subscribe(topics[not limited], "s"), COUNT) == numbered(COUNT)
