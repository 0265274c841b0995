"""`magnetar config set`, `unset`, `dynamic`, `keys`, `runtime`: the settings of a broker that runs.

Each action has its name in `pulsar-admin brokers` as an alias, and accepts those flags. The broker decides which
values are allowed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from foundation.settings.keys import mask
from magnetar.clients.client import CommandError, fail
from magnetar.process.shared_options import add_admin_url

if TYPE_CHECKING:
    from magnetar.clients.admin_client import AdminAnswer

PATH = "/admin/v2/brokers/configuration"


def add_actions(actions: argparse._SubParsersAction[Any]) -> None:
    """Adds the actions. The parsed arguments have the action's function as `run` and its parser as `parser`."""
    change = _action(actions, "set", "update-dynamic-config", "change a setting at run time", _set)
    _key(change)
    change.add_argument("value", nargs="?", metavar="VALUE")
    change.add_argument("--value", "-v", dest="value_flag", help=argparse.SUPPRESS)
    back = _action(
        actions,
        "unset",
        "delete-dynamic-config",
        "restore the value that the broker was started with",
        _unset,
    )
    _key(back)
    changed = _action(
        actions, "dynamic", "get-all-dynamic-config", "print the values set at run time", _dynamic
    )
    _output(changed)
    keys = _action(
        actions, "keys", "list-dynamic-config", "print the keys that may be set at run time", _keys
    )
    _output(keys)
    runtime = _action(
        actions, "runtime", "get-runtime-config", "print the settings of a running broker", _runtime
    )
    runtime.add_argument("keys", nargs="*", metavar="KEY", help="only these keys")
    _output(runtime)


def run(arguments: argparse.Namespace) -> int:
    """Runs the chosen action. Returns 0, or 1 after one line on stderr."""
    action: Callable[[argparse.Namespace], None] = arguments.run
    try:
        action(arguments)
    except CommandError as error:
        return fail("config", error)
    return 0


def _action(
    actions: argparse._SubParsersAction[Any],
    name: str,
    as_pulsar: str,
    help_text: str,
    action: Callable[[argparse.Namespace], None],
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, aliases=[as_pulsar], help=help_text, description=help_text
    )
    parser.set_defaults(run=action, parser=parser)
    add_admin_url(parser)
    return parser


def _key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", nargs="?", metavar="KEY")
    parser.add_argument("--config", "-c", dest="key_flag", help=argparse.SUPPRESS)


def _output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="how to print")


# The actions


def _set(arguments: argparse.Namespace) -> None:
    given = (arguments.key_flag, arguments.key, arguments.value, arguments.value_flag)
    words = [word for word in given if word is not None]
    if len(words) != 2:
        arguments.parser.error("set takes a key and a value")
    key, value = words
    if not value:
        arguments.parser.error(
            f"{key} needs a value; `magnetar config unset {key}` restores the value of the start"
        )
    answer = _ask(arguments, "POST", f"/{_quoted(key)}/{_quoted(value)}")
    _warn(answer)
    print(f"{key}={mask(key, value)}")


def _unset(arguments: argparse.Namespace) -> None:
    key = arguments.key_flag or arguments.key
    if not key:
        arguments.parser.error("unset takes a key")
    _warn(_ask(arguments, "DELETE", f"/{_quoted(key)}"))
    holds = _texts(_ask(arguments, "GET", "/runtime"))
    print(f"{key}={holds[key]}" if key in holds else key)


def _dynamic(arguments: argparse.Namespace) -> None:
    _print(_texts(_ask(arguments, "GET", "/values")), arguments.output)


def _keys(arguments: argparse.Namespace) -> None:
    body = _ask(arguments, "GET", "").body
    if not isinstance(body, list):
        raise CommandError(f"the broker answers no list of keys: {body!r:.60}")
    names = sorted(map(str, body))
    if arguments.output == "json":
        _print_json(names)
    else:
        print("\n".join(names))


def _runtime(arguments: argparse.Namespace) -> None:
    holds = _texts(_ask(arguments, "GET", "/runtime"))
    for key in arguments.keys:
        if key not in holds:
            raise CommandError(f"{key}: the broker shows no such key")
    _print({key: holds[key] for key in arguments.keys or sorted(holds)}, arguments.output)


def _ask(arguments: argparse.Namespace, method: str, path: str) -> AdminAnswer:
    from magnetar.clients.admin_client import admin_address, ask

    return ask(admin_address(arguments), method, PATH + path)


def _quoted(text: str) -> str:
    return quote(text, safe="")


def _texts(answer: AdminAnswer) -> dict[str, str]:
    if not isinstance(answer.body, dict):
        raise CommandError(f"the broker answers no settings: {answer.body!r:.60}")
    return {key: str(value) for key, value in answer.body.items()}


def _warn(answer: AdminAnswer) -> None:
    for text in answer.warnings:
        print(f"warning: {text}", file=sys.stderr)


def _print(texts: Mapping[str, str], output: str) -> None:
    if output == "json":
        _print_json(dict(texts))
        return
    for key, value in texts.items():
        print(f"{key}={value}")


def _print_json(value: object) -> None:
    import json  # Imported here because only `-o json` pays for it.

    print(json.dumps(value, indent=2, ensure_ascii=False))
