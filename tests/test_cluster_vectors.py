"""Every recorded record of a cluster's metadata store and cursor ledgers, read and written again, one test per file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from google.protobuf import json_format

from protocol.managed_ledger_records_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from tests.vectors import cluster, cluster_nodes
from tests.vectors.cluster_differences import LAZY, Differences
from tests.vectors.cluster_operations import NOT_KNOWN
from tests.vectors.folder import find_vectors_folder

_NAMES = ("nodes", "startup", "loadbalance", "writes", "ledgers")


def _files() -> list[Path]:
    folder = find_vectors_folder()
    return [folder / "cluster" / f"{name}.jsonl" for name in _NAMES] if folder else []


@pytest.mark.skipif(not _files(), reason="no golden files; set MAGNETAR_VECTORS")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", _files(), ids=lambda path: path.stem)
def test_records_are_written_as_recorded(path: Path) -> None:
    result = cluster.run_file(path)
    assert result.failed == 0, "\n".join(result.messages)
    assert result.passed > 0
    assert not [text for text in result.messages if NOT_KNOWN in text]


OWNER = {
    "nativeUrl": "pulsar://b:6650",
    "httpUrl": "http://b:8080",
    "disabled": False,
    "advertisedListeners": {},
}


def _compared(path: str, value: dict[str, object], decoded: dict[str, object]) -> str | None:
    compared = cluster_nodes.compare(path, json.dumps(value, separators=(",", ":")).encode(), decoded)
    assert compared is not None
    return compared.difference


def test_replayer_of_nodes_tells_of_a_field_that_is_lost_or_changed() -> None:
    path = "/namespace/shop/orders/0x00000000_0x40000000"
    assert _compared(path, OWNER, OWNER) is None
    assert "nativeUrl" in str(_compared(path, OWNER, {**OWNER, "nativeUrl": "pulsar://c:6650"}))
    group: dict[str, object] = {"publishRateInMsgs": 1, "dispatchRateInMsgs": 2}
    assert _compared("/admin/resourcegroups/g", group, group) is None
    # A field that Magnetar does not know is lost when it writes the node.
    unknown: dict[str, object] = {**group, "someNewRate": 3}
    assert "someNewRate" in str(_compared("/admin/resourcegroups/g", unknown, unknown))
    assert cluster_nodes.compare("/unknown", b"{}", {}) is None


LOG = "/managed-ledgers/a/b/persistent/t"


def _list(*ledgers: dict[str, int]) -> dict[str, object]:
    return {"type": "set", "decoded": {"ledgerInfo": [*ledgers]}}


def _stored(*ledgers: dict[str, int]) -> bytes:
    record = ManagedLedgerInfo()
    for one in ledgers:
        record.ledgerInfo.add(**one)
    return record.SerializeToString()


def _of(differences: Differences, path: str, recorded: dict[str, object], value: bytes | None) -> str | None:
    return differences.of(path, recorded, value, is_late=False)


def test_comparison_of_lists_maps_ledgers_and_tells_of_another_size_or_ledger() -> None:
    closed = {"ledgerId": 7, "entries": 3, "size": 9, "timestamp": 1}
    differences = Differences()
    assert _of(differences, LOG, _list(closed), _stored({**closed, "ledgerId": 70, "timestamp": 5})) is None
    assert differences.ledger(7) == 70
    for wrong in ({"size": 8}, {"entries": 4}, {"timestamp": 0}, {"ledgerId": 71}):
        found = _of(differences, LOG, _list(closed), _stored({**closed, "ledgerId": 70, **wrong}))
        assert found is not None, wrong
        assert found.startswith("ledgerInfo"), wrong
    assert _of(differences, LOG, _list(closed), None) is not None
    assert _of(differences, LOG, {"type": "delete"}, _stored(closed)) is not None
    packed = {**_list(closed), "compression": {"compressionType": "LZ4"}}
    value = _stored({**closed, "ledgerId": 70})
    assert _of(differences, LOG, packed, value) == "compression: want LZ4, got None"
    # A ledger that is closed is no ledger that comes later.
    both = _list(closed, {**closed, "ledgerId": 8})
    assert _of(differences, LOG, both, value) is not None
    assert _of(differences, LOG, _list(closed, {"ledgerId": 8, "timestamp": 0}), value) is None
    assert differences.reasons == {LAZY}


def test_comparison_of_cursors_tells_of_another_position_or_hole() -> None:
    hole = {"lowerEndpoint": {"ledgerId": 7, "entryId": 3}, "upperEndpoint": {"ledgerId": 7, "entryId": 4}}
    fields: dict[str, object] = {
        "cursorsLedgerId": -1,
        "markDeleteLedgerId": 7,
        "markDeleteEntryId": 2,
        "individualDeletedMessages": [hole],
    }
    recorded: dict[str, object] = {"type": "set", "decoded": fields}
    stored = ManagedCursorInfo()
    json_format.ParseDict(fields, stored)
    assert _of(Differences(), f"{LOG}/s", recorded, stored.SerializeToString()) is None
    stored.individualDeletedMessages[0].upperEndpoint.entryId = 5
    assert "individualDeletedMessages" in str(
        _of(Differences(), f"{LOG}/s", recorded, stored.SerializeToString())
    )
    json_format.ParseDict({**fields, "markDeleteEntryId": 1}, stored := ManagedCursorInfo())
    assert "markDeleteEntryId" in str(_of(Differences(), f"{LOG}/s", recorded, stored.SerializeToString()))
