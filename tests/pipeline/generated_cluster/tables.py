"""The tables of a generated cluster, and functions that add rows of one kind to them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.audits.snapshot import COLUMNS, FACTS, FORMAT

DAY_MS = 86_400_000
LEDGER_ENTRIES = 1000
LEDGER_BYTES = 1_000_000
KINDS = {"string": pa.string(), "long": pa.int64(), "boolean": pa.bool_()}
Columns = dict[str, Any]


@dataclass
class Cluster:
    """The tables of a snapshot, each as parts that are written one after the other."""

    taken_ms: int
    parts: dict[str, list[Columns]] = field(default_factory=dict)
    planted: list[tuple[str, str, str]] = field(default_factory=list)
    """(audit, class, subject) of each finding that the audits must make."""
    next_ledger: int = 0

    def add(self, table: str, **columns: Any) -> None:
        """Appends rows to a table; a column that is left out is null."""
        self.parts.setdefault(table, []).append(columns)

    def ledger_ids(self, count: int) -> np.ndarray:
        """Returns so many ledger ids that are not used yet."""
        self.next_ledger += count
        return np.arange(self.next_ledger - count, self.next_ledger)

    def must_find(self, audit: str, kind: str, subjects: Any) -> None:
        """Notes findings that an audit must make."""
        self.planted += [(audit, kind, str(subject)) for subject in subjects]


def add_cursors(
    cluster: Cluster,
    topic: np.ndarray,
    log: np.ndarray,
    namespace: np.ndarray,
    subscription: str,
    mark_ledger: np.ndarray,
    ranges: Any = 0,
) -> None:
    """Adds a subscription per topic at the start of its ledger, with every other entry acked in `ranges` ranges."""
    count = len(topic)
    ranges = np.broadcast_to(np.asarray(ranges), (count,))
    path = join(log, "/", subscription)
    add_nodes(cluster, "cursor", path, namespace, topic)
    cluster.add(
        "cursors",
        topic=topic,
        subscription=np.full(count, subscription),
        mark_ledger=mark_ledger,
        mark_entry=np.full(count, -1),
        ranges=ranges,
        acked_entries=ranges,
        last_acked_ledger=pa.array(mark_ledger, mask=ranges == 0),
        last_acked_entry=pa.array(2 * ranges - 1, mask=ranges == 0),
        state_bytes=40 + 9 * ranges,
        acks_known=np.ones(count, bool),
        modified_ms=np.full(count, cluster.taken_ms - 2 * DAY_MS),
    )


def refer(cluster: Cluster, kind: str, topic: np.ndarray, owner: np.ndarray, component: str) -> None:
    """Adds a ledger per owner and the reference to it."""
    ids = cluster.ledger_ids(len(topic))
    cluster.add("references", ledger_id=ids, kind=np.full(len(topic), kind), topic=topic, owner=owner)
    add_ledgers(cluster, ids, component)


def add_ledgers(cluster: Cluster, ids: np.ndarray, component: str | None, age_ms: int = 400 * DAY_MS) -> None:
    cluster.add(
        "ledgers",
        ledger_id=ids,
        state=np.full(len(ids), "CLOSED"),
        entries=np.full(len(ids), LEDGER_ENTRIES),
        bytes=np.full(len(ids), LEDGER_BYTES),
        created_ms=np.full(len(ids), cluster.taken_ms - age_ms),
        **({} if component is None else _custom(component, len(ids))),
    )
    parts = np.char.zfill(ids.astype(str), 10).astype("U10").view("U1").reshape(-1, 10)
    first, second, third = (
        np.ascontiguousarray(parts[:, begin:end]).view(f"U{end - begin}").ravel()
        for begin, end in ((0, 2), (2, 6), (6, 10))
    )
    add_nodes(cluster, "ledger", join("/ledgers/", first, "/", second, "/L", third), age_ms=age_ms)


def add_nodes(
    cluster: Cluster,
    kind: str,
    path: np.ndarray,
    namespace: np.ndarray | None = None,
    topic: np.ndarray | None = None,
    *,
    bytes_: int = 100,
    age_ms: int = 30 * DAY_MS,
) -> None:
    count = len(path)
    columns: Columns = {"namespace": namespace, "topic": topic}
    cluster.add(
        "nodes",
        path=path,
        kind=np.full(count, kind),
        bytes=np.full(count, bytes_),
        version=np.zeros(count, int),
        modified_ms=np.full(count, cluster.taken_ms - age_ms),
        children=np.zeros(count, int),
        **{name: column for name, column in columns.items() if column is not None},
    )


def _custom(component: str, count: int) -> Columns:
    return {"application": np.full(count, "pulsar"), "component": np.full(count, component)}


def join(*parts: Any) -> np.ndarray:
    joined: Any = parts[0]
    for part in parts[1:]:
        joined = np.char.add(joined, part)
    found: np.ndarray = joined
    return found


def write(cluster: Cluster, folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, ddl in COLUMNS.items():
        (folder / name).mkdir()
        columns = [column.strip().split(" ") for column in ddl.split(",")]
        schema = pa.schema([(column, KINDS[kind]) for column, kind in columns])
        with pq.ParquetWriter(folder / name / "part-0.parquet", schema, compression="zstd") as file:
            for part in cluster.parts.get(name, []):
                file.write_table(_table(part, schema), row_group_size=200_000)
    planted = pa.table(
        {
            name: [row[index] for row in cluster.planted]
            for index, name in enumerate(("audit", "class", "subject"))
        }
    )
    pq.write_table(planted, folder / "planted.parquet")
    rows = {
        name: sum(len(next(iter(part.values()))) for part in parts) for name, parts in cluster.parts.items()
    }
    facts = {"format": FORMAT, "source": "generated", "taken_ms": cluster.taken_ms, "rows": rows}
    (folder / FACTS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def _table(part: Columns, schema: pa.Schema) -> pa.Table:
    count = len(next(iter(part.values())))
    arrays = [
        pa.array(part[item.name], item.type) if item.name in part else pa.nulls(count, item.type)
        for item in schema
    ]
    return pa.table(arrays, schema=schema)
