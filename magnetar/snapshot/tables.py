"""The tables of a snapshot: one Parquet file each, with these columns. `docs/reference/audits.md` has their meaning."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import pyarrow as pa

FACTS: Final = "snapshot.json"
"""The file with the snapshot's time, source and row counts. Written last: a folder without it is incomplete."""
FORMAT: Final = 2
"""Grows when a table changes in a way that a reader must know."""

TABLES: Final = MappingProxyType(
    {
        "nodes": pa.schema(
            [
                ("path", pa.string()),
                ("kind", pa.string()),
                ("namespace", pa.string()),
                ("topic", pa.string()),
                ("bytes", pa.int64()),
                ("version", pa.int64()),
                ("modified_ms", pa.int64()),
                ("children", pa.int64()),
            ]
        ),
        "topics": pa.schema([("topic", pa.string()), ("namespace", pa.string()), ("partitions", pa.int64())]),
        "managed_ledgers": pa.schema(
            [
                ("topic", pa.string()),
                ("namespace", pa.string()),
                ("ledgers", pa.int64()),
                ("entries", pa.int64()),
                ("bytes", pa.int64()),
                ("deleted", pa.bool_()),
            ]
        ),
        "references": pa.schema(
            [
                ("ledger_id", pa.int64()),
                ("kind", pa.string()),
                ("topic", pa.string()),
                ("owner", pa.string()),
                ("ordinal", pa.int64()),
                ("entries", pa.int64()),
                ("bytes", pa.int64()),
                ("closed_ms", pa.int64()),
            ]
        ),
        "cursors": pa.schema(
            [
                ("topic", pa.string()),
                ("subscription", pa.string()),
                ("mark_ledger", pa.int64()),
                ("mark_entry", pa.int64()),
                ("ranges", pa.int64()),
                ("acked_entries", pa.int64()),
                ("last_acked_ledger", pa.int64()),
                ("last_acked_entry", pa.int64()),
                ("state_bytes", pa.int64()),
                ("acks_known", pa.bool_()),
                ("modified_ms", pa.int64()),
            ]
        ),
        "ledgers": pa.schema(
            [
                ("ledger_id", pa.int64()),
                ("state", pa.string()),
                ("entries", pa.int64()),
                ("bytes", pa.int64()),
                ("created_ms", pa.int64()),
                ("application", pa.string()),
                ("component", pa.string()),
            ]
        ),
        "schemas": pa.schema([("topic", pa.string()), ("versions", pa.int64())]),
        "policies": pa.schema(
            [
                ("level", pa.string()),
                ("name", pa.string()),
                ("ttl_s", pa.int64()),
                ("retention_minutes", pa.int64()),
                ("retention_mb", pa.int64()),
            ]
        ),
        "unreadable": pa.schema([("path", pa.string()), ("why", pa.string())]),
    }
)
"""Schema by the table's name."""
