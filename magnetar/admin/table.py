"""Reads `commands.tsv`, the table of pulsar-admin's commands: words, request, arguments, options, body."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Option(NamedTuple):
    """One option of a command."""

    flags: tuple[str, ...]
    """Its names, such as `--force` and `-f`."""
    kind: str
    """The form of its value; `values.py` has the list."""
    required: bool = False
    """True where pulsar-admin refuses the command without it."""
    default: str = ""
    """The text that holds without the option; empty = no value."""

    @property
    def name(self) -> str:
        """Its longest name without dashes, which the row uses for the value."""
        return max(self.flags, key=len).lstrip("-")

    @property
    def takes_text(self) -> bool:
        """False for a flag."""
        return self.kind not in ("flag", "given", "on", "off") and not self.replaces

    @property
    def replaces(self) -> str:
        """The value that this flag sets to its default, of the kind `flag>NAME`; empty for another option."""
        return self.kind.partition(">")[2]


class Command(NamedTuple):
    """One command; `method` is empty where it is not built."""

    group: str
    """The first word, such as `topics`."""
    name: str
    """The second word, such as `list`."""
    method: str = ""
    """`GET`, `PUT`, `POST` or `DELETE`; `NONE` for a command that asks no broker."""
    path: str = ""
    """Path and query with names in braces, or alternatives (`requests.chosen`)."""
    arguments: tuple[str, ...] = ()
    """Names of the words that are no options."""
    options: tuple[Option, ...] = ()
    """The options, in pulsar-admin's order."""
    body: str = ""
    """JSON of the body, with `$name` for values; empty = no body. `requests.body_of` reads it."""

    member: str = ""
    """The member of the answer that is printed; empty = all of it."""
    handler: str = ""
    """The function of `handlers.py` that does more than one plain request; empty = none."""

    @property
    def built(self) -> bool:
        """True where the command can run."""
        return bool(self.method)


@cache
def commands() -> dict[str, dict[str, Command]]:
    """Returns all commands by group and name."""
    found: dict[str, dict[str, Command]] = {}
    for command in _rows():
        found.setdefault(command.group, {})[command.name] = command
    return found


def _rows() -> Iterator[Command]:
    text = Path(__file__).with_name("commands.tsv").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        group, name, *rest = line.split("\t")
        if not rest:
            yield Command(group, name)
            continue
        method, path, arguments, options, body, *handler = rest
        parsed = tuple(map(_option, options.split()))
        path, _, member = path.partition("#")
        yield Command(group, name, method, path, tuple(arguments.split()), parsed, body, member, *handler)


def _option(text: str) -> Option:
    flags, _, rest = text.partition(":")
    kind, _, default = rest.partition("=")
    return Option(tuple(flags.split("/")), kind.rstrip("!"), kind.endswith("!"), default)
