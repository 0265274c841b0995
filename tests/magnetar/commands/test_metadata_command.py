"""`magnetar metadata`: nodes of our stores and of Apache's in words, two stores compared, broken stores found out."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import pytest

from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from bookkeeper.metadata.zookeeper_metadata_store import ZookeeperMetadataStore
from broker.managed_ledger.ledger_list import LedgerInfo
from broker.managed_ledger.managed_ledger_info import (
    CursorInfo,
    ManagedLedgerInfo,
)
from broker.managed_ledger.records.pulsar_records import (
    StoredCursor,
    encode_cursor,
    encode_ledger_list,
)
from foundation.model.position import Position
from foundation.zookeeper.url import ZookeeperUrl
from magnetar.__main__ import main
from magnetar.commands import metadata_command
from magnetar.commands.metadata_command import store_url
from magnetar.metadata.findings import Finding
from protocol.ledger_metadata import LedgerMetadata, LedgerSegment, encode, ledger_key
from protocol.pulsar_metadata_pb2 import SchemaLocator
from protocol.stored_schemas_pb2 import SchemaIndex
from tests.interop.support import connect, numbered, publish
from tests.support.java import ZooKeeper
from tests.vectors.broker_process import BrokerProcess
from tests.vectors.folder import vectors_folder

LISTS = "/managed-ledgers/shop/orders/persistent"
LOG = encode_ledger_list(ManagedLedgerInfo([LedgerInfo(5, 10, 1000, 1), LedgerInfo(9)]))
WHOLE: Mapping[str, bytes] = {
    "/admin/policies/shop": b'{"adminRoles":[],"allowedClusters":[]}',
    "/admin/policies/shop/orders": b'{"resource_group_name":"rg"}',
    "/admin/local-policies/shop/orders": b"{}",
    "/admin/resourcegroups/rg": b"{}",
    "/admin/partitioned-topics/shop/orders/persistent/p": b'{"partitions":2,"deleted":false}',
    f"{LISTS}/p-partition-0": LOG,
    f"{LISTS}/p-partition-1": encode_ledger_list(ManagedLedgerInfo([LedgerInfo(5, 10, 1000, 1)])),
    f"{LISTS}/p-partition-0/s": encode_cursor(
        StoredCursor(CursorInfo(Position(5, 3), {}, [(5, 0, 0b1010_0000)]))
    ),
    f"{LISTS}/p-partition-1/s": encode_cursor(StoredCursor(CursorInfo(Position(5, 3)), 9)),
    ledger_key(5): encode(LedgerMetadata((LedgerSegment(("a:1",)),))),
    ledger_key(9): encode(LedgerMetadata((LedgerSegment(("a:1",)),))),
    "/schema-versions/shop/orders/p": SchemaIndex(last_version=-1).SerializeToString(),
}
"""A store without findings."""


def stored(folder: Path, nodes: Mapping[str, bytes]) -> str:
    """Writes a store and returns its folder, as the command takes it."""

    async def fill() -> None:
        store = SqliteMetadataStore(folder / "metadata.sqlite")
        await asyncio.gather(*(store.put(path, value) for path, value in nodes.items()))
        await store.close()

    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(fill())
    return str(folder)


def test_get_prints_a_node_and_the_names_below(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = stored(tmp_path, WHOLE)
    assert main(["metadata", "get", url, f"{LISTS}/p-partition-0"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{LISTS}/p-partition-0: ledgers of")
    assert out.endswith("  1 below it: s\n")
    assert main(["metadata", "get", f"file:{tmp_path}/metadata.sqlite", "/admin/policies/"]) == 0
    assert main(["metadata", "get", url, "/"]) == 0
    assert (
        capsys.readouterr().out.splitlines()[-1]
        == "  4 below it: admin ledgers managed-ledgers schema-versions"
    )
    for path, why in (("/admin/policies/nobody", "has no node"), ("admin", "begins with a slash")):
        assert main(["metadata", "get", url, path]) == 1
        assert why in capsys.readouterr().err


def test_dump_prints_nodes_below_a_path_and_no_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = stored(tmp_path, {**WHOLE, "/admin/policies/ev\x1b[31mil": '{"a":"\x9b"}'.encode()})
    assert main(["metadata", "dump", url, "--below", "/admin/policies"]) == 0
    out = capsys.readouterr().out
    heads = [line for line in out.splitlines() if line.startswith("/")]
    assert [head.partition(":")[0] for head in heads] == [
        "/admin/policies/ev\\x1b[31mil",
        "/admin/policies/shop",
        "/admin/policies/shop/orders",
    ]
    assert '"a": "\\x9b"' in out


def test_diff_names_nodes_of_one_store_and_lines_that_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = stored(tmp_path / "a", {**WHOLE, "/admin/policies/gone": b"{}"})
    partitions = "/admin/partitioned-topics/shop/orders/persistent/p"
    after = {
        **WHOLE,
        partitions: b'{"deleted":false,"partitions":3}',
        "/admin/policies/shop": b'{"allowedClusters":[],"adminRoles":[]}',
        "/counters/x": b"7",
    }
    second = stored(tmp_path / "b", after)
    assert main(["metadata", "diff", first, second]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"~ {partitions}",
        '    -  "partitions": 2,',
        '    -  "deleted": false',
        '    +  "deleted": false,',
        '    +  "partitions": 3',
        "+ /counters/x",
        "    + 7",
        "- /admin/policies/gone",
        "    - {}",
    ]
    assert main(["metadata", "diff", first, first]) == 0
    assert capsys.readouterr().out == ""


BROKEN: Mapping[str, tuple[Mapping[str, bytes | None], str]] = {
    "value": (
        {f"{LISTS}/p-partition-0": b'{"ledgers":'},
        "the value cannot be read: a managed ledger's metadata",
    ),
    "protobuf": ({f"{LISTS}/p-partition-0/s": b"\x08"}, "the value cannot be read: ManagedCursorInfo"),
    "not json": ({"/admin/policies/shop/orders": b"\x01"}, "the value cannot be read"),
    "ledger": ({ledger_key(9): None}, "names the ledger 9, which has no metadata"),
    "cursor ledger": (
        {f"{LISTS}/p-partition-1/s": encode_cursor(StoredCursor(CursorInfo(Position(5, 3)), 77))},
        "names the cursor ledger 77, which has no metadata",
    ),
    "compacted": (
        {
            f"{LISTS}/p-partition-0/s": encode_cursor(
                StoredCursor(CursorInfo(Position(5, 3), {"CompactedTopicLedger": 78}))
            )
        },
        "names the compacted ledger 78, which has no metadata",
    ),
    "cursor": (
        {f"{LISTS}/p-partition-0": None},
        "is a cursor of persistent://shop/orders/p-partition-0, which has no list of ledgers",
    ),
    "partition": (
        {f"{LISTS}/p-partition-2": LOG},
        "is partition 2 of persistent://shop/orders/p, which has 2 partitions",
    ),
    "mark of a topic": (
        {f"{LISTS}/t": encode_ledger_list(ManagedLedgerInfo([], deleted=True))},
        "is marked as deleted, and no intent carries the deletion out",
    ),
    "mark of partitions": (
        {"/admin/partitioned-topics/shop/orders/persistent/p": b'{"partitions":2,"deleted":true}'},
        "is marked as deleted, and no intent carries the deletion out",
    ),
    "mark of a namespace": (
        {"/admin/policies/shop/orders": b'{"deleted":true}'},
        "is marked as deleted, and no intent carries the deletion out",
    ),
    "tenant": ({"/admin/policies/nobody/n": b"{}"}, "is in the tenant nobody, which does not exist"),
    "namespace": (
        {"/admin/local-policies/shop/gone": b"{}"},
        "is in the namespace shop/gone, which does not exist",
    ),
    "group": (
        {"/admin/resourcegroups/rg": None},
        "names the resource group rg, which does not exist",
    ),
    "schema version": (
        {
            "/schema-versions/shop/orders/p": SchemaIndex(
                entries=[SchemaIndex.Entry(version=4, type=1, data_hash=b"x")], last_version=4
            ).SerializeToString()
        },
        "names version 4 of a schema, whose definition is missing",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_verify_names_what_is_broken(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes, expected = BROKEN[name]
    nodes = {path: value for path, value in {**WHOLE, **changes}.items() if value is not None}
    assert main(["metadata", "verify", stored(tmp_path, nodes)]) == 1
    out, err = capsys.readouterr()
    assert [line for line in out.splitlines() if expected in line], out
    assert f"{len(nodes)} nodes, " in err


def test_verify_finds_nothing_in_a_whole_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metadata", "verify", stored(tmp_path, WHOLE)]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"file:{tmp_path}/metadata.sqlite: {len(WHOLE)} nodes, 0 findings\n")


@pytest.mark.parametrize(
    ("intent", "marked"),
    [
        ("topic/persistent%3A%2F%2Fshop%2Forders%2Ft", f"{LISTS}/t"),
        ("partitioned/persistent%3A%2F%2Fshop%2Forders%2Fp", f"{LISTS}/p-partition-0"),
        ("namespace/shop%2Forders", f"{LISTS}/t"),
        ("tenant/shop", f"{LISTS}/t"),
    ],
)
def test_mark_with_an_intent_is_no_finding(intent: str, marked: str, tmp_path: Path) -> None:
    mark = encode_ledger_list(ManagedLedgerInfo([LedgerInfo(1234)], deleted=True))
    url = stored(tmp_path, {**WHOLE, marked: mark, f"/admin/deletions/{intent}": b'{"decided":1}'})
    assert main(["metadata", "verify", url]) == 0


def test_verify_finds_a_record_that_does_not_fit_its_checksum(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = stored(tmp_path, WHOLE)
    with sqlite3.connect(tmp_path / "metadata.sqlite") as store:
        store.execute("UPDATE node SET crc = 1 WHERE key = ?", ("/admin/local-policies/shop/orders",))
    store.close()
    assert main(["metadata", "verify", url]) == 1
    assert capsys.readouterr().out.startswith("/admin/local-policies/shop/orders: does not fit its checksum")


def test_missing_schema_ledger_of_apache_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = SchemaLocator.PositionInfo(ledgerId=79, entryId=0)
    entry = SchemaLocator.IndexEntry(version=0, position=place, hash=b"x")
    locator = SchemaLocator(info=entry, index=[entry])
    url = stored(tmp_path, {**WHOLE, "/schemas/shop/orders/p": locator.SerializeToString()})
    assert main(["metadata", "verify", url]) == 1
    assert "/schemas/shop/orders/p: names the schema ledger 79" in capsys.readouterr().out


def test_recorded_store_of_apache_is_whole_but_for_ledgers_that_were_not_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = {}
    for line in (vectors_folder() / "cluster/nodes.jsonl").read_text(encoding="utf-8").splitlines():
        found = json.loads(line)
        if found["data"]:
            nodes[found["path"]] = base64.b64decode(found["data"])
    url = stored(tmp_path, nodes)
    main(["metadata", "verify", url])
    findings = capsys.readouterr().out.splitlines()
    # README of the recording: nodes below `packs` are those of topics that were added for compressed records.
    assert [
        line
        for line in findings
        if not re.match(r"/(managed-ledgers|schemas)/packs/.* has no metadata$", line)
    ] == []
    assert main(["metadata", "dump", url]) == 0
    out = capsys.readouterr().out
    assert "cannot be read" not in out
    unknown = [line.partition(":")[0] for line in out.splitlines() if "not known here" in line]
    assert unknown == ["/stream/metadata"], "of BookKeeper's table service"


def test_store_of_a_running_broker_is_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with BrokerProcess(tmp_path, {"bookieAddress": "embedded"}) as broker:
        client = connect(broker.addresses.pulsar)
        publish(client.create_producer("persistent://public/default/t"), numbered(20))
        client.close()
        data = str(tmp_path / "data")
        assert main(["metadata", "verify", data]) == 0
        assert main(["metadata", "get", data, "/managed-ledgers/public/default/persistent/t"]) == 0
        assert "# 1 ledgers with 0 entries" in capsys.readouterr().out
        shutil.copytree(data, tmp_path / "copy")
    assert main(["metadata", "verify", str(tmp_path / "data")]) == 0


@pytest.mark.peer
@pytest.mark.slow
def test_zookeeper_is_read_as_a_file_is(
    zookeeper: ZooKeeper, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"zk:{zookeeper.address}/{tmp_path.name}"

    async def fill() -> None:
        place = ZookeeperUrl(zookeeper.address, f"/{tmp_path.name}")
        store = await ZookeeperMetadataStore.open(place, session_timeout_s=30, timeout_s=60)
        await asyncio.gather(*(store.put(path, value) for path, value in WHOLE.items()))
        await store.close()

    asyncio.run(fill())
    folder = stored(tmp_path, WHOLE)
    assert main(["metadata", "verify", url]) == 0
    assert main(["metadata", "diff", folder, url]) == 0
    assert main(["metadata", "get", url, f"{LISTS}/p-partition-0"]) == 0
    assert capsys.readouterr().out.endswith("  1 below it: s\n")
    broken = stored(tmp_path, {"/admin/policies/nobody/n": b"{}"})
    assert main(["metadata", "diff", url, broken]) == 1
    assert capsys.readouterr().out == "+ /admin/policies/nobody/n\n    + {}\n"
    assert main(["metadata", "get", url, "/nothing"]) == 1


@pytest.mark.parametrize("url", ["/nothing/here", "file:/nothing/here", "zk:", "memory:x"])
def test_url_without_a_store_is_refused_in_one_line(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words_ in (["dump", url], ["verify", url], ["get", url, "/a"], ["diff", url, url]):
        assert main(["metadata", *words_]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("magnetar metadata: ")
        assert err.count("\n") == 1


def test_store_url_takes_folders_and_files(tmp_path: Path) -> None:
    assert store_url(str(tmp_path)) == f"file:{tmp_path}/metadata.sqlite"
    assert store_url("file:m.sqlite") == "file:m.sqlite"
    assert store_url("zk:h:1/c") == "zk:h:1/c"


@pytest.mark.parametrize("url", ["zk:h:1", "file:m.sqlite"])
def test_finding_must_stay_in_a_second_look(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nodes that a broker changes between two reads look broken once."""
    short, lasting = Finding("/a", "was changing"), Finding("/b", "is broken")
    looks = iter([(3, [short, lasting]), (3, [lasting])])
    monkeypatch.setattr(metadata_command, "_look", lambda url: next(looks))
    assert main(["metadata", "verify", url]) == 1
    assert capsys.readouterr().out == "/b: is broken\n"
