"""Reads a snapshot of `magnetar admin snapshot`, each table as a DataFrame."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pyspark.sql import DataFrame, SparkSession

FACTS: Final = "snapshot.json"
"""The file that is written last, so that a folder with it is whole."""
FORMAT: Final = 2
"""The version of the format that is read here."""
COLUMNS: Final = MappingProxyType(
    {
        "nodes": (
            "path string, kind string, namespace string, topic string, bytes long, version long,"
            " modified_ms long, children long"
        ),
        "topics": "topic string, namespace string, partitions long",
        "managed_ledgers": (
            "topic string, namespace string, ledgers long, entries long, bytes long, deleted boolean"
        ),
        "references": (
            "ledger_id long, kind string, topic string, owner string, ordinal long, entries long, bytes long,"
            " closed_ms long"
        ),
        "cursors": (
            "topic string, subscription string, mark_ledger long, mark_entry long, ranges long,"
            " acked_entries long, last_acked_ledger long, last_acked_entry long, state_bytes long,"
            " acks_known boolean, modified_ms long"
        ),
        "ledgers": (
            "ledger_id long, state string, entries long, bytes long, created_ms long, application string,"
            " component string"
        ),
        "schemas": "topic string, versions long",
        "policies": ("level string, name string, ttl_s long, retention_minutes long, retention_mb long"),
        "unreadable": "path string, why string",
    }
)
"""By table, its columns in Spark's notation. docs/reference/audits.md has the grain and the meaning of each table."""


class SnapshotError(Exception):
    """A folder is no snapshot that can be audited. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The tables of one snapshot."""

    spark: SparkSession
    """Reads the tables."""
    folder: Path
    """Of the tables; a path that all machines of `spark` have."""
    taken_ms: int
    """When the snapshot was taken, in milliseconds since 1970."""

    def table(self, name: str) -> DataFrame:
        """Returns a table with the columns of `COLUMNS`, one row per Parquet row."""
        return self.spark.read.schema(COLUMNS[name]).parquet(str(self.folder / name))

    @property
    def unreadable(self) -> int:
        """Nodes whose value was not understood when the snapshot was taken."""
        return self.table("unreadable").count()


def taken_ms_of(folder: Path) -> int:
    """Returns when a snapshot was taken. SnapshotError for an incomplete folder or another format."""
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        found, taken_ms = facts["format"], int(facts["taken_ms"])
    except FileNotFoundError:
        if not folder.exists():
            raise SnapshotError(
                f"{folder} does not exist: `magnetar admin snapshot {folder}` writes a snapshot there"
            ) from None
        raise SnapshotError(f"{folder} is no whole snapshot: it has no {FACTS}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SnapshotError(f"{folder / FACTS} cannot be read: {error}") from error
    if found != FORMAT:
        raise SnapshotError(f"{folder} is a snapshot of format {found}, and format {FORMAT} is understood")
    # The facts are written last, but a copy of the folder may have lost tables since.
    missing = [name for name in COLUMNS if not (folder / name).is_dir()]
    if missing:
        raise SnapshotError(f"{folder} is no whole snapshot: {', '.join(missing)} is missing")
    return taken_ms


def open_snapshot(spark: SparkSession, folder: Path) -> Snapshot:
    """Opens a snapshot without reading its tables. SnapshotError."""
    return Snapshot(spark, folder.absolute(), taken_ms_of(folder))
