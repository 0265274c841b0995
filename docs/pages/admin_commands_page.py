"""Makes `docs/reference/admin_commands.md`: pulsar-admin's commands, built or not; `generate.py` writes it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Final

from magnetar.admin.table import Command, commands

INTRODUCTION: Final = """\
# Commands of `magnetar admin`

Written by `make generate` from `magnetar/admin/commands.tsv`, which has all commands of Apache's `pulsar-admin` 4.0.8,
hidden ones included. Words and flags are pulsar-admin's. `magnetar admin GROUP COMMAND --help` shows the flags that are
built; any other flag is refused. A command that is not built ends with one line and exit code 2.
[How to use them](../how-to/administer.md).
"""


def admin_commands_page() -> str:
    """Returns the page."""
    every = [command for group in commands().values() for command in group.values()]
    built = sum(command.built for command in every)
    return "\n".join(
        [
            INTRODUCTION,
            f"## Built ({built} of {len(every)})\n",
            *_list(commands(), built=True),
            f"\n## Not built ({len(every) - built})\n",
            *_list(commands(), built=False),
            "",
        ]
    )


def _list(groups: Mapping[str, Mapping[str, Command]], *, built: bool) -> Iterator[str]:
    for group, found in groups.items():
        names = ", ".join(f"`{name}`" for name, command in found.items() if command.built is built)
        if names:
            text = f"* **{group}**: {names}"
            yield textwrap.fill(text, 110, subsequent_indent="  ", break_on_hyphens=False)
