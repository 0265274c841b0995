"""Apache's classes, and its tool for managed ledgers, read what a broker of ours has left, without a broker of Apache's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, cast

import pulsar
import pytest

from tests.interop.support import Admin, Json, connect, numbered, publish, wait_until
from tests.interop.test_zookeeper import Cluster
from tests.support.apache_broker import OPENS, pulsar_home
from tests.support.java import QUICK, ZooKeeper

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(600)]

Found = dict[str, Json]
NAMESPACE: Final = "firm/read"
MESSAGES: Final = 50
RANGES_OF: Final = 2500
PROPERTIES: Final = {"holes": {"a": "1", "b": "two"}, "nothing": {"c": "3"}}
"""Of subscriptions."""
_PROGRAM: Final = Path(__file__).parent / "java" / "Metadata.java"
_TOOL: Final = "pulsar-managed-ledger-admin"


class Left(NamedTuple):
    """A store that a broker has left."""

    place: str
    """`host:port/chroot`."""
    read: Found
    """All that Apache's classes read in it."""


@pytest.fixture(scope="module")
def left(zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Left]:
    home, folder = pulsar_home(), tmp_path_factory.mktemp("left")
    settings = {
        "managedLedgerMaxEntriesPerLedger": "20",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        "brokerDeleteInactiveTopicsEnabled": "false",
    }
    cluster = Cluster(folder, zookeeper, settings)
    cluster.start()
    try:
        admin = Admin(cluster.broker.addresses.admin)
        _write_documents(admin, cluster.bookie_address)
        client = connect(cluster.broker.addresses.pulsar)
        _write_topics(admin, client)
        client.close()
        assert cluster.broker.stop() == 0
        place = f"{zookeeper.address}{cluster.root}"
        java = ["java", *QUICK, "-Xmx512m", *(f"--add-opens={one}=ALL-UNNAMED" for one in OPENS)]
        command = [*java, "-cp", f"{home}/lib/*", str(_PROGRAM), place, NAMESPACE, "log", "many"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
        assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
        yield Left(place, json.loads(ended.stdout.splitlines()[-1]))
    finally:
        cluster.kill()


def _write_documents(admin: Admin, bookie: str) -> None:
    admin.put("tenants/firm", {"adminRoles": ["boss"], "allowedClusters": ["standalone"]})
    admin.put(f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": 4}})
    admin.put("resourcegroups/group", {"publishRateInMsgs": 100, "dispatchRateInMsgs": 200})
    path = f"namespaces/{NAMESPACE}"
    admin.post(f"{path}/retention", {"retentionTimeInMinutes": 15, "retentionSizeInMB": 30})
    admin.post(f"{path}/messageTTL", 3600)
    admin.post(f"{path}/permissions/reader", ["consume"])
    admin.post(f"{path}/maxProducersPerTopic", 7)
    rate = {"dispatchThrottlingRateInMsg": 1000, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}
    admin.post(f"{path}/dispatchRate", cast("Json", rate))
    admin.put(f"{path}/properties", {"team": "billing"})
    admin.post(f"{path}/resourcegroup/group")
    admin.post(f"{path}/antiAffinity", "apart")
    admin.configure("maxConcurrentTopicLoadRequest", "4000")
    admin.post(f"bookies/racks-info/{bookie}?group=default", {"rack": "/r1", "hostname": "127.0.0.1"})
    admin.put(f"persistent/{NAMESPACE}/parts/partitions", 3)


def _write_topics(admin: Admin, client: pulsar.Client) -> None:
    topic = f"persistent://{NAMESPACE}/log"
    admin.put(f"persistent/{NAMESPACE}/log", {"owner": "me"})
    for fields in (1, 2):
        admin.post(f"schemas/{NAMESPACE}/log/schema", _schema(fields))
    consumer = _subscribe(client, topic, "holes")
    client.subscribe(topic, "nothing", initial_position=pulsar.InitialPosition.Earliest).close()
    for name, properties in PROPERTIES.items():
        admin.put(f"persistent/{NAMESPACE}/log/subscription/{name}/properties", dict(properties))
    # Without a schema, as `_schema` stays the newest: the bytes are not read by it.
    publish(client.create_producer(topic, batching_enabled=False), numbered(MESSAGES))
    received = [consumer.receive(timeout_millis=60_000) for _ in range(MESSAGES)]
    for message in (*received[:10], *received[12:20:2]):
        consumer.acknowledge(message)
    many = _subscribe(client, f"persistent://{NAMESPACE}/many", "ranges")
    producer = client.create_producer(f"persistent://{NAMESPACE}/many", batching_enabled=False)
    for start in range(0, RANGES_OF, 500):
        publish(producer, numbered(500, start))
    for number in range(RANGES_OF):
        message = many.receive(timeout_millis=60_000)
        if number % 2:
            many.acknowledge(message)
    for name, subscription, backlog in (
        ("log", "holes", MESSAGES - 14),
        ("many", "ranges", RANGES_OF // 2),
    ):
        has = partial(_has_backlog, admin, f"persistent://{NAMESPACE}/{name}", subscription, backlog)
        wait_until(has, f"{subscription} has {backlog} entries left")


def _subscribe(client: pulsar.Client, topic: str, name: str) -> pulsar.Consumer:
    return client.subscribe(
        topic,
        name,
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
    )


def _has_backlog(admin: Admin, topic: str, name: str, backlog: int) -> bool:
    return admin.subscription(topic, name)["msgBacklog"] == backlog


def _schema(fields: int) -> Found:
    named = [{"name": f"f{number}", "type": "int", "default": 0} for number in range(fields)]
    text = json.dumps({"type": "record", "name": "A", "fields": named})
    return {"type": "AVRO", "schema": text, "properties": {}}


def _part(found: Json, *path: str) -> Found:
    for name in path:
        assert isinstance(found, dict)
        found = found[name]
    assert isinstance(found, dict), found
    return found


def test_documents_are_read_by_the_classes_of_the_broker(left: Left) -> None:
    read = left.read
    assert read["tenant"] == {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
    assert "standalone" in cast("list[Json]", read["clusters"])
    policies = _part(read, "policies")
    assert policies["retention_policies"] == {"retentionTimeInMinutes": 15, "retentionSizeInMB": 30}
    assert (policies["message_ttl_in_seconds"], policies["max_producers_per_topic"]) == (3600, 7)
    assert _part(policies, "auth_policies", "namespace_auth") == {"reader": ["consume"]}
    rates = _part(policies, "topicDispatchRate", "standalone")
    assert rates["dispatchThrottlingRateInMsg"] == 1000
    assert (policies["properties"], policies["resource_group_name"]) == ({"team": "billing"}, "group")
    local = _part(read, "local")
    assert (local["namespaceAntiAffinityGroup"], _part(local, "bundles")["numBundles"]) == ("apart", 4)
    assert _part(read, "settings") == {"maxConcurrentTopicLoadRequest": "4000"}
    (racks,) = _part(read, "racks", "default").values()
    assert racks == {"rack": "/r1", "hostname": "127.0.0.1"}
    group = _part(read, "groups", "group")
    assert (group["publishRateInMsgs"], group["dispatchRateInMsgs"]) == (100, 200)
    parts = _part(read, "partitioned", f"persistent://{NAMESPACE}/parts")
    assert (parts["partitions"], parts["deleted"]) == (3, False)


def test_messages_schemas_and_positions_are_read_by_the_managed_ledger(left: Left) -> None:
    log = _part(left.read, "topics", "log")
    assert log["messages"] == [message.decode() for message in numbered(MESSAGES)]
    assert log["schemas"] == [f"AVRO {_schema(fields)['schema']}" for fields in (1, 2)]
    assert (_part(log, "properties")["owner"], log["terminated"]) == ("me", False)
    info = _part(log, "info")
    entries = [_part(one)["entries"] for one in cast("list[Json]", info["ledgers"])]
    assert [count for count in entries if count] == [20, 20, 10]
    named = {cast("int", _part(one)["ledgerId"]) for one in cast("list[Json]", info["ledgers"])}
    assert named <= set(cast("list[int]", left.read["ledgers"]))
    cursors = _part(log, "cursors")
    assert cursors.keys() >= {"holes", "nothing"}
    holes, nothing = _part(cursors, "holes"), _part(cursors, "nothing")
    assert (holes["backlog"], holes["holes"]) == (MESSAGES - 14, 4)
    assert (nothing["backlog"], nothing["holes"]) == (MESSAGES, 0)
    assert {name: _part(cursors, name)["properties"] for name in PROPERTIES} == PROPERTIES


def test_more_ranges_than_a_node_takes_are_read_from_the_ledger_of_the_cursor(left: Left) -> None:
    many = _part(left.read, "topics", "many")
    assert cast("int", _part(many, "info", "cursors", "ranges")["cursorsLedgerId"]) >= 0
    ranges = _part(many, "cursors", "ranges")
    assert (ranges["backlog"], ranges["holes"]) == (RANGES_OF // 2, RANGES_OF // 2)


def test_tool_for_managed_ledgers_prints_lists_and_cursors(left: Left) -> None:
    folder = pulsar_home() / "bin"
    if not (folder / _TOOL).exists():
        pytest.skip(f"the distribution has no {_TOOL}")
    answers = {}
    for command in ("print-managed-ledger", "print-cursor"):
        name = f"{NAMESPACE}/persistent/log"
        asked = [
            sys.executable,
            str(folder / _TOOL),
            command,
            "-zk",
            left.place,
            "-mlp",
            name,
            "-cn",
            "nothing",
        ]
        ended = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        answers[command] = ended.stdout
    assert answers["print-managed-ledger"].count("ledgerId:") >= 3, answers
    assert "entries: 20" in answers["print-managed-ledger"], answers
    assert "markDeleteLedgerId:" in answers["print-cursor"], answers
