"""Findings of `magnetar metadata verify`: one node of a whole store is changed, and one line names it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from broker.managed_ledger.ledger_list import LedgerInfo
from broker.managed_ledger.managed_ledger_info import SHADOW_SOURCE, CursorInfo, ManagedLedgerInfo
from broker.managed_ledger.records.pulsar_records import StoredCursor, encode_cursor, encode_ledger_list
from foundation.model.position import Position
from magnetar.metadata.findings import Finding, facts_of, findings_of
from magnetar.snapshot.node_rows import Node
from protocol.ledger_metadata import LedgerMetadata, LedgerSegment, encode, ledger_key
from protocol.pulsar_metadata_pb2 import SchemaLocator
from protocol.stored_schemas_pb2 import SchemaIndex

LIST = "/managed-ledgers/shop/orders/persistent/t"
CURSOR = f"{LIST}/s"
TENANT = "/admin/policies/shop"
POLICIES = "/admin/policies/shop/orders"
LOCAL = "/admin/local-policies/shop/orders"
PARTITIONED = "/admin/partitioned-topics/shop/orders/persistent/p"
COOKIE = "/ledgers/cookies/a:1"
PROBE = "/admin/health-probes/a%3A8080"
MOVES = "/loadbalance/magnetar-moves/a:8080"
PLACE = SchemaLocator.PositionInfo(ledgerId=5, entryId=0)
LOCATOR = SchemaLocator(
    info=SchemaLocator.IndexEntry(version=0, position=PLACE, hash=b"x")
).SerializeToString()
INDEX = SchemaIndex(last_version=-1).SerializeToString()


def log(
    *ledgers: int,
    delayed: tuple[int, ...] = (),
    beside: tuple[int, ...] = (),
    properties: Mapping[str, str] | None = None,
) -> bytes:
    listed = [LedgerInfo(one, 10, 1000, 1) for one in ledgers]
    info = ManagedLedgerInfo(listed, dict(properties or {}), delayed=list(delayed), beside=list(beside))
    return encode_ledger_list(info)


def cursor(ledger_id: int, entry_id: int) -> bytes:
    return encode_cursor(StoredCursor(CursorInfo(Position(ledger_id, entry_id))))


def affinity(primary: str, secondary: str | None = None) -> bytes:
    groups = {"bookkeeperAffinityGroupPrimary": primary, "bookkeeperAffinityGroupSecondary": secondary}
    return json.dumps({"bookieAffinityGroup": groups}).encode()


def names_of(path: str, member: str, *names: str) -> Mapping[str, bytes]:
    return {path: json.dumps({member: names}).encode()}


WHOLE: Mapping[str, bytes] = {
    "/admin/clusters/c1": b"{}",
    "/admin/configuration": b"{}",
    TENANT: b'{"adminRoles":[],"allowedClusters":["c1"]}',
    POLICIES: b'{"replication_clusters":["c1"],"allowed_clusters":[]}',
    LOCAL: affinity("near", "far"),
    PARTITIONED: b'{"partitions":2}',
    "/admin/topic-policies/persistent%3A%2F%2Fshop%2Forders%2Ft": b"{}",
    "/admin/topic-policies/local/shop/orders/persistent/t": b"{}",
    PROBE: b"5",
    "/bookies": b'{"near":{"a:1":{"rack":"/r"}},"far":{"b:1":{"rack":"/r"}}}',
    "/counters/broker-starts": b"3",
    LIST: log(5, 9, delayed=(6,), beside=(7,)),
    CURSOR: cursor(5, 3),
    "/ledgers/LAYOUT": b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1",
    COOKIE: b'5\nbookieHost: "a:1"\njournalDir: "/j"\nledgerDirs: "1\\t/l"\ninstanceId: "i"\n',
    "/ledgers/idgen": b"1000",
    **{ledger_key(one): encode(LedgerMetadata((LedgerSegment(("a:1",)),))) for one in (5, 6, 7, 9)},
    "/loadbalance/bundle-data/shop/orders/0x00000000_0xffffffff": b"{}",
    MOVES: b"[]",
    "/namespace/shop/orders/0x00000000_0xffffffff": b"{}",
    "/namespace/pulsar/a:8080/0x00000000_0xffffffff": b"{}",
    "/schemas/shop/orders/t": LOCATOR,
    "/schema-versions/shop/orders/t": INDEX,
}
"""A store without findings."""


def found(changes: Mapping[str, bytes]) -> list[Finding]:
    nodes = sorted({**WHOLE, **changes}.items())
    return findings_of(facts_of(Node(path, value, 1, None, None) for path, value in nodes if value))


UNREADABLE = [
    (POLICIES, b"[1]"),
    (POLICIES, b"7"),
    (POLICIES, b'{"replication_clusters":"c1"}'),
    (TENANT, b"[]"),
    (TENANT, b'{"allowedClusters":[1]}'),
    (LOCAL, b"[]"),
    (LOCAL, b'{"bookieAffinityGroup":"near"}'),
    ("/admin/clusters/c1", b"[]"),
    ("/admin/configuration", b"[]"),
    ("/admin/topic-policies/persistent%3A%2F%2Fshop%2Forders%2Ft", b"[]"),
    ("/admin/topic-policies/local/shop/orders/persistent/t", b"[]"),
    ("/admin/topic-policies/global/shop/orders/persistent/t", b"\x01"),
    ("/bookies", b'{"a":1}'),
    ("/bookies", b'{"a":{"b:1":1}}'),
    ("/bookies", b"[]"),
    (PARTITIONED, b'{"partitions":-4}'),
    (PARTITIONED, b'{"partitions":true}'),
    (PARTITIONED, b'{"partitions":"2"}'),
    ("/counters/broker-starts", b"many"),
    ("/counters/broker-starts", b"-1"),
    ("/ledgers/idgen", b"1_000"),
    (PROBE, b"text"),
    ("/admin/health", b"\xff"),
    ("/ledgers/LAYOUT", b"garbage"),
    ("/ledgers/LAYOUT", b"\x00\xff"),
    (COOKIE, b"garbage"),
    (COOKIE, b'5\njournalDir: "/j"\n'),
    (COOKIE, b"5\n\xff"),
    (MOVES, b"{}"),
    ("/namespace/shop/orders/0x00000000_0xffffffff", b"[]"),
    ("/loadbalance/bundle-data/shop/orders/0x00000000_0xffffffff", b"1"),
]


@pytest.mark.parametrize(("path", "value"), UNREADABLE)
def test_value_of_another_form_is_named(path: str, value: bytes) -> None:
    assert [one.path for one in found({path: value}) if "the value cannot be read: " in one.text] == [path]


NOWHERE: list[tuple[Mapping[str, bytes], str]] = [
    ({LIST: log(5, 9, delayed=(77,))}, "names the delayed-delivery ledger 77, which has no metadata"),
    ({LIST: log(5, 9, beside=(78,))}, "names the compacted ledger 78, which has no metadata"),
    ({PROBE: b"79"}, "names the health probe's ledger 79, which has no metadata"),
    *(
        ({path: value}, "is in the namespace shop/gone, which does not exist")
        for path, value in (
            ("/schemas/shop/gone/t", LOCATOR),
            ("/schema-versions/shop/gone/t", INDEX),
            ("/admin/topic-policies/persistent%3A%2F%2Fshop%2Fgone%2Ft", b"{}"),
            ("/admin/topic-policies/local/shop/gone/persistent/t", b"{}"),
            ("/admin/topic-policies/global/shop/gone/persistent/t", b"{}"),
            ("/namespace/shop/gone/0x00000000_0xffffffff", b"{}"),
            ("/loadbalance/bundle-data/shop/gone/0x00000000_0xffffffff", b"{}"),
        )
    ),
    (
        {"/namespace/nobody/n/0x00000000_0xffffffff": b"{}"},
        "is in the namespace nobody/n, which does not exist",
    ),
    (
        names_of(POLICIES, "replication_clusters", "c1", "moon"),
        "names the cluster moon, which does not exist",
    ),
    (names_of(POLICIES, "allowed_clusters", "moon"), "names the cluster moon, which does not exist"),
    (names_of(TENANT, "allowedClusters", "moon"), "names the cluster moon, which does not exist"),
    ({LOCAL: affinity("moon")}, "names the group moon of bookies, which no bookie is in"),
    ({LOCAL: affinity("near", "far, moon")}, "names the group moon of bookies, which no bookie is in"),
    (
        {"/bookies": b'{"near":{"a:1":{"rack":"/r"}},"far":{}}'},
        "names the group far of bookies, which no bookie is in",
    ),
    *(
        (
            {CURSOR: cursor(one, 3)},
            f"is at {one}:3, and the list of persistent://shop/orders/t lacks that ledger",
        )
        for one in (6, 77)
    ),
]


@pytest.mark.parametrize(("changes", "expected"), NOWHERE)
def test_name_that_points_nowhere_is_named(changes: Mapping[str, bytes], expected: str) -> None:
    assert [one.text for one in found(changes)] == [expected]


OWN_CLUSTER = names_of("/admin/policies/pulsar", "allowedClusters", "own")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="nothing is changed"),
        pytest.param({CURSOR: cursor(4, 3)}, id="a cursor in a trimmed ledger"),
        pytest.param({CURSOR: cursor(6, -1)}, id="a cursor in a ledger that stayed empty and was removed"),
        pytest.param(
            {LIST: log(5, properties={SHADOW_SOURCE: "x"}), CURSOR: cursor(9, 3)},
            id="a cursor of a shadow topic, in its source's ledgers",
        ),
        pytest.param({LOCAL: affinity("*")}, id="the group of all bookies"),
        pytest.param(
            {**OWN_CLUSTER, **names_of(TENANT, "allowedClusters", "own")},
            id="the own cluster of a broker with a file, which is not described",
        ),
        pytest.param({"/namespace/pulsar/system/0x00000000_0xffffffff": b"{}"}, id="the brokers' namespace"),
        pytest.param(
            {
                "/namespace/shop/gone/0x00000000_0xffffffff": b"{}",
                "/admin/deletions/namespace/shop%2Fgone": b"{}",
            },
            id="a namespace whose deletion goes on",
        ),
        pytest.param({COOKIE: b"3\na:1\n/j\n/l\n"}, id="a cookie of BookKeeper 4.0"),
    ],
)
def test_whole_store_has_no_finding(changes: Mapping[str, bytes]) -> None:
    assert found(changes) == []
