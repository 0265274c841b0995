"""`magnetar admin`: pulsar-admin's commands, and two on the metadata store: `snapshot` and `audit`.

`snapshot` writes the store as Parquet tables and only reads it. `audit` finds leaks, and changes nothing without a flag.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from foundation.model.errors import MetadataError
from magnetar.audit import command as leaks_command
from magnetar.clients.client import CommandError, fail
from magnetar.process.shared_options import CommandParser

_DEFAULT_URL = "file:data/metadata.sqlite"


def main(argv: list[str]) -> int:
    """Runs `magnetar admin` with these words.

    Returns 0, 1 after one line on stderr, or 2 for wrong usage and commands that are not built.
    """
    if argv[:1] not in (["snapshot"], ["audit"]):
        from magnetar.admin.run import run

        return run(argv)
    arguments = _parser().parse_args(argv)
    try:
        if arguments.action == "audit":
            return leaks_command.run(arguments)
        _snapshot(arguments.metadata_url, arguments.folder)
    except CommandError as error:
        return fail("admin", error)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser("magnetar admin", description="Work on a cluster as a whole.")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    snapshot = actions.add_parser(
        "snapshot",
        help="write a metadata store as Parquet tables",
        description="Write a metadata store as Parquet tables, for `magnetar pipeline audit`. It may be in use.",
    )
    snapshot.add_argument("folder", type=Path, metavar="FOLDER", help="to write; must not exist yet")
    audit = actions.add_parser(
        "audit",
        help="find leaks in a running cluster",
        description="Find leaked metadata and orphaned or lost ledgers by the rules of `magnetar pipeline audit`. Without"
        " --quarantine, --put-back or --delete nothing is changed.",
    )
    leaks_command.add_arguments(audit)
    for command in (snapshot, audit):
        command.add_argument(
            "--metadata-url",
            default=_DEFAULT_URL,
            metavar="URL",
            help=f"as metadataStoreUrl: file:PATH or zk:host:port[/chroot] (default {_DEFAULT_URL})",
        )
    return parser


def _snapshot(url: str, folder: Path) -> None:
    try:
        from magnetar.snapshot.node_sources import nodes_of
        from magnetar.snapshot.writer import write_snapshot
    except ModuleNotFoundError as error:
        raise CommandError(f"{error}; pip install 'WHEEL[record]'") from error
    try:
        counts = write_snapshot(
            nodes_of(url), folder, url, lambda text: print(text, file=sys.stderr, flush=True)
        )
    except (MetadataError, OSError) as error:
        raise CommandError(str(error)) from error
    print(f"{folder}: " + ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items()))
