"""A broker of ours and one of Apache Pulsar's take turns on one ZooKeeper and one bookie: each serves what the other left.

Messages, positions, holes, schemas and policies of topics. Batches that are acknowledged in part are not compared: Apache
4.2.4 forgets them in its own restart.
"""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pulsar
import pytest
from kazoo.client import KazooClient

from tests.interop.support import Admin, Json, connect, numbered, publish, wait_until
from tests.interop.test_zookeeper import Cluster
from tests.support.apache_broker import ApacheBroker, pulsar_home
from tests.support.java import ZooKeeper
from tests.vectors.broker_process import Addresses

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(900)]

MESSAGES: Final = 50
"""In each turn; more than two ledgers."""
SETTINGS: Final = {
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerDefaultMarkDeleteRateLimit": "0",
    "brokerDeleteInactiveTopicsEnabled": "false",
}
RANGES_OF: Final = 3000
NAMES: Final = ("holes", "half", "nothing")
"""Subscriptions, by what a turn acknowledges."""


class Turns:
    """Both brokers, and what is not acknowledged yet."""

    def __init__(
        self,
        folder: Path,
        zookeeper: ZooKeeper,
        ledger_entries: int,
        settings: Mapping[str, str] = MappingProxyType({}),
        *,
        is_set_up: bool = True,
    ) -> None:
        """`settings` are those of both; `is_set_up`: Apache's setup tool is the first to write to the store."""
        settings = {**SETTINGS, "managedLedgerMaxEntriesPerLedger": str(ledger_entries), **settings}
        self.cluster = Cluster(folder, zookeeper, settings)
        self.apache = ApacheBroker(
            pulsar_home(), folder, f"zk:{zookeeper.address}{self.cluster.root}", settings
        )
        if is_set_up:
            self.apache.set_up()
        self.cluster.start_bookie()
        self.unacked: dict[str, set[bytes]] = {name: set() for name in NAMES}

    def take(self, broker: Addresses, topic: str, turn: int) -> None:
        """Publishes, receives everything that is not acknowledged, and acknowledges a part."""
        client, admin = connect(broker.pulsar), Admin(broker.admin)
        consumers = {name: _subscribe(client, topic, name) for name in NAMES}
        sent = numbered(MESSAGES, turn * MESSAGES)
        publish(client.create_producer(topic, batching_enabled=False), sent)
        for name, consumer in consumers.items():
            wanted = self.unacked[name] = self.unacked[name] | set(sent)
            messages = [consumer.receive(timeout_millis=60_000) for _ in wanted]
            got = {message.data() for message in messages}
            assert (wanted - got, got - wanted) == (set(), set()), f"turn {turn}, {name}"
            with pytest.raises(pulsar.Timeout):
                consumer.receive(timeout_millis=1000)
            chosen = {"holes": messages[1::3], "half": messages[: len(messages) // 2], "nothing": []}
            for message in chosen[name]:
                consumer.acknowledge(message)
                wanted.discard(message.data())
        for name in NAMES:
            # The client sends acknowledgements later, and asks for no answer.
            left = len(self.unacked[name])
            wait_until(
                partial(self._has_left, admin, topic, name, left), f"{left} messages are left for {name}"
            )
        client.close()

    def kill_ours(self) -> None:
        """Kills our broker and waits for the end of its session; until then Apache's sends requests to it."""
        self.cluster.broker.kill()
        observer = KazooClient(hosts=self.cluster.zookeeper.address + self.cluster.root)
        observer.start()
        wait_until(lambda: not observer.get_children("/loadbalance/brokers"), "the session has ended")
        observer.stop()
        observer.close()

    @staticmethod
    def _has_left(admin: Admin, topic: str, name: str, left: int) -> bool:
        return admin.subscription(topic, name)["msgBacklog"] == left


def _subscribe(client: pulsar.Client, topic: str, name: str) -> pulsar.Consumer:
    return client.subscribe(
        topic,
        name,
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
    )


@pytest.fixture(params=[20])
def turns(tmp_path: Path, zookeeper: ZooKeeper, request: pytest.FixtureRequest) -> Iterator[Turns]:
    """Both brokers; the parameter is the number of entries in a ledger."""
    turns = Turns(tmp_path, zookeeper, request.param)
    yield turns
    turns.apache.kill()
    turns.cluster.kill()


def test_brokers_that_take_turns_lose_no_message_and_no_acknowledgement(turns: Turns) -> None:
    topic = "persistent://public/default/turns"
    ours = turns.cluster.broker
    for turn in range(0, 4, 2):
        turns.apache.start()
        turns.take(turns.apache.addresses, topic, turn)
        turns.apache.stop()
        ours.start()
        turns.take(ours.addresses, topic, turn + 1)
        assert ours.stop() == 0


@pytest.mark.parametrize("turns", [1000], indirect=True)
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_more_ranges_than_a_node_takes_pass_from_each_to_the_other(turns: Turns, how: str) -> None:
    """Every second of 3,000 messages is acknowledged, so the cursor has 1,100 ranges at least, in its ledger."""
    topic, name = "persistent://public/default/ranges", "s"
    ours, theirs = turns.cluster.broker, turns.apache
    theirs.start()
    client = connect(theirs.addresses.pulsar)
    consumer = _subscribe(client, topic, name)
    sent = numbered(RANGES_OF)
    producer = client.create_producer(topic, batching_enabled=False)
    # Less than a client's queue at a time.
    for start in range(0, RANGES_OF, 500):
        publish(producer, sent[start : start + 500])
    unacked = _acknowledge(consumer, sent, range(1, RANGES_OF, 2))
    _wait_for(theirs.addresses, topic, name, len(unacked))
    client.close()
    getattr(theirs, how)()
    ours.start()
    client = connect(ours.addresses.pulsar)
    # Every fourth of those that are left, so that no range meets its neighbour.
    unacked = _acknowledge(_subscribe(client, topic, name), unacked, range(0, len(unacked), 4))
    _wait_for(ours.addresses, topic, name, len(unacked))
    client.close()
    if how == "stop":
        assert ours.stop() == 0
    else:
        # The backlog is that of the memory. The properties are stored together with the acknowledgements before them.
        Admin(ours.addresses.admin).put(
            f"persistent/public/default/ranges/subscription/{name}/properties", {"a": "b"}
        )
        ours.kill()
    theirs.start()
    client = connect(theirs.addresses.pulsar)
    assert _acknowledge(_subscribe(client, topic, name), unacked, ()) == unacked
    client.close()


def _acknowledge(consumer: pulsar.Consumer, expected: Sequence[bytes], places: Iterable[int]) -> list[bytes]:
    """Receives the expected messages and no other, acknowledges those at the places, and returns the rest."""
    messages = {
        message.data(): message for message in (consumer.receive(timeout_millis=60_000) for _ in expected)
    }
    assert set(messages) == set(expected)
    with pytest.raises(pulsar.Timeout):
        consumer.receive(timeout_millis=1000)
    chosen = {expected[place] for place in places}
    for data in chosen:
        consumer.acknowledge(messages[data])
    return [data for data in expected if data not in chosen]


def _wait_for(addresses: Addresses, topic: str, name: str, left: int) -> None:
    admin = Admin(addresses.admin)
    wait_until(
        lambda: admin.subscription(topic, name)["msgBacklog"] == left, f"{left} messages are left for {name}"
    )


def test_schemas_pass_from_each_to_the_other(turns: Turns) -> None:
    """Each broker adds a version, deletes a schema, and has all that the other one did before."""
    ours, theirs = turns.cluster.broker, turns.apache
    added: list[str] = []
    places: list[Json] = []
    for turn in range(4):
        if turn % 2:
            ours.start()
        else:
            theirs.start()
        admin = Admin(ours.addresses.admin if turn % 2 else theirs.addresses.admin)
        if not turn:
            for topic in ("versions", "deleted"):
                admin.put(f"persistent/public/default/{topic}")
            admin.post("schemas/public/default/deleted/schema", _schema(0))
        assert _versions(admin) == [(number, text) for number, text in enumerate(added)]
        admin.post("schemas/public/default/versions/schema", _schema(turn))
        added.append(str(_schema(turn)["schema"]))
        assert _versions(admin)[-1] == (turn, added[-1])
        # Ledgers of the other's versions are those that the other one named.
        index = _index(admin)
        assert index[:-1] == places
        places = index
        if turn == 1:
            admin.delete("schemas/public/default/deleted/schema")
        if turn >= 1:
            with pytest.raises(urllib.error.HTTPError, match="404"):
                admin.get("schemas/public/default/deleted/schema")
        if turn % 2:
            assert ours.stop() == 0
        else:
            theirs.stop()


def _schema(turn: int) -> dict[str, Json]:
    fields = [{"name": f"f{number}", "type": "int", "default": 0} for number in range(turn + 1)]
    definition = json.dumps({"type": "record", "name": "A", "fields": fields})
    return {"type": "AVRO", "schema": definition, "properties": {}}


def _index(admin: Admin) -> list[Json]:
    """Number, ledger and entry of each version."""
    found = admin.get("schemas/public/default/versions/metadata")
    assert isinstance(found, dict)
    index = found["index"]
    assert isinstance(index, list)
    assert found["info"] == index[-1]
    return index


def _versions(admin: Admin) -> list[tuple[int, str]]:
    """The numbers and definitions of all versions; none while there is no schema."""
    try:
        found = admin.get("schemas/public/default/versions/schemas")
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return []
    assert isinstance(found, dict)
    shown = found["getSchemaResponses"]
    assert isinstance(shown, list)
    versions: list[tuple[int, str]] = []
    for one in shown:
        assert isinstance(one, dict)
        assert isinstance(one["version"], int)
        versions.append((one["version"], str(one["data"])))
    return versions


POLICIES: Final[dict[str, Json]] = {
    "retention": {"retentionTimeInMinutes": 15, "retentionSizeInMB": 30720},
    "messageTTL": 3600,
    "maxConsumers": 1,
    "maxProducers": 4,
    "deduplicationEnabled": True,
    "delayedDelivery": {"active": True, "tickTime": 2000, "maxDeliveryDelayInMillis": 0},
    "dispatchRate": {
        "dispatchThrottlingRateInMsg": 500,
        "dispatchThrottlingRateInByte": 1000000,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": 1,
    },
    "persistence": {
        "bookkeeperEnsemble": 1,
        "bookkeeperWriteQuorum": 1,
        "bookkeeperAckQuorum": 1,
        "managedLedgerMaxMarkDeleteRate": 50.0,
    },
    "subscriptionTypesEnabled": ["Shared", "Exclusive"],
    "inactiveTopicPolicies": {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 3000,
        "deleteWhileInactive": False,
    },
    "subscribeRate": {"subscribeThrottlingRatePerConsumer": 100, "ratePeriodInSecond": 30},
    "publishRate": {"publishThrottlingRateInMsg": 9000, "publishThrottlingRateInByte": 9000000},
    "compactionThreshold": 100000000,
    "schemaCompatibilityStrategy": "BACKWARD",
}
"""Values of policies, by the last part of their path."""
_QUOTA: Final[Json] = {"limitSize": 1234567, "limitTime": -1, "policy": "consumer_backlog_eviction"}
_PUT: Final = ("schemaCompatibilityStrategy",)
_IN_QUERY: Final = ("messageTTL",)


class PolicyAdmin:
    """Requests about the policies of topics in public/default."""

    def __init__(self, addresses: Addresses) -> None:
        self.admin = Admin(addresses.admin)

    def set(self, topic: str, word: str, value: Json, query: str = "") -> None:
        path = f"persistent/public/default/{topic}/{word}"
        if word in _IN_QUERY:
            self.admin.post(f"{path}?{word}={value}{query.replace('?', '&')}")
        else:
            (self.admin.put if word in _PUT else self.admin.post)(path + query, value)

    def remove(self, topic: str, word: str) -> None:
        self.admin.delete(f"persistent/public/default/{topic}/{word}")

    def shown(self, topic: str) -> dict[str, Json]:
        """All that is set."""
        words = [*POLICIES, "backlogQuotaMap", "maxSubscriptionsPerTopic", "maxProducers?isGlobal=true"]
        answers = {word: self.admin.get(f"persistent/public/default/{topic}/{word}") for word in words}
        found: dict[str, Json] = {
            word: value for word, value in answers.items() if value not in (None, {}, [])
        }
        if isinstance(types := found.get("subscriptionTypesEnabled"), list):
            # A set.
            found["subscriptionTypesEnabled"] = [*sorted(map(str, types))]
        if isinstance(persistence := found.get("persistence"), dict):
            # Apache shows a member that no request has set.
            persistence.pop("managedLedgerStorageClassName", None)
        return found


def test_policies_of_topics_pass_from_each_to_the_other(turns: Turns) -> None:
    ours, theirs = turns.cluster.broker, turns.apache
    ours.start()
    mine = PolicyAdmin(ours.addresses)
    for topic in ("policies", "emptied", "left"):
        mine.admin.put(f"persistent/public/default/{topic}")
    mine.admin.create_partitioned("parts", 2)
    for word, value in POLICIES.items():
        mine.set("policies", word, value)
    mine.set("policies", "backlogQuota", _QUOTA)
    mine.set("policies", "maxProducers", 7, "?isGlobal=true")
    for topic in ("emptied", "left", "parts"):
        mine.set(topic, "maxConsumers", 1)
        mine.set(topic, "maxSubscriptionsPerTopic", 5)
    mine.remove("left", "maxSubscriptionsPerTopic")
    wanted = {topic: mine.shown(topic) for topic in ("policies", "emptied", "left", "parts")}
    assert wanted["policies"].keys() == {*POLICIES, "backlogQuotaMap", "maxProducers?isGlobal=true"}
    assert wanted["left"] == {"maxConsumers": 1}
    assert ours.stop() == 0

    theirs.start()
    apache = PolicyAdmin(theirs.addresses)
    assert {topic: apache.shown(topic) for topic in wanted} == wanted
    _refuses_a_second_consumer(theirs.addresses, "left")
    _refuses_a_second_consumer(theirs.addresses, "parts-partition-1")
    apache.set("policies", "maxConsumers", 3)
    apache.set("policies", "maxSubscriptionsPerTopic", 6)
    for word in ("retention", "deduplicationEnabled", "subscriptionTypesEnabled"):
        apache.remove("policies", word)
    apache.remove("parts", "maxConsumers")
    apache.admin.delete("persistent/public/default/emptied/policies")
    apache.admin.delete("persistent/public/default/left?force=true")
    apache.admin.put("persistent/public/default/late")
    apache.set("late", "maxConsumers", 1)
    topics = ("policies", "emptied", "parts", "late")
    wanted = {topic: apache.shown(topic) for topic in topics}
    assert wanted["emptied"] == {}
    theirs.stop()

    ours.start()
    mine = PolicyAdmin(ours.addresses)
    assert {topic: mine.shown(topic) for topic in topics} == wanted
    _refuses_a_second_consumer(ours.addresses, "late")
    mine.admin.put("persistent/public/default/left")
    assert mine.shown("left") == {}, "it was deleted with its policies"
    mine.set("policies", "messageTTL", 60)
    wanted["policies"] = {**wanted["policies"], "messageTTL": 60}
    turns.kill_ours()

    theirs.start()
    assert {topic: apache.shown(topic) for topic in topics} == wanted, "also after a kill"


def _refuses_a_second_consumer(addresses: Addresses, topic: str) -> None:
    client = connect(addresses.pulsar)
    first = _subscribe(client, topic, "first")
    with pytest.raises(pulsar.ConsumerBusy):
        _subscribe(client, topic, "second")
    first.close()
    client.close()
