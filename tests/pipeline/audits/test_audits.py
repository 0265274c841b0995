"""Audits find every planted leak and nothing else, in a generated cluster and in the metadata of a real broker."""

from __future__ import annotations

import asyncio
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pulsar
import pytest

pytest.importorskip("pyspark", reason="needs the extra spark, pip install WHEEL[spark]")

from bookkeeper.metadata.metadata_store import MetadataStore
from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from broker.managed_ledger.ledger_list import LedgerInfo
from broker.managed_ledger.managed_ledger_info import CursorInfo, ManagedLedgerInfo
from broker.managed_ledger.records.pulsar_records import (
    StoredCursor,
    decode_ledger_list,
    encode_cursor,
    encode_ledger_list,
)
from foundation.model.position import Position
from foundation.value import Json
from foundation.zookeeper.url import parse_store_url
from magnetar.__main__ import main
from pipeline.audits.acks import COSTS
from pipeline.audits.limits import Limits
from pipeline.audits.run import AUDITS, run_audit, without_repeats
from pipeline.audits.snapshot import SnapshotError, open_snapshot, taken_ms_of
from pipeline.jobs.report import Cell, heading, shown
from protocol.ledger_metadata import LedgerMetadata, LedgerSegment, LedgerState, encode, ledger_key
from tests.interop.support import Admin, connect, numbered, publish, receive, wait_until
from tests.pipeline.generated_cluster.generator import generate
from tests.vectors.broker_process import BrokerProcess

TOPICS = 3000
LEAKS = 7
Found = set[tuple[str, str]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[str, str, str]]]:
    folder = tmp_path_factory.mktemp("cluster") / "snapshot"
    return folder, generate(folder, TOPICS, leaks=LEAKS).planted


def found(spark: Any, name: str, folder: Path, limits: Limits | None = None) -> list[Any]:
    rows: list[Any] = (
        AUDITS[name](open_snapshot(spark, folder), limits or Limits()).where("not young").collect()
    )
    return rows


@pytest.mark.parametrize("name", AUDITS)
def test_audit_finds_all_planted_leaks_and_nothing_else(
    spark: Any, cluster: tuple[Path, list[tuple[str, str, str]]], name: str
) -> None:
    folder, planted = cluster
    expected = sorted((kind, subject) for audit, kind, subject in planted if audit == name)
    assert len(expected) >= 2 * LEAKS
    assert sorted((row["class"], row.subject) for row in found(spark, name, folder)) == expected


def test_audit_acks_gives_the_costs_of_a_subscription(
    spark: Any, cluster: tuple[Path, list[tuple[str, str, str]]]
) -> None:
    """The planted subscription has 5,000 acked ranges of one entry, each before a hole, in a ledger of 10,000 bytes."""
    rows = {row["class"]: row for row in found(spark, "acks", cluster[0])}
    holes = rows["holes"]
    assert (holes.ranges, holes.hole_entries, holes.backlog_entries) == (5000, 5000, 10_000)
    assert (holes.held_bytes, holes.age_s) == (10_000, 2 * 86_400)
    assert (rows["backlog"].backlog_bytes, rows["backlog"].hole_entries) == (2 << 30, 0)


def test_audit_finds_young_nodes_when_the_grace_is_zero(
    spark: Any, cluster: tuple[Path, list[tuple[str, str, str]]]
) -> None:
    folder, planted = cluster
    for name in ("metadata", "ledgers"):
        strict = found(spark, name, folder, Limits(grace_s=0))
        assert len(strict) == sum(audit == name for audit, _, _ in planted) + LEAKS


@pytest.mark.parametrize("name", ["metadata", "ledgers"])
def test_audit_says_how_many_findings_the_grace_period_hides(
    spark: Any, cluster: tuple[Path, list[tuple[str, str, str]]], tmp_path: Path, name: str
) -> None:
    text = run_audit(spark, name, cluster[0], tmp_path / "default", Limits(), lambda text: None)
    assert f"{LEAKS} findings younger than 86,400 s are left out" in text
    assert "young" not in spark.read.parquet(str(tmp_path / "default" / "plan")).columns
    text = run_audit(spark, name, cluster[0], tmp_path / "all", Limits(grace_s=0), lambda text: None)
    assert "left out" not in text


def test_limits_hold_when_no_policy_is_set(
    spark: Any, cluster: tuple[Path, list[tuple[str, str, str]]], tmp_path: Path
) -> None:
    """Without the namespaces' policies the given retention holds for all."""
    folder = tmp_path / "snapshot"
    shutil.copytree(cluster[0], folder)
    empty = open_snapshot(spark, folder).table("policies").limit(0)
    shutil.rmtree(folder / "policies")
    empty.write.parquet(str(folder / "policies"))
    assert found(spark, "lifecycle", folder, Limits(retention_minutes=-1)) == []
    consumed = found(spark, "lifecycle", folder, Limits(retention_minutes=0))
    assert {row["class"] for row in consumed} == {"consumed"}


def test_audit_finds_in_a_real_broker_the_leaks_made_by_hand_alone(spark: Any, tmp_path: Path) -> None:
    settings = {
        "managedLedgerMaxEntriesPerLedger": "10",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        "delayedDeliveryMinIndexCountPerBucket": "10",
    }
    with BrokerProcess(tmp_path, settings) as broker:
        client = connect(broker.addresses.pulsar)
        consumer = client.subscribe("orders", "s")
        publish(client.create_producer("orders", batching_enabled=False), numbered(45))
        receive(consumer, 12)
        later = client.subscribe("later", "s", pulsar.ConsumerType.Shared)
        delayed = client.create_producer("later", batching_enabled=False)
        publish(delayed, numbered(20), deliver_after=timedelta(days=1))
        admin = Admin(broker.addresses.admin)
        wait_until(lambda: admin.subscription("later", "s")["msgDelayed"] == 20, "20 delayed messages")
        later.close()
        publish(client.create_producer("state", batching_enabled=False), numbered(5))
        client.close()
        compaction = "persistent/public/default/state/compaction"
        admin.put(compaction)
        succeeded = {"status": "SUCCESS", "lastError": ""}
        wait_until(lambda: admin.get(compaction) == succeeded, "the topic is compacted")
    url = read_from(broker.metadata_url)
    references = read_references(spark, url, tmp_path)
    assert [kind for kind, topic in references if topic.endswith("/later")].count("delayed") == 2
    assert main(["admin", "snapshot", str(tmp_path / "healthy"), "--metadata-url", url]) == 0
    healthy = open_snapshot(spark, tmp_path / "healthy").table("references")
    kinds = {row.kind for row in healthy.where("topic like '%state'").collect()}
    assert kinds == {"managed-ledger", "beside", "compacted"}
    at_once = Limits(grace_s=0)  # ZooKeeper knows that everything here is young
    assert [row for name in AUDITS for row in found(spark, name, tmp_path / "healthy", at_once)] == []
    gone = asyncio.run(make_leaks(url))
    assert main(["admin", "snapshot", str(tmp_path / "broken"), "--metadata-url", url]) == 0
    ill = {name: found(spark, name, tmp_path / "broken", at_once) for name in AUDITS}
    classes = {name: sorted((row["class"], row.subject) for row in rows) for name, rows in ill.items()}
    dead = "/admin/topic-policies/persistent%3A%2F%2Fpublic%2Fdefault%2Fdead"
    assert classes == {
        "metadata": [("topic-policies", dead)],
        "ledgers": [("missing-managed-ledger", str(gone)), ("orphan", "4000")],
        "acks": [],
        "lifecycle": [],
    }
    backlog = found(spark, "acks", tmp_path / "broken", Limits(backlog_bytes_min=1))
    assert sorted((row.subject, row.backlog_entries) for row in backlog) == [
        ("persistent://public/default/later s", 20),
        ("persistent://public/default/orders s", 33),
    ]


def read_from(url: str) -> str:
    """The store to take a snapshot of; a served one is read from the file beside its socket."""
    if not url.startswith("unix:"):
        return url
    return f"file:{Path(url.removeprefix('unix:')).with_name('metadata.sqlite')}"


def read_references(spark: Any, url: str, folder: Path) -> list[tuple[str, str]]:
    """(kind, topic) of each reference to a ledger."""
    assert main(["admin", "snapshot", str(folder / "references"), "--metadata-url", url]) == 0
    rows = open_snapshot(spark, folder / "references").table("references").collect()
    return [(row.kind, row.topic) for row in rows]


LOG_OF_LEDGER_5 = bytes.fromhex("0a020805")
"""An Apache log with one ledger."""
HEALTH = "/managed-ledgers/pulsar/east/{broker}/persistent/healthcheck"
"""The topic of a health check. Its schema's path, in the namespace without the cluster, does not name it."""
BROKERS_OWN = {
    "/namespace/pulsar/{broker}": b"",
    "/namespace/pulsar/{broker}/0x00000000_0xffffffff": b"{}",
    "/managed-ledgers/pulsar/{broker}/persistent/healthcheck": LOG_OF_LEDGER_5,
    "/schemas/pulsar/{broker}/healthcheck": b"",
    "/admin/local-policies/pulsar/{broker}": b"{}",
    HEALTH: LOG_OF_LEDGER_5,
    "/namespace/pulsar/east/{broker}/0x00000000_0xffffffff": b"{}",
    "/namespace/sla-monitor/east/{broker}/0x00000000_0xffffffff": b"{}",
    "/loadbalance/bundle-data/sla-monitor/east/{broker}/0x00000000_0xffffffff": b"{}",
}
"""Nodes of a broker of Apache Pulsar for itself, as the ZooKeepers of 4.2.4 and (below a cluster) of 4.0.8 have them."""
OF_THE_CLUSTER = {
    "/admin/clusters/east": b"{}",
    "/namespace/pulsar/east": b"",
    "/namespace/sla-monitor/east": b"",
    "/namespace/pulsar/system/0x00000000_0xffffffff": b"{}",
    "/admin/local-policies/pulsar/system": b"{}",
    "/schemas/pulsar/system/loadbalancer-broker-load-data": b"",
}


def snapshot_of(nodes: dict[str, bytes], folder: Path) -> Path:
    async def fill() -> None:
        store = SqliteMetadataStore(folder / "store.sqlite")
        for path, value in nodes.items():
            await store.put(path, value)
        await store.close()

    folder.mkdir()
    asyncio.run(fill())
    url = f"file:{folder / 'store.sqlite'}"
    assert main(["admin", "snapshot", str(folder / "snapshot"), "--metadata-url", url]) == 0
    return folder / "snapshot"


def own_nodes(broker: str) -> dict[str, bytes]:
    return {path.format(broker=broker): value for path, value in BROKERS_OWN.items()}


def test_audit_metadata_spares_the_own_namespaces_of_running_brokers(spark: Any, tmp_path: Path) -> None:
    live, dead = own_nodes("10.0.0.1:8080"), own_nodes("10.0.0.2:8080")
    registered = {"/loadbalance/brokers/10.0.0.1:8080": b"{}"}
    folder = snapshot_of({**OF_THE_CLUSTER, **live, **dead, **registered}, tmp_path / "running")
    rows = found(spark, "metadata", folder)
    assert sorted(row.subject for row in rows) == sorted(dead)
    assert {row.reason for row in rows} == {"it is a broker's own, and no such broker is registered"}
    stopped = snapshot_of({**OF_THE_CLUSTER, **live, **dead}, tmp_path / "stopped")
    assert found(spark, "metadata", stopped) == [], "a cluster at rest has no leaks for that"


def test_audits_spare_a_health_check_whose_schema_and_ledger_name_no_cluster(
    spark: Any, tmp_path: Path
) -> None:
    """As Apache 4.0.8 leaves them: the ledger was an orphan, and the schema had no topic."""
    broker = "10.0.0.1:8080"
    custom = {"application": b"pulsar", "component": b"managed-ledger"}
    ledger = LedgerMetadata((LedgerSegment(("b:1",)),), LedgerState.OPEN, 0, 0, custom=custom)
    nodes = {
        **OF_THE_CLUSTER,
        f"/loadbalance/brokers/{broker}": b"{}",
        HEALTH.format(broker=broker): LOG_OF_LEDGER_5,
        f"/schemas/pulsar/{broker}/healthcheck": b"",
        ledger_key(5): encode(ledger),
    }
    folder = snapshot_of(nodes, tmp_path / "healthy")
    assert [row for name in ("metadata", "ledgers") for row in found(spark, name, folder)] == []


NAMESPACE = "/admin/policies/public/default"
ORDERS = "/managed-ledgers/public/default/persistent/orders"
OLD_LIST = encode_ledger_list(
    ManagedLedgerInfo([LedgerInfo(5, 10, 1000, 1_000_000), LedgerInfo(6, 10, 1000, 2_000_000), LedgerInfo(7)])
)
"""Two ledgers that were closed in 1970, and an open one."""


def at(position: Position, ledger_id: int = -1) -> bytes:
    """A cursor's node. With `ledger_id`, its newer position is in that ledger."""
    return encode_cursor(StoredCursor(CursorInfo(position), ledger_id))


def lifecycle(spark: Any, folder: Path, nodes: dict[str, bytes]) -> list[tuple[str, str]]:
    snapshot = snapshot_of(nodes, folder)
    return sorted((row["class"], row.subject) for row in found(spark, "lifecycle", snapshot))


@pytest.mark.parametrize("is_global", ["false", "true"])
def test_audit_lifecycle_obeys_the_policies_of_a_topic_in_the_document_of_a_broker(
    spark: Any, tmp_path: Path, is_global: str
) -> None:
    (tmp_path / "broker").mkdir()
    with BrokerProcess(tmp_path / "broker", {"bookieAddress": "embedded"}) as broker:
        admin = Admin(broker.addresses.admin)
        topic = "persistent/public/default/orders"
        admin.create_partitioned("orders", 1)
        kept: Json = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        admin.post(f"{topic}/retention?isGlobal={is_global}", kept)
        url = broker.metadata_url
    documents = asyncio.run(values_below(url, "/admin/topic-policies"))
    assert len(documents) == 1
    nodes = {NAMESPACE: b'{"message_ttl_in_seconds":600}', f"{ORDERS}-partition-0": OLD_LIST}
    assert lifecycle(spark, tmp_path / "without", nodes) == [("consumed", "5"), ("consumed", "6")]
    assert lifecycle(spark, tmp_path / "with", nodes | documents) == []


async def values_below(url: str, root: str) -> dict[str, bytes]:
    store = await opened(url)
    found = {f"{root}/{name}": await store.get(f"{root}/{name}") for name in await store.children(root)}
    await store.close()
    return {path: one.value for path, one in found.items() if one is not None}


def test_audit_lifecycle_names_no_ledger_of_topics_whose_policies_may_be_events(
    spark: Any, tmp_path: Path
) -> None:
    nodes = {NAMESPACE: b'{"message_ttl_in_seconds":600}', ORDERS: OLD_LIST}
    nodes[f"{ORDERS}/s"] = at(Position(5, 3))
    assert lifecycle(spark, tmp_path / "without", nodes) == [("expired", "5"), ("expired", "6")]
    events = "/managed-ledgers/public/default/persistent/__change_events"
    nodes[events] = nodes[f"{events}-partition-0"] = encode_ledger_list(ManagedLedgerInfo([LedgerInfo(9)]))
    (row,) = found(spark, "lifecycle", snapshot_of(nodes, tmp_path / "with"))
    topic = "persistent://public/default/orders"
    assert (row["class"], row.subject, row.topic, row.bytes) == ("unjudged", topic, topic, 2000)
    assert row.reason == (
        "2 ledgers are due by TTL 600 s, retention 0 min, but its own policies may be events in __change_events, which a"
        " snapshot does not read"
    )


def test_audit_lifecycle_obeys_nodes_of_pulsar_5(spark: Any, tmp_path: Path) -> None:
    """Without events, a local policy outranks a global one, and that the namespace's."""
    nodes = {
        NAMESPACE: b'{"message_ttl_in_seconds":600}',
        ORDERS: OLD_LIST,
        f"{ORDERS}/s": at(Position(5, 3)),
    }
    path = "/admin/topic-policies/{}/public/default/persistent/orders"
    nodes[path.format("global")] = b'{"isGlobal":true,"messageTTLInSeconds":0}'
    assert lifecycle(spark, tmp_path / "global", nodes) == []
    nodes[path.format("local")] = b'{"messageTTLInSeconds":60}'
    assert lifecycle(spark, tmp_path / "local", nodes) == [("expired", "5"), ("expired", "6")]


def test_audits_name_nothing_by_an_old_position(spark: Any, tmp_path: Path) -> None:
    """Both subscriptions have passed ledger 5 by their nodes; the newer position of `busy` may be anywhere."""
    nodes = {NAMESPACE: b"{}", ORDERS: OLD_LIST, f"{ORDERS}/known": at(Position(5, 9))}
    nodes[f"{ORDERS}/busy"] = at(Position(6, 4))
    assert lifecycle(spark, tmp_path / "nodes", nodes) == [("consumed", "5")]
    backlogs = found(spark, "acks", tmp_path / "nodes" / "snapshot", Limits(backlog_bytes_min=1))
    assert sorted((row["class"], row.subject[-5:], row.held_bytes) for row in backlogs) == [
        ("backlog", " busy", 0),
        ("backlog", "known", 0),
    ]
    nodes[f"{ORDERS}/busy"] = at(Position(6, 4), ledger_id=12)
    topic = "persistent://public/default/orders"
    assert lifecycle(spark, tmp_path / "ledgers", nodes) == [("unjudged", topic)]
    rows = found(spark, "acks", tmp_path / "ledgers" / "snapshot", Limits(backlog_bytes_min=1))
    known, busy = sorted(rows, key=lambda row: str(row["class"]))
    assert (known["class"], known.subject, known.backlog_entries) == ("backlog", f"{topic} known", 10)
    assert known.held_bytes is None, "the other subscription may hold them"
    assert (busy["class"], busy.subject) == ("unjudged", f"{topic} busy")
    assert {busy[name] for name in ("bytes", *COSTS)} == {None}
    assert "5 entries wait for it, by an old position" in busy.reason


async def make_leaks(url: str) -> int:
    """Adds a ledger, deletes one, adds the policies of an absent topic; returns the deleted ledger."""
    store = await opened(url)
    custom = {"application": b"pulsar", "component": b"managed-ledger"}
    orphan = LedgerMetadata((LedgerSegment(("b:1",)),), LedgerState.CLOSED, 10, 0, custom=custom)
    await store.put(ledger_key(4000), encode(orphan))
    await store.put("/admin/topic-policies/persistent%3A%2F%2Fpublic%2Fdefault%2Fdead", b"{}")
    log = await store.get("/managed-ledgers/public/default/persistent/orders")
    assert log is not None
    gone = decode_ledger_list(log.value).ledgers[1].ledger_id
    await store.delete(ledger_key(gone))
    await store.close()
    return gone


async def opened(url: str) -> MetadataStore:
    zookeeper = parse_store_url(url)
    if zookeeper is None:
        return SqliteMetadataStore(Path(url.removeprefix("file:")))
    from bookkeeper.metadata.zookeeper_metadata_store import ZookeeperMetadataStore

    return await ZookeeperMetadataStore.open(zookeeper, session_timeout_s=30, timeout_s=30)


def test_audit_text_names_the_findings_and_the_folder(
    spark: Any, cluster: tuple[Path, list[tuple[str, str, str]]], tmp_path: Path
) -> None:
    said: list[str] = []
    text = run_audit(spark, "ledgers", cluster[0], tmp_path / "out", Limits(), said.append)
    assert text.startswith(
        f"audit ledgers: {9 * LEAKS} findings, nothing was changed; plan and page in {tmp_path / 'out'}"
    )
    assert "orphan                        14  13.4 MiB   700.0 days" in text
    assert said[0] == f"audit ledgers: reading {cluster[0]}"
    assert spark.read.parquet(str(tmp_path / "out/plan")).count() == 9 * LEAKS
    page = (tmp_path / "out/audit-ledgers.html").read_text()
    assert page.count(' class="t">deletion-unfinished</td>') == 1 + LEAKS, "a class, and its findings"
    run_audit(spark, "ledgers", cluster[0], tmp_path / "out", Limits(), said.append)
    assert spark.read.parquet(str(tmp_path / "out/plan")).count() == 9 * LEAKS, "replaced, not mixed"


def test_page_of_an_audit_repeats_no_column() -> None:
    finding: dict[str, Cell] = {
        "subject": "persistent://a/b/c sub",
        "topic": "persistent://a/b/c",
        "age_s": 172_800,
    }
    assert without_repeats([{**finding, "bytes": 5, "backlog_bytes": 5}]) == [
        {"subject": "persistent://a/b/c sub", "age_s": 172_800, "bytes": 5}
    ]
    assert "topic" in without_repeats([{**finding, "subject": "/managed-ledgers/a/b/persistent/c"}])[0]
    assert (shown(172_800, "age_s"), heading("age_s")) == ("2.0 days", "age")


def test_incomplete_snapshot_is_refused_before_spark_starts(
    cluster: tuple[Path, list[tuple[str, str, str]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "audit", "acks", str(tmp_path)]) == 1
    assert (
        capsys.readouterr().err
        == f"magnetar pipeline audit: {tmp_path} is no whole snapshot: it has no snapshot.json\n"
    )
    absent = tmp_path / "absent"
    assert main(["pipeline", "audit", "acks", str(absent)]) == 1
    assert f"{absent} does not exist: `magnetar admin snapshot {absent}`" in capsys.readouterr().err
    facts = tmp_path / "snapshot.json"
    for text, reason in (
        ("{", "cannot be read"),
        ('{"format": 9, "taken_ms": 1}', "format 9, and format 2 is understood"),
        ('{"format": 2, "taken_ms": 1}', "nodes, topics, .* is missing"),
    ):
        facts.write_text(text)
        with pytest.raises(SnapshotError, match=reason):
            taken_ms_of(tmp_path)
