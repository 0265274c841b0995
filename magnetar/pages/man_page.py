"""Makes `docs/man/magnetar.1`, the man page, from the table of commands and their parsers; `generate.py` writes it.

`ManFormatter` stands in for the formatter of `--help`: the same calls with the same actions become roff instead of
columns, so the page has the words of `--help` and is the same under every release of Python.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
from collections.abc import Iterator
from typing import Final
from unittest import mock

from magnetar import __version__
from magnetar.__main__ import COMMANDS, load
from magnetar.commands.bookie_command import RECOVERY, TOOLS
from magnetar.pages.help_collector import HelpCollector

HEAD: Final = f"""\
.\\" Written by `make generate` from the parsers of the commands.
.TH MAGNETAR 1 "" "magnetar {__version__}" "User Commands"
.SH NAME
magnetar \\- a Pulsar broker with its bookie, and clients for any Pulsar
.SH SYNOPSIS
.B magnetar
.I COMMAND
.RI [ OPTION ...]
.SH DESCRIPTION
Official Pulsar clients connect to the broker unmodified.
Settings are Pulsar's keys of
.IR broker.conf ;
.B magnetar config show \\-\\-origin
prints what holds and where it comes from.
"""
TAIL: Final = """\
.SH EXIT STATUS
.TP
.B 0
Done.
.TP
.B 1
Failed; one line on standard error says why.
.TP
.B 2
Wrong usage, or a setting that is not accepted.
.TP
.B 130
Interrupted.
.SH ENVIRONMENT
.TP
.I KEY\\fR, \\fIPULSAR_PREFIX_KEY
Override a key of the configuration file.
.TP
.B PULSAR_MEM
\\-XX:MaxDirectMemorySize in it is the size that defaults are shares of.
.TP
.B PULSAR_LOG_LEVEL
trace, debug, info (the default), warn, error or off.
.SH SEE ALSO
The documentation in the folder
.I docs
of the project.
"""
PARTS: Final = {
    "bookie": (["bookie"], *(["bookie", name] for name in (*TOOLS, *RECOVERY))),
    "admin": (["admin"], ["admin", "snapshot"], ["admin", "audit"]),
    "perf": (["perf", "produce"], ["perf", "consume"]),
}
"""Commands that find their actions without a parser: the words to ask for help instead."""


class _Helped(Exception):
    """A command was about to print the help of this parser."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__(parser.prog)
        self.parser = parser


class ManFormatter(HelpCollector):
    """Collects what `--help` would show of a parser, as roff."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._lines: list[str] = []

    def add_paragraph(self, text: str) -> None:
        """See HelpCollector."""
        self._lines += [".PP", escaped(text)]

    def add_row(self, action: argparse.Action, meaning: str) -> None:
        """See HelpCollector."""
        self._lines += [".TP", self._names(action), escaped(meaning) if meaning else "\\&"]

    def _names(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return f"\\fI{escaped(self._value(action))}\\fR"
        value = "" if action.nargs == 0 else f" \\fI{escaped(self._value(action))}\\fR"
        return ", ".join(f"\\fB{escaped(name)}\\fR" for name in action.option_strings) + value

    def _value(self, action: argparse.Action) -> str:
        if isinstance(action.metavar, str):
            return action.metavar
        if action.choices is not None:
            return "|".join(map(str, action.choices))
        return action.dest.upper() if action.option_strings else action.dest

    def format_help(self) -> str:
        """Returns the lines."""
        return "\n".join(self._lines)


def man_page() -> str:
    """Returns the page."""
    lines = [HEAD + ".SH COMMANDS"]
    for name, (_, text) in COMMANDS.items():
        lines += [".TP", f"\\fBmagnetar {escaped(name)}\\fR", escaped(text)]
    lines.append(".SH OPTIONS")
    for name in COMMANDS:
        for words in PARTS.get(name, ([name],)):
            lines += _command(words)
    return "\n".join(lines) + "\n" + TAIL


def _command(words: list[str]) -> Iterator[str]:
    """Yields the part of one command and of those below it."""
    shown = help_of(words)
    title = " ".join(["magnetar", *words])
    if isinstance(shown, str):
        yield f'.SS "{escaped(title)}"'
        yield from (".nf", escaped(shown), ".fi")
        return
    yield from _parser(title, shown)


def _parser(title: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = ManFormatter(title)

    def made(*, prog: str) -> ManFormatter:
        return formatter

    parser.formatter_class = made
    text = parser.format_help()
    yield f'.SS "{escaped(title)}"'
    yield text
    for name, below in formatter.subparsers.items():
        yield from _parser(f"{title} {name}", below)


def help_of(words: list[str]) -> argparse.ArgumentParser | str:
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


def escaped(text: str) -> str:
    """Returns text that roff shows as it is: backslashes, hyphens, and lines that begin like a request."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", plain, flags=re.M).replace("…", "...")
