"""The table of `magnetar admin`, compared with pulsar-admin's commands and with Pulsar's routes."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from broker.admin.http.pulsar_routes import path_shapes, pulsar_routes
from magnetar.admin.table import commands
from magnetar.commands.admin_command import main

PARTS = {
    "{topic}": "persistent/{tenant}/{namespace}/{topic}",
    "{namespace}": "{tenant}/{namespace}",
    "{schema}": "{tenant}/{namespace}/{topic}",
    "{topic-domain}": "persistent",
    "{functions}": "{tenant}/{namespace}",
    "{function}": "{tenant}/{namespace}/{name}",
    "{package-name}": "{type}/{tenant}/{namespace}/{name}",
    "{package}": "{type}/{tenant}/{namespace}/{name}/{version}",
}
GROUPS = sorted(commands())
"""Names of the groups."""
ELSEWHERE = {
    # A request of Pulsar 1, which no broker of today has.
    "namespaces list-cluster",
    # Requests to Pulsar's proxy.
    "proxy-stats connections",
    "proxy-stats topics",
}
"""Commands that ask for no route of a broker, as in pulsar-admin."""
OURS = {("transactions", "abort-role-transactions")}
"""Commands that pulsar-admin lacks."""
NOT_BUILT = {
    ("functions", "localrun"),
    ("sinks", "localrun"),
    ("sources", "localrun"),
    ("schemas", "extract"),
}
"""Commands that need a Java machine."""
OTHER_FLAGS = {
    # Deletes all that a cluster has.
    ("clusters", "delete", "--all/-a"),
    # pulsar-admin takes the word `regex` too, without dashes.
    ("topics", "delete", "-r/regex"),
}
"""Options of pulsar-admin that are not built."""


@cache
def shapes() -> set[tuple[str, str]]:
    """Method and path of each route of Pulsar; names are left out."""
    return {
        (route.method, re.sub(r"\{[^{}]*\}", "{}", one))
        for route in pulsar_routes()
        for one in (route.path, *path_shapes(route.path))
    }


@pytest.mark.parametrize("group", GROUPS)
def test_request_of_every_command_is_one_of_pulsar(group: str) -> None:
    unknown = []
    for command in commands()[group].values():
        for path in command.path.split(" || ") if command.method not in ("", "NONE") else ():
            parts = path.rpartition("? ")[2].strip("/").partition("?")[0].split("/")
            shape = "/" + re.sub(r"\{[^{}]*\}", "{}", "/".join(PARTS.get(part, part) for part in parts))
            # Names without a value are left out.
            ending = {shape, shape.replace("/{}/clearBacklog", "/clearBacklog")}
            ending.add(shape.replace("/persistent/", "/{}/"))
            if not any((command.method, one) in shapes() for one in ending):
                unknown.append(f"{group} {command.name}")
    assert set(unknown) <= ELSEWHERE | {" ".join(command) for command in OURS}


def facts() -> list[list[str]]:
    text = Path(__file__).with_name("pulsar_admin_commands.tsv").read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines() if not line.startswith("#")]


def test_commands_are_those_of_pulsar_admin() -> None:
    assert {(one.group, one.name) for group in commands().values() for one in group.values()} == {
        (group, name) for group, name, *_ in facts()
    } | OURS
    assert {
        (one.group, one.name) for group in commands().values() for one in group.values() if not one.built
    } == NOT_BUILT


@pytest.mark.parametrize("group", GROUPS)
def test_flags_of_every_command_are_those_of_pulsar_admin(group: str) -> None:
    for name, words, options in (fact[1:] for fact in facts() if fact[0] == group):
        command = commands()[group][name]
        if not command.built:
            continue
        wanted = {option.rstrip("!").rstrip("="): "=" in option for option in options.split()}
        required = {option.rstrip("!").rstrip("=") for option in options.split() if option.endswith("!")}
        found = {"/".join(sorted(one.flags)): one for one in command.options}
        assert {(group, name, flags) for flags in wanted.keys() - found.keys()} <= OTHER_FLAGS
        assert found.keys() - wanted.keys() <= {"-r"}, name
        assert all(found[flags].takes_text == text for flags, text in wanted.items() if flags in found), name
        # `--force` is the only way to say yes: here no command asks a question.
        asked = {flags for flags, one in found.items() if one.required and flags != "--force/-force"}
        assert asked == required, name
        assert len(command.arguments) == int(words), name


@pytest.mark.parametrize("group", GROUPS)
def test_every_command_has_help(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in commands()[group].values():
        if command.built:
            with pytest.raises(SystemExit) as stopped:
                main([group, command.name, "--help"])
            assert stopped.value.code == 0
            assert f"magnetar admin {group} {command.name}" in capsys.readouterr().out
