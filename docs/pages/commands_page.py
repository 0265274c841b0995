"""Makes `docs/reference/commands.md` from the parsers of the commands; `generate.py` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from docs.pages.command_help import Argument, CommandHelp, help_of
from magnetar.__main__ import COMMANDS

INTRODUCTION: Final = """\
# Commands

Written by `make generate` from the parsers of the commands, so it has the words of `--help`. `man magnetar` has the same
where the wheel is installed. [Commands of `magnetar admin`](admin_commands.md) has the groups of pulsar-admin.

Exit codes: 0 done, 1 failed with a line that says why, 2 wrong usage or a setting that is not accepted, 130 interrupted.
"""


def commands_page() -> str:
    """Returns the page."""
    lines = [INTRODUCTION, "| command | what it does |\n|---|---|"]
    lines += [
        f"| [`magnetar {name}`](#magnetar-{name}) | {_plain(text)} |" for name, (_, text) in COMMANDS.items()
    ]
    for name, (_, text) in COMMANDS.items():
        found = list(help_of(name))
        if found[0].title != f"magnetar {name}":  # `magnetar perf` has no help of its own.
            lines.append(f"{_heading(f'magnetar {name}')}\n\n{_plain(text)}")
        for one in found:
            lines += _chapter(one)
    return "\n".join(lines) + "\n"


def _chapter(found: CommandHelp) -> Iterator[str]:
    """Yields the descriptions of one command, then a table of its arguments."""
    yield _heading(found.title)
    if found.text:
        yield f"\n```\n{found.text}\n```"
    yield from (f"\n{_plain(part)}" for part in found.parts if isinstance(part, str))
    arguments = [part for part in found.parts if isinstance(part, Argument)]
    if arguments:
        yield "\n| argument | meaning |\n|---|---|"
        yield from (f"| {_names(one)} | {_plain(one.meaning)} |" for one in arguments)


def _names(argument: Argument) -> str:
    # A bar would end the cell of the table.
    value = argument.value.replace("|", "/")
    if not argument.flags:
        return f"`{value}`"
    return ", ".join(f"`{name} {value}`" if value else f"`{name}`" for name in argument.flags)


def _plain(text: str) -> str:
    """Returns text for a paragraph or a cell: one line, without characters that Markdown takes for markup."""
    words = " ".join(text.split())
    for mark in ("\\", "|", "*", "_", "<", "["):
        words = words.replace(mark, "\\" + mark)
    return words


def _heading(title: str) -> str:
    """Returns the heading: the second level for a command, the third for its actions."""
    return f"\n{'##' if title.count(' ') == 1 else '###'} {title}"
