"""`magnetar admin snapshot` of a running broker, of ZooKeeper, and of values in Apache Pulsar's format."""

from __future__ import annotations

import json
import sqlite3
import uuid
from pathlib import Path

import pulsar
import pyarrow.parquet as pq
import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.managed_ledger.ledger_list import LedgerInfo
from broker.managed_ledger.managed_ledger_info import CursorInfo, ManagedLedgerInfo
from broker.managed_ledger.records.pulsar_records import StoredCursor, encode_cursor, encode_ledger_list
from broker.schemas.schema import Schema, SchemaType
from broker.schemas.schema_registry import SchemaRegistry
from broker.schemas.schema_store import SchemaStore
from broker.schemas.strategy import Strategy
from foundation.model.position import Position
from foundation.value import Json
from magnetar.__main__ import main
from magnetar.snapshot.node_path import NodePath, describe
from magnetar.snapshot.node_rows import Node, rows_of
from protocol.ledger_metadata import LedgerMetadata, LedgerSegment, LedgerState, encode, ledger_key
from protocol.varint import varint
from tests.interop.support import Admin, connect, numbered, publish
from tests.support.java import ZooKeeper
from tests.vectors.broker_process import BrokerProcess

T = "persistent://a/b/c d"
V1 = "persistent://a/east/b/c d"
"""A name of Pulsar 1, with a cluster."""


def take(url: str, folder: Path) -> dict[str, list[dict[str, object]]]:
    assert main(["admin", "snapshot", str(folder), "--metadata-url", url]) == 0
    assert json.loads((folder / "snapshot.json").read_text())["source"] == url
    return {table.name: pq.read_table(table).to_pylist() for table in folder.iterdir() if table.is_dir()}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/managed-ledgers/a/b/persistent/c%20d", NodePath("managed-ledger", "a/b", T)),
        ("/managed-ledgers/a/b/persistent/c%20d/s%2F1", NodePath("cursor", "a/b", T, "s/1")),
        ("/managed-ledgers/a/b", NodePath("parent")),
        ("/ledgers/00/1234/L5678", NodePath("ledger", ledger_id=12345678)),
        ("/ledgers/000/0000/0021/4748/L3647", NodePath("ledger", ledger_id=2147483647)),
        ("/ledgers/00/1234", NodePath("parent")),
        ("/ledgers/available/a:3181", NodePath("bookkeeper")),
        ("/managed-ledgers/a/east/b/persistent/c%20d", NodePath("managed-ledger", "a/east/b", V1)),
        ("/managed-ledgers/a/east/b/persistent/c%20d/s", NodePath("cursor", "a/east/b", V1, "s")),
        ("/managed-ledgers/a/east/b/persistent", NodePath("parent")),
        ("/admin/policies/a/east/b", NodePath("namespace", "a/east/b")),
        (
            "/admin/partitioned-topics/a/east/b/persistent/c%20d",
            NodePath("partitioned-topic", "a/east/b", V1),
        ),
        ("/namespace/a/east/b/0x0_0xf", NodePath("bundle-owner", "a/east/b")),
        ("/admin/policies/a", NodePath("tenant", name="a")),
        ("/admin/policies/a/b", NodePath("namespace", "a/b")),
        ("/admin/local-policies/a/b", NodePath("local-policies", "a/b")),
        ("/admin/partitioned-topics/a/b/persistent/c%20d", NodePath("partitioned-topic", "a/b", T)),
        ("/admin/partitioned-topics/persistent/a/b/c%20d", NodePath("partitioned-topic", "a/b", T)),
        ("/admin/topic-policies/persistent%3A%2F%2Fa%2Fb%2Fc d", NodePath("topic-policies", "a/b", T)),
        ("/admin/topic-policies/local/a/b/persistent/c+d", NodePath("topic-policies", "a/b", T)),
        ("/admin/topic-policies/global/a/b/persistent/c%20d", NodePath("topic-policies", "a/b", T)),
        ("/admin/topic-policies/local/a/b", NodePath("parent")),
        ("/admin/topic-policies/local", NodePath("parent")),
        ("/admin/topic-policies/local/a/b/other/c", NodePath("other")),
        ("/admin/topic-policies/other/a/b/persistent/c+d", NodePath("other")),
        ("/schemas/a/b/c%20d", NodePath("schema", "a/b", T)),
        ("/schema-versions/a/b", NodePath("parent")),
        ("/schema-versions/a/b/c%20d", NodePath("schema-index", "a/b", T)),
        ("/schema-versions/a/b/c%20d/0000000001", NodePath("schema-version", "a/b", T)),
        ("/namespace/a/b/0x0_0xf", NodePath("bundle-owner", "a/b")),
        ("/loadbalance/bundle-data/a/b/0x0_0xf", NodePath("bundle-data", "a/b")),
        ("/admin/health", NodePath("health")),
        ("/admin/health-probes/localhost%3A8080", NodePath("health")),
        ("/counters/broker-starts", NodePath("other")),
    ],
)
def test_describe_reads_kind_and_names_from_a_path(path: str, expected: NodePath) -> None:
    assert describe(path) == expected


def rows(path: str, value: bytes, table: str) -> list[tuple[object, ...]]:
    return [row for name, row in rows_of(Node(path, value, 3, 1000, 0)) if name == table]


def test_acked_ranges_are_counted_across_pages() -> None:
    """3, 5-6, and 255-257 over the border of two pages."""
    pages = [(7, 0, 1 << 3 | 3 << 5 | 1 << 255), (7, 256, 3), (8, 0, 1)]
    value = encode_cursor(StoredCursor(CursorInfo(Position(7, 1), {}, pages)))
    path = "/managed-ledgers/a/b/persistent/c%20d/s"
    assert rows(path, value, "cursors") == [(T, "s", 7, 1, 4, 7, 8, 0, len(value), True, 1000)]


def test_buckets_of_delayed_entries_are_references() -> None:
    path = "/managed-ledgers/a/b/persistent/c%20d"
    value = encode_ledger_list(ManagedLedgerInfo([LedgerInfo(5)], deleting=[6], delayed=[7, 8]))
    assert [row[:3] for row in rows(path, value, "references")] == [
        (5, "managed-ledger", T),
        (7, "delayed", T),
        (8, "delayed", T),
        (6, "deleting", T),
    ]


def test_values_of_former_versions_give_the_same_tables() -> None:
    path = "/managed-ledgers/a/b/persistent/c%20d"
    log = b'{"ledgers":[{"id":5,"entries":10,"size":1000,"closed":99},{"id":9}],"delayed":[7]}'
    assert rows(path, log, "references") == [
        (5, "managed-ledger", T, path, 0, 10, 1000, 99),
        (9, "managed-ledger", T, path, 1, 0, 0, None),
        (7, "delayed", T, path, None, None, None, None),
    ]
    cursor = b'{"markDelete":[7,1],"acked":{"7":{"0":"68"}},"properties":{"CompactedTopicLedger":8}}'
    assert rows(f"{path}/s", cursor, "cursors") == [(T, "s", 7, 1, 2, 3, 7, 6, len(cursor), True, 1000)]
    assert [row[:2] for row in rows(f"{path}/s", cursor, "references")] == [(8, "compacted")]


def test_events_of_policies_are_told_when_the_namespace_has_a_ledger_for_them() -> None:
    path = "/managed-ledgers/a/b/persistent/__change_events"
    value = encode_ledger_list(ManagedLedgerInfo([LedgerInfo(5)]))
    told = [("topic-events", "a/b", None, None, None)]
    assert rows(path, value, "policies") == told
    assert rows(f"{path}-partition-0", value, "policies") == told
    assert rows(f"{path}2", value, "policies") == []
    assert rows(path, encode_ledger_list(ManagedLedgerInfo([])), "policies") == []


def test_nodes_of_pulsar_5_are_policies_of_their_scope() -> None:
    value = b'{"messageTTLInSeconds":600,"retentionPolicies":null}'
    local, others = rows("/admin/topic-policies/local/a/b/persistent/c+d", value, "policies")
    assert local == ("topic", T, 600, None, None)
    assert others == ("topic-global", T, None, None, None)
    path = "/admin/topic-policies/global/a/b/persistent/c+d"
    assert rows(path, value, "policies") == [("topic-global", T, 600, None, None)]


def field(number: int, content: int | bytes) -> bytes:
    if isinstance(content, int):
        return varint(number << 3) + varint(content & 2**64 - 1)
    return varint(number << 3 | 2) + varint(len(content)) + content


def test_values_of_apache_pulsar_give_the_same_tables() -> None:
    log = field(1, field(1, 5) + field(2, 10) + field(3, 1000) + field(4, 99)) + field(1, field(1, 9))
    path = "/managed-ledgers/a/b/persistent/c%20d"
    assert rows(path, log, "references") == [
        (5, "managed-ledger", T, path, 0, 10, 1000, 99),
        (9, "managed-ledger", T, path, 1, 0, 0, None),
    ]
    assert rows(path, log, "topics") == [(T, "a/b", 0)]
    compaction = field(5, field(1, b"CompactedTopicLedger") + field(2, 77))
    acked = field(4, field(1, field(1, 5) + field(2, 2)) + field(2, field(1, 5) + field(2, 4)))
    opened = field(1, 33) + compaction
    # The position in the ledger may name another compacted ledger, so this one may be gone.
    assert [row[:2] for row in rows(f"{path}/s", opened, "references")] == [(33, "cursor"), (77, "beside")]
    closed = field(1, -1) + field(2, 5) + field(3, 0) + acked
    assert rows(f"{path}/s", closed, "cursors") == [(T, "s", 5, 0, 1, 2, 5, 4, len(closed), True, 1000)]
    entry = field(1, 0) + field(2, field(1, 44) + field(2, 0)) + field(3, b"hash")
    schema = rows("/schemas/a/b/c%20d", field(1, entry) + field(2, entry), "references")
    assert [row[:3] for row in schema] == [(44, "schema", T)]


def test_ledgers_of_a_compaction_are_references() -> None:
    """One in use, which the cursor names, and one that is being written."""
    log = encode_ledger_list(ManagedLedgerInfo([], beside=[7, 9]))
    path = "/managed-ledgers/a/b/persistent/c%20d"
    assert [row[:3] for row in rows(path, log, "references")] == [(7, "beside", T), (9, "beside", T)]
    cursor = encode_cursor(StoredCursor(CursorInfo(Position(5, 3), {"CompactedTopicLedger": 7})))
    assert [row[:3] for row in rows(f"{path}/__compaction", cursor, "references")] == [(7, "compacted", T)]


async def test_versions_of_our_own_schemas_are_counted() -> None:
    store = MemoryMetadataStore()
    registry = SchemaRegistry(SchemaStore(store), lambda: 0)
    for kind in (SchemaType.STRING, SchemaType.INT32):
        await registry.add("a/b/c d", Schema(kind, b"", {}), Strategy.ALWAYS_COMPATIBLE)
    path = "/schema-versions/a/b/c%20d"
    found = await store.get(path)
    assert found is not None
    assert rows(path, found.value, "schemas") == [(T, 2)]
    assert [row[0] for row in rows(f"{path}/0000000001", b"x", "nodes")] == [f"{path}/0000000001"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/managed-ledgers/a/b/persistent/c", b'{"ledgers":7}'),
        ("/managed-ledgers/a/b/persistent/c", b"\x0a\xff"),
        ("/managed-ledgers/a/b/persistent/c/s", b'{"mark":7}'),
        ("/ledgers/00/0000/L0001", b"BookieMetadataFormatVersion\t2\n"),
        ("/admin/policies/a/b", b"[]"),
        ("/schemas/a/b/c", b"\x08\x01\x12\x02\x08"),
        ("/schema-versions/a/b/c", b"nonsense"),
    ],
)
def test_unreadable_value_gives_a_row_with_the_reason(path: str, value: bytes) -> None:
    assert [row[0] for row in rows(path, value, "unreadable")] == [path]
    assert len(rows(path, value, "nodes")) == 1


def work(url: str) -> str:
    """A topic with 30 messages, of which a subscription has acknowledged 0 to 9, 12 and 14."""
    topic = f"t {uuid.uuid4().hex[:6]}"
    client = connect(url)
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    publish(client.create_producer(topic), numbered(30))
    for number in range(30):
        message = consumer.receive(60_000)
        if number < 10 or number in (12, 14):
            consumer.acknowledge(message)
    client.close()
    return f"persistent://public/default/{topic}"


def check(found: dict[str, list[dict[str, object]]], topic: str) -> None:
    assert [row["topic"] for row in found["topics"]] == [topic]
    (reference,) = found["references"]
    (ledger,) = found["ledgers"]
    assert (reference["kind"], reference["topic"]) == ("managed-ledger", topic)
    assert reference["ledger_id"] == ledger["ledger_id"]
    assert (ledger["state"], ledger["entries"]) == ("CLOSED", 30)
    assert (ledger["application"], ledger["component"]) == ("pulsar", "managed-ledger")
    (cursor,) = found["cursors"]
    assert (cursor["mark_entry"], cursor["ranges"], cursor["acked_entries"]) == (9, 2, 2)
    assert cursor["last_acked_entry"] == 14
    assert {"public/default"} <= {row["name"] for row in found["policies"]}
    assert found["unreadable"] == []


def test_snapshot_of_the_file_store(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, {"bookieAddress": "embedded"}) as broker:
        topic = work(broker.addresses.pulsar)
        url = f"file:{tmp_path / 'data/metadata.sqlite'}"
        during = take(url, tmp_path / "during")
        assert [row["topic"] for row in during["topics"]] == [topic]
    check(take(url, tmp_path / "after"), topic)


def test_snapshot_reads_the_policies_of_a_topic_as_a_broker_writes_them(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, {"bookieAddress": "embedded"}) as broker:
        admin = Admin(broker.addresses.admin)
        topic = "persistent/public/default/kept"
        admin.put(topic)
        admin.post(f"{topic}/messageTTL?messageTTL=600")
        retention: Json = {"retentionTimeInMinutes": 30, "retentionSizeInMB": -1}
        admin.post(f"{topic}/retention?isGlobal=true", retention)
    found = take(f"file:{tmp_path / 'data/metadata.sqlite'}", tmp_path / "snapshot")
    of_topic = [tuple(row.values()) for row in found["policies"] if str(row["name"]).endswith("kept")]
    assert of_topic == [
        ("topic", "persistent://public/default/kept", 600, None, None),
        ("topic-global", "persistent://public/default/kept", None, 30, -1),
    ]


@pytest.mark.peer
@pytest.mark.slow
def test_snapshot_of_zookeeper(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    url = f"zk:{zookeeper.address}/{tmp_path.name}"
    with BrokerProcess(tmp_path, {"metadataStoreUrl": url}) as broker:
        topic = work(broker.addresses.pulsar)
    found = take(url, tmp_path / "snapshot")
    check(found, topic)
    modified = [row["modified_ms"] for row in found["nodes"]]
    assert all(isinstance(time_ms, int) and time_ms > 1_600_000_000_000 for time_ms in modified)
    parents = {row["path"] for row in found["nodes"] if row["kind"] == "parent" and row["children"]}
    assert "/managed-ledgers/public/default/persistent" in parents


def test_snapshot_writes_more_than_one_row_group(tmp_path: Path) -> None:
    """60,000 ledgers: more than one row group, and one progress report."""
    store = sqlite3.connect(tmp_path / "m.sqlite")
    store.execute("CREATE TABLE node (key TEXT PRIMARY KEY, value BLOB, version INTEGER)")
    value = encode(LedgerMetadata((LedgerSegment(("b:1",)),), LedgerState.CLOSED, 10, 0))
    store.executemany(
        "INSERT INTO node (key, value, version) VALUES (?, ?, 0)",
        ((ledger_key(n), value) for n in range(60_000)),
    )
    store.commit()
    store.close()
    assert len(take(f"file:{tmp_path / 'm.sqlite'}", tmp_path / "s")["ledgers"]) == 60_000


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("file:/nowhere/m.sqlite", "there is no such metadata store"),
        ("etcd:one", "allowed is file:PATH or zk:"),
        ("unix:store.sock", "a served store is read from its file, file:PATH"),
        ("zk:a,,b", "allowed is zk:"),
    ],
)
def test_snapshot_refuses_a_url_without_a_store(
    url: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["admin", "snapshot", str(tmp_path / "s"), "--metadata-url", url]) == 1
    error = capsys.readouterr().err
    assert reason in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "s").exists()


def test_snapshot_of_a_damaged_file_leaves_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m").write_text("no database" * 100)
    assert main(["admin", "snapshot", str(tmp_path / "s"), "--metadata-url", f"file:{tmp_path / 'm'}"]) == 1
    assert "not a database" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()
