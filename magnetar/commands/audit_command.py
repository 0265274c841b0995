"""`magnetar pipeline audit`: audits a snapshot of the metadata."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from magnetar.clients.client import CommandError, fail
from pipeline.remote_paths import (
    CannotFetch,
    CannotWrite,
    LocalOrRemote,
    check_output,
    fetch,
    local_folder,
    name_of,
    place,
    refuse_other_machines,
)
from pipeline.spark_master import master

if TYPE_CHECKING:
    Jobs = argparse._SubParsersAction[argparse.ArgumentParser]

AUDITS = {
    "metadata": "nodes whose topic, namespace or tenant is gone, by kind",
    "ledgers": "ledgers without a reference, and references to absent ledgers",
    "acks": "holes and backlog of each subscription, and their costs",
    "lifecycle": "ledgers older than TTL and retention allow",
}
"""By name, the help text."""
_SPARK_SETTINGS = {
    # Enough for tens of millions of rows, and few where there are few.
    "spark.sql.shuffle.partitions": "16",
    "spark.driver.memory": "3g",
    # A join whose smaller table fits into this uses a hash table instead of sorting both.
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "64m",
}


class _Limit(NamedTuple):
    flag: str
    field: str
    """Of `pipeline.audits.limits.Limits`."""
    default: int
    meaning: str


_LIMITS = (
    _Limit("--grace-seconds", "grace_s", 86_400, "nodes and ledgers younger than this are left out"),
    _Limit("--min-ranges", "ranges_min", 1000, "acked ranges from which holes are worth a line"),
    _Limit("--min-backlog-bytes", "backlog_bytes_min", 1 << 30, "bytes from which a backlog is worth a line"),
    _Limit("--ttl-seconds", "ttl_s", 0, "TTL where no policy says otherwise; 0 = none"),
    _Limit(
        "--retention-minutes",
        "retention_minutes",
        0,
        "retention where no policy says otherwise; -1 = for ever",
    ),
    _Limit("--slack-seconds", "slack_s", 3600, "how long the broker's own checks may take"),
)


def add_to(jobs: Jobs) -> None:
    """Adds the command to those of `magnetar pipeline`."""
    parser = jobs.add_parser(
        "audit",
        help="look for leaks in a snapshot of the metadata",
        description="Look for leaks in a snapshot that `magnetar admin snapshot` wrote. Nothing is ever deleted:"
        " the result is a plan, as Parquet, as a page and as a short text.",
    )
    parser.add_argument(
        "name", choices=AUDITS, help="; ".join(f"{name}: {text}" for name, text in AUDITS.items())
    )
    parser.add_argument("snapshot", type=place, metavar="SNAPSHOT", help="folder of the snapshot")
    parser.add_argument(
        "--out", type=local_folder, metavar="FOLDER", help="of plan and page (default SNAPSHOT-audit-NAME)"
    )
    parser.add_argument("--master", type=master, default="local[*]", help="Spark's master (default local[*])")
    for one in _LIMITS:
        text = f"{one.meaning} (default {one.default})"
        parser.add_argument(one.flag, type=int, default=one.default, dest=one.field, metavar="N", help=text)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Runs an audit. Returns 0, or 1 after one line on stderr."""
    try:
        print(_audit(arguments))
    except CommandError as error:
        return fail("pipeline audit", error)
    return 0


def _audit(arguments: argparse.Namespace) -> str:
    try:
        from pipeline.audits.limits import Limits
        from pipeline.audits.run import run_audit
        from pipeline.audits.snapshot import SnapshotError, taken_ms_of
        from pipeline.java import NoJava
        from pipeline.session import start_for_command
        from pipeline.spark_master import NoMaster
    except ModuleNotFoundError as error:
        raise CommandError(f"{error}; pip install 'WHEEL[spark]'") from error
    began = time.monotonic()

    def progress(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", file=sys.stderr, flush=True)

    where: LocalOrRemote = arguments.snapshot
    out: Path = arguments.out or _beside(where, f"{name_of(where)}-audit-{arguments.name}")
    limits = Limits(**{one.field: getattr(arguments, one.field) for one in _LIMITS})
    try:
        if isinstance(where, Path):
            taken_ms_of(where)  # Before Spark starts, which takes seconds.
        else:
            refuse_other_machines(where, arguments.master)
        check_output(out)
        session = start_for_command(
            f"audit {arguments.name}", master=arguments.master, settings=_SPARK_SETTINGS
        )
        try:
            with tempfile.TemporaryDirectory(prefix="magnetar-snapshot-") as copies:
                folder = where if isinstance(where, Path) else fetch(session, where, Path(copies))
                text = run_audit(session, arguments.name, folder, out, limits, progress)
        finally:
            session.stop()
    except (SnapshotError, CannotFetch, CannotWrite, NoJava, NoMaster) as error:
        raise CommandError(str(error)) from error
    progress("done")
    return text


def _beside(where: LocalOrRemote, name: str) -> Path:
    return where.with_name(name) if isinstance(where, Path) else Path(name)
