"""Every recorded record of a cluster's metadata store and cursor ledgers, read and written again, one test per file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.vectors import cluster, cluster_nodes
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
