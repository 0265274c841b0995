"""Makes `docs/reference/commands.md` from the parsers of the commands; `generate.py` writes it.

The page has the words of `--help`, as the man page has (`man_page.py`), and is the same under every release of Python.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from magnetar.__main__ import COMMANDS
from magnetar.pages.help_collector import HelpCollector
from magnetar.pages.man_page import PARTS, help_of

INTRODUCTION: Final = """\
# Commands

Written by `make generate` from the parsers of the commands, so it has the words of `--help`. `man magnetar` has the same
where the wheel is installed. [Commands of `magnetar admin`](admin_commands.md) has the groups of pulsar-admin.

Exit codes: 0 done, 1 failed with a line that says why, 2 wrong usage or a setting that is not accepted, 130 interrupted.
"""


class MarkdownFormatter(HelpCollector):
    """Collects what `--help` would show of a parser: paragraphs, and rows of a table."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self.paragraphs: list[str] = []
        """Descriptions, in their order."""
        self.rows: list[str] = []
        """A row for each option or positional argument."""

    def add_paragraph(self, text: str) -> None:
        """See HelpCollector."""
        self.paragraphs.append(_plain(text))

    def add_row(self, action: argparse.Action, meaning: str) -> None:
        """See HelpCollector."""
        self.rows.append(f"| {_names(action)} | {_plain(meaning)} |")

    def format_help(self) -> str:
        """Returns nothing: the parts are taken one by one."""
        return ""


def _names(action: argparse.Action) -> str:
    value = _value(action)
    if not action.option_strings:
        return f"`{value}`"
    shown = "" if action.nargs == 0 else f" {value}"
    return ", ".join(f"`{name}{shown}`" for name in action.option_strings)


def _value(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    if action.choices is not None:
        # A bar would end the cell of the table.
        return "/".join(map(str, action.choices))
    return action.dest.upper() if action.option_strings else action.dest


def _plain(text: str) -> str:
    """Returns text for a paragraph or a cell: one line, and nothing that Markdown would take for markup."""
    words = " ".join(text.split())
    for mark in ("\\", "|", "*", "_", "<", "["):
        words = words.replace(mark, "\\" + mark)
    return words


def commands_page() -> str:
    """Returns the page."""
    lines = [INTRODUCTION, "| command | what it does |\n|---|---|"]
    lines += [
        f"| [`magnetar {name}`](#magnetar-{name}) | {_plain(text)} |" for name, (_, text) in COMMANDS.items()
    ]
    for name, (_, text) in COMMANDS.items():
        parts = PARTS.get(name, ([name],))
        if [name] not in parts:  # `magnetar perf` has no help of its own.
            lines.append(f"{_heading(f'magnetar {name}')}\n\n{_plain(text)}")
        for words in parts:
            lines += _command(words)
    return "\n".join(lines) + "\n"


def _command(words: list[str]) -> Iterator[str]:
    """Yields the part of one command and of those below it."""
    shown = help_of(words)
    title = " ".join(["magnetar", *words])
    if isinstance(shown, str):
        yield f"{_heading(title)}\n\n```\n{shown}\n```"
        return
    yield from _parser(title, shown)


def _parser(title: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = MarkdownFormatter(title)

    def made(*, prog: str) -> MarkdownFormatter:
        return formatter

    parser.formatter_class = made
    parser.format_help()
    yield _heading(title)
    yield from (f"\n{paragraph}" for paragraph in formatter.paragraphs)
    if formatter.rows:
        yield "\n| argument | meaning |\n|---|---|"
        yield from formatter.rows
    for name, below in formatter.subparsers.items():
        yield from _parser(f"{title} {name}", below)


def _heading(title: str) -> str:
    """Returns the heading: the second level for a command, the third for its actions."""
    return f"\n{'##' if title.count(' ') == 1 else '###'} {title}"
