"""Reads the help of each command from its parser, as parts that a page formats: descriptions and arguments.

A collector takes the place of argparse's formatter and is called as that one is. So each page has the words of `--help`,
and is the same under every release of Python.
"""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple
from unittest import mock

from magnetar.__main__ import load
from magnetar.commands.bookie_command import RECOVERY, TOOLS

PARTS: Final = {
    "bookie": (["bookie"], *(["bookie", name] for name in (*TOOLS, *RECOVERY))),
    "admin": (["admin"], ["admin", "snapshot"], ["admin", "audit"]),
    "perf": (["perf", "produce"], ["perf", "consume"]),
}
"""Commands that find their actions without a parser: the words to ask for help instead."""


class Argument(NamedTuple):
    """One option or positional argument."""

    flags: tuple[str, ...]
    """Names of the option, such as `-n`; empty for a positional argument."""
    value: str
    """The name of its value, or its choices between bars; empty for a flag."""
    meaning: str
    """Empty where the parser gives none."""


class CommandHelp(NamedTuple):
    """The help of one command or action."""

    title: str
    """Its words, `magnetar` first."""
    parts: list[str | Argument]
    """Descriptions and arguments in the order of `--help`."""
    text: str = ""
    """All that it prints, for a command that has no parser of argparse."""


def help_of(name: str) -> Iterator[CommandHelp]:
    """Yields the help of a command, then that of each action below it."""
    for words in PARTS.get(name, ([name],)):
        title = " ".join(["magnetar", *words])
        found = _parser_or_text(words)
        if isinstance(found, str):
            yield CommandHelp(title, [], found)
        else:
            yield from collected(title, found)


def collected(title: str, parser: argparse.ArgumentParser) -> Iterator[CommandHelp]:
    """Yields the help of a parser, then that of each parser below it."""
    collector = _Collector(title)

    def made(*, prog: str) -> _Collector:
        return collector

    parser.formatter_class = made
    parser.format_help()
    yield CommandHelp(title, collector.parts)
    for name, below in collector.subparsers.items():
        yield from collected(f"{title} {name}", below)


class _Collector(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self.parts: list[str | Argument] = []
        self.subparsers: dict[str, argparse.ArgumentParser] = {}

    def start_section(self, heading: str | None) -> None:
        """Ignores a group: an option says enough of itself."""

    def end_section(self) -> None:
        """Ignores the end of a group."""

    def add_text(self, text: str | None) -> None:
        """Adds a description."""
        if text:
            self.parts.append(text % {"prog": self._prog})

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[object],
        prefix: str | None = None,
    ) -> None:
        """Adds nothing: the arguments repeat it."""

    def add_argument(self, action: argparse.Action) -> None:
        """Adds an argument, or notes the parsers of actions; leaves out the option of the help itself."""
        if action.help == argparse.SUPPRESS or action.dest == "help":
            return
        choices = action.choices if isinstance(action.choices, Mapping) else {}
        parsers = {name: one for name, one in choices.items() if isinstance(one, argparse.ArgumentParser)}
        if parsers:
            self.subparsers.update(parsers)
            return
        meaning = self._expand_help(action) if action.help else ""
        self.parts.append(Argument(tuple(action.option_strings), _value(action), meaning))

    def format_help(self) -> str:
        """Returns nothing: the parts are taken one by one."""
        return ""


def _value(action: argparse.Action) -> str:
    if action.option_strings and action.nargs == 0:
        return ""
    if isinstance(action.metavar, str):
        return action.metavar
    if action.choices is not None:
        return "|".join(map(str, action.choices))
    return action.dest.upper() if action.option_strings else action.dest


class _Helped(Exception):
    """A command was about to print the help of this parser."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__(parser.prog)
        self.parser = parser


def _parser_or_text(words: list[str]) -> argparse.ArgumentParser | str:
    """Returns the parser that answers `--help` of a command; its text for one that has no parser of argparse."""
    printed = io.StringIO()

    def caught(parser: argparse.ArgumentParser, file: object = None) -> None:
        raise _Helped(parser)

    with (
        mock.patch.object(argparse.ArgumentParser, "print_help", caught),
        contextlib.redirect_stdout(printed),
    ):
        try:
            load(words[0])([*words[1:], "--help"])
        except _Helped as helped:
            return helped.parser
        except SystemExit:
            pass  # `magnetar admin` prints a text of its own and ends so.
    return printed.getvalue().rstrip()
