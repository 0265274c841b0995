"""Runs one of pulsar-admin's commands: reads its words, sends the request, prints the answer."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

from foundation.value import Json
from magnetar.admin.output import shown
from magnetar.admin.requests import body_of, path_of
from magnetar.admin.table import Command, Option, commands
from magnetar.admin.values import READERS
from magnetar.clients.admin_client import AdminAddress, admin_address, send, text_or_json
from magnetar.clients.client import CommandError, fail
from magnetar.process.shared_options import CommandParser, add_admin_url, add_tls_options

NOT_BUILT: Final = 2
"""Exit code of a command that pulsar-admin has and this one does not, and of wrong usage."""
_SWITCHES: Final = {"on": True, "off": False}


def run(words: Sequence[str]) -> int:
    """Runs `magnetar admin` with these words: 0, 1 after an error, 2 for wrong usage."""
    first = CommandParser("magnetar admin", add_help=False)
    _add_common(first)
    # pulsar-admin takes these options before the group; here they may stand after the command too.
    common, rest = first.parse_known_args(_until_group(words))
    rest += words[len(_until_group(words)) :]
    if len(rest) < 2 or rest[0].startswith("-"):
        return _usage(rest)
    command = commands().get(rest[0], {}).get(rest[1])
    if command is None:
        return _usage(rest)
    if not command.built:
        print(f"magnetar admin: {command.group} {command.name} is not built", file=sys.stderr)
        return NOT_BUILT
    arguments = _parser(command).parse_args(rest[2:], common)
    try:
        values = _values(command, arguments)
        address = admin_address(arguments)
        return _execute(command, values, address, arguments.output)
    except CommandError as error:
        return fail(f"admin {command.group} {command.name}", error)


def _until_group(words: Sequence[str]) -> list[str]:
    """Returns the words before the group; an option's value is not taken for the group."""
    groups = commands()
    for index, word in enumerate(words):
        if word in groups or word in ("-h", "--help"):
            return list(words[:index])
    return list(words)


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_admin_url(parser)
    add = parser.add_argument
    add("--request-timeout", type=int, metavar="S", help="seconds to wait for the broker (default 30)")
    add_tls_options(parser)
    add("-o", "--output", choices=("table", "json"), help="form of the answer")


def _usage(words: Sequence[str]) -> int:
    """Prints the groups, or the commands of a group. Returns 2; exits with 0 where help was asked for."""
    asked = any(word in ("-h", "--help") for word in words)
    group = commands().get(words[0]) if words else None
    out = sys.stdout if asked else sys.stderr
    if group is None:
        if words and words[0] in ("audit", "snapshot"):
            print(
                f"magnetar admin: write `magnetar admin {words[0]}` first, then its options", file=sys.stderr
            )
        elif words and not words[0].startswith("-"):
            print(f"magnetar admin: unknown group {words[0]!r}", file=sys.stderr)
        print(
            "Usage: magnetar admin [options] GROUP COMMAND [options]\n       magnetar admin snapshot FOLDER\n"
            "       magnetar admin audit",
            file=out,
        )
        print("\nGroups: " + ", ".join(name for name, one in commands().items() if _built(one)), file=out)
    else:
        if len(words) > 1 and not words[1].startswith("-"):
            print(f"magnetar admin: {words[0]} has no command {words[1]!r}", file=sys.stderr)
        print(f"Usage: magnetar admin {words[0]} COMMAND [options]\n\nCommands:", file=out)
        for name in _built(group):
            print(f"  {name}", file=out)
    if asked:
        # As argparse ends every other --help.
        raise SystemExit(0)
    return 2


def _built(group: Mapping[str, Command]) -> list[str]:
    return [name for name, command in group.items() if command.built]


def _parser(command: Command) -> argparse.ArgumentParser:
    name = f"magnetar admin {command.group} {command.name}"
    parser = CommandParser(
        name,
        description=f"{command.method} {command.path.rpartition('|| ')[2].partition('?')[0]}",
        # An option that is missing here must not replace the one before the group.
        argument_default=argparse.SUPPRESS,
        # An option of the command takes the place of a common one with its name, such as `functions create --output`.
        # The common one can still stand before the group.
        conflict_handler="resolve",
    )
    _add_common(parser)
    for argument in command.arguments:
        parser.add_argument(argument)
    pair = None
    for option in command.options:
        if option.kind in _SWITCHES:
            pair = pair or parser.add_mutually_exclusive_group(required=True)
            pair.add_argument(
                *option.flags,
                dest="option_enable",
                action="store_const",
                const=_SWITCHES[option.kind],
                default=None,
            )
        else:
            _add_option(parser, option)
    return parser


def _add_option(parser: argparse.ArgumentParser, option: Option) -> None:
    dest = f"option_{option.name}"
    if option.takes_text:
        shape = option.kind.upper()
        parser.add_argument(*option.flags, dest=dest, metavar=shape, default=None, required=option.required)
        return
    parser.add_argument(
        *option.flags,
        dest=dest,
        action="store_true",
        default=None if option.kind == "given" else option.default == "true",
        required=option.required,
    )


def _values(command: Command, arguments: argparse.Namespace) -> dict[str, Json]:
    """Returns the values by the names of the row. Raises CommandError for a text that cannot be read."""
    given = vars(arguments)
    values: dict[str, Json] = {name: given[name] for name in command.arguments}
    for option in command.options:
        if option.kind in _SWITCHES:
            values["enable"] = given["option_enable"]
        elif option.takes_text:
            values[option.name] = _value(option, given[f"option_{option.name}"])
        else:
            values[option.name] = given[f"option_{option.name}"]
    for option in command.options:
        if option.replaces and values[option.name]:
            values[option.replaces] = text_or_json(option.default)
    return values


def _value(option: Option, text: str | None) -> Json:
    if text is None:
        # A default stands in the table in the unit of the request.
        if not option.default:
            return None
        reader = "int" if option.kind in ("seconds", "millis", "bytes") else option.kind
        return READERS[reader](option.default)
    try:
        value = READERS[option.kind](text)
    except CommandError as error:
        raise CommandError(f"{max(option.flags, key=len)}: {error}") from None
    if option.kind == "ago" and isinstance(value, int):
        return time.time_ns() // 1_000_000 - value
    return value


def _execute(command: Command, values: dict[str, Json], address: AdminAddress, output: str | None) -> int:
    for option in command.options:
        if option.kind == "clusters" and values[option.name] is None:
            # As pulsar-admin: a tenant without a list may use all clusters.
            values[option.name] = text_or_json(send(address, "GET", "/admin/v2/clusters").text)
    if command.handler:
        # Most commands need none of these functions.
        from magnetar.admin.handlers import HANDLERS, Call

        return HANDLERS[command.handler](Call(command, values, address, output or ""))
    body = body_of(command.body, values)
    path = path_of(command.path, values)
    answer = send(address, command.method, path, *(body or ()))
    for warning in answer.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if answer.content:
        value = text_or_json(answer.text)
        _print(value.get(command.member) if command.member and isinstance(value, dict) else value, output)
    elif command.method == "GET":
        _print(None, output)
    return 0


def _print(value: Json, output: str | None) -> None:
    text = shown(value, output or "")
    if text:
        print(text)
