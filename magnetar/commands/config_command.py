"""`magnetar config show`: the effective settings, their origins, and the differences between profiles.

It reads the same files by the same code as `standalone`, `broker`, `bookie` or a client, and starts none of them.
Settings go to stdout, the loader's notes to stderr. The actions that talk to a running broker are in
`magnetar/clients/dynamic_config.py`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foundation.settings.errors import SettingsError
from foundation.settings.keys import PROFILES, Key
from foundation.settings.settings import Note, Settings
from magnetar.clients import dynamic_config
from magnetar.process.config_files import FILES, default_file


def main(argv: Sequence[str]) -> int:
    """Runs one action of `magnetar config`. Returns the exit status."""
    parser = argparse.ArgumentParser(
        "magnetar config",
        description="Look at settings, and change those of a running broker.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_show(actions)
    dynamic_config.add_actions(actions)
    arguments = parser.parse_args(argv)
    return show(arguments) if arguments.action == "show" else dynamic_config.run(arguments)


def _add_show(actions: argparse._SubParsersAction[Any]) -> None:
    parser = actions.add_parser("show", help="print the effective settings", allow_abbrev=False)
    add = parser.add_argument
    add("keys", nargs="*", metavar="KEY", help="only these keys")
    add(
        "--for",
        dest="role",
        choices=tuple(FILES),
        default="standalone",
        help="whose settings (default standalone)",
    )
    add("-c", "--conf", "--config", type=Path, metavar="FILE", help="configuration file")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="override a setting")
    add("--profile", choices=PROFILES, help="defaults of this Pulsar version")
    add("--origin", action="store_true", help="also print the origin of each value")
    add(
        "--diff",
        nargs=2,
        choices=PROFILES,
        metavar=("A", "B"),
        help="print the differences between two profiles",
    )
    add("-o", "--output", choices=("text", "json"), default="text", help="how to print")


def show(arguments: argparse.Namespace) -> int:
    """Prints settings. Returns 0, or 2 after one line on stderr when a setting is wrong."""
    try:
        if arguments.diff is not None:
            return _diff(arguments)
        tables, notes = load(arguments, os.environ, arguments.profile)
        rows = _rows(tables, arguments.keys)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    for note in notes:
        print(f"{note.level}: {note.text}", file=sys.stderr)
    _print(rows, arguments.output, ("origin",) if arguments.origin else ())
    return 0


def load(
    arguments: argparse.Namespace, environ: Mapping[str, str], profile: str | None
) -> tuple[list[Settings], tuple[Note, ...]]:
    """Returns the settings of the role, for standalone those of broker and bookie. Raises SettingsError."""
    path: Path | None = arguments.conf or default_file(arguments.role, environ)
    overrides: list[str] = arguments.set
    if arguments.role == "standalone":
        from magnetar.process.process_settings import load_standalone_settings

        both = load_standalone_settings(path, environ=environ, overrides=overrides, profile=profile)
        return [both.broker, both.bookie], both.notes
    if arguments.role == "broker":
        from broker.config import load_broker_settings

        settings = load_broker_settings(path, environ=environ, overrides=overrides, profile=profile)
    elif arguments.role == "bookie":
        from bookie_stub.config.rules import load_bookie_settings

        settings = load_bookie_settings(path, environ=environ, overrides=overrides)
    else:
        from magnetar.clients.client_keys import load_client_settings

        settings = load_client_settings(path, environ=environ, overrides=overrides)
    return [settings], settings.notes


Row = dict[str, str]
"""Column to text; every row has `key` and `value`."""


def _rows(tables: list[Settings], only: Sequence[str]) -> list[Row]:
    rows: dict[str, Row] = {}
    for settings in tables:
        for key in settings.table.keys.values():
            if key.used and key.name not in rows and (not only or key.name in only):
                rows[key.name] = _row(settings, key)
    missing = [name for name in only if name not in rows]
    if missing:
        near = tables[0].table.nearest(missing[0])
        hint = f"; did you mean {near}?" if near else ""
        raise SettingsError(f"{missing[0]}: no such key is in use{hint}")
    return list(rows.values())


def _row(settings: Settings, key: Key) -> Row:
    value = key.show(settings.value(key.name))
    return {"key": key.name, "value": value, "origin": settings.origin(key.name)}


def _diff(arguments: argparse.Namespace) -> int:
    first, second = arguments.diff
    befores, notes = load(arguments, os.environ, first)
    afters, _ = load(arguments, os.environ, second)
    rows = []
    for before, after in zip(befores, afters, strict=True):
        for key in before.table.keys.values():
            old, new = before.value(key.name), after.value(key.name)
            if key.used and old != new and key.name != "magnetarProfile":
                rows.append({"key": key.name, first: key.show(old), second: key.show(new)})
    for note in notes:
        print(f"{note.level}: {note.text}", file=sys.stderr)
    if arguments.output == "json":
        _print_json(rows)
    else:
        for row in rows:
            print(f"{row['key']}: {row[first] or '(unset)'} -> {row[second] or '(unset)'}")
    return 0


def _print(rows: list[Row], output: str, extra: tuple[str, ...]) -> None:
    columns = ("key", "value", *extra)
    if output == "json":
        _print_json([{column: row[column] for column in columns} for row in rows])
        return
    for row in rows:
        line = f"{row['key']}={row['value']}"
        print(line if not extra else f"{line:<60}  # {row['origin']}")


def _print_json(rows: list[Row]) -> None:
    import json  # Imported here because only `-o json` pays for it.

    print(json.dumps(rows, indent=2, ensure_ascii=False))
