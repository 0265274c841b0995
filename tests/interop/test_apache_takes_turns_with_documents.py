"""A broker of ours and one of Apache Pulsar take turns, with all that administrators set, and with names of producers.

Policies of a namespace, properties of subscriptions and topics, partitions: each broker shows what the other one set, and
changes it. The names that brokers give to producers never repeat, whoever began.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import pulsar
import pytest
from kazoo.client import KazooClient

from broker.managed_ledger.opening import INDEX, TIMESTAMP
from broker.managed_ledger.records.pulsar_records import PREFIX
from tests.interop.support import Admin, Json, connect
from tests.interop.test_apache_takes_turns import Turns
from tests.support.java import ZooKeeper
from tests.vectors.broker_process import Addresses

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(900)]

NAMESPACE: Final = "public/changed"
PATH: Final = f"namespaces/{NAMESPACE}"
TURNS: Final = 4
WORDS: Final = (
    "retention",
    "messageTTL",
    "maxProducersPerTopic",
    "maxConsumersPerSubscription",
    "deduplication",
    "dispatchRate",
    "subscriptionDispatchRate",
    "publishRate",
    "persistence",
    "backlogQuotaMap",
    "delayedDelivery",
    "permissions",
    "schemaCompatibilityStrategy",
    "subscriptionTypesEnabled",
    "autoTopicCreation",
    "inactiveTopicPolicies",
    "compactionThreshold",
    "properties",
    "bundles",
)


def change(admin: Admin, client: pulsar.Client, turn: int) -> None:
    """Sets everything to values of the turn, and removes something of the turn before."""
    if not turn:
        admin.put(PATH, {"bundles": {"numBundles": 4}})
        admin.put(f"persistent/{NAMESPACE}/plain", {"made": "first"})
        client.subscribe(f"persistent://{NAMESPACE}/plain", "s").close()
        admin.put(f"persistent/{NAMESPACE}/parts/partitions", 2)
    rate: Json = {
        "dispatchThrottlingRateInMsg": 500 + turn,
        "dispatchThrottlingRateInByte": 1_000_000,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": 1,
    }
    values: dict[str, Json] = {
        "retention": {"retentionTimeInMinutes": 10 + turn, "retentionSizeInMB": 300},
        "messageTTL": 1000 + turn,
        "maxProducersPerTopic": 20 + turn,
        "maxConsumersPerSubscription": 30 + turn,
        "deduplication": turn % 2 == 1,
        "dispatchRate": rate,
        "subscriptionDispatchRate": rate,
        "publishRate": {"publishThrottlingRateInMsg": 9000 + turn, "publishThrottlingRateInByte": 9_000_000},
        "persistence": {
            "bookkeeperEnsemble": 1,
            "bookkeeperWriteQuorum": 1,
            "bookkeeperAckQuorum": 1,
            "managedLedgerMaxMarkDeleteRate": 50.0 + turn,
        },
        "backlogQuota": {
            "limitSize": 1_000_000 + turn,
            "limitTime": -1,
            "policy": "consumer_backlog_eviction",
        },
        "delayedDelivery": {"active": True, "tickTime": 2000 + turn, "maxDeliveryDelayInMillis": 0},
        f"permissions/role{turn}": ["consume"],
        "subscriptionTypesEnabled": [*("Shared", "Exclusive", "Failover")[: 2 + turn % 2]],
        "autoTopicCreation": {"allowAutoTopicCreation": True, "topicType": "non-partitioned"},
        "inactiveTopicPolicies": {
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            "maxInactiveDurationSeconds": 3000 + turn,
            "deleteWhileInactive": False,
        },
    }
    for word, value in values.items():
        admin.post(f"{PATH}/{word}", value)
    admin.put(f"{PATH}/schemaCompatibilityStrategy", ("BACKWARD", "FULL")[turn % 2])
    admin.put(f"{PATH}/compactionThreshold", 100_000 + turn)
    admin.put(f"{PATH}/properties", {f"turn{turn}": "x", "last": str(turn)})
    if turn:
        admin.delete(f"{PATH}/permissions/role{turn - 1}")
        admin.post(f"persistent/{NAMESPACE}/parts/partitions", 2 + turn)
    if turn == TURNS - 1:
        for word in ("retention", "messageTTL", "delayedDelivery"):
            admin.delete(f"{PATH}/{word}")
    admin.put(f"persistent/{NAMESPACE}/plain/properties", {f"turn{turn}": "y"})
    admin.put(f"persistent/{NAMESPACE}/parts/properties", {f"turn{turn}": "z"})
    admin.put(
        f"persistent/{NAMESPACE}/plain/subscription/s/properties", {f"turn{turn}": "s", "last": str(turn)}
    )


def shown(admin: Admin) -> dict[str, Json]:
    """All that is set."""
    found = {word: admin.get(f"{PATH}/{word}") for word in WORDS}
    for topic in ("plain", "parts"):
        properties = admin.get(f"persistent/{NAMESPACE}/{topic}/properties")
        assert isinstance(properties, dict)
        # Those that Magnetar keeps with a log; an Apache broker shows them among the topic's.
        found[f"properties of {topic}"] = {
            name: text
            for name, text in properties.items()
            if not name.startswith(PREFIX) and name not in (INDEX, TIMESTAMP)
        }
    partitions = admin.get(f"persistent/{NAMESPACE}/parts/partitions")
    assert isinstance(partitions, dict)
    found["partitions"] = partitions["partitions"]
    subscription = admin.subscription(f"persistent://{NAMESPACE}/plain", "s")
    found["subscription"] = subscription["subscriptionProperties"]
    if isinstance(types := found["subscriptionTypesEnabled"], list):
        found["subscriptionTypesEnabled"] = [*sorted(map(str, types))]  # A set.
    # Each broker has its own way to say that nothing is set; Apache shows a member that no request has set.
    if isinstance(persistence := found["persistence"], dict):
        persistence.pop("managedLedgerStorageClassName", None)
    if isinstance(quotas := found["backlogQuotaMap"], dict):
        quotas.pop("message_age", None)
    return {word: value for word, value in found.items() if value not in (None, {}, [])}


def names_of_producers(client: pulsar.Client, turn: int) -> list[str]:
    """Lets the broker name some producers."""
    topic = f"persistent://{NAMESPACE}/plain"
    return [cast("str", client.create_producer(topic).producer_name()) for _ in range(3)]


@pytest.fixture
def turns(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Turns]:
    turns = Turns(tmp_path, zookeeper, 1000)
    yield turns
    turns.apache.kill()
    turns.cluster.kill()


@pytest.mark.parametrize("first", ["apache", "ours"])
def test_documents_pass_from_each_to_the_other_and_names_of_producers_never_repeat(
    turns: Turns, first: str, zookeeper: ZooKeeper
) -> None:
    wanted: dict[str, Json] = {}
    names: list[str] = []
    counts: list[int] = []
    for turn in range(TURNS):
        is_ours = (turn % 2 == 0) == (first == "ours")
        addresses = _start(turns, is_ours)
        admin, client = Admin(addresses.admin), connect(addresses.pulsar)
        if turn:
            assert shown(admin) == wanted, f"turn {turn}"
        change(admin, client, turn)
        wanted = shown(admin)
        assert wanted.keys() >= {*WORDS, "partitions", "subscription"} - {
            "retention",
            "messageTTL",
            "delayedDelivery",
        }
        names += names_of_producers(client, turn)
        client.close()
        counts.append(_starts_counted(f"{zookeeper.address}{turns.cluster.root}"))
        _stop(turns, is_ours)
    assert len(set(names)) == len(names), names
    # While no broker of ours has been there, ZooKeeper may remove Apache's counter between two turns.
    since_ours = counts[0 if first == "ours" else 1 :]
    assert since_ours == sorted(set(since_ours)), counts


def _start(turns: Turns, is_ours: bool) -> Addresses:
    (turns.cluster.broker if is_ours else turns.apache).start()
    return turns.cluster.broker.addresses if is_ours else turns.apache.addresses


def _stop(turns: Turns, is_ours: bool) -> None:
    if is_ours:
        assert turns.cluster.broker.stop() == 0
    else:
        turns.apache.stop()


def _starts_counted(place: str) -> int:
    """Returns the highest number that a broker which runs has taken from Pulsar's counter."""
    observer = KazooClient(hosts=place)
    observer.start()
    try:
        numbers = [name for name in observer.get_children("/counters/producer-name") if name.startswith("-")]
        return max(int(name.removeprefix("-")) for name in numbers)
    finally:
        observer.stop()
        observer.close()
