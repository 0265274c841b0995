"""`magnetar config show`: the effective settings, their origins, and the differences between profiles.

It reads the same files by the same code as `standalone`, `broker`, `bookie` or a client, and starts none of them.
Settings go to stdout, the loader's notes to stderr. The actions that talk to a running broker are in
`magnetar/clients/dynamic_config.py`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from foundation.settings.errors import SettingsError
from foundation.settings.keys import PROFILES, Key, mask
from foundation.settings.load import PROFILE_KEY
from foundation.settings.settings import Note, Settings
from foundation.settings.unused import UnusedKey
from magnetar.clients import dynamic_config
from magnetar.process.config_files import FILES, default_file
from magnetar.process.shared_options import CommandParser


def main(argv: Sequence[str]) -> int:
    """Runs one action of `magnetar config`. Returns the exit status."""
    parser = CommandParser(
        "magnetar config", description="Look at settings, and change those of a running broker."
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_show(actions)
    dynamic_config.add_actions(actions)
    arguments = parser.parse_args(argv)
    return show(arguments) if arguments.action == "show" else dynamic_config.run(arguments)


def _add_show(actions: argparse._SubParsersAction[Any]) -> None:
    parser = actions.add_parser("show", help="print the effective settings")
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
        from magnetar.process.client_keys import load_client_settings

        settings = load_client_settings(path, environ=environ, overrides=overrides)
    return [settings], settings.notes


KeyTexts = dict[str, str]
"""Column to text; every row has `key` and `value`."""


def _rows(tables: list[Settings], only: Sequence[str]) -> list[KeyTexts]:
    rows: dict[str, KeyTexts] = {}
    for settings in tables:
        for row in (*_used(settings), *_changed(settings)):
            if not only or row["key"] in only:
                rows.setdefault(row["key"], row)
    missing = [name for name in only if name not in rows]
    if missing:
        near = tables[0].table.nearest(missing[0])
        hint = f"; did you mean {near}?" if near else ""
        raise SettingsError(f"{missing[0]}: no such key is in use{hint}")
    return list(rows.values())


def _used(settings: Settings) -> Iterator[KeyTexts]:
    for key in settings.table.keys.values():
        if key.used:
            yield _row(settings, key)


def _row(settings: Settings, key: Key) -> KeyTexts:
    value = key.show(settings.value(key.name))
    return {"key": key.name, "value": value, "origin": settings.origin(key.name)}


def _changed(settings: Settings) -> Iterator[KeyTexts]:
    """Yields the keys without effect whose default depends on the release, so that all of these can be seen."""
    for key in settings.table.keys.values():
        if not key.used and key.differs_by_profile():
            row = _row(settings, key)
            yield row | {"origin": f"{row['origin']}; no effect here"}
    for unused in settings.table.unused.rows:
        if unused.v50:
            value, origin = _unused(settings, unused)
            yield {"key": unused.name, "value": value, "origin": f"{origin}; no effect here: {unused.reason}"}


def _unused(settings: Settings, key: UnusedKey) -> tuple[str, str]:
    """Returns the value of a key without a row, and its origin."""
    if settings.is_set(key.name):
        return mask(key.name, str(settings.value(key.name))), settings.origin(key.name)
    return key.default_for(settings.profile), f"profile {settings.profile}"


def _diff(arguments: argparse.Namespace) -> int:
    first, second = arguments.diff
    befores, notes = load(arguments, os.environ, first)
    afters, _ = load(arguments, os.environ, second)
    rows = []
    for before, after in zip(befores, afters, strict=True):
        for key in before.table.keys.values():
            old, new = before.value(key.name), after.value(key.name)
            if old != new and key.name != PROFILE_KEY:
                rows.append({"key": key.name, first: key.show(old), second: key.show(new)})
        for unused in before.table.unused.rows:
            old_text, new_text = _unused(before, unused)[0], _unused(after, unused)[0]
            if old_text != new_text:
                rows.append({"key": unused.name, first: old_text, second: new_text})
    for note in notes:
        print(f"{note.level}: {note.text}", file=sys.stderr)
    if arguments.output == "json":
        _print_json(rows)
    else:
        for row in rows:
            print(f"{row['key']}: {row[first] or '(unset)'} -> {row[second] or '(unset)'}")
    return 0


def _print(rows: list[KeyTexts], output: str, extra: tuple[str, ...]) -> None:
    columns = ("key", "value", *extra)
    if output == "json":
        _print_json([{column: row[column] for column in columns} for row in rows])
        return
    for row in rows:
        line = f"{row['key']}={row['value']}"
        print(line if not extra else f"{line:<60}  # {row['origin']}")


def _print_json(rows: list[KeyTexts]) -> None:
    import json  # Imported here because only `-o json` pays for it.

    print(json.dumps(rows, indent=2, ensure_ascii=False))
