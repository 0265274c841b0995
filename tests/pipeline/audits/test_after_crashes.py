"""The audits on Spark find nothing in the store of a broker that was killed in the middle of a removal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark, pip install WHEEL[spark]")
pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")

from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from tests.crash import deletion_run, quarantine_run, trimming_run
from tests.crash.spark_audit import findings, snapshot

RUNS: dict[str, Callable[[str, Path], list[str]]] = {
    "delete.before": trimming_run.run_point,
    "namespace.topics.after": deletion_run.run_point,
    "quarantine.delete.before": quarantine_run.run_point,
}


@pytest.mark.slow
@pytest.mark.parametrize("point", RUNS)
def test_audits_find_nothing_after_a_kill(spark: Any, point: str, tmp_path: Path) -> None:
    assert RUNS[point](point, tmp_path) == []
    store = tmp_path / "data" / "metadata.sqlite"
    assert findings(spark, snapshot(store, tmp_path / "snapshot")) == []
    asyncio.run(leak(store))
    (found,) = findings(spark, snapshot(store, tmp_path / "again"))
    assert found.startswith("audit metadata: cursor /managed-ledgers/public/default/persistent/gone/s: ")


async def leak(path: Path) -> None:
    """Adds the cursor of a topic that does not exist."""
    store = SqliteMetadataStore(path)
    await store.put("/managed-ledgers/public/default/persistent/gone/s", b'{"markDelete":[1,2]}')
    await store.close()
