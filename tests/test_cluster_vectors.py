"""Every recorded record of a cluster's metadata store and cursor ledgers, read and written again, one test per file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.vectors import cluster
from tests.vectors.folder import find_vectors_folder


_NAMES = ("nodes", "startup", "loadbalance", "writes", "ledgers")


def _files() -> list[Path]:
    folder = find_vectors_folder()
    return [folder / "cluster" / f"{name}.jsonl" for name in _NAMES] if folder else []


@pytest.mark.skipif(not _files(), reason="no golden files; set MAGNETAR_VECTORS")
@pytest.mark.parametrize("path", _files(), ids=lambda path: path.stem)
def test_records_are_written_as_recorded(path: Path) -> None:
    result = cluster.run_file(path)
    assert result.failed == 0, "\n".join(result.messages)
    assert result.passed > 0
